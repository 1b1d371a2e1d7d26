"""The page on targets of format 2: its commands print what it says, and its keys are those of the model."""

import re
from pathlib import Path

import pytest

from loop.model.signature import Baseline, Checker, Generator, Modules, Signature, Tolerance
from loop.model.target import Target
from tests.conftest import ROOT
from tests.docs import shell

TEXT = (ROOT / "docs" / "tasks.md").read_text()
MODELS = {
    "baseline": Baseline,
    "generator": Generator,
    "signature": Signature,
    "modules": Modules,
    "tolerance.T": Tolerance,
}


@pytest.mark.slow
def test_its_commands_print_what_it_says(tmp_path: Path) -> None:
    """The target of the page is verified."""
    for block, expected, code, printed in shell.run(TEXT, tmp_path):
        where = f"docs/tasks.md:{block.line}\n{printed}"
        assert 0 == code, where
        assert expected is not None, where
        assert shell.agrees(printed, expected.body), where


def test_its_keys_are_those_of_a_manifest() -> None:
    """Each key of its table is a field."""
    cells = re.findall(r"^\| (`[^|]*) \|", TEXT, re.MULTILINE)
    keys = [key for cell in cells for key in re.findall(r"`([\w.]+)`", cell)]
    assert "signature.updates" in keys
    for key in keys:
        owner, _, name = key.rpartition(".")
        known = [MODELS[owner]] if owner else [Target, Signature, Checker, Tolerance]
        assert any(name in model.model_fields for model in known), key
