"""What the components of a variant say together."""

from loop.debug.components import described
from loop.model.debugging import ComponentChecks
from tests.makers import make_check, make_verify


def part(name: str, *, right: bool = True) -> ComponentChecks:
    """A component that was looked at."""
    (checks,) = make_verify(make_check(right=right)).variants
    return ComponentChecks(component=name, variant="cpu", title=name, checks=checks)


def test_right_components_leave_how_they_are_put_together() -> None:
    """All of them were looked at."""
    assert ["cpu: right by itself: a, b, so the fault lies in how they are put together"] == described(
        "cpu", [part("a"), part("b")], []
    )


def test_a_missing_component_may_be_the_wrong_one() -> None:
    """No conclusion is drawn from the others."""
    missing = "b of cpu: no build"
    assert ["cpu: right by itself: a", missing] == described("cpu", [part("a")], [missing])
    assert [missing] == described("cpu", [], [missing])


def test_a_wrong_component_is_named() -> None:
    """Those that are right need no word."""
    (line,) = described("cpu", [part("a"), part("b", right=False)], [])
    assert line.startswith("b of cpu is wrong")
