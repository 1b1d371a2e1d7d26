"""`loop cost keep-or-stop|pivot`: both sides of a decision, in money."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loop.base.documents import to_json
from loop.base.errors import ExitCode, UsageError
from loop.base.places import Project, project
from loop.base.screen import Screen, fold, width
from loop.library import figures
from loop.library.definitions import read_file
from loop.library.targets import target as read_target
from loop.model.decision import KeepOrStop, Options, OptionValue, Pivot, Restart, StopCost, Waiting, hours_text
from loop.model.index import SessionRow
from loop.model.money import HIGHEST_USD_PER_HOUR, RateCard
from loop.model.record import DeviceName
from loop.money import keeping_gpu, pivoting
from loop.report import format as say
from loop.store import index

WHO: tuple[Waiting, ...] = ("nobody", "agent", "engineer")
GIVE = "give what a stop costs (--stop-cost-usd), or how long a restart takes (--restart-minutes)"


@dataclass(frozen=True)
class KeepRequest:
    """What the user knows of the gap that follows."""

    idle_hours: float
    gpu_usd_per_hour: float | None = None
    """None: the rate card's."""
    stop_cost_usd: str | None = None
    """Dollars or a range of them, `0.80..1.20`; None: from the restart."""
    restart_minutes: str | None = None
    """Minutes or a range of them; None: as this project's sessions measured it."""
    waiting: str | None = None
    boot_minutes: float | None = None
    context_usd: float | None = None
    target: Path | None = None
    json: bool = False


def keep_or_stop(request: KeepRequest, screen: Screen) -> int:
    """Both sides, the break-even and the decision; the exit code says nothing of which it is."""
    here = project(request.target, Path.cwd())
    card = figures.rates(here)
    idle = amount("--idle-hours", request.idle_hours)
    rate = _rate(request.gpu_usd_per_hour, card)
    stop = _stop(request, here, card, rate)
    found = keeping_gpu.decide(idle, rate, stop)
    if request.json:
        fields = found.model_dump(mode="json")
        screen.data(to_json({"schema_version": 1, **fields, "stop": stop.model_dump(mode="json")}))
    else:
        _show_keep(found, stop, screen)
    return ExitCode.OK


def recorded(screen: Screen, *, as_json: bool) -> int:
    """The recorded history's decisions to keep a GPU, each with both sides and what the money says of it."""
    found = [
        (row, _as_recorded(row)) for history in figures.histories() for row in history.decisions if _kept(row)
    ]
    if as_json:
        rows = [
            {"session": row["id"], "decided": row["decided"], **one.model_dump(mode="json")} for row, one in found
        ]
        screen.data(to_json({"schema_version": 1, "decisions": rows}))
    else:
        says = [(row["id"], keeping_gpu.agrees(row["decided"], one)) for row, one in found]
        screen.table(("session", "decided, and what the money says"), says)
    return ExitCode.OK


def _kept(row: dict[str, Any]) -> bool:
    return "idle_hours" in row and "stop_cost_usd" in row


def _as_recorded(row: dict[str, Any]) -> KeepOrStop:
    low, high = row["stop_cost_usd"]
    stop = StopCost(low_usd=low, high_usd=high, source="as recorded")
    return keeping_gpu.decide(row["idle_hours"], row["gpu_usd_per_hour"], stop)


def amount(option: str, value: float, highest: float = 1e6) -> float:
    """A number from 0 on. Raises LoopError for anything else."""
    if not (math.isfinite(value) and 0 <= value < highest):
        raise UsageError(f"{option} {value:g}: expected a number from 0 to {highest:g}", hint=f"{option} 5")
    return value


def span(option: str, text: str) -> tuple[float, float]:
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


def _rate(given: float | None, card: RateCard) -> float:
    if given is None:
        rate = card.find(card.gpu)
        if rate is None:
            raise UsageError("the rate card has no price for a GPU", hint="--gpu-usd-per-hour 0.70")
        return rate.usd_per_hour
    if not (math.isfinite(given) and 0 < given < HIGHEST_USD_PER_HOUR):
        expected = f"a price above 0 and below {HIGHEST_USD_PER_HOUR}"
        hint = "without a price there is no break-even; catalogues write 0 or 700 where nothing is offered"
        raise UsageError(f"--gpu-usd-per-hour {given:g}: expected {expected}", hint=hint)
    return given


def _stop(request: KeepRequest, here: Project, card: RateCard, rate: float) -> StopCost:
    """What a stop costs: as given, else by a restart that was given or measured."""
    if request.stop_cost_usd is None:
        who, waiting = _waiting(request.waiting, card)
        lost = amount("--context-usd", request.context_usd or 0.0)
        return keeping_gpu.stop_cost(_restart(request, here), rate, who, waiting, lost)
    besides = ("restart_minutes", "waiting", "boot_minutes", "context_usd")
    for name in besides:
        if getattr(request, name) is not None:
            option = f"--{name.replace('_', '-')}"
            said = f"--stop-cost-usd is the whole cost of a stop, and {option} a part of it: name one"
            raise UsageError(said, hint=f"leave out {option}")
    low, high = span("--stop-cost-usd", request.stop_cost_usd)
    return StopCost(low_usd=low, high_usd=high, source="as given")


