"""A module of a target is the target's own file, whatever else has its name, and everybody else keeps theirs."""

import subprocess
import sys
from pathlib import Path

import pytest

from loop.calls import own_modules

FILES = {
    "operator.py": "import operator\n\ndef mul(a, b):\n    return 'own'\n\nTIMES = operator.mul(2, 3)\n",
    "queue.py": "MINE = 'queue'\n",
    "json/__init__.py": "from json.own import MINE\n",
    "json/own.py": "from . import more\nMINE = more.MINE\n",
    "json/more.py": "MINE = 'json'\n",
    "pytest.py": "MINE = 'pytest'\n",
    "loop.py": "MINE = 'loop'\n",
    "numpy/kernel.py": "MINE = 'numpy'\n",
    "torch.py": "raise ImportError('this is not torch')\n",
    "kernel.py": (
        "import queue, json, pytest, loop, torch, subprocess\nfrom json.decoder import JSONDecoder\n"
        "MINE = [queue.MINE, json.MINE, pytest.MINE, loop.MINE]\n"
        "THEIRS = [hasattr(torch, 'add'), subprocess.threading.__name__, JSONDecoder.__module__]\n"
    ),
    "random.py": "def draw():\n    return 4\n",
    "wants.py": "import random\nNUMBER = random.randint(1, 6)\n",
    "plain.py": "import os.path\nMINE = os.path.__name__\n",
}


def told(tmp_path: Path, what: str, files: dict[str, str] = FILES) -> str:
    """What an expression is in a process that has torch and knows the target's folder; `the` imports a module."""
    for name, text in files.items():
        path = tmp_path / "target" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    code = (
        "from loop.calls.torch_side import find, import_module as the\n"
        f"from loop.calls.own_modules import OWN\nOWN.add({str(tmp_path / 'target')!r})\nprint(({what}))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("find('operator:mul')(2, 3), the('operator').TIMES", "('own', 6)"),
        ("the('kernel').MINE", "['queue', 'json', 'pytest', 'loop']"),
        ("the('kernel').THEIRS", "[True, 'threading', 'json.decoder']"),
        ("the('numpy.kernel').MINE, the('numpy/kernel.py').MINE", "('numpy', 'numpy')"),
        ("find('loop:MINE'), find('torch_sdpa').__name__", "('loop', 'torch_sdpa')"),
        ("__import__('operator').mul(2, 3), __import__('random').random() < 1", "(6, True)"),
    ],
)
@pytest.mark.slow
def test_each_gets_its_own_module(tmp_path: Path, what: str, expected: str) -> None:
    """The target's files those of the target, the standard library and torch those that they were made for."""
    assert expected == told(tmp_path, what)


def test_an_import_that_two_files_may_mean_names_both(tmp_path: Path) -> None:
    said = told(tmp_path, "find('wants:NUMBER')")
    assert "module 'random' has no attribute 'randint'" in said
    assert all(one in said for one in (str(tmp_path / "target" / "random.py"), "(wants.py:2)", "/random.py: "))


@pytest.mark.slow
def test_nothing_is_put_between_where_no_name_is_shared(tmp_path: Path) -> None:
    """Ordinary targets run as Python runs them: a copy of a folder hides the folder itself."""
    plain = {"plain.py": FILES["plain.py"]}
    assert "('posixpath', {})" == told(tmp_path, "(the('plain').MINE, OWN.others)", plain)
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "plain.py").write_text("MINE = 'copy'\n")
    assert "('copy', {})" == told(tmp_path, f"(OWN.add({str(copy)!r}) or the('plain').MINE, OWN.others)", plain)


def test_the_target_comes_last_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    own_modules.OwnModules().add(str(tmp_path))
    assert str(tmp_path) == sys.path[-1]
