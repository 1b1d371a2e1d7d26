"""The choice of a machine's GPU, its roofs, and messages without a GPU. Fakes."""

from pathlib import Path

import pytest

from loop.base.errors import LoopError
from loop.base.places import include_folder
from loop.base.processes import run_to_end
from loop.machine.machine import detect_gpus, machine
from loop.model.measurement import Measurement
from loop.steps import setting
from loop.timing.doubts import explain_impossible_speed
from loop.workers.bench import Bench
from tests.device.fakes import GIB, FakeGpu, FakeMachine, fake_target
from tests.makers import make_measurement, make_workload
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
    """Fastest first, without hidden ones; the first one counts. nvidia-smi lists the L4 first in any case."""
    fake.has(L4, H200)
    with fake.here(**environment):
        facts = machine()
        assert expected == facts.gpus
        assert {"NVIDIA L4": "8.9", "NVIDIA H200": "9.0"}[expected[0]] == facts.capability
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
            "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH \\(803\\): .*; libcuda does not fit the kernel module",
            "nvidia-smi",
        ),
        (False, 100, {}, "cuInit says CUDA_ERROR_NO_DEVICE", "nvidia-smi"),
        (False, 999, {}, "the NVIDIA driver does not start: cuInit says unknown error 999; see `dmesg`", ""),
    ],
)
def test_no_gpu_has_a_reason(
    fake: FakeMachine, tmp_path: Path, smi: bool, init: int, environment: dict[str, str], why: str, mend: str
) -> None:
    """The reason comes with a remedy."""
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
    """Nothing is done before; the hint names `auto`."""
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


def claim(us: float, rows: int = 1, flops_per_s: float | None = None) -> Measurement:
    """A call on `rows` rows of 4 KiB."""
    workload = make_workload("w", sizes={"N": rows, "M": 1024})
    return make_measurement(candidate_us=us, flops_per_s=flops_per_s).model_copy(update={"workload": workload})


@pytest.mark.slow
def test_an_empty_kernel_is_measured_in_a_graph(bench: Bench) -> None:
    """A quicker time is impossible, from C and from Python; an equal one is possible."""
    floors = run_to_end(bench.measure_floors())
    empty_us = floors.call_s_by_way["kernel"] * 1e6
    assert 0 < empty_us < 1e3
    for kind in ("c_abi", "python"):
        assert run_to_end(explain_impossible_speed(bench, claim(empty_us / 1e4, 0), kind)).startswith(
            "faster than an empty call: "
        )
        assert "" == run_to_end(explain_impossible_speed(bench, claim(empty_us + 1.0, 0), kind))


def test_bytes_and_operations_have_the_roof_of_the_gpu_at_hand(bench: Bench) -> None:
    """A gigabyte in a microsecond and ten times the peak rate are impossible; the peak is possible."""
    assert run_to_end(explain_impossible_speed(bench, claim(1.0, 1 << 18), "command")).startswith(
        "faster than memory: 1.07e+03 MB"
    )
    most = 2048 * 4 * 1.98e9
    reason = run_to_end(explain_impossible_speed(bench, claim(10.0, 1, 10 * most), "command"))
    assert reason.startswith("faster than the device: ")
    assert "4 multiprocessors of compute capability 9.0" in reason
    assert "" == run_to_end(explain_impossible_speed(bench, claim(10.0, 1, most), "command"))
