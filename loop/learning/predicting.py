"""Before a session begins: what its plan will take and cost, and what `--dry-run` prints of it."""

from collections.abc import Sequence
from typing import Literal

from loop.base.documents import to_json
from loop.base.errors import ExitCode
from loop.base.screen import Screen, seconds_text, short
from loop.learning.prediction import MEASURED, Forecast, forecast
from loop.library.rates import rates
from loop.model.base import Printed
from loop.model.money import RateCard
from loop.model.plan import Phase, PlannedPattern, Predicted
from loop.model.record import SessionHead
from loop.money.bill import gpu_rate, hourly_usd, no_price, rates_of
from loop.steps.setting import Setting
from loop.store import index
from loop.store.rows import row


def foresee(head: SessionHead, setting: Setting) -> SessionHead:
    """The head with what its plan is expected to take and to cost."""
    rows = index.rows(setting.project.sessions, last=index.LOOKED_BACK)
    now, plan, card = row(head, None, ()), head.plan, rates(setting.project)
    reachable = forecast([planned.pattern for planned in plan.patterns], rows, now)
    listed = forecast([plan.find(name).pattern for name in plan.plan.patterns], rows, now)
    ai = card.find(card.ai)
    usd_per_hour = hourly_usd(card, head) + (ai.usd_per_hour if ai else 0.0)
    least_usd = sum(rate.minimum_s / 3600 * rate.usd_per_hour for rate in rates_of(card, head.device, head.gpu))
    patterns = tuple(_planned(planned, reachable) for planned in plan.patterns)
    return head.model_copy(
        update={
            "plan": plan.model_copy(update={"patterns": patterns}),
            "predicted": listed.priced(usd_per_hour, least_usd),
        }
    )


def _planned(planned: PlannedPattern, known: Forecast) -> PlannedPattern:
    name = planned.pattern.name
    duration = known.patterns[name]
    low, high = duration.interval
    return planned.model_copy(
        update={
            "seconds": duration.seconds,
            "low_s": low,
            "high_s": high,
            "evidence": "measured" if duration.weight >= MEASURED else "prior",
            "step_s": dict(known.steps[name]),
        }
    )


def unpriced_gpu(card: RateCard, head: SessionHead) -> str | None:
    """The GPU that a session would hold and that the card has no price for: no predicted cost includes it."""
    free = head.device != "cuda" or gpu_rate(card, head.gpu) is not None
    return None if free else head.gpu or "a GPU"


def predicted_cost(card: RateCard, head: SessionHead) -> str:
    """`$1.32 ($0.58 to $2.98)`, and what is not in it; empty where nothing would be billed."""
    known, missing = head.predicted, unpriced_gpu(card, head)
    if known is None or not (known.high_usd or missing):
        return ""
    more = f" without {missing}, of unknown price" if missing else ""
    return f"${known.usd:.2f} (${known.low_usd:.2f} to ${known.high_usd:.2f}){more}"


def expected(head: SessionHead) -> str:
    """The time of a plan, with its interval: `48 s (80 %: 40 s to 60 s)`."""
    known = head.predicted
    if known is None:
        return seconds_text(head.plan.seconds)
    between = f"{seconds_text(known.low_s)} to {seconds_text(known.high_s)}"
    return f"{seconds_text(known.seconds)} (80 %: {between})"


def named(variants: Sequence[str]) -> str:
    """` (cpu, eager)`; nothing where there are none."""
    return f" ({', '.join(variants)})" if variants else ""


class Foreseen(Printed):
    """What `--dry-run --json` prints: what a session would take."""

    schema_version: Literal[3] = 3
    """Number of this schema."""

    plan: str
    """Name of the plan."""
    success: str | None
    """Its objective."""
    phases: tuple[Phase, ...]
    """Its phases, with their budgets."""
    target: str
    """Name of the target."""
    device: str
    """Where it would run."""
    variants: tuple[str, ...]
    """Variants."""
    patterns: tuple[PlannedPattern, ...]
    """What it would walk, and what may be reached, each with its time."""
    predicted: Predicted | None
    """Its time and cost, with their intervals."""
    unpriced_gpu: str | None
    """A GPU that the rate card has no price for: no cost includes it."""


def show_plan(head: SessionHead, card: RateCard, screen: Screen, *, as_json: bool) -> int:
    """`--dry-run`: the chain with predicted time and cost; nothing runs."""
    plan = head.plan.plan
    if as_json:
        about = {"success": plan.success, "phases": plan.phases, "patterns": head.plan.patterns}
        where = {"target": head.target, "device": head.device, "variants": head.variants}
        missing = unpriced_gpu(card, head)
        screen.data(
            to_json(Foreseen(plan=plan.name, predicted=head.predicted, unpriced_gpu=missing, **about, **where))
        )
        return ExitCode.OK
    screen.prose(f"plan {plan.name}: {plan.title}")
    screen.prose(f"target {head.target}{named(head.variants)} on {head.device}")
    if head.emulated:
        screen.prose(f"under the emulator: {', '.join(head.emulated)}")
    screen.data("")
    rows = []
    for place, planned in enumerate(head.plan.patterns, start=1):
        steps = ", ".join(step.id for step in planned.pattern.steps)
        known = planned.low_s is not None and planned.high_s is not None
        between = f"{short(planned.low_s or 0)}-{short(planned.high_s or 0)}" if known else "-"
        number, aside = (str(place), "") if planned.planned else ("-", " (only as an answer)")
        rows.append(
            (number, planned.pattern.name, short(planned.seconds), between, planned.evidence, steps + aside)
        )
    screen.table(("#", "pattern", "predicted", "80 %", "from", "steps"), rows)
    screen.data("")
    for line in plan.aims():
        screen.prose(line)
    parts = filter(None, (expected(head), predicted_cost(card, head)))
    screen.prose(f"predicted: {', '.join(parts)}; planned: {plan.budget.minutes:g} min")
    if unpriced_gpu(card, head):
        screen.say(no_price(card, head.gpu))
    return ExitCode.OK
