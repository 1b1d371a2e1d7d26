"""How a side is called is said in words, by its kind, its device, and whether a graph replays it."""

import pytest

from loop.calls.call import CommandTerms, FunctionTerms, LibraryTerms, Terms
from loop.model.dtypes import Device
from loop.timing.ways import OFFERED, called
from loop.workers.bench import Side

TERMS: dict[str, Terms] = {
    "c_abi": LibraryTerms("cpu", "f", "", ""),
    "python": FunctionTerms("m:f"),
    "command": CommandTerms(("./run",), {}),
}


def side(kind: str, **environment: str) -> Side:
    """A side of a kind."""
    return Side("v", TERMS[kind], ("float32",), deterministic=True, build_id=None, environment=environment)


@pytest.mark.parametrize(
    ("one", "device", "captured", "expected"),
    [
        (side("c_abi"), "cpu", False, "C, writes into a given output"),
        (side("python"), "cpu", False, "Python, allocates its result"),
        (side("python", **{OFFERED: "offered.json"}), "cpu", False, "PyTorch operator, allocates its result"),
        (side("command"), "cpu", False, "a program, once a call"),
        (side("c_abi"), "cuda", True, "CUDA graph of calls from C, writes into a given output"),
        (side("python"), "cuda", True, "CUDA graph of calls from Python, allocates its result"),
        (side("python"), "cuda", False, "launch by launch from Python, allocates its result"),
    ],
)
def test_a_way_of_being_called_has_words(one: Side, device: Device, captured: bool, expected: str) -> None:
    """What two sides have in common is said in the same words."""
    assert expected == called(one, device, captured=captured)
