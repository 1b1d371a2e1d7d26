"""How a side is called: calls that are not made alike are not compared without saying so.

A compiled variant may also be called as an operator of PyTorch, as its baseline is.
"""

import json

from loop.calls.call import FunctionTerms
from loop.model.dtypes import Device
from loop.model.measurement import Build
from loop.model.target import CAbiVariant
from loop.timing.contract import contract_of
from loop.workers.bench import Bench, Side
from loop.workers.judge_clock import Way

EMPTY: dict[Way, str] = {
    "c_abi": "C",
    "python": "Python",
    "torch": "PyTorch that only allocates",
    "kernel": "kernel in a CUDA graph",
}
"""Calls that do nothing, by the way they are made."""
OFFERED = "LOOP_OFFERED"
"""Environment variable: the file that tells a worker which build it offers, and of which manifest."""
OPERATORS = "loop.pytorch.offered"
"""The module that has operators; nothing below it imports it, a worker loads it by name."""


def as_operator(bench: Bench, side: Side, build: Build) -> Side:
    """The same build of a side, called as an operator. Raises LoopError for a signature that cannot be one."""
    name, variant = side.name, bench.target.variants[side.name]
    assert isinstance(variant, CAbiVariant)
    contract_of(bench.target, name, variant)
    offer = {"target": bench.target.model_dump(mode="json"), "build": build.model_dump(mode="json")}
    path = bench.scratch / f"offered-{build.build_id}.json"
    path.write_text(json.dumps(offer))
    return side.renamed(
        name,
        terms=FunctionTerms(python=f"{OPERATORS}:{name}"),
        environment={**side.environment, OFFERED: str(path)},
    )


def called(side: Side, device: Device, *, captured: bool) -> str:
    """How a side's calls are made; `captured`: whether a CUDA graph replays them."""
    kind = side.kind
    if kind == "command":
        return "a program, once a call"
    writes = "writes into a given output" if kind == "c_abi" else "allocates its result"
    way = "C" if kind == "c_abi" else "Python"
    if device == "cpu":
        return f"{'PyTorch operator' if OFFERED in side.environment else way}, {writes}"
    return f"CUDA graph of calls from {way}, {writes}" if captured else f"launch by launch from {way}, {writes}"
