"""Before a session begins: what its plan will take and cost, from the sessions before it."""

from collections.abc import Sequence

from loop.base.documents import to_json
from loop.base.errors import ExitCode
from loop.base.screen import Screen, seconds_text, short
from loop.learning.durations import FACTS, Duration
from loop.learning.prediction import MEASURED, Forecast, Work, forecast
from loop.library.rates import rates
from loop.model.base import Model, Printed
from loop.model.index import Environment, SessionRow
from loop.model.money import RateCard
from loop.model.plan import Phase, PlannedPattern, Predicted, ResolvedPlan
from loop.model.record import SessionHead
from loop.money.bill import gpu_rate, hourly_usd, no_price, rates_of
from loop.steps.setting import Setting
from loop.store import index


def foresee(head: SessionHead, setting: Setting) -> SessionHead:
    """The head with what its plan is expected to take and to cost."""
    rows = index.rows(setting.project.sessions, last=index.LOOKED_BACK)
    found = forecast_of(head, rows)
    plan = ResolvedPlan(
        plan=head.plan.plan, patterns=tuple(_planned(pattern, found) for pattern in head.plan.patterns)
    )
    whole = plan_forecast(head, rows)
    return head.model_copy(update={"plan": plan, "predicted": priced(whole, rates(setting.project), head)})


def work_of(head: SessionHead) -> Work:
    """What a session is about to run, and where."""
    plan, environment = head.plan.plan, Environment.of(head.machine, head.device)
    return Work(
        target=head.target,
        device=head.device,
        variants=frozenset((*head.variants, *head.emulated)),
        workloads=frozenset((*plan.workloads, *plan.checks)),
        threads=head.threads,
        place=tuple(getattr(environment, name) for name in FACTS),
        ground=head.ground,
        load=head.machine.load or 0.0,
        cores=head.machine.cores,
        bundled=head.target_folder == "bundled",
    )


def forecast_of(head: SessionHead, rows: list[SessionRow]) -> Forecast:
    """Every pattern that the plan could reach, each once."""
    return forecast([planned.pattern for planned in head.plan.patterns], rows, work_of(head))


def plan_forecast(head: SessionHead, rows: list[SessionRow]) -> Forecast:
    """The patterns that the plan lists, as often as it does."""
    return forecast([head.plan.find(name).pattern for name in head.plan.plan.patterns], rows, work_of(head))


def priced(found: Forecast, card: RateCard, head: SessionHead) -> Predicted:
    """A forecast with its cost: the GPU, whoever is stated to attend, and AI where the card has its hours."""
    held = rates_of(card, head.device, head.gpu)
    ai = card.find(card.ai)
    least = sum(rate.minimum_s / 3600 * rate.usd_per_hour for rate in held)
    return found.priced(hourly_usd(card, head) + (ai.usd_per_hour if ai else 0.0), least)


def unpriced_gpu(card: RateCard, head: SessionHead) -> str | None:
    """The GPU that a session would hold and the card has no price of: it is in no predicted cost."""
    free = head.device != "cuda" or gpu_rate(card, head.gpu) is not None
    return None if free else head.gpu or "a GPU"


def predicted_cost(card: RateCard, head: SessionHead) -> str:
    """`$1.32 ($0.58 to $2.98)`, and what is not in it; empty where nothing would be billed."""
    known, missing = head.predicted, unpriced_gpu(card, head)
    if known is None or not (known.high_usd or missing):
        return ""
    more = f" without {missing}, of unknown price" if missing else ""
    return f"${known.usd:.2f} (${known.low_usd:.2f} to ${known.high_usd:.2f}){more}"


def _planned(one: PlannedPattern, found: Forecast) -> PlannedPattern:
    duration: Duration = found.patterns[one.pattern.name]
    low, high = duration.interval(widened=found.widened)
    evidence = "measured" if duration.weight >= MEASURED else "prior"
    steps = dict(found.steps[one.pattern.name])
    known = {"seconds": duration.seconds, "low_s": low, "high_s": high, "evidence": evidence, "step_s": steps}
    return one.model_copy(update=known)


