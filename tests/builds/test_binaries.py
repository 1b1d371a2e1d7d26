"""Names out of symbols, symbols out of libraries, and what is said where the tools are missing."""

import subprocess
from pathlib import Path

import pytest

from loop.base.processes import finish
from loop.builds.resources import defined_names, demangle, same_code

SOURCE = """
namespace tiny {
template <typename T, int N> __attribute__((noinline)) T rows(T x) { return x + N; }
template float rows<float, 16>(float);
double missing(double);
}
static int hidden(int x) { return x + 1; }
extern "C" int shown(int x) { return hidden(x) + (int)tiny::missing(x); }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shared library with a template instance and something undefined."""
    folder = tmp_path_factory.mktemp("names")
    (folder / "a.cpp").write_text(SOURCE)
    command = ["g++", "-shared", "-fPIC", "-O0", str(folder / "a.cpp"), "-o", str(folder / "a.so")]
    subprocess.run(command, check=True, timeout=60)
    return folder / "a.so"


def test_defined_names_are_demangled(library: Path) -> None:
    """Exported or not; what is only used is not there."""
    names = finish(defined_names(library))
    assert {"float tiny::rows<float, 16>(float)", "hidden(int)", "shown"} <= set(names)
    assert not [name for name in names if "missing" in name]


def test_symbols_keep_their_order_and_oddities() -> None:
    """Plain names stay; the prefix of relocatable device code goes."""
    static = "__nv_static_27__a66f293c_6_odd_cu_5a21a167__Z4statPf"
    found = finish(demangle(["plain", "_ZN4tiny4rowsIfLi16EEET_S1_", static, "_Znonsense"]))
    assert ["plain", "float tiny::rows<float, 16>(float)", "stat(float*)", "_Znonsense"] == list(found.values())
    assert {} == finish(demangle([]))


def test_without_tools_names_stay_mangled_and_nothing_is_looked_up(
    library: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And that is told from an empty library."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert {"_Z1ai": "_Z1ai"} == finish(demangle(["_Z1ai"]))
    assert finish(defined_names(library)) is None


def test_libraries_are_the_same_code_without_symbols_and_debug_information(tmp_path: Path) -> None:
    """Wherever they are compiled; another constant is other code."""
    made = {}
    for name, flags, number in (("a", ["-g"], 1), ("b", [], 1), ("c", [], 2)):
        source, made[name] = tmp_path / name / "a.c", tmp_path / f"{name}.so"
        source.parent.mkdir()
        source.write_text(f"int shown(void) {{ return {number}; }}\n")
        command = ["gcc", *flags, "-shared", "-fPIC", "a.c", "-o", str(made[name])]
        subprocess.run(command, cwd=source.parent, check=True, timeout=60)
    assert same_code(made["a"], made["b"])
    assert not same_code(made["a"], made["c"])
