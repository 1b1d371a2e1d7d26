"""The ledger: sums over sessions; unknown is None and never 0, what was spared stands beside what was charged."""

from typing import Any

from loop.model.index import SessionRow
from loop.money.command import make_ledger

UNKNOWN = {"ai": "nobody told"}


def session(name: str = "a", unknown: dict[str, str] = UNKNOWN, **fields: Any) -> SessionRow:
    """A session of a minute on a processor; its keywords beside fields: dollars by resource, and their basis."""
    usd, basis = fields.pop("usd", {}), fields.pop("basis", "measured")
    base: dict[str, Any] = {
        "started": None,
        "target": "attention",
        "plan": "quick",
        "device": "cpu",
        "status": "passed",
        "seconds": 60.0,
        "environment": {"processor": "x"},
        "charges": [
            {"resource": of, "rate": "r", "seconds": 60, "usd": it, "basis": basis} for of, it in usd.items()
        ],
        "usd": sum(usd.values()),
        "unmeasured": [{"resource": of, "reason": why} for of, why in unknown.items()],
    }
    return SessionRow.model_validate({"id": name, **base, **fields})


def test_the_return_is_on_what_sessions_run_here_cost() -> None:
    """A history of 40 dollars that was imported does not make what today's session spared worth less."""
    saving = {"pattern": "p", "source": "s", "minutes": 4.0, "usd": 6.0}
    both = [session("n", recorded=True, usd={"gpu": 40.0}), session("a", usd={"engineer": 2.0}, savings=[saving])]
    ledger = make_ledger(both, {})
    assert (42.0, 4.0, 6.0, 2.0) == (ledger.totals.usd, ledger.spared_minutes, ledger.spared_usd, ledger.roi)
    assert None is make_ledger([session(savings=[saving])], {}).roi
    assert None is make_ledger([session(usd={"gpu": 1.0})], {}).roi
