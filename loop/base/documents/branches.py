"""From pydantic's errors to places in the data, and from the branches of a union to the one that was meant.

pydantic puts the names of union branches between the steps of a location: ("run", "tuple[str, ...]", 0).
Which parts are steps is told by the data; errors of rival branches are weighed against each other.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from loop.base.documents.complaints import Place

Trail = tuple[tuple[bool, str | int], ...]
"""A location's parts, each with whether it is a step of the data (else the name of a branch)."""

KEY = "[key]"
TAG = "union_tag_invalid"
"""A union told apart by a field, such as `kind: python`, whose value there is none of the known ones."""
WRONG_SHAPE = frozenset(
    f"{kind}_type"
    for kind in ("string", "int", "float", "bool", "tuple", "list", "dict", "model", "none", "date", "datetime")
) | {"none_required", "model_attributes_type", "int_from_float", "is_instance_of"}
"""Errors that say a branch was not meant at all: the value is of another kind."""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong at one place of the data; several items where a union has no better branch."""

    items: tuple[Any, ...]
    trail: Trail
    key: bool = False
    """Whether the key is wrong rather than its value."""

    @property
    def kind(self) -> str:
        """pydantic's type of the error."""
        return str(self.items[0]["type"])

    @property
    def value(self) -> Any:
        """What was there."""
        item = self.items[0]
        return item["ctx"]["tag"] if item["type"] == TAG else item["input"]

    @property
    def name(self) -> str:
        """The field that is missing or unknown."""
        return str(self.items[0]["loc"][-1])

    @property
    def place(self) -> Place:
        """Where it is, within the data that was read."""
        return tuple(part for is_step, part in self.trail if is_step)


def find(data: Any, items: Iterable[Any]) -> list[Finding]:
    """Each error with its place in the data; without those that only follow from others."""
    found = [_finding(data, item) for item in items]
    if any(finding.kind == "too_short" for finding in found):
        # A list also counts as too short because some of its items are wrong.
        around = {one.place[:end] for one in found for end in range(len(one.place))}
        found = [one for one in found if not (one.kind == "too_short" and one.place in around)]
    return found


def _finding(data: Any, item: Any) -> Finding:
    location = item["loc"]
    key = bool(location) and location[-1] == KEY
    if key or item["type"] == "missing":
        location = location[:-1]
    trail = next(_trails(data, location, item if not key else None), None)
    if trail is None:  # The value at no reading of the location is the one that was refused.
        trail = next(_trails(data, location, None), ())
    if item["type"] == TAG:
        trail = (*trail, (True, str(item["ctx"]["discriminator"]).strip("'")))
    return Finding((item,), trail, key or item["type"] == "extra_forbidden")


def _trails(data: Any, location: tuple[Any, ...], item: Any) -> Iterator[Trail]:
    """All readings of a location; with an `item`, those that end at the value it complains about."""
    if not location:
        if item is None or _same(data, item["input"]):
            yield ()
        return
    first, rest = location[0], location[1:]
    if _has(data, first):
        yield from (((True, first), *trail) for trail in _trails(data[first], rest, item))
    if isinstance(first, str):
        yield from (((False, first), *trail) for trail in _trails(data, rest, item))


def _has(data: Any, step: str | int) -> bool:
    if isinstance(data, dict):
        return step in data
    return isinstance(data, list) and isinstance(step, int) and step < len(data)


def _same(value: Any, refused: Any) -> bool:
    """Whether this can be the value; structures are told by their kind and size, which costs nothing."""
    if isinstance(value, dict | list):
        return type(value) is type(refused) and len(value) == len(refused)
    return bool(value == refused) or value != value


def of_best_branches(findings: list[Finding], depth: int = 0) -> list[Finding]:
    """Of each union only the branch that got furthest; where none got anywhere, one finding for all of them."""
    kept = [one for one in findings if len(one.trail) <= depth]
    steps: dict[Any, list[Finding]] = defaultdict(list)
    branches: dict[Any, list[Finding]] = defaultdict(list)
    for one in findings:
        if len(one.trail) > depth:
            is_step, part = one.trail[depth]
            (steps if is_step else branches)[part].append(one)
    for group in steps.values():
        kept += of_best_branches(group, depth + 1)
    rivals = [of_best_branches(group, depth + 1) for group in branches.values()]
    return kept + _best(rivals, depth)


def _best(rivals: list[list[Finding]], depth: int) -> list[Finding]:
    if len(rivals) < 2:
        return [one for rival in rivals for one in rival]
    meant = [rival for rival in rivals if not _wrong_shape(rival, depth)]
    if meant:
        return min(meant, key=len)
    first = rivals[0][0]
    items = tuple(item for rival in rivals for one in rival for item in one.items)
    return [Finding(items, first.trail, first.key)]


def _wrong_shape(rival: list[Finding], depth: int) -> bool:
    """Whether the branch that begins at `depth` of the trail was refused for the kind of its value as a whole."""
    first = rival[0]
    return first.kind in WRONG_SHAPE and not any(is_step for is_step, _ in first.trail[depth:])
