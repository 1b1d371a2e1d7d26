"""The checks of the environment: versions, and a real look at this machine. Drivers: tests/device."""

import json
from pathlib import Path

import pytest

from loop.gate.environment import is_new_enough
from tests.projects import loop


@pytest.mark.parametrize(
    ("version", "at_least", "expected"),
    [
        ("2.13.0+cpu", "2.4", True),
        ("2.4.0", "2.4", True),
        ("2.3.1", "2.4", False),
        ("10.0", "9.9.9", True),
        ("2.11.0a0+git1", "2.11", True),
    ],
)
def test_versions_are_compared_by_number(version: str, at_least: str, expected: bool) -> None:
    """2.13 is newer than 2.4; local parts do not count."""
    assert expected == is_new_enough(version, at_least)


@pytest.mark.slow
def test_the_doctor_misses_a_compiler(tmp_path: Path) -> None:
    """A missing compiler is a fault of the machine: exit 1, and what to install."""
    done = loop("doctor", "--device", "cpu", PATH=str(tmp_path))
    assert (1, True) == (done.returncode, "apt-get install g++" in done.stderr)


@pytest.mark.slow
def test_the_doctor_looks_at_all_five() -> None:
    """The steps are torch, NumPy, hardware, libraries and built variants, each with its output."""
    child = loop("doctor", "--device", "cpu", "--json")
    reply = json.loads(child.stdout)
    steps = {step["step"]: step for step in reply["steps"]}
    assert ["torch", "numpy", "hardware", "libraries", "extension"] == list(steps)
    assert steps["torch"]["output"]["version"] in steps["torch"]["message"]
    assert steps["numpy"]["output"]["shares_memory"]
    assert steps["hardware"]["output"]["matmul_error"] < 1e-5
    assert steps["extension"]["output"]["extension"] in ("ready", "missing")
    assert 0 == child.returncode, child.stdout
