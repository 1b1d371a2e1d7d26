"""The compiler, for the tests of the CUDA layer."""

import subprocess
from pathlib import Path

from tests.conftest import ROOT


def compile_with_nvcc(*arguments: str) -> None:
    """Compile; what the compiler says is the error."""
    command = ["nvcc", "-std=c++17", f"-I{ROOT / 'kernels' / 'include'}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def build_scale(folder: Path, architecture: str) -> Path:
    """The variants of scale.cu as a shared library."""
    library = folder / "scale.so"
    compile_with_nvcc(
        "-shared",
        "-Xcompiler",
        "-fPIC",
        architecture,
        str(ROOT / "tests" / "device" / "scale.cu"),
        "-o",
        str(library),
    )
    return library
