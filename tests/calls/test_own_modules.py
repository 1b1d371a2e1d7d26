"""Modules of a target are its own files; a name that is taken already is told with both files."""

import sys
from pathlib import Path

import pytest

from loop.calls.call import Refused
from loop.calls.own_modules import search_folder
from loop.calls.torch_side import find_function


@pytest.fixture(autouse=True)
def target(tmp_path: Path) -> Path:
    """The folder of a target, which is searched."""
    folder = tmp_path / "target"
    (folder / "inner_of_test").mkdir(parents=True)
    (folder / "wants_of_test.py").write_text("import helper_of_test\nMINE = helper_of_test.MINE\n")
    (folder / "helper_of_test.py").write_text("MINE = 'target'\n")
    (folder / "inner_of_test" / "kernel.py").write_text("MINE = 'inner'\n")
    (folder / "torch.py").write_text("raise ImportError('this is not torch')\n")
    search_folder(str(folder))
    return folder


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test meets what another has imported."""
    for name in [name for name in sys.modules if "of_test" in name]:
        monkeypatch.delitem(sys.modules, name)


def test_what_lies_beside_a_file_is_imported() -> None:
    assert "target" == find_function("wants_of_test:MINE")
    assert "inner" == find_function("inner_of_test.kernel:MINE")


def test_a_copy_hides_the_folder_itself(tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "helper_of_test.py").write_text("MINE = 'copy'\n")
    search_folder(str(tmp_path / "copy"))
    assert "copy" == find_function("wants_of_test:MINE")


def test_a_name_that_is_taken_is_told_with_both_files(target: Path) -> None:
    """Torch is imported before the folder is searched, and stays."""
    with pytest.raises(Refused, match=r"has the name of .*torch/__init__\.py: rename it") as caught:
        find_function("torch:mine")
    assert str(target / "torch.py") in str(caught.value)


@pytest.mark.parametrize(("name", "place"), [("operator:mul", "operator.py"), ("time:time", "time/__init__.py")])
def test_pythons_own_module_is_not_judged_in_place_of_a_file(name: str, place: str, target: Path) -> None:
    """Also where both have the function, and where Python's has no file."""
    (target / place).parent.mkdir(exist_ok=True)
    (target / place).write_text("def mul(a, b):\n    return a + b\n")
    with pytest.raises(Refused, match=f"{place} has the name of .*: rename it"):
        find_function(name)
