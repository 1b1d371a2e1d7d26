"""A manifest of format 1 is read as format 2 writes it."""

import json
from pathlib import Path
from typing import Any

import pytest

from loop.base.errors import DefinitionError
from loop.library.definitions import read_file
from loop.model.target import Target

OLD: dict[str, Any] = {
    "format": 1,
    "name": "tiny",
    "function": "scale",
    "signature": {"inputs": {"x": "N M"}, "output": "N M", "types": {"output": "float64"}},
    "reference": {"python": "f:double"},
    "baseline": {"python": "f:library"},
    "tolerance": {"float32": {"atol": 1e-4, "rtol": 0.0}},
    "dtypes": {"cpu": "float32"},
    "workloads": {"some": [{"N": 2, "M": 3}]},
    "variants": {"own": {"kind": "python", "device": "cpu", "module": "f", "function": "g"}},
}
PART = {
    "of": "own",
    "title": "half of it",
    "entry": "half",
    "signature": {"inputs": {"x": "N"}, "output": "N"},
    "reference": {"python": "f:half"},
    "workloads": [{"N": 2}],
}


def read(folder: Path, **fields: Any) -> Target:
    """A manifest in a folder."""
    (folder / "target.yaml").write_text(json.dumps({**OLD, **fields}, indent=1))
    return read_file(folder / "target.yaml", Target).value


def test_the_only_output_of_format_1_is_one_of_the_outputs(tmp_path: Path) -> None:
    """Its name is `output`, in the target's signature and in those of components."""
    target = read(tmp_path, components={"half": PART})

    assert target.format == 2
    assert target.signature.outputs == {"output": "N M"}
    signature = target.components["half"].signature
    assert signature is not None
    assert signature.outputs == {"output": "N"}


def test_format_2_has_outputs_only(tmp_path: Path) -> None:
    """A signature of both formats at once is refused, at its line."""
    with pytest.raises(DefinitionError, match=r"target.yaml:\d+:\d+: signature.output: expected a known name"):
        read(tmp_path, format=2)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    """It is not read as if it were one that is known."""
    with pytest.raises(DefinitionError, match=r"target.yaml:2:\d+: format: expected one of 2, got 3"):
        read(tmp_path, format=3)
