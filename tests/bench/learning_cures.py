"""How soon a failure that comes again is cured, with the memory of failures and without: `make bench-learning`.

The model, plainly. Without memory a cure takes as long as the recorded history says that environments and
builds took by hand. With it, each change that the memory suspects is tried, the one that came with most
cures first, each as long as the history says that the same took by a pattern; where none of them is the cause,
the time by hand comes on top. Known again is what `signatures` makes the same of texts whose paths, addresses
and numbers differ. One failure in `ANOTHER` has the same words and another cause (the last row: never); between
a failure and its cure other facts change too, with the chance `ALSO` each.
"""

import datetime
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from loop.learning.failures import remembered
from loop.model.history import History, by_hand
from loop.model.index import Environment, FailureSeen, SessionRow, StepRun
from loop.store.fingerprints import fingerprint

EPISODES = 14
"""Failures in a sequence."""
ANOTHER = 12
ALSO = 0.1
CAUSES = ("torch", "nvcc", "compiler", "sources", "driver", "threads")
START = datetime.datetime(2026, 1, 5, 9, 0, tzinfo=datetime.UTC)
TEXTS = (
    "{path}/kernel.so: undefined symbol: _ZN2at6detail20nested_intE",
    "ImportError: {path}/_C.so: undefined symbol: _ZNK3c1010TensorImpl4sizeEv (pid {n})",
    '{path}/attention.cu({n}): error: identifier "__hfma2_relu" is undefined',
    "RuntimeError: CUDA error: no kernel image is available for execution on the device ({path}, line {n})",
    "cpu on B{n} H8 S{n} D64: wrong, {n} elements, first at row {n}",
    "/usr/bin/ld: {path}/x{n}.o: undefined reference to `split_k_combine'",
    "RuntimeError: The NVIDIA driver on your system is too old (found version {n}) at {path}",
    "killed after {n} s: {path} did not end",
)


@dataclass
class Cures:
    """What came of failures that had been cured before."""

    by_hand: list[float] = field(default_factory=list)
    remembered: list[float] = field(default_factory=list)
    known: int = 0
    right: int = 0


@dataclass
class Place:
    """The facts of a machine and a target, as numbers that go up."""

    facts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CAUSES, 1))

    def row(self, number: int, failures: tuple[FailureSeen, ...] = ()) -> SessionRow:
        """A session of here and now."""
        known = self.facts
        return SessionRow(
            id=f"s{number:03}",
            started=START + datetime.timedelta(hours=number),
            target="simulated",
            plan="simulated",
            device="cuda",
            status="failed" if failures else "passed",
            variants=("cpu",),
            threads=known["threads"],
            ground=f"files {known['sources']}",
            environment=Environment(
                processor="x",
                gpu="NVIDIA L4",
                driver=f"550.{known['driver']}",
                cuda=f"12.{known['nvcc']}",
                torch=f"2.{known['torch']}",
                compiler=f"g++ {known['compiler']}",
            ),
            steps=(StepRun(pattern="p", step="s", status="failed" if failures else "passed", seconds=1.0),),
            failures=failures,
        )


def sequence(
    chance: random.Random, slow: Sequence[float], quick: Sequence[float], found: Cures, another: int | None
) -> None:
    """One project's failures, each cured in the end; one in `another` has another cause."""
    usual = {text: chance.choice(CAUSES) for text in chance.sample(TEXTS, 4)}
    place, rows, met = Place(), list[SessionRow](), set[str]()
    for number in range(EPISODES):
        text = chance.choice(list(usual))
        cause = usual[text]
        if another is not None and chance.randrange(another) == 0:
            cause = chance.choice(CAUSES)
        failure = _failure(text, chance)
        if text in met:
            _cure(rows, failure, cause, chance, slow, quick, found)
        met.add(text)
        rows.append(place.row(2 * number, (failure,)))
        for fact in CAUSES:
            place.facts[fact] += fact == cause or chance.random() < ALSO
        rows.append(place.row(2 * number + 1))


