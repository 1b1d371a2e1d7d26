"""Builds that fail: the first mistake is told with its place, and what is missing with what to install."""

from pathlib import Path

import pytest

from loop.base.places import include_folder
from loop.base.processes import run_to_end
from loop.builds import build as building
from loop.builds.build import BuildFailed, first_error
from tests.builds.project import TINY, entries, failure, make_variant, write


def test_a_compile_error_is_told_with_its_place(folder: Path, tmp_path: Path) -> None:
    """The first one only: what follows is mostly its echo. Nothing half-made stays in the cache."""
    write(folder, **{"scale.cpp": TINY["scale.cpp"] + "\nint f() { return missing; }\nint g() { return gone; }\n"})
    failed = failure(folder, tmp_path / "cache")
    assert failed.message.startswith("scale.cpp:5:18: ")
    assert "missing" in failed.message
    assert "gone" in failed.log
    assert [] == entries(tmp_path / "cache")


def test_a_compiler_that_takes_too_long_is_ended(folder: Path, tmp_path: Path) -> None:
    """The limit is the step's; the hint says how to raise it."""
    slow = tmp_path / "slow-compiler"
    slow.write_text(
        '#!/bin/sh\ncase "$*" in *--version*) echo slow 1.0;; *" -M "*) echo "a: scale.cpp";; *) sleep 60;; esac\n'
    )
    slow.chmod(0o755)
    with pytest.raises(BuildFailed, match=r"the compiler was killed after 0\.\d s") as caught:
        run_to_end(
            building.build(
                "right",
                make_variant(compiler=str(slow)),
                folder,
                cache=tmp_path / "cache",
                include=include_folder(),
                limit_s=0.3,
            )
        )
    assert "raise `limit_s` of the step" in caught.value.hint
    assert [] == entries(tmp_path / "cache")


def test_a_compiler_speaks_english_to_us(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its messages are read here, whatever language the user works in."""
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    polyglot = tmp_path / "polyglot"
    script = (
        'case "$*" in *--version*) echo it 1.0;; *) echo "scale.cpp:1:1: error: in $LC_ALL" >&2; exit 1;; esac'
    )
    polyglot.write_text(f"#!/bin/sh\n{script}\n")
    polyglot.chmod(0o755)
    assert "scale.cpp:1:1: in C" == failure(folder, tmp_path / "cache", compiler=str(polyglot)).message


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (
            "In file included from a.cpp:1:\nb.h:3:7: error: expected ';'\nb.h:9:1: error: x",
            "b.h:3:7: expected ';'",
        ),
        ('a.cu(12): error: identifier "x" is undefined', 'a.cu:12: identifier "x" is undefined'),
        ("a.cu(3): catastrophic error: cannot open source file", "a.cu:3: cannot open source file"),
        ("nvcc fatal   : Unsupported gpu architecture", "nvcc fatal   : Unsupported gpu architecture"),
        ("/usr/bin/ld: cannot find -lgone: No such file", "/usr/bin/ld: cannot find -lgone: No such file"),
        ("a.cpp:1:1: warning: unused\nall is well", None),
        ("", None),
        (
            "/usr/bin/ld: /tmp/ccNrQK2x.o: in function `main':\nc.cpp:(.text+0xa): undefined reference to `foo'\n",
            "c.cpp:(.text+0xa): undefined reference to `foo'",
        ),
    ],
)
def test_the_first_error_of_a_log_is_found(log: str, expected: str | None) -> None:
    """As g++, clang, nvcc and the linker write it."""
    assert expected == first_error(log)
