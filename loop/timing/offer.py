"""A compiled variant as an operator of PyTorch, so that it is called as its baseline is."""

import json

from loop.model.measurement import Build
from loop.model.target import CAbiVariant
from loop.timing.contract import contract_of
from loop.workers.bench import Bench, Side

OFFERED = "LOOP_OFFERED"
"""Environment variable: the file that tells a worker which build it offers, and of which manifest."""
OPERATORS = "loop.pytorch.offered"
"""The module that has operators; nothing below it imports it, a worker loads it by name."""
SUFFIX = " as an operator"


def as_operator(bench: Bench, side: Side, build: Build) -> Side:
    """The very build of a side, called as an operator. Raises LoopError for a signature that cannot be one."""
    name, variant = side.name, bench.target.variants[side.name]
    assert isinstance(variant, CAbiVariant)
    contract_of(bench.target, name, variant)
    offer = {"target": bench.target.model_dump(mode="json"), "build": build.model_dump(mode="json")}
    path = bench.scratch / f"offered-{build.build_id}.json"
    path.write_text(json.dumps(offer))
    return side.renamed(
        f"{name}{SUFFIX}",
        terms={"kind": "python", "python": f"{OPERATORS}:{name}"},
        environment={**side.environment, OFFERED: str(path)},
    )
