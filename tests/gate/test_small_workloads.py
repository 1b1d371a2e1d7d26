"""A few workloads in the place of many: small, unlike, and always the same."""

from typing import Any

import pytest

from loop.gate.sanitizing import few
from loop.model.target import Workload


def workload(name: str, size: int = 4, **attributes: Any) -> Workload:
    """A workload of that size."""
    dtype = attributes.pop("dtype", "float16")
    values = attributes.pop("values", "normal")
    return Workload(name=name, sizes={"N": size}, attributes=attributes, dtype=dtype, values=values)


def names(*candidates: Workload, most: float = 1000, count: int = 3) -> list[str]:
    """Names of those that are chosen; the work of a workload is its size."""
    work = {one.name: float(one.sizes["N"]) for one in candidates}
    return [one.name for one in few(candidates, work, most, count)]


def test_what_is_too_much_work_is_left_out() -> None:
    """The least work comes first."""
    assert ["a", "b"] == names(workload("b", 5), workload("a", 4), workload("huge", 5000))


def test_where_all_are_too_much_the_least_is_taken() -> None:
    """Something is better than nothing."""
    assert ["big"] == names(workload("big", 2000), workload("huge", 5000))


def test_every_flag_choice_and_type_is_there() -> None:
    """Before those with most work: three large ones do not push out the only small one of its kind."""
    large = [workload(f"large{n}", 900 + n, causal=False, side="left") for n in range(3)]
    others = [
        workload("causal", 3, causal=True, side="left"),
        workload("right", 2, causal=False, side="right"),
        workload("bfloat16", 1, causal=False, side="left", dtype="bfloat16"),
    ]
    assert ["bfloat16", "right", "causal", "large2"] == names(*large, *others, count=4)


def test_the_rest_goes_to_most_work() -> None:
    """Loops go round more often there, and more tiles meet."""
    assert ["c", "d", "e"] == names(*[workload(name, size) for size, name in enumerate("abcde")])


def test_shapes_that_differ_in_values_alone_are_one() -> None:
    """A race does not ask what is added up; the first of them is taken."""
    alike = [workload("normal"), workload("sharp", values="sharp"), workload("scaled", scale=-0.3)]
    assert ["normal"] == names(*alike)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_choice_does_not_depend_on_the_order(count: int) -> None:
    """Of the candidates."""
    made = [workload(f"w{n}", n, causal=bool(n % 2)) for n in range(8)]
    assert names(*made, count=count) == names(*reversed(made), count=count)
    assert count >= len(names(*made, count=count))


def test_nothing_to_choose_from_is_nothing() -> None:
    """A variant may take none of the types."""
    assert () == few([], {}, 1.0, 3)
