"""Damaged definitions: whatever is put where, the answer is a complaint in our words."""

import copy
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from loop.base.documents import load_yaml, parse
from loop.base.errors import DefinitionError
from loop.model.base import Model
from loop.model.pattern import Pattern
from loop.model.target import Target
from tests.conftest import ROOT

ROUNDS = int(os.environ.get("LOOP_FUZZ", "300")) // 3
FILES: list[tuple[type[Model], Path]] = [
    (Pattern, ROOT / "patterns" / "baseline-first.yaml"),
    (Target, ROOT / "kernels" / "attention" / "target.yaml"),
]
VALUES = [
    None,
    True,
    0,
    -1,
    1.5,
    10**299,
    "",
    "soon",
    "3",
    "c_abi",
    "é" * 200,
    [],
    {},
    [[]],
    {"kind": "python"},
    ["x"],
]
FOREIGN = ("Input should", "pydantic", "function-", "constrained", "tagged-union", "tuple[")


def damage(data: Any, chance: random.Random) -> None:
    """Replace, remove or add one value somewhere in nested data."""
    inner = [
        value
        for value in (data.values() if isinstance(data, dict) else data)
        if value and type(value) in (dict, list)
    ]
    if inner and chance.random() < 0.8:
        damage(chance.choice(inner), chance)
        return
    keys = list(data) if isinstance(data, dict) else list(range(len(data)))
    if not keys or chance.random() < 0.2:
        keys = ["with", "kind", "bogus"] if isinstance(data, dict) else []
    elif chance.random() < 0.3:
        del data[chance.choice(keys)]
        return
    if keys:
        data[chance.choice(keys)] = copy.deepcopy(chance.choice(VALUES))


@pytest.mark.parametrize(("model", "path"), FILES, ids=["pattern", "target"])
def test_a_damaged_definition_is_read_or_complained_about(model: type[Model], path: Path) -> None:
    """Every complaint has a place and says what was expected; pydantic's own words never show."""
    chance, whole = random.Random(11), load_yaml(path).data
    refused: list[DefinitionError] = []
    for _ in range(ROUNDS):
        data = copy.deepcopy(whole)
        for _ in range(chance.randint(1, 3)):
            damage(data, chance)
        try:
            parse(model, load_yaml(json.dumps(data, indent=1), "x.yaml"))
        except DefinitionError as error:
            refused.append(error)
    assert len(refused) > ROUNDS // 4
    assert all(error.complaints for error in refused)
    assert [] == [error.message for error in refused if any(word in error.message for word in FOREIGN)]
