"""`loop cost keep-or-stop|pivot`: both sides of a decision, in money."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loop.base.documents import to_json
from loop.base.errors import ExitCode, UsageError
from loop.base.places import Project, project
from loop.base.screen import Screen
from loop.library.definitions import read_file
from loop.library.histories import histories
from loop.library.rates import rates
from loop.library.targets import target as read_target
from loop.machine.gpus import gpus
from loop.model.dtypes import Device
from loop.model.index import SessionRow
from loop.model.money import HIGHEST_USD_PER_HOUR, RateCard
from loop.money import keep_or_stop as keeping
from loop.money import pivot as pivoting
from loop.money.answers import KeptOrStopped, Pivoted, RecordedPivot, RecordedPivots, RecordedStop, RecordedStops
from loop.money.charging import gpu_rate, no_price
from loop.money.model import KeepOrStop, Option, Options, Restart, StopCost, Waiting
from loop.money.section import pivot_lines, sides
from loop.store import index

WHO: tuple[Waiting, ...] = ("nobody", "agent", "engineer")
GIVE = "give what a stop costs (--stop-cost-usd), or how long a restart takes (--restart-minutes)"


@dataclass(frozen=True)
class KeepRequest:
    """What the user knows of the gap that follows."""

    idle_hours: float | None = None
    gpu_usd_per_hour: float | None = None
    """None: the rate card's."""
    stop_cost_usd: str | None = None
    """Dollars or a range of them, `0.80..1.20`; None: from the restart."""
    restart_minutes: str | None = None
    """Minutes or a range of them; None: as this project's sessions measured it."""
    waiting: str | None = None
    recorded: bool = False
    """The recorded history's decisions instead."""
    target: Path | None = None
    json: bool = False


def keep_or_stop(request: KeepRequest, screen: Screen) -> int:
    """Both sides, the break-even and the decision; the exit code says nothing of which it is."""
    if request.recorded:
        return _recorded(screen, as_json=request.json)
    if request.idle_hours is None:
        raise UsageError("for how long will the GPU idle?", hint="loop cost keep-or-stop --idle-hours 5")
    here = project(request.target, Path.cwd())
    card = rates(here)
    idle = amount("--idle-hours", request.idle_hours)
    rate = _rate(request.gpu_usd_per_hour, card, here)
    stop = _stop(request, here, card, rate)
    weighed = keeping.decide(idle, rate, stop)
    if request.json:
        screen.data(to_json(KeptOrStopped(stop=stop, **dict(weighed))))
    else:
        _show((keeping.sentence(weighed), *sides(stop, rate)), screen)
    return ExitCode.OK


def _recorded(screen: Screen, *, as_json: bool) -> int:
    """The recorded history's decisions to keep a GPU, each with both sides and what the money says of it."""
    rows = [row for history in histories() for row in history.decisions]
    weighed = [(row, _as_recorded(row)) for row in rows if "idle_hours" in row and "stop_cost_usd" in row]
    if as_json:
        told = tuple(RecordedStop(session=row["id"], decided=row["decided"], **dict(one)) for row, one in weighed)
        screen.data(to_json(RecordedStops(decisions=told)))
    else:
        says = [(row["id"], keeping.agrees(row["decided"], one)) for row, one in weighed]
        screen.table(("session", "decided, and what the money says"), says)
    return ExitCode.OK


def _as_recorded(row: dict[str, Any]) -> KeepOrStop:
    low, high = row["stop_cost_usd"]
    stop = StopCost(low_usd=low, high_usd=high, source="as recorded")
    return keeping.decide(row["idle_hours"], row["gpu_usd_per_hour"], stop)


def amount(option: str, value: float, highest: float = 1e6) -> float:
    """A number from 0 on. Raises LoopError for anything else."""
    if not (math.isfinite(value) and 0 <= value < highest):
        raise UsageError(f"{option} {value:g}: expected a number from 0 to {highest:g}", hint=f"{option} 5")
    return value


def amounts(option: str, text: str) -> tuple[float, float]:
    """`0.80` or `0.80..1.20` as two numbers. Raises LoopError for anything else."""
    parts = text.split("..")
    try:
        low, high = (float(part) for part in (parts * 2 if len(parts) == 1 else parts))
    except ValueError as error:
        example = f"{option} 0.80, or a range: {option} 0.80..1.20"
        raise UsageError(f"{option} {text!r}: expected a number, or two with .. between", hint=example) from error
    if amount(option, low) > amount(option, high):
        raise UsageError(
            f"{option} {text}: the smaller number comes first", hint=f"{option} {parts[1]}..{parts[0]}"
        )
    return low, high


