"""Hot loops in machine code: which loop is meant, and what counts in it."""

import subprocess
from pathlib import Path

import pytest

from loop.base.processes import finish
from loop.builds.binaries import Disassembler, disassembler, hot_loops, loops_of
from loop.model.resources import HotLoop

MATRIX = """
#include <cuda_fp16.h>
__global__ void product(const unsigned *a, float *c, int count) {
  float sum[4] = {};
  for (int i = 0; i < count; ++i) {
    const unsigned *row = a + i * 192 + threadIdx.x;
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};" : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(row[0]), "r"(row[32]), "r"(row[64]), "r"(row[96]), "r"(row[128]), "r"(row[160]));
  }
  for (int i = 0; i < 4; ++i) c[threadIdx.x * 4 + i] = sum[i];
}
__global__ void none(float *c) { c[threadIdx.x] = 1.0f; }
"""


def listing(*instructions: str, name: str = "_Zk") -> list[str]:
    """What `cuobjdump -sass` prints of a function."""
    lines = ["Fatbin elf code:", "\tcode for sm_89", f"\t\tFunction : {name}", '\t.headerflags\t@"EF_CUDA_SM89"']
    for place, text in enumerate(instructions):
        lines.append(f"        /*{16 * place:04x}*/                   {text} ;      /* 0x000000c5ff017624 */")
        lines.append("                                                      /* 0x000fc600078e00ff */")
    return lines


def loop_of(*instructions: str) -> HotLoop | None:
    """The hot loop of one function."""
    return loops_of(listing(*instructions)).get("_Zk")


def test_instructions_count_from_the_target_to_the_branch() -> None:
    """Both included; predicates do not matter, padding does not count."""
    loop = ["LDSM.16.M88.4 R4, [R1]", "HMMA.16816.F32 R8, R4, R6, R8", "NOP", "@!P0 BRA 0x10"]
    found = loop_of("S2R R1, SR_TID.X", *loop)
    assert HotLoop(instructions=3, tensor=1) == found


def test_of_nested_loops_the_inner_one_is_meant() -> None:
    """The outer one holds it, and its own instructions."""
    inner = ["HMMA.16816.F32.BF16 R8, R4, R6, R8", "IADD3 R1, R1, 0x1, RZ", "@P1 BRA 0x20"]
    found = loop_of("MOV R1, R2", "MOV R3, R2", *inner, "STG.E [R2], R8", "@P0 BRA 0x10")
    assert HotLoop(instructions=3, tensor=1) == found


def test_an_inner_loop_without_matrix_work_is_not_the_hot_one() -> None:
    """A loop of copies inside the loop of products."""
    found = loop_of("HMMA R8, R4, R6, R8", "LDG.E R4, [R2]", "@P1 BRA 0x10", "@P0 BRA 0x0")
    assert HotLoop(instructions=4, tensor=1) == found


def test_of_loops_side_by_side_the_one_with_most_matrix_work_is_taken() -> None:
    """Of equals the shorter: the tiles that need no mask."""
    masked = ["HMMA R8, R4, R6, R8", "ISETP.GE P2, PT, R1, R2, PT", "FSEL R8, R8, -INF, P2", "@P0 BRA 0x0"]
    found = loop_of(*masked, "HMMA R8, R4, R6, R8", "@P0 BRA 0x40")
    assert HotLoop(instructions=2, tensor=1) == found
    found = loop_of(*masked, "IGMMA.64 R8", "HGMMA.64 R8, R4, R6", "@P0 BRA 0x40")
    assert HotLoop(instructions=3, tensor=2) == found


def test_forward_branches_and_branches_to_nowhere_are_no_loops() -> None:
    """Nor is the branch to itself at the end of every kernel."""
    ending = ["HMMA R8, R4, R6, R8", "@P0 BRA 0x40", "BRX R4 -0x120", "EXIT", "BRA 0x40"]
    assert loop_of(*ending) is None


def test_functions_do_not_share_their_addresses() -> None:
    """Each begins at zero."""
    lines = [*listing("HMMA R8", "@P0 BRA 0x0", name="a"), *listing("MOV R1, R2", "@P0 BRA 0x0", name="b")]
    assert {"a": HotLoop(instructions=2, tensor=1)} == loops_of(lines)


def test_a_library_that_cannot_be_read_is_told_from_one_without_loops(tmp_path: Path) -> None:
    """None is not nothing."""
    tools = Disassembler(Path("/bin/false"), Path("/bin/false"))
    assert finish(hot_loops(tmp_path / "nothing.so", "sm_89", tools)) is None


@pytest.mark.parametrize("text", ["", "[]", '{"format": 1}', '{"loops": {"a": {"tensor": 1}}}'])
def test_what_was_read_once_is_kept_beside_the_library(tmp_path: Path, text: str) -> None:
    """Also where the disassembler is gone; a damaged file is read anew."""
    kept = tmp_path / "loops-sm_89.json"
    kept.write_text(text)
    assert finish(hot_loops(tmp_path / "kernel.so", "sm_89", None)) is None
    tool = tmp_path / "cuobjdump"
    tool.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(listing("HMMA R8", "@P0 BRA 0x0")) + "\nEND\n")
    tool.chmod(0o755)
    expected = {"_Zk": HotLoop(instructions=2, tensor=1)}
    assert expected == finish(hot_loops(tmp_path / "kernel.so", "sm_89", Disassembler(tool, tool)))
    assert expected == finish(hot_loops(tmp_path / "kernel.so", "sm_89", None))


@pytest.mark.nvcc
def test_a_real_loop_is_found_in_a_real_library(tmp_path: Path) -> None:
    """One matrix instruction an iteration, as often as it is unrolled."""
    tools = disassembler()
    if tools is None:
        pytest.skip("no cuobjdump with nvdisasm: pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm")
    (tmp_path / "m.cu").write_text(MATRIX)
    library = tmp_path / "m.so"
    subprocess.run(
        ["nvcc", "-arch=sm_89", "-shared", "-Xcompiler", "-fPIC", str(tmp_path / "m.cu"), "-o", str(library)],
        check=True,
        timeout=120,
    )
    found = finish(hot_loops(library, "sm_89", tools))
    assert found is not None
    assert ["_Z7productPKjPfi"] == list(found)
    loop = found["_Z7productPKjPfi"]
    assert loop.tensor in (1, 2, 4, 8)
    assert 0 < loop.share < 0.5
