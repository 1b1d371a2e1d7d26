"""What advice promises, and what came of it."""

import pytest

from loop.model.index import Environment, SessionRow
from loop.model.profile import Fact, Promise, Promised, TreeRule
from loop.profile.bottleneck import outcomes, promise
from tests.makers import NOON

HERE, ELSEWHERE = Environment(processor="here"), Environment(processor="elsewhere")


def rule(*times: float | str, bottleneck: str = "mixed") -> TreeRule:
    """A leaf that promises so much."""
    return TreeRule.model_validate(
        {"when": "true", "bottleneck": bottleneck, "fix": "mend it", "gain": "some", "times": times or None}
    )


def promised(low: float = 1.1, high: float = 1.2, advice: str = "mixed") -> Promise:
    """What a leaf without outcomes promises."""
    return Promise(advice=advice, stated=(low, high))


def made(ratio: float, build: str) -> Promised:
    """A promise for a build of `v`, with its speed."""
    return Promised(promise=promised(), variant="v", workload="w", build=build, ratio=ratio)


def session(number: int, build: str, ratio: float, where: Environment = HERE, **fields: object) -> SessionRow:
    """A session that timed a build of `v`, and advised."""
    known = {
        "id": f"s{number}", "started": NOON, "target": "t", "plan": "p", "device": "cpu", "status": "passed",
        "environment": where, "builds": {"v": build}, "speeds": {"v": {"w": ratio}},
        "promises": (made(ratio, build),),
    }  # fmt: skip
    return SessionRow.model_validate({**known, **fields})


@pytest.mark.parametrize(
    ("times", "facts", "stated"),
    [
        ((1.1, 1.2), {}, (1.1, 1.2)),
        ((1, "slots / work_items"), {"slots": 4, "work_items": 2}, (1.0, 2.0)),
        ((1, "slots / work_items"), {"slots": None, "work_items": 2}, None),
        ((1, "1 / flops_share"), {"flops_share": 0.0}, None),
        ((2, "1 / flops_share"), {"flops_share": 1.0}, None),
        ((), {}, None),
    ],
)
def test_a_leaf_states_an_interval(
    times: tuple[float | str, ...], facts: dict[str, Fact], stated: tuple[float, float] | None
) -> None:
    """By facts, where they are known; else there is none, and none is made up."""
    found = promise(rule(*times), facts)
    assert stated == (found.stated if found else None)


def test_advice_is_held_against_the_next_build() -> None:
    """Two sessions of one build, then another: one outcome, of the last advice."""
    (found,) = outcomes([session(1, "a", 0.5), session(2, "a", 0.4), session(3, "b", 0.6), session(4, "b", 0.6)])
    assert ("later session", "s3") == (found.basis, found.session)
    assert pytest.approx(1.5) == found.actual
