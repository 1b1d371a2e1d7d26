"""The assembler's report, and names and code of libraries."""

import subprocess
from pathlib import Path

import pytest

from loop.builds.known_builds import LOG
from loop.builds.resources import has_same_code, parse_report, read_defined_names, read_report, requests_report
from tests.makers import make_build

REPORT = """\
ptxas warning : Registers are spilled to local memory in function '_Z5spillILi90EEvPf', 1112 bytes spill stores
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z5spillILi90EEvPf' for 'sm_80'
ptxas info    : Function properties for _Z5spillILi90EEvPf
    712 bytes stack frame, 1112 bytes spill stores, 1540 bytes spill loads
ptxas info    : Used 64 registers, used 0 barriers, 712 bytes cumulative stack size, 360 bytes cmem[0]
ptxas info    : Compile time = 73.773 ms
ptxas info    : Compiling entry function 'plain_name' for 'sm_90a'
ptxas info    : Function properties for plain_name
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 1 barriers, 4000 bytes smem, 360 bytes cmem[0]
ptxas info    : Compiling entry function '_ZN38_GLOBAL__N__a66f293c_6_odd_cu_5a21a1676hiddenEPf' for 'sm_90a'
ptxas info    : Function properties for _ZN38_GLOBAL__N__a66f293c_6_odd_cu_5a21a1676hiddenEPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers
ptxas info    : Function properties for _Z3recfi
    56 bytes stack frame, 16 bytes spill stores, 16 bytes spill loads
ptxas info    : Function properties for _Z7inlinedf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized
"""
OLDER = """\
ptxas info    : Compiling entry function '_Z4tailPf' for 'sm_70'
ptxas info    : Function properties for _Z4tailPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, 4096 bytes smem, 368 bytes cmem[0], 8 bytes cmem[2]
"""


def test_every_kernel_of_every_architecture_is_read() -> None:
    """Each kernel has its resources; warnings and times are skipped."""
    kernels = {(kernel.architecture, kernel.symbol): kernel for kernel in parse_report(REPORT)}
    spill = kernels["sm_80", "_Z5spillILi90EEvPf"]
    assert (64, 1112, 1540, 712, 0) == (
        spill.registers,
        spill.spill_stores,
        spill.spill_loads,
        spill.stack_bytes,
        spill.shared_bytes,
    )
    plain = kernels["sm_90a", "plain_name"]
    assert (12, 0, 4000, True) == (plain.registers, plain.spill_bytes, plain.shared_bytes, plain.entry)
    assert 4 == len(kernels)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["-Xptxas", "-v"], True),
        (["-Xptxas=-v,-warn-spills"], True),
        (["-res-usage"], True),
        (["-Xptxas", "-O3", "-v"], False),
    ],
)
def test_flags_that_ask_for_a_report(flags: list[str], expected: bool) -> None:
    """The assembler's `-v`, however it gets there; the driver's own is another."""
    assert expected == requests_report(flags)


def test_a_log_that_was_cut_is_noticed(tmp_path: Path) -> None:
    """Kernels may be missing from it."""
    (tmp_path / LOG).write_text(f"{OLDER}\n... 4711 bytes left out ...\n{REPORT}")
    assert read_report(make_build(library=str(tmp_path / "kernel.so")))[1]


SOURCE = """
namespace tiny {
template <typename T, int N> __attribute__((noinline)) T rows(T x) { return x + N; }
template float rows<float, 16>(float);
double missing(double);
}
static int hidden(int x) { return x + 1; }
extern "C" int shown(int x) { return hidden(x) + (int)tiny::missing(x); }
"""


def test_defined_names_are_demangled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Local names count, too; names that are only used do not."""
    folder = tmp_path_factory.mktemp("names")
    (folder / "a.cpp").write_text(SOURCE)
    command = ["g++", "-shared", "-fPIC", "-O0", str(folder / "a.cpp"), "-o", str(folder / "a.so")]
    subprocess.run(command, check=True, timeout=60)
    library = folder / "a.so"
    names = read_defined_names(library)
    assert {"float tiny::rows<float, 16>(float)", "hidden(int)", "shown"} <= set(names)
    assert not [name for name in names if "missing" in name]


def test_libraries_are_the_same_code_without_symbols_and_debug_information(tmp_path: Path) -> None:
    """The folder of the build does not matter; another constant is other code."""
    paths = {}
    for name, flags, number in (("a", ["-g"], 1), ("b", [], 1), ("c", [], 2)):
        source, paths[name] = tmp_path / name / "a.c", tmp_path / f"{name}.so"
        source.parent.mkdir()
        source.write_text(f"int shown(void) {{ return {number}; }}\n")
        command = ["gcc", *flags, "-shared", "-fPIC", "a.c", "-o", str(paths[name])]
        subprocess.run(command, cwd=source.parent, check=True, timeout=60)
    assert has_same_code(paths["a"], paths["b"])
    assert not has_same_code(paths["a"], paths["c"])
