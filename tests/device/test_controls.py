"""Controls of a compiled CUDA variant, on a fake GPU whose streams do their work as late as they may."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from loop.actions.proving import ProofTerms, prove_gate
from loop.model.output import GateOutput
from loop.processes import finish
from tests.device.fakes import FakeMachine, fake_bench
from tests.targets import make_context


@pytest.fixture
def found(fake: FakeMachine, tmp_path: Path) -> Iterator[GateOutput]:
    """What proving the gate on the fake GPU's right kernel finds."""
    with fake_bench(fake, tmp_path / "target", "right") as bench:
        output = finish(prove_gate(make_context(bench, "right"), ProofTerms())).output
        assert isinstance(output, GateOutput)
        yield output


def test_every_control_is_killed_for_its_own_reason(found: GateOutput) -> None:
    """As many kinds as on a processor."""
    for one in found.controls:
        print(one.killed, one.right_reason, one.stage, one.name, one.workload, one.reason)
    print(found.not_applicable)
    assert found.ok, found.message
    assert ((), ()) == (found.survivors, found.wrong_reasons)