def _rate(given: float | None, card: RateCard, here: Project) -> float:
    """Dollars an hour, as given, else the card's of the GPU at hand, or of the last session's where none is.

    Raises UsageError where the card's rate is another GPU's: with the prices that it has of this one.
    """
    if given is None:
        first = gpus().first
        seen = [
            row.environment.gpu for row in index.rows(here.sessions, last=index.LOOKED_BACK) if not row.recorded
        ]
        gpu = first.name if first else next(filter(None, reversed(seen)), None)
        rate = gpu_rate(card, gpu)
        if rate is None:
            raise UsageError(no_price(card, gpu), hint="or state its price: --gpu-usd-per-hour 0.70")
        return rate.usd_per_hour
    if not (math.isfinite(given) and 0 < given < HIGHEST_USD_PER_HOUR):
        expected = f"a price above 0 and below {HIGHEST_USD_PER_HOUR}"
        hint = "without a price there is no break-even; catalogues write 0 or 700 where nothing is offered"
        raise UsageError(f"--gpu-usd-per-hour {given:g}: expected {expected}", hint=hint)
    return given


def _stop(request: KeepRequest, here: Project, card: RateCard, rate: float) -> StopCost:
    """What a stop costs: as given, else by a restart that was given or measured."""
    if request.stop_cost_usd is None:
        who = next((one for one in WHO if one == request.waiting), None)
        if request.waiting is not None and who is None:
            said = f"--waiting {request.waiting!r}: expected {', '.join(WHO)}"
            raise UsageError(said, hint=f"--waiting {WHO[0]}")
        return keeping.stop_cost(_restart(request, here), rate, *keeping.who_waits(card, who))
    parts = {"--restart-minutes": request.restart_minutes, "--waiting": request.waiting}
    for option, value in parts.items():
        if value is not None:
            said = f"--stop-cost-usd is the whole cost of a stop, and {option} a part of it: name one"
            raise UsageError(said, hint=f"leave out {option}")
    low, high = amounts("--stop-cost-usd", request.stop_cost_usd)
    return StopCost(low_usd=low, high_usd=high, source="as given")


def _restart(request: KeepRequest, here: Project) -> Restart:
    if request.restart_minutes is not None:
        low, high = amounts("--restart-minutes", request.restart_minutes)
        return Restart(low_minutes=low, high_minutes=high)
    rows = _rows(here)
    devices: tuple[Device, ...] = ("cuda", "cpu")
    measured = (keeping.restart_of(rows, device) for device in devices)
    restart = next(filter(None, measured), None)
    if restart is None:
        raise UsageError("no restart was measured: in no session was anything compiled and then timed", hint=GIVE)
    return restart


def _rows(here: Project) -> list[SessionRow]:
    """The sessions of a project's target, oldest first."""
    return index.rows(here.sessions, target=read_target(here).value.name)


def pivot(*, options: Path | None, recorded: bool, target: Path | None, as_json: bool, screen: Screen) -> int:
    """Stop rules and expected values; the exit code says nothing of which it is."""
    if recorded and options is not None:
        raise UsageError("--recorded has options of its own: name one", hint="leave out --options")
    if recorded:
        return _recorded_pivots(screen, as_json=as_json)
    given = read_file(options, Options).value if options is not None else None
    rows = _rows(project(target, Path.cwd()))
    rules = pivoting.stop_rules([row for row in rows if row.device == rows[-1].device])
    weighed = pivoting.pivot(given, rules)
    if as_json:
        question = given.question if given else None
        screen.data(to_json(Pivoted(question=question, **dict(weighed))))
    else:
        _show(pivot_lines(weighed), screen)
    return ExitCode.OK


def _recorded_pivots(screen: Screen, *, as_json: bool) -> int:
    """The options that the recorded history weighed, by the same sums; its stop rules are not on record."""
    rows = [row for history in histories() for row in history.decisions if "options" in row]
    weighed = [(row, pivoting.pivot(_options_of(row), ())) for row in rows]
    if as_json:
        told = tuple(
            RecordedPivot(session=row["id"], question=row["question"], stated=tuple(row["options"]), **dict(one))
            for row, one in weighed
        )
        screen.data(to_json(RecordedPivots(decisions=told)))
        return ExitCode.OK
    for row, one in weighed:
        stated = (_stated_option(option) for option in row["options"])
        _show((f"{row['id']}: {row['question']}", *stated, *pivot_lines(one)), screen)
    return ExitCode.OK


def _stated_option(stated: dict[str, Any]) -> str:
    low, high = stated["sessions"]
    likely = "" if stated["confidence"] is None else f", {100 * stated['confidence']:.0f} % likely"
    return f"{stated['name']}: {low} to {high} sessions{likely}; gain: {stated['gain']}"


def _options_of(row: dict[str, Any]) -> Options:
    """What success is worth was not stated."""
    options = (Option(name=one["name"], usd=one["usd"], probability=one["confidence"]) for one in row["options"])
    return Options(format=1, question=row["question"], options=tuple(options))


def _show(lines: Iterable[str], screen: Screen) -> None:
    for line in lines:
        screen.prose(line)
