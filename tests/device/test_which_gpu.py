"""Which GPU of a machine everything runs on, what is said of it, and what where there is none. On fake GPUs."""

from pathlib import Path

import pytest

from loop.base.errors import LoopError
from loop.base.places import include_folder
from loop.machine.gpus import detect_gpus
from loop.machine.machine import machine
from loop.steps import setting
from loop.workers.bench import Bench
from tests.device.fakes import GIB, FakeGpu, FakeMachine, fake_target
from tests.projects import loop, make_project

L4 = FakeGpu("NVIDIA L4", "8.9", 24 * GIB)
H200 = FakeGpu()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ("NVIDIA H200", "NVIDIA L4")),
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, ("NVIDIA L4", "NVIDIA H200")),
        ({"CUDA_VISIBLE_DEVICES": "1"}, ("NVIDIA L4",)),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, ("NVIDIA L4", "NVIDIA H200")),
        ({"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, ("NVIDIA H200",)),
        ({"CUDA_VISIBLE_DEVICES": L4.uuid(0)[:12]}, ("NVIDIA L4",)),
    ],
)
def test_gpus_are_numbered_as_a_cuda_program_does(
    fake: FakeMachine, environment: dict[str, str], expected: tuple[str, ...]
) -> None:
    """Fastest first, hidden ones left out; nvidia-smi shows the L4 first in any case. The first is what counts."""
    fake.has(L4, H200)
    with fake.here(**environment):
        found = machine()
        assert expected == found.gpus
        assert {"NVIDIA L4": "8.9", "NVIDIA H200": "9.0"}[expected[0]] == found.capability
        assert ("NVIDIA L4", "NVIDIA H200") == detect_gpus().smi_names


def test_variants_are_compiled_for_the_gpu_that_is_used(fake: FakeMachine, tmp_path: Path) -> None:
    """Not for the one in the first slot: its code would not run."""
    fake.has(L4, H200)
    target = fake_target(tmp_path / "target", "right")
    bench = Bench(target, tmp_path, tmp_path, include_folder(), "cuda", 1)
    for visible, expected in (
        ({}, "-gencode=arch=compute_90a,code=sm_90a"),
        ({"CUDA_VISIBLE_DEVICES": "1"}, "-arch=sm_89"),
    ):
        with fake.here(**visible):
            assert expected in bench.compiled_variants(["right"])["right"].build.flags


@pytest.mark.parametrize(
    ("smi", "init", "environment", "why", "mend"),
    [
        (True, 0, {"CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES='' hides what is there", "unset CUDA_VIS"),
        (True, 0, {"CUDA_VISIBLE_DEVICES": "7"}, "CUDA_VISIBLE_DEVICES='7' hides what is there", "set it to 0"),
        (
            True,
            803,
            {},
            "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH \\(803\\): .*; libcuda is of another version",
            "nvidia-smi",
        ),
        (False, 100, {}, "cuInit says CUDA_ERROR_NO_DEVICE", "nvidia-smi"),
        (False, 999, {}, "the NVIDIA driver does not start: cuInit says unknown error 999; see `dmesg`", ""),
    ],
)
def test_no_gpu_has_a_reason(
    fake: FakeMachine, tmp_path: Path, smi: bool, init: int, environment: dict[str, str], why: str, mend: str
) -> None:
    """And something to do about it."""
    fake.driver("580.65.06", 13000, init)
    if not smi:
        (fake.folder / "nvidia-smi").unlink()
    with fake.here(**environment):
        assert () == machine().gpus
        with pytest.raises(LoopError, match=why) as caught:
            setting.choose_device("cuda", fake_target(tmp_path / "target", "right"))
    assert caught.value.message.startswith("no GPU")
    assert "run with --device cpu, or " in str(caught.value.hint)
    assert mend in str(caught.value.hint)


@pytest.mark.slow
def test_a_command_for_a_gpu_without_one_exits_with_2(fake: FakeMachine, tmp_path: Path) -> None:
    """Before anything is done, with what works instead: `auto` does it."""
    project = make_project(tmp_path / "project")
    loop("trust", str(project))
    hidden = {**fake.environment, "CUDA_VISIBLE_DEVICES": ""}
    for words in (("kernels", "verify", "--device", "cuda"), ("doctor", "--device", "cuda")):
        done = loop(*words, "--target", str(project), **hidden)
        assert (2, "") == (done.returncode, done.stdout)
        assert "hides what is there (NVIDIA H200)" in done.stderr
        assert "run with --device cpu" in done.stderr
    done = loop("kernels", "check", "ours", "--target", str(project), **hidden)
    assert 0 == done.returncode, done.stderr
