"""A toolkit that does not fit the GPU is refused before anything is built or run there. On fake GPUs."""

import json
from pathlib import Path

import pytest

from loop.base.processes import run_to_end
from loop.gate import environment, kernel
from loop.gate.model import TorchOutput
from loop.profile import resource_actions
from loop.profile.resource_actions import KernelFindings
from loop.steps.context import NoArguments
from tests.device.fakes import FakeMachine, fake_bench, fake_target
from tests.projects import loop
from tests.targets import make_context

NEWER = (
    "code from nvcc 13.0 needs driver R580 or newer, this machine has 535.129.03, which runs code up to CUDA 12.2"
)
MEND = "install driver R580 or newer, or use a CUDA 12 toolkit"
UNKNOWN = "nvcc 11.7 compiles for sm_80 to sm_89, not for sm_90 (NVIDIA H200)"


@pytest.fixture
def old_driver(fake: FakeMachine) -> FakeMachine:
    """The machine with a driver of CUDA 12."""
    fake.driver("535.129.03", 12020)
    return fake


def test_code_that_the_driver_cannot_run_is_not_compiled(old_driver: FakeMachine, tmp_path: Path) -> None:
    """Such a variant's build fails with the requirement; other variants are built."""
    with fake_bench(old_driver, tmp_path / "target", "right") as bench, old_driver.here():
        context = make_context(bench, "right", "torch")
        output = run_to_end(kernel.build_variants(context, NoArguments())).output
        assert (False, f"right: {NEWER}") == (output.ok, output.message)
        assert str(output.hint).startswith(MEND)
        assert [] == old_driver.compiled
        sides = [*run_to_end(kernel.build_sides(context, context.task.variants))[0].values()]
        assert ["torch"] == [side.name for side in sides]
        findings = KernelFindings("sm_90", None, {"right": bench.target.variants["right"]})
        run_to_end(resource_actions.build_for_gpu(context, findings))
        assert len(old_driver.compiled) == 2


def test_a_torch_that_the_driver_cannot_run_is_refused(old_driver: FakeMachine) -> None:
    """Its CUDA release is compared with the driver, as nvcc's is."""
    output = TorchOutput(ok=True, message="", version="2.11.0+cu130", cuda_build="13.0")
    with old_driver.here():
        conflict, hint = environment.explain_torch_misfit(output, "2.4", "cuda")
        older = output.model_copy(update={"cuda_build": "12.6"})
        assert "" == environment.explain_torch_misfit(older, "2.4", "cuda")[0]
    assert "torch built for CUDA 13.0 needs driver R580 or newer, this machine has 535.129.03" in conflict
    assert "install a newer driver, or a torch that is built for CUDA 12" == hint


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nvcc", "driver", "message", "remedy"),
    [
        ("13.0", ("535.129.03", 12020), NEWER, MEND),
        ("11.7", ("580.65.06", 13000), UNKNOWN, "install a CUDA toolkit that knows sm_90, older than 14.0"),
    ],
)
def test_every_command_says_so_first(
    fake: FakeMachine, tmp_path: Path, nvcc: str, driver: tuple[str, int], message: str, remedy: str
) -> None:
    """Exit 1 with the remedy; nothing was compiled or run."""
    fake.driver(*driver)
    fake.nvcc(nvcc, unknown="sm_90" if nvcc == "11.7" else "")
    fake_target(tmp_path / "target", "right")
    loop("trust", str(tmp_path / "target"))
    words = ("kernels", "measure", "right", "--target", str(tmp_path / "target"), "--device", "cuda", "--json")
    done = loop(*words, **fake.environment)
    (step,) = json.loads(done.stdout)["steps"]
    assert (1, "build", "failed", f"right: {message}") == (
        done.returncode,
        step["step"],
        step["status"],
        step["message"],
    )
    assert remedy in step["hint"]
    assert [] == fake.compiled


def test_a_missing_nvcc_is_told_with_what_to_install(
    fake: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that fits GPU and driver; where one is installed and not on the PATH, that one."""
    (fake.folder / "nvcc").unlink()
    monkeypatch.setattr(environment, "TOOLKIT_ROOT", str(tmp_path / "usr"))
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    with fake_bench(fake, tmp_path / "target", "right") as bench, fake.here(PATH=str(fake.folder)):
        context = make_context(bench, "right")

        def build() -> tuple[bool, str, str | None]:
            output = run_to_end(kernel.build_variants(context, NoArguments())).output
            return output.ok, output.message, output.hint

        lacks = "right: nvcc: no such compiler on the PATH"
        url = "https://developer.nvidia.com/cuda-toolkit-archive"
        assert (False, lacks, f"install a CUDA toolkit that knows sm_90, older than 14.0: {url}") == build()
        for release in ("12.4", "13.0"):
            compiler = tmp_path / "usr" / f"cuda-{release}" / "bin" / "nvcc"
            compiler.parent.mkdir(parents=True)
            compiler.touch()
        newest = tmp_path / "usr" / "cuda-13.0" / "bin" / "nvcc"
        assert f"{newest} is there: put its folder on the PATH, or name it in target.yaml" == build()[2]
        extension = run_to_end(environment.extension(context, NoArguments())).output
        assert (False, "right needs a build: nvcc: no such compiler on the PATH") == (
            extension.ok,
            extension.message,
        )
