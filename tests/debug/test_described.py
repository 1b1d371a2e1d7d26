"""What the components of a variant say together."""

from loop.debug.components import described
from loop.model.debugging import ComponentChecks
from tests.makers import make_check, make_verify


def part(name: str, *, right: bool = True) -> ComponentChecks:
    """A component that was looked at."""
    (checks,) = make_verify(make_check(right=right)).variants
    return ComponentChecks(component=name, variant="cpu", title=name, checks=checks)


def test_a_missing_component_may_be_the_wrong_one() -> None:
    """No conclusion is drawn from the others."""
    missing = "b of cpu: no build"
    assert ["cpu: right by itself: a", missing] == described("cpu", [part("a")], [missing])
    assert [missing] == described("cpu", [], [missing])
