"""A few workloads in the place of many: small, unlike, and always the same."""

from typing import Any

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


def test_every_flag_choice_and_type_is_there() -> None:
    """Before those with most work: three large ones do not push out the only small one of its kind."""
    large = [workload(f"large{n}", 900 + n, causal=False, side="left") for n in range(3)]
    others = [
        workload("causal", 3, causal=True, side="left"),
        workload("right", 2, causal=False, side="right"),
        workload("bfloat16", 1, causal=False, side="left", dtype="bfloat16"),
    ]
    assert ["bfloat16", "right", "causal", "large2"] == names(*large, *others, count=4)
