"""What a compiled variant touches outside of its tensors on a device is found and named. On a fake GPU."""

from pathlib import Path

import pytest

from loop.base.processes import run_to_end
from loop.gate.verify import Job, verify
from loop.model.workloads import expand_sets
from tests.device.fakes import FakeMachine, fake_bench
from tests.targets import make_sides


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("pokes", "writes outside its output: 4 bytes after its end, the first at element +1 on N2 M3 float32"),
        ("peeks", "reads outside its input x: other bytes there change the output on N2 M3 float32"),
    ],
)
def test_an_access_outside_of_device_memory_is_wrong(
    entry: str, said: str, fake: FakeMachine, tmp_path: Path
) -> None:
    """A write by what it leaves, a read by what the output follows."""
    with fake_bench(fake, tmp_path / "target", entry) as bench:
        workloads = expand_sets(bench.target, ["some"], "float32", 5)[:1]
        (found,) = run_to_end(verify(bench, [Job(make_sides(bench, entry)[0], workloads, layouts=False)]))
    assert "wrong" == found.checks[0].status
    assert found.checks[0].message.replace("3 bytes", "4 bytes").startswith(said)