def expected(head: SessionHead) -> str:
    """The time of a plan, with its interval: `48 s (80 %: 40 s to 60 s)`."""
    known = head.predicted
    if known is None:
        return seconds_text(head.plan.seconds)
    between = f"{seconds_text(known.low_s)} to {seconds_text(known.high_s)}"
    return f"{seconds_text(known.seconds)} (80 %: {between})"


def show_plan(head: SessionHead, card: RateCard, screen: Screen, *, as_json: bool) -> int:
    """`--dry-run`: the chain with predicted time and cost; nothing runs."""
    if as_json:
        screen.data(to_json(_foreseen(head, unpriced_gpu(card, head))))
        return ExitCode.OK
    plan = head.plan
    screen.prose(f"plan {plan.plan.name}: {plan.plan.title}")
    screen.prose(f"target {head.target}{named(head.variants)} on {head.device}")
    if head.emulated:
        screen.prose(f"under the emulator: {', '.join(head.emulated)}")
    screen.data("")
    rows = [_row(place, planned) for place, planned in enumerate(plan.patterns, start=1)]
    screen.table(("#", "pattern", "predicted", "80 %", "from", "steps"), rows)
    screen.data("")
    for line in plan.plan.aims():
        screen.prose(line)
    parts = filter(None, (expected(head), predicted_cost(card, head)))
    screen.prose(f"predicted: {', '.join(parts)}; planned: {plan.plan.budget.minutes:g} min")
    if unpriced_gpu(card, head):
        screen.say(no_price(card, head.gpu))
    return ExitCode.OK


def named(variants: Sequence[str]) -> str:
    """` (cpu, eager)`; nothing where there are none."""
    return f" ({', '.join(variants)})" if variants else ""


def _row(place: int, planned: PlannedPattern) -> tuple[str, ...]:
    steps = ", ".join(step.id for step in planned.pattern.steps)
    known = planned.low_s is not None and planned.high_s is not None
    between = f"{short(planned.low_s or 0)}-{short(planned.high_s or 0)}" if known else "-"
    return (
        str(place) if planned.planned else "-",
        planned.pattern.name,
        short(planned.seconds),
        between,
        planned.evidence,
        steps if planned.planned else f"{steps} (only as an answer)",
    )


class ForeseenPattern(Model):
    """One pattern of a session that was not run."""

    name: str
    """Name of the pattern."""
    planned: bool
    """Whether the plan names it; else it is only reached as an answer."""
    predicted_seconds: float
    """What it takes, in the middle."""
    interval_seconds: tuple[float | None, float | None]
    """80 % interval; None where nothing is known."""
    evidence: str
    """What that rests on."""
    steps: tuple[str, ...]
    """Its steps."""
    step_seconds: dict[str, float]
    """What each of them takes, as far as it is known."""


class Foreseen(Printed):
    """What `--dry-run --json` prints: what a session would take."""

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
    patterns: tuple[ForeseenPattern, ...]
    """What it would walk, and what may be reached."""
    predicted_seconds: float
    """What it takes in all."""
    predicted_usd: float | None
    """What it costs; None where nothing is known."""
    predicted: Predicted | None
    """Both with their intervals."""
    unpriced_gpu: str | None
    """A GPU that the rate card has no price of: it is in no cost."""


def _foreseen(head: SessionHead, unpriced: str | None) -> Foreseen:
    """What `--dry-run --json` prints."""
    patterns = tuple(
        ForeseenPattern(
            name=planned.pattern.name,
            planned=planned.planned,
            predicted_seconds=planned.seconds,
            interval_seconds=(planned.low_s, planned.high_s),
            evidence=planned.evidence,
            steps=tuple(step.id for step in planned.pattern.steps),
            step_seconds=planned.step_s,
        )
        for planned in head.plan.patterns
    )
    known = head.predicted
    return Foreseen(
        plan=head.plan.plan.name,
        success=head.plan.plan.success,
        phases=head.plan.plan.phases,
        target=head.target,
        device=head.device,
        variants=head.variants,
        patterns=patterns,
        predicted_seconds=known.seconds if known else head.plan.seconds,
        predicted_usd=known.usd if known else None,
        predicted=known,
        unpriced_gpu=unpriced,
    )
