"""What expressions may read as `session`: minutes, dollars, speed-up and regression so far."""

from collections.abc import Callable, Mapping, Sequence

from loop.base.stats import geometric_mean
from loop.model.money import RateCard
from loop.model.record import Finished, SessionHead
from loop.money.charging import hourly_usd


def session_facts(card: RateCard, head: SessionHead) -> Callable[[Sequence[Finished]], Mapping[str, object]]:
    """A function from the steps that have ended to the facts they make up."""
    per_hour, budget_minutes = hourly_usd(card, head), head.plan.plan.budget.minutes

    def facts(finished: Sequence[Finished]) -> Mapping[str, object]:
        minutes = sum(record.seconds for record in finished) / 60
        return {
            "minutes": minutes,
            "usd": minutes / 60 * per_hour,
            "overrun": minutes / budget_minutes,
            "speedup": _speedup(finished),
            "wrong": any(_found_wrong(finished, action) for action in ("kernel.verify", "kernel.emulate")),
            "regressed": _slower(finished) or any(record.output.get("risen") for record in finished),
            "unverified": not _checked(finished, "kernel.verify"),
            "unemulated": not _checked(finished, "kernel.emulate"),
        }

    return facts


def _checked(finished: Sequence[Finished], action: str) -> bool:
    """Whether an action has held a variant against the reference."""
    return any(record.output.get("variants") for record in finished if record.action == action)


def _found_wrong(finished: Sequence[Finished], action: str) -> bool:
    """Whether the last step of a kind found a variant wrong."""
    outputs = [record.output for record in finished if record.action == action and record.output]
    return bool(outputs and outputs[-1].get("wrong"))


def _verdicts(finished: Sequence[Finished]) -> list[dict[str, object]]:
    return [verdict for record in finished for verdict in record.output.get("verdicts", ())]


def _speedup(finished: Sequence[Finished]) -> float | None:
    """Geometric mean of the ratios against the baseline; None before anything was measured."""
    ratios = [v["ratio"] for v in _verdicts(finished) if v["against"] == "baseline"]
    known = [ratio for ratio in ratios if isinstance(ratio, float)]
    return geometric_mean(known) if known else None


def _slower(finished: Sequence[Finished]) -> bool:
    """Whether a variant is slower than its known good, or wrong beside it."""
    known = (verdict for verdict in _verdicts(finished) if verdict["against"] == "known_good")
    return any(verdict["verdict"] in ("slower", "incorrect") for verdict in known)
