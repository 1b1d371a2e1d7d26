"""A few workloads in the place of many, small and unlike, for a tool that slows calls a hundred times. Pure."""

from collections.abc import Mapping, Sequence

from loop.model.target import Workload

Trait = tuple[str, object]


def few(
    candidates: Sequence[Workload], work: Mapping[str, float], most: float, count: int
) -> tuple[Workload, ...]:
    """At most `count` of the workloads whose work is at most `most`, the least work first; always the same ones.

    Every type, flag and choice that is among them is taken at least once, as far as `count` allows; then those
    with most work, in which loops go round more often. Shapes that differ in their values alone are one. Where all
    are too much, the least is taken. `work`: by the name of the workload.
    """
    unlike = {_shape(one): one for one in reversed(candidates)}
    ordered = sorted(unlike.values(), key=lambda one: (-work[one.name], one.name))
    small = [one for one in ordered if work[one.name] <= most] or ordered[-1:]
    chosen = _covering(small)[:count]
    chosen += [one for one in small if one not in chosen][: count - len(chosen)]
    return tuple(sorted(chosen, key=lambda one: (work[one.name], one.name)))


def _shape(one: Workload) -> tuple[object, ...]:
    """What the course of a kernel may depend on: not the values."""
    return one.dtype, *one.sizes.items(), *_traits(one)


def _traits(one: Workload) -> list[Trait]:
    """Its type, and those attributes that choose between a few ways."""
    ways = [(name, value) for name, value in one.attributes.items() if isinstance(value, bool | str)]
    return [("dtype", one.dtype), *ways]


def _covering(ordered: Sequence[Workload]) -> list[Workload]:
    """Workloads until every trait is there, each one that brings something new."""
    chosen: list[Workload] = []
    seen: set[Trait] = set()
    for one in ordered:
        if not seen.issuperset(_traits(one)):
            chosen.append(one)
            seen.update(_traits(one))
    return chosen
