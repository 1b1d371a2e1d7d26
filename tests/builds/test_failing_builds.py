"""Builds that fail: the first mistake is told with its place, and what is missing with what to install."""

from pathlib import Path

import pytest

from loop.base.places import include_folder
from loop.base.processes import finish
from loop.builds import build as building
from loop.builds.build import BuildFailed
from tests.builds.project import TINY, entries, failure, make_variant, write


def test_a_compile_error_is_told_with_its_place(folder: Path, tmp_path: Path) -> None:
    """The first one only: what follows is mostly its echo. Nothing half-made stays in the cache."""
    write(folder, **{"scale.cpp": TINY["scale.cpp"] + "\nint f() { return missing; }\nint g() { return gone; }\n"})
    failed = failure(folder, tmp_path / "cache")
    assert failed.message.startswith("scale.cpp:5:18: ")
    assert "missing" in failed.message
    assert "gone" in failed.log
    assert [] == entries(tmp_path / "cache")


def test_a_missing_compiler_is_told_with_what_to_install(folder: Path, tmp_path: Path) -> None:
    """Name and package."""
    failed = failure(folder, tmp_path / "cache", compiler="no-such-compiler")
    assert "no-such-compiler: no such compiler on the PATH" == failed.message
    assert "install it, or name another compiler in target.yaml" == failed.hint


def test_a_compiler_that_is_there_and_broken_is_not_called_missing(folder: Path, tmp_path: Path) -> None:
    """A step that would go without a compiler fails on one that does not run."""
    broken = tmp_path / "broken-nvcc"
    broken.write_text("#!/bin/sh\necho 'fatal: something strange' >&2\nexit 1\n")
    broken.chmod(0o755)
    failed = failure(folder, tmp_path / "cache", compiler=str(broken))
    assert f"{broken} is there and does not run" == failed.message
    assert not failed.no_compiler
    assert f"see what `{broken} --version` says" == failed.hint


def test_a_compiler_that_takes_too_long_is_ended(folder: Path, tmp_path: Path) -> None:
    """The limit is the step's; the hint says how to raise it."""
    slow = tmp_path / "slow-compiler"
    slow.write_text(
        '#!/bin/sh\ncase "$*" in *--version*) echo slow 1.0;; *" -M "*) echo "a: scale.cpp";; *) sleep 60;; esac\n'
    )
    slow.chmod(0o755)
    with pytest.raises(BuildFailed, match=r"the compiler was killed after 0\.\d s") as caught:
        finish(
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
