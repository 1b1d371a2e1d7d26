"""What was tried before, and what that says of a build that is to be tried now. Pure."""

from collections.abc import Mapping, Sequence

from loop.model.debugging import Try


def repeated(tries: Sequence[Try], now: Mapping[str, str | None], ground: str) -> tuple[Try, ...]:
    """The last try of each variant whose very build was found wrong; without a build, the target's very files."""
    return tuple({one.variant: one for one in tries if not one.right and _same(one, now, ground)}.values())


def _same(one: Try, now: Mapping[str, str | None], ground: str) -> bool:
    if one.build_id is None:
        return now.get(one.variant) is None and bool(ground) and one.ground == ground
    return one.build_id == now.get(one.variant)


def still_wrong(tries: Sequence[Try]) -> tuple[Try, ...]:
    """The last try of each variant, where it was wrong."""
    return tuple(one for one in {one.variant: one for one in tries}.values() if not one.right)


def sentence(one: Try) -> str:
    """What a try showed, as a lesson."""
    outcome = "that was it" if one.right else f"it did not cure {one.variant}: {one.message}"
    return f"Tried in {one.session}: {one.hypothesis}; {outcome}."
