"""A project with CUDA variants of the tiny target: `python -m tests.device.make_target FOLDER`."""

import shutil
import sys
from pathlib import Path

from loop.model.target import Target
from tests.conftest import ROOT
from tests.targets import compiled, importable, write_target

ENTRIES = ("right", "side_stream", "synchronises", "default_stream", "nothing", "crashes")
LATER = ("stumbles", "stumbles_aloud", "hangs")  # Right on small inputs only.
FAULTY = ("misaligned", "asserts", "exhausts")
ASSERTS = """
import torch

def double(x):
    # An index outside its tensor: an assertion of torch's own kernel, which ends the context.
    rows = torch.arange(len(x), device=x.device)
    return 2 * (x[rows + 1000] if len(x) > 32 else x)
"""
TRITON = """
import torch
import triton
import triton.language as tl

@triton.jit
def scale(x, y, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + place, 2.0 * tl.load(x + place, mask=place < count), mask=place < count)

def double(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    scale[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""
FLAGS = ["-std=c++17", "-O3", "-arch=native"]
WORKLOADS = {
    "some": [{"N": [2, 64], "M": [3, 1000]}],
    "timed": [{"N": [32, 64, 128, 256, 384, 512, 768, 1024], "M": 1024}],
}


def make_target(folder: Path) -> Target:
    """Write the project; read its manifest."""
    recipe = {"compiler": "nvcc", "flags": FLAGS}
    names = (*ENTRIES, *LATER, *FAULTY)
    variants = {name: compiled(name, device="cuda", sources=["scale.cu"], build=recipe) for name in names}
    variants["torch"] = importable("double", device="cuda", dtypes=["float32"])
    variants["torch_asserts"] = importable("double", device="cuda", dtypes=["float32"], module="asserting")
    variants["triton"] = importable("double", device="cuda", dtypes=["float32"], module="in_triton")
    target = write_target(
        folder,
        variants,
        dtypes={"cpu": "float32", "cuda": "float32"},
        workloads=WORKLOADS,
        flops="N * M",
        bytes="2 * itemsize * N * M",
    )
    (folder / "asserting.py").write_text(ASSERTS)
    (folder / "in_triton.py").write_text(TRITON)
    shutil.copy(ROOT / "tests" / "device" / "scale.cu", folder)
    return target


if __name__ == "__main__":
    make_target(Path(sys.argv[1]))
