"""`kernel.properties` as a step: what it says of relations that need no reference."""

from pathlib import Path

import pytest

from loop.base.processes import finish
from loop.gate.model import PropertiesOutput
from loop.gate.properties import properties
from loop.steps.taken_over import Lasting
from tests.targets import compiled, make_context, open_bench, write_target


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["half_twice"], "1 property holds in 3 checks"),
        (["of_three_rows"], "1 property holds in 1 check"),
        (["half_twice", "row_by_row"], "2 properties hold in 6 checks"),
    ],
)
def test_properties_that_hold_are_counted(
    names: list[str], expected: str, tmp_path: Path, build_cache: Path
) -> None:
    """Each on every workload that it applies to."""
    named = [f"tiny_functions:{name}" for name in names]
    target = write_target(tmp_path, {"right": compiled()}, properties=named)
    with open_bench(tmp_path, target, build_cache) as bench:
        output = finish(properties(make_context(bench, "right"), Lasting())).output
    assert isinstance(output, PropertiesOutput)
    assert (True, expected) == (output.ok, output.message)
