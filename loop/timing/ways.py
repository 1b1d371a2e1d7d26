"""How a side is called: calls that are not made alike are not compared without saying so."""

from loop.model.dtypes import Device
from loop.workers.bench import Side
from loop.workers.judge_clock import Way

EMPTY: dict[Way, str] = {
    "c_abi": "C",
    "python": "Python",
    "torch": "PyTorch that only allocates",
    "kernel": "kernel in a CUDA graph",
}
"""Calls that do nothing, by the way they are made."""


def called(side: Side, device: Device, *, captured: bool) -> str:
    """How a side's calls are made; `captured`: whether a CUDA graph replays them."""
    kind = side.kind
    if kind == "command":
        return "a program, once a call"
    writes = "writes into a given output" if kind == "c_abi" else "allocates its result"
    way = "C" if kind == "c_abi" else "Python"
    if device == "cpu":
        return f"{way}, {writes}"
    return f"CUDA graph of calls from {way}, {writes}" if captured else f"launch by launch from {way}, {writes}"
