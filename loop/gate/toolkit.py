"""Can what a compiler makes run on the GPU at hand? Asked before anything is compiled or run."""

import os
import shutil
from pathlib import Path

from loop.builds.compiler_errors import BuildFailed
from loop.machine import toolkits
from loop.machine.gpus import Gpu, gpus
from loop.machine.machine import nvcc_release
from loop.model.target import CAbiVariant

USUAL = "/usr/local"
"""Where NVIDIA's installer puts toolkits; a distribution's package puts nvcc on the PATH."""


def must_fit(variant: CAbiVariant) -> None:
    """Raise BuildFailed where a variant cannot be compiled for the GPU here, or its code could not run there.

    What the driver would say at the first launch, `invalid device function` or less, helps nobody.
    """
    problem = _missing(variant) or misfit(variant)
    if problem is not None:
        raise BuildFailed(*problem, "", no_compiler=True)


def misfit(variant: CAbiVariant) -> tuple[str, str] | None:
    """Why code of a variant's nvcc does not fit the GPU here, and what mends it; None where it does.

    For another compiler, or one that is not there, nothing is known.
    """
    here, gpu = gpus(), _gpu_of(variant)
    release = nvcc_release(variant.build.compiler) if gpu else None
    if gpu is None or release is None:
        return None
    conflict = toolkits.too_new("code from nvcc", release, here.cuda, here.driver)
    if conflict:
        return conflict, toolkits.older_toolkit(release, here.cuda)
    unknown = toolkits.unknown_gpu(release, gpu.architecture)
    if unknown and toolkits.builds_for(variant.build.flags, gpu.architecture):
        return f"{unknown} ({gpu.name})", toolkits.fitting_toolkit(gpu.architecture, here.cuda)
    return None


def _missing(variant: CAbiVariant) -> tuple[str, str] | None:
    """Why there is no nvcc to build with, and what mends it; None where there is one."""
    compiler, gpu = variant.build.compiler, _gpu_of(variant)
    if gpu is None or shutil.which(compiler) is not None:
        return None
    other = elsewhere()
    where = f"{other} is there: put its folder on the PATH, or name it in target.yaml"
    hint = where if other else toolkits.fitting_toolkit(gpu.architecture, gpus().cuda)
    return f"{compiler}: no such compiler on the PATH", hint


def _gpu_of(variant: CAbiVariant) -> Gpu | None:
    """The GPU that nvcc builds a variant for; None where nvcc does not build it, or there is no GPU."""
    by_nvcc = variant.device == "cuda" and Path(variant.build.compiler).name == "nvcc"
    return gpus().first if by_nvcc else None


def elsewhere() -> str:
    """An nvcc that is installed and not on the PATH; empty when none is found."""
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    folders = [*map(Path, homes), *sorted(Path(USUAL).glob("cuda*"), key=_newest_first)]
    return next((str(folder / "bin/nvcc") for folder in folders if (folder / "bin/nvcc").is_file()), "")


def _newest_first(folder: Path) -> list[int]:
    """`cuda` itself, then `cuda-13.0` before `cuda-12.4`."""
    numbers = [int(word) for word in folder.name.removeprefix("cuda").strip("-").split(".") if word.isdecimal()]
    return [-number for number in numbers] if numbers else [-1_000_000]
