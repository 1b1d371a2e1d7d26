"""A world of sessions for `make bench-learning`: how long things take in it is nothing like what the rules
assume.

Estimates are off by factors drawn from what the recorded history states of its own steps. Times are a gamma
variable, one in twelve disturbed by a Pareto tail, times a load that the patterns of a session share and that
is at times twice as high. Machines differ, toolchains are upgraded, speeds drift, caches are cold when files
have changed and now and then when nobody could know. None of this is log-normal, and no parameter of it is one
of the rules'.
"""

import datetime
import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace

from loop.model.history import History
from loop.model.index import Environment, PatternRun, SessionRow, StepRun
from loop.model.pattern import Pattern
from loop.model.plan import Predicted

START = datetime.datetime(2026, 1, 5, 9, 0, tzinfo=datetime.UTC)
SHAPE = 40.0
"""Of the gamma variable: it scatters by 16 %."""
DISTURBED, TAIL = 1 / 12, 1.8
"""How often a run is disturbed, and the exponent of the tail it is stretched by."""
LOADED = 0.06
"""How often a machine is twice as slow for a whole session."""
CHANGED = 0.3
"""How often the files have changed since the session before."""
EVICTED = 0.04
"""How often a cache that should be warm is cold."""
COMPILE = (6.0, 18.0)
"""Times as long a pattern that compiles takes with a cold cache."""
PROCESSORS = ("AMD EPYC 7B13", "Intel Xeon 2.20GHz", "AMD Ryzen 7")


@dataclass(frozen=True)
class Weather:
    """What happens to a sequence of sessions."""

    title: str
    drift: float = 0.0
    """Change of speed from one session to the next."""
    upgrade: float = 1.0
    """Factor on all times from the middle of the sequence on, with another torch ..."""
    silent: bool = False
    """... or with nothing on record."""
    machines: int = 1
    other_work: float = 0.0
    """How often a session is about other variants, which take four times as long."""
    bias: Callable[[random.Random, Sequence[float]], float] = lambda chance, ratios: chance.choice(ratios)
    """How far an estimate is off."""


@dataclass
class World:
    """One sequence of sessions of one plan."""

    patterns: Sequence[Pattern]
    ratios: Sequence[float]
    weather: Weather
    chance: random.Random
    base_s: dict[str, float] = field(default_factory=dict)
    compile_times: float = 1.0
    machines: list[tuple[str, float]] = field(default_factory=list)
    files: int = 0

    def __post_init__(self) -> None:
        for one in self.patterns:
            bias = self.weather.bias(self.chance, self.ratios)
            self.base_s[one.name] = 60 * one.estimate.minutes * bias
        self.compile_times = self.chance.uniform(*COMPILE)
        speeds = [1.0, 0.55, 1.7]
        self.machines = list(zip(PROCESSORS, speeds, strict=True))[: self.weather.machines]

    def sessions(self, count: int) -> Generator[SessionRow, Predicted, None]:
        """So many sessions, oldest first: each as it is planned, then, its prediction sent back, as it went."""
        built: set[object] = set()
        for number in range(count):
            row, loads = self._planned(number, count)
            predicted = yield row
            key = row.ground, row.variants, row.environment.processor, row.environment.torch
            cold = key not in built or self.chance.random() < EVICTED
            built.add(key)
            yield self._run(row, loads, cold).model_copy(update={"predicted": predicted})

    def _planned(self, number: int, count: int) -> tuple[SessionRow, float]:
        """What is known of a session before it runs, and how slow its world is."""
        weather, chance = self.weather, self.chance
        processor, slow = chance.choice(self.machines)
        later = number >= count // 2
        self.files += number == 0 or chance.random() < CHANGED
        other = chance.random() < weather.other_work
        slow *= (1 + weather.drift) ** number * (weather.upgrade if later else 1.0) * (4.0 if other else 1.0)
        slow *= chance.uniform(0.92, 1.15) * (2.0 if chance.random() < LOADED else 1.0)
        upgraded = later and weather.upgrade != 1.0 and not weather.silent
        return (
            SessionRow(
                id=f"s{number:03}",
                started=START + datetime.timedelta(hours=7 * number),
                target="simulated",
                plan="simulated",
                device="cpu",
                status="passed",
                variants=("wide",) if other else ("cpu",),
                workloads=("history",),
                ground=f"files {self.files}",
                environment=Environment(processor=processor, torch="2.9" if upgraded else "2.8"),
            ),
            slow,
        )

    def _run(self, row: SessionRow, slow: float, cold: bool) -> SessionRow:
        runs, steps = [], []
        for one in self.patterns:
            compiles = any(step.action == "kernel.build" for step in one.steps)
            seconds = (
                self.base_s[one.name] * slow * self._noise() * (self.compile_times if compiles and cold else 1)
            )
            runs.append(
                PatternRun(
                    pattern=one.name,
                    status="passed",
                    seconds=seconds,
                    started=row.started,
                    whole=True,
                    built=compiles and cold,
                )
            )
            share = seconds / len(one.steps)
            steps += [StepRun(pattern=one.name, step=s.id, status="passed", seconds=share) for s in one.steps]
        total = sum(run.seconds for run in runs)
        ended = {"runs": tuple(runs), "steps": tuple(steps), "seconds": total, "complete": True}
        return row.model_copy(update=ended)

    def _noise(self) -> float:
        noise = self.chance.gammavariate(SHAPE, 1 / SHAPE)
        if self.chance.random() < DISTURBED:
            noise *= self.chance.paretovariate(TAIL)
        return noise


def stated_ratios(history: History) -> list[float]:
    """Actual over target of every step and session of a history that states both."""
    steps = [step for steps in history.steps.values() for step in steps]
    found = [step["actual_s"] / step["target_s"] for step in steps]
    return found + [one.minutes / one.target_minutes for one in history.sessions if one.target_minutes]


def good_guess(chance: random.Random, ratios: Sequence[float]) -> float:
    """An author who knows the machine: within 30 %."""
    return chance.uniform(0.7, 1.3)


WEATHERS = (
    Weather("steady"),
    Weather("three machines, other work one time in four", machines=3, other_work=0.25),
    Weather("slower by 2 % a session", drift=0.02),
    Weather("upgrade to 1.6 times, on record", upgrade=1.6),
    Weather("upgrade to 1.6 times, silent", upgrade=1.6, silent=True),
    replace(Weather("steady, estimates within 30 %"), bias=good_guess),
)
