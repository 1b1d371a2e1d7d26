"""The page on own kernels: its files, as they stand there, are a target whose variants are right."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from loop.calls.call import TensorFile
from loop.calls.external import CALL_FIELDS, describe_file
from tests import projects as commands
from tests.conftest import ROOT
from tests.docs import shell

TEXT = (ROOT / "docs" / "own-kernel.md").read_text()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The target of the page."""
    shell.write_files(TEXT, tmp_path)
    return tmp_path


def loop(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the program beside the target."""
    done = [*commands.LOOP, *words, "--target", "my-scale"]
    return subprocess.run(done, cwd=folder, capture_output=True, text=True, env=dict(os.environ), check=False)


def allow(folder: Path) -> None:
    assert 0 == commands.loop("trust", str(folder / "my-scale")).returncode


MISTAKES = {
    "in_c": ("scale.c", "(float)attributes[0]", "3"),
    "eager": ("eager.py", "(x, factor)", "(x, 3)"),
    "program": ("program.c", "*= factor", "*= 3"),
}
"""Variant to its file, a right text in it, and a wrong replacement."""


@pytest.mark.slow
def test_each_kind_is_held_against_the_reference(folder: Path) -> None:
    """The gate finds a mistake in each kind of variant of the page's target."""
    for file, right, wrong in MISTAKES.values():
        path = folder / "my-scale" / file
        assert right in path.read_text()
        path.write_text(path.read_text().replace(right, wrong))
    subprocess.run(["gcc", "-o", "program", "program.c"], cwd=folder / "my-scale", check=True)
    allow(folder)
    done = loop(folder, "kernels", "verify", *MISTAKES, "--workloads", "edges", "--json")
    assert 1 == done.returncode, done.stderr
    (verified,) = [step["output"] for step in json.loads(done.stdout)["steps"] if step["step"] == "verify"]
    assert [*MISTAKES] == verified["wrong"]


@pytest.mark.slow
def test_its_property_holds_and_is_asked(folder: Path) -> None:
    """A false property of the C variant fails the pattern, and is named."""
    path = folder / "my-scale" / "functions.py"
    path.write_text(path.read_text().replace("twice, 2 * once", "twice, 3 * once"))
    allow(folder)
    done = loop(folder, "run", "pattern", "mathematical-gates", "--variant", "in_c", "--json")
    assert "functions:doubles" in done.stdout + done.stderr
    assert 1 == done.returncode


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ninja") is None, reason="torch extensions need ninja")
def test_the_torch_extension_is_right(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled by torch beforehand, called as any other variant."""
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    first = [sys.executable, "-c", "import extension"]
    subprocess.run(first, cwd=folder / "my-scale", env=dict(os.environ), check=True, capture_output=True)
    allow(folder)
    done = loop(folder, "kernels", "verify", "extension", "--workloads", "edges")
    assert 0 == done.returncode, done.stdout + done.stderr


def test_the_triton_kernel_is_python(folder: Path) -> None:
    """Without a GPU, only its syntax is checked."""
    path = folder / "my-scale" / "in_triton.py"
    names = compile(path.read_text(), str(path), "exec").co_names
    assert {"triton", "_scale", "scale"} <= set(names)


@pytest.mark.cuda
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton is installed")
def test_the_triton_kernel_is_right(folder: Path) -> None:
    """On a GPU, it is compared with the reference."""
    allow(folder)
    done = loop(folder, "kernels", "verify", "triton", "--device", "cuda", "--workloads", "edges")
    assert 0 == done.returncode, done.stdout + done.stderr


def test_the_call_of_a_program_is_as_shown() -> None:
    """The page's JSON has the fields of a call, and the fields of each tensor."""
    (shown,) = [json.loads(block.body) for block in shell.blocks(TEXT) if block.language == "json"]
    described = describe_file(TensorFile("x", "x.bin", (3, 5), "float32"), Path("x.bin"))
    assert {*CALL_FIELDS, "inputs", "output"} == set(shown)
    assert [set(described)] * 2 == [set(tensor) for tensor in (*shown["inputs"], shown["output"])]