def _waiting(named: str | None, card: RateCard) -> tuple[Waiting, float]:
    who = next((one for one in WHO if one == named), None)
    if named is not None and who is None:
        raise UsageError(f"--waiting {named!r}: expected {', '.join(WHO)}", hint=f"--waiting {WHO[0]}")
    try:
        return keeping_gpu.who_waits(card, who)
    except ValueError as error:
        raise UsageError(str(error), hint="add one to rates.yaml, or: --waiting nobody") from error


def _restart(request: KeepRequest, here: Project) -> Restart:
    boot = amount("--boot-minutes", request.boot_minutes or 0.0)
    if request.restart_minutes is not None:
        low, high = span("--restart-minutes", request.restart_minutes)
        return Restart(low_minutes=low + boot, high_minutes=high + boot, boot_minutes=boot)
    rows = _rows(here)
    devices: tuple[DeviceName, ...] = ("cuda", "cpu")
    measured = (keeping_gpu.restart_of(rows, device, boot) for device in devices)
    found = next((restart for restart in measured if restart is not None), None)
    if found is None:
        raise UsageError("no restart was measured: in no session was anything compiled and then timed", hint=GIVE)
    return found


def _rows(here: Project) -> list[SessionRow]:
    """The sessions of a project's target, oldest first."""
    name = read_target(here).value.name
    return [row for row in index.rows(here.sessions) if row.target == name]


def _show_keep(found: KeepOrStop, stop: StopCost, screen: Screen) -> None:
    rate = f"{say.rate(found.gpu_usd_per_hour)} an hour"
    even = _two(*(hours_text(end.break_even_hours) for end in (found.low, found.high)))
    sides = [
        ("keep", f"${found.idle_usd:.2f}", f"{found.idle_hours:g} h idle at {rate}"),
        ("stop", _dollars(stop.low_usd, stop.high_usd), _stop_words(stop)),
        ("break-even", even, "of idling cost as much as a stop"),
        ("decision", found.decision, _decision(found)),
    ]
    screen.table(("side", "", "why"), sides)
    screen.data("")
    rows = [(f"{one.idle_hours:.3g}", f"${one.idle_usd:.2f}", one.decision) for one in found.estimates]
    screen.table(("idle hours", "cost", "decision"), rows)


def _stop_words(stop: StopCost) -> str:
    if stop.waiting is None:
        return stop.source
    who = (
        "nobody waits"
        if stop.waiting == "nobody"
        else f"an {stop.waiting} waits at ${stop.waiting_usd_per_hour:g} an hour"
    )
    lost = f", and ${stop.context_usd:g} of context" if stop.context_usd else ""
    return f"{stop.source}; {who}{lost}"


def _decision(found: KeepOrStop) -> str:
    low, high = found.low, found.high
    if found.decision == "it depends":
        return f"{low.decision} at ${low.stop_usd:.2f} a stop, {high.decision} at ${high.stop_usd:.2f}"
    bound, way = (low, "up to") if found.decision == "keep" else (high, "beyond")
    hours = hours_text(bound.break_even_hours)
    return f"${abs(found.idle_usd - bound.stop_usd):.2f} cheaper; it stands {way} {hours} of idling"


def _dollars(low: float, high: float) -> str:
    return _two(f"${low:.2f}", f"${high:.2f}")


def _two(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def pivot(options: Path | None, target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """Stop rules and expected values; the exit code says nothing of which it is."""
    here = project(target, Path.cwd())
    weighed = read_file(options, Options).value if options is not None else None
    rows = _rows(here)
    last = rows[-1] if rows else None
    rules = pivoting.stop_rules([row for row in rows if last is not None and row.device == last.device])
    found = pivoting.pivot(weighed, rules)
    if as_json:
        question = weighed.question if weighed else None
        screen.data(to_json({"schema_version": 1, "question": question, **found.model_dump(mode="json")}))
    else:
        _show_pivot(found, screen)
    return ExitCode.OK


def _show_pivot(found: Pivot, screen: Screen) -> None:
    words = {True: "met", False: "not met", None: "unknown"}
    screen.table(("stop rule", "", "why"), [(rule.rule, words[rule.holds], rule.why) for rule in found.rules])
    if found.options:
        screen.data("")
        screen.table(("option", "cost", "expected"), _options(found.options), wrap=0)
        screen.data("")
        for one in found.options:
            screen.data(fold(f"{one.name}: {one.note}", width(screen.out)))
    screen.data("\n" + fold(found.decision, width(screen.out)))


def _options(options: Sequence[OptionValue]) -> list[tuple[str, str, str]]:
    return [
        (one.name, _whole(*one.usd), _whole(*one.expected_usd) if one.expected_usd else "unknown")
        for one in options
    ]


def _whole(low: float, high: float) -> str:
    return _two(*(f"{'-' if usd < 0 else ''}${abs(usd):,.0f}" for usd in (low, high)))
