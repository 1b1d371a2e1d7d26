"""Arguments and results of a called function; replaced functions of timer and judge are noticed."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from loop.calls import invocation, memory
from loop.calls.call import Call, FunctionTerms, Refused, TensorFile
from loop.calls.callee import Callee, find_function, rebuild_structure, split_structure
from loop.calls.own_modules import search_folder
from loop.calls.seal import Seal


class Pair(NamedTuple):
    """Two values by name."""

    left: Any
    right: Any


def test_a_structure_is_the_same_around_other_tensors() -> None:
    """Named tuples, lists, dicts, modules and numbers keep their structure; a tensor that occurs twice is one."""
    shared, module = torch.ones(2), torch.nn.Linear(2, 1)
    value = {"a": [shared, 3, Pair(shared, "word")], "m": module}

    apart = split_structure(value)
    rebuilt = rebuild_structure(apart.skeleton, [tensor + 1 for tensor in apart.tensors])

    assert ("a.2.left", "m.weight", "m.bias") == apart.names
    assert rebuilt["a"][0] is rebuilt["a"][2].left
    assert (3, "word") == (rebuilt["a"][1], rebuilt["a"][2].right)
    assert torch.equal(torch.full((2,), 2.0), rebuilt["a"][0])
    assert torch.equal(module.weight + 1, rebuilt["m"].weight)


def test_a_number_or_a_tuple_of_one_is_the_only_output() -> None:
    """A reference may give it so, and the same function as a variant."""
    call = Call("k", "float64", (), TensorFile("output", "", (), "float64"), {}, ())
    callee = Callee(torch.sum, None, FunctionTerms("f"), call, "cpu")
    unit = torch.ones((), dtype=torch.float64)
    assert [[unit]] * 3 == [callee.checked_outputs(result) for result in (unit, (unit,), 1.0)]
    with pytest.raises(Refused, match="got tuple"):
        callee.checked_outputs((unit, unit))


@pytest.mark.parametrize("change", [lambda w: w.neg_(), lambda w: w[0].mul_(2), lambda w: w.mul_(1)])
def test_what_a_module_holds_is_compared_bit_by_bit(change: Callable[[torch.Tensor], object]) -> None:
    """Each changed name is reported; allowed state is restored before the next call."""
    output, function = TensorFile("output", "", (1,), "float32"), torch.nn.BatchNorm1d
    for is_free in (False, True):
        terms = FunctionTerms("f", is_class=True, may_change_state=is_free)
        call = Call("k", "float32", (), output, {}, ())
        callee = Callee(function, lambda: (3,), terms, call, "cpu")
        weight = callee.module.weight  # type: ignore[union-attr]
        change(weight.data)
        altered = bool((weight != 1).any())
        assert callee.changed_state == (["state weight"] if altered and not is_free else [])
        callee.restore_state()
        assert bool((weight != 1).any()) == (altered and not is_free)


def fake(*_: Any, **__: Any) -> Any:
    """Something else."""


def test_nothing_is_broken_that_nobody_touched() -> None:
    """A fresh seal reports nothing, also after further imports."""
    assert [] == Seal().replaced_functions()


@pytest.mark.parametrize(
    ("space", "name", "function"),
    [
        (time, "perf_counter_ns", "time.perf_counter_ns"),
        (json, "dumps", "json.dumps"),
        (memory, "differing_positions", "loop.calls.memory.differing_positions"),
        (invocation.DelayReader, "read", "loop.calls.invocation.DelayReader.read"),
    ],
)
def test_what_is_replaced_is_named(space: Any, name: str, function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions of modules that time and reply, and our own functions and methods."""
    seal = Seal()
    monkeypatch.setattr(space, name, fake)
    assert function in seal.replaced_functions()


@pytest.mark.parametrize(
    ("function", "ending"),
    [
        (memory.differing_positions, "loop.calls.memory.differing_positions (code)"),
        (Path.read_bytes, "Path.read_bytes (code)"),
    ],
)
def test_other_code_in_the_same_function_is_named(
    function: Callable[..., Any], ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our own functions and the classes that we import are checked."""
    seal = Seal()
    monkeypatch.setattr(function, "__code__", fake.__code__)
    broken = seal.replaced_functions()
    monkeypatch.undo()
    assert any(name.endswith(ending) for name in broken)


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
    """Forget modules that another test has imported."""
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
    """It is refused even if both have the function, or if Python's module has no file."""
    (target / place).parent.mkdir(exist_ok=True)
    (target / place).write_text("def mul(a, b):\n    return a + b\n")
    with pytest.raises(Refused, match=f"{place} has the name of .*: rename it"):
        find_function(name)
