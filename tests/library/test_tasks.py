"""What of a target of format 2 does not fit together is said at its line."""

import json
from pathlib import Path
from typing import Any

import pytest

from loop.base.errors import DefinitionError
from loop.base.places import project
from loop.library.targets import target
from tests.tasks import write_task


def complaint(folder: Path, **fields: Any) -> str:
    """What is said of an example with these fields in place of its own."""
    write_task(folder, "embedding")
    path = folder / "target.yaml"
    manifest = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({name: value for name, value in manifest.items() if value is not None}, indent=1))
    with pytest.raises(DefinitionError) as raised:
        target(project(folder, folder))
    return raised.value.message


WITH_K = {"N": 1, "V": 1, "D": 1, "K": 2}
SIGNATURE = {"inputs": {"ids": "N", "table": "V D"}, "outputs": {"rows": "N D"}}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"generator": None}, "signature.types.ids: expected a `generator`: nothing else fills an input of int64"),
        (
            {"generator": None, "signature": {"outputs": {"y": "..."}}},
            "signature.inputs: expected inputs with their dimensions, or a `generator`, got none",
        ),
        (
            {"generator": None, "signature": {**SIGNATURE, "inputs": {"x": "..."}}},
            "signature.inputs.x: expected dimensions of x, or a `generator` that makes it, got '...'",
        ),
        (
            {"generator": None, "signature": {**SIGNATURE, "sizes": ["K"]}, "workloads": {"a": [WITH_K]}},
            "signature.sizes: expected a `generator` that takes sizes",
        ),
        (
            {"properties": ["embedding:check"]},
            "properties: expected tensors one by one and one output, whose dimensions the signature tells",
        ),
        (
            {"signature": {**SIGNATURE, "attributes": {"mode": {"kind": "text"}}}},
            "signature.attributes.mode.kind: expected flag, choice or number, got text",
        ),
        (
            {"generator": {"python": "embedding:make", "passes": "somehow"}},
            "generator.passes: expected one of positional, keywords, one, got 'somehow'",
        ),
        (
            {"checker": {"python": "embedding:check", "given": ["outputs", "seed"]}},
            "checker.given.1: expected one of inputs, expected, outputs, got 'seed'",
        ),
        (
            {"modules": {}, "variants": {"c": {"kind": "command", "device": "cpu", "run": ["x"]}}},
            "variants.c.kind: expected a variant in Python: with `modules` functions are classes, got command",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_said_at_its_line(
    fields: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    """Inputs that nobody makes, values that nobody takes, words that mean nothing."""
    said = complaint(tmp_path, **fields)
    assert expected in said
    assert "target.yaml:" in said
