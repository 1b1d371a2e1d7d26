"""Commands for a target whose variants all need a GPU, on a machine with nvcc and no GPU."""

from pathlib import Path

import pytest

from loop.base.errors import UsageError
from loop.cli import runs
from loop.cli.runs import BenchRequest, choose_device_and_variants
from loop.machine.machine import machine as real_machine
from loop.model.record import Machine
from loop.model.target import Target
from loop.steps import setting
from tests.tiny_cuda import cuda, nvcc, write_cuda_target


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    """A target with a variant that only nvcc compiles, on a machine with nvcc and no GPU."""

    def machine() -> Machine:
        return real_machine().model_copy(update={"gpus": (), "nvcc": "13.0"})

    for module in (runs, setting):
        monkeypatch.setattr(module, "machine", machine)
    return write_cuda_target(tmp_path, {"mine": cuda(build=nvcc(), emulation=None)})


@pytest.mark.parametrize("names", [(), ("mine",)])
def test_resources_needs_no_gpu(target: Target, names: tuple[str, ...]) -> None:
    """It compiles what it cannot run."""
    request = BenchRequest("resources", names)
    assert ("cpu", ("mine",), ()) == choose_device_and_variants(request, target)


def test_resources_of_an_unknown_variant_are_refused(target: Target) -> None:
    """The name is refused."""
    with pytest.raises(UsageError, match="no variant 'nosuch'"):
        choose_device_and_variants(BenchRequest("resources", ("nosuch",)), target)


def test_the_hint_names_what_works_without_a_gpu(target: Target) -> None:
    """A command that runs variants names the one that compiles them."""
    with pytest.raises(UsageError) as caught:
        choose_device_and_variants(BenchRequest("verify"), target)
    assert "`loop kernels resources --gpu sm_89 --target FOLDER` compiles it" in str(caught.value.hint)
