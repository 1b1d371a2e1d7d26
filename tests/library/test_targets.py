"""Contradictions in a target, and best values written into a manifest."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from loop.base.errors import DefinitionError, LoopError
from loop.library.definitions import find_project
from loop.library.targets import read_target, session_hashes, sources_hash
from loop.optimize.tuning import write_best
from tests.own_targets import write_own
from tests.tasks import write_task


def complaint(folder: Path, **fields: Any) -> str:
    """The complaint about an example with these fields."""
    write_task(folder, "embedding")
    path = folder / "target.yaml"
    manifest = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({name: value for name, value in manifest.items() if value is not None}, indent=1))
    with pytest.raises(DefinitionError) as raised:
        read_target(find_project(folder, folder))
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
            {"modules": {}, "variants": {"c": {"kind": "command", "device": "cpu", "run": ["x"]}}},
            "variants.c.kind: expected a variant in Python: with `modules` functions are classes, got command",
        ),
        (
            {"variants": {"baseline": {"kind": "command", "device": "cpu", "run": ["x"]}}},
            "variants.baseline: expected another name, got baseline (the target's own baseline has this name)",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_said_at_its_line(
    fields: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    """Inputs that no generator makes, unused values and unknown words are refused at their line."""
    message = complaint(tmp_path, **fields)
    assert expected in message
    assert "target.yaml:" in message


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a target of a user."""
    return write_own(tmp_path / "softmax", "softmax")


def test_an_edit_of_a_source_is_other_ground(folder: Path) -> None:
    """An edit of the manifest, or a new pattern, changes the hash too."""
    first = sources_hash(find_project(folder, folder))
    (folder / "patterns").mkdir()
    (folder / "patterns" / "mine.yaml").write_text("format: 1\n")
    with_pattern = sources_hash(find_project(folder, folder))
    (folder / "softmax.cpp").write_text((folder / "softmax.cpp").read_text() + "\n// edited\n")
    assert 3 == len({first, with_pattern, sources_hash(find_project(folder, folder))})


def test_each_file_of_a_target_is_recorded(folder: Path) -> None:
    """Changed files can be named when sessions are compared."""
    first = session_hashes(find_project(folder, folder))
    (folder / "softmax.cpp").write_text((folder / "softmax.cpp").read_text() + "\n// edited\n")
    second = session_hashes(find_project(folder, folder))
    assert ["softmax.cpp"] == [name for name, digest in second["files"].items() if digest != first["files"][name]]
    assert (True, False) == (first["harness"] == second["harness"], first["ground"] == second["ground"])


MANIFEST = """# before
tuning:
  tile:  # a comment
    values: {rows: [1, 2]}
    best:
      sm_89: {rows: 1, held: true}   # provisional
      sm_90: {rows: 1, held: true}
    title: after
  other:
    best: {cpu: {rows: 1, held: false}}  # inline
  block:
    best:
      cpu:
        rows: 3
        held: true
# the end
variants: {}
"""


@pytest.mark.parametrize(
    ("name", "device"), [("tile", "sm_89"), ("tile", "sm_90"), ("other", "cpu"), ("block", "cpu")]
)
def test_values_are_replaced_in_their_place(name: str, device: str) -> None:
    """Read back they are the new ones; everything else is the same, comments outside of `best` too."""
    text = write_best(MANIFEST, name, device, {"rows": 64, "held": False})
    expected = yaml.safe_load(MANIFEST)
    expected["tuning"][name]["best"][device] = {"rows": 64, "held": False}
    assert expected == yaml.safe_load(text)
    assert {"# before", "# a comment", "# the end"} <= {*text.replace("tile:  ", "\n").splitlines()}


def test_what_cannot_be_written_without_harm_is_refused() -> None:
    """If another part of the manifest refers to the values, nothing is written, and they are shown."""
    manifest = "tuning:\n  tile:\n    best: {sm_90: &a {rows: 1}}\nelsewhere: *a\n"
    with pytest.raises(LoopError, match=r"tuning\.tile\.best\.sm_90 cannot be put into") as caught:
        write_best(manifest, "tile", "sm_90", {"rows": 2})
    assert "write it in by hand: sm_90: {rows: 2}" == caught.value.hint