def _failure(text: str, chance: random.Random) -> FailureSeen:
    path = f"/tmp/{chance.choice(('build', 'w', 'x1'))}/{chance.randrange(1 << 32):08x}"
    said = text.format(path=path, n=chance.randrange(10, 4000))
    known = fingerprint(said)
    return FailureSeen(text=known.text, key=known.key, pattern="p", step="s", message=said)


def _cure(
    rows: Sequence[SessionRow],
    failure: FailureSeen,
    cause: str,
    chance: random.Random,
    slow: Sequence[float],
    quick: Sequence[float],
    found: Cures,
) -> None:
    """The minutes of one cure, by hand and by memory."""
    alone = chance.choice(slow)
    memory = remembered(rows, failure.key)
    offered = [name for name, _ in memory.suspects if name in CAUSES] if memory else []
    tries = [chance.choice(quick) for _ in offered]
    right = cause in offered
    spent = sum(tries[: offered.index(cause) + 1]) if right else sum(tries) + alone
    found.by_hand.append(alone)
    found.remembered.append(spent)
    found.known += memory is not None
    found.right += right


def minutes_of(history: History) -> tuple[list[float], list[float]]:
    """Minutes that environments and builds took by hand, and by a pattern."""
    places = [one.environment for one in history.sessions if one.environment and one.environment.minutes]
    hand = [one.minutes for one in places if by_hand(one) and one.minutes]
    hand += [minutes for minutes in history.debugging_build_minutes.values() if minutes]
    steps = [step for steps in history.steps.values() for step in steps if step["step"] == "build extension"]
    pattern = [one.minutes for one in places if not by_hand(one) and one.minutes]
    return hand, pattern + [step["actual_s"] / 60 for step in steps[-1:]]


def cure_lines(history: History, count: int) -> Iterator[str]:
    """The section of LEARNING.md."""
    slow, quick = minutes_of(history)
    yield "## Time to cure a failure that came before\n"
    yield (
        " ".join((__doc__ or "").partition("The model, plainly. ")[2].split())
        .replace("`ANOTHER`", str(ANOTHER))
        .replace("`ALSO`", f"{ALSO:g}")
    )
    yield "\n| another cause | came again | known again | cause is offered | by hand | remembered | less |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for another in (ANOTHER, None):
        found = Cures()
        for seed in range(10 * count):
            sequence(random.Random(f"cures {seed}"), slow, quick, found, another)
        yield _row(found, f"one in {another}" if another else "never")
    yield "\n" + recorded_cures(history)


def _row(found: Cures, title: str) -> str:
    total = len(found.by_hand)
    off, on = sum(found.by_hand) / total, sum(found.remembered) / total
    known, right = 100 * found.known / total, 100 * found.right / total
    return (
        f"| {title} | {total} | {known:.1f} % | {right:.1f} % | {off:.1f} min | {on:.1f} min | "
        f"**{100 * (1 - on / off):.0f} %** |"
    )


def recorded_cures(history: History) -> str:
    """The same failure in the recorded history itself: an environment that did not work."""
    rows = [(one.id, one.environment) for one in history.sessions if one.environment and one.environment.minutes]
    hand = [(name, known.minutes or 0.0) for name, known in rows if by_hand(known)]
    after = [(name, known.minutes or 0.0) for name, known in rows if not by_hand(known)]
    again = hand[1:]
    mean = sum(minutes for _, minutes in again) / len(again)
    kept = sum(minutes for _, minutes in after) / len(after)
    words = ", ".join(f"{name} {minutes:g} min" for name, minutes in (*hand, *after))
    return (
        f"In the recorded history the environment broke again and again: {words}. From its second time on it took "
        f"{mean:.1f} min by hand and {kept:g} min once the cure was a pattern: {100 * (1 - kept / mean):.0f} % "
        "less."
    )
