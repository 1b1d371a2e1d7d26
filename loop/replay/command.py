"""`loop sessions replayed`: the end of a recipe. It holds what the commands found against what they found then."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from loop.base.documents import to_json
from loop.base.errors import ExitCode, UsageError
from loop.base.places import cache_folder
from loop.base.screen import Screen
from loop.builds import known_builds
from loop.builds.binaries import same_code
from loop.gate.model import BuildOutput
from loop.machine.machine import machine
from loop.model.base import Printed
from loop.model.output import MeasureOutput, Output, VerifyOutput
from loop.profile.model import ResourcesOutput
from loop.replay.comparing import ReplayComparison, ReplayResult, compare
from loop.replay.expectations import EXPECTED, Expected, checks, kernels, place, speeds

SHOWN = 5
"""Differences in the last line; all stand above it."""
Kind = TypeVar("Kind", bound=Output)
Step = Mapping[str, Any]
Word = Literal["same", "not the same", "cannot tell"]


class Replayed(Printed):
    """What a recipe found, held against what its session had found."""

    verdict: Word
    """What came out."""
    compared: tuple[str, ...]
    """What was compared."""
    differs: tuple[str, ...]
    """What is not the same."""
    unknown: tuple[str, ...]
    """What cannot be compared here."""


def replayed(folder: Path, screen: Screen, *, as_json: bool) -> int:
    """Compare what a recipe left in its folder; the last line says same or not."""
    result = compare(_expected(folder), _rerun(folder))
    result.differs[:0] = [line for line in _read(folder / "differs").splitlines() if line]
    word, code = _verdict(result)
    if as_json:
        screen.data(to_json(Replayed(verdict=word, **vars(result))))
        return code
    screen.data(f"compared: {', '.join(result.compared) or 'nothing'}")
    for line in (*result.differs, *result.unknown):
        screen.data(f"- {line}")
    lines = result.differs or result.unknown
    more = [f"{len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    screen.data(": ".join([word, *(["; ".join([*lines[:SHOWN], *more])] if lines else [])]))
    return code


def _verdict(result: ReplayComparison) -> tuple[Word, int]:
    if result.differs:
        return "not the same", ExitCode.GATE_FAILED
    return ("cannot tell", ExitCode.CANNOT_TELL) if result.unknown else ("same", ExitCode.OK)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint="a recipe makes that folder: sh recipe.sh") from error


def _expected(folder: Path) -> list[Expected]:
    path = folder / "expected.jsonl"
    try:
        return [EXPECTED.validate_json(line) for line in _read(path).splitlines() if line]
    except ValueError as error:
        raise UsageError(f"{path}: not what a recipe expects: {error}") from error


def _rerun(folder: Path) -> ReplayResult:
    """What the commands printed."""
    steps = [step for path in sorted(folder.glob("*.json")) for step in _steps(path)]
    cache = cache_folder() / "builds"
    resources = _outputs(steps, "resources", ResourcesOutput)
    libraries = [library for output in resources for library in output.libraries]
    verified = [*_outputs(steps, "emulate", VerifyOutput), *_outputs(steps, "verify", VerifyOutput)]
    builds: dict[str, dict[str, str]] = {}
    for output in _outputs(steps, "build", BuildOutput):
        for build in output.builds:
            builds.setdefault(build.variant, {})[build.build_id] = build.compiler
    for library in libraries:
        record = known_builds.whole(cache / library.build_id)
        builds.setdefault(library.variants[0], {})[library.build_id] = record["compiler"] if record else ""
    return ReplayResult(
        machine=place(machine()),
        builds=builds,
        checks=checks(verified),
        speeds=speeds(_outputs(steps, "measure", MeasureOutput)),
        kernels=kernels(libraries),
        same_code=lambda build_id: _same_code(folder / f"{build_id}.so", cache / build_id / known_builds.LIBRARY),
        failures={step["step"]: step["message"] for step in steps if step["status"] != "passed"},
    )


def _steps(path: Path) -> Sequence[Step]:
    try:
        steps: Sequence[Step] = json.loads(_read(path) or '{"steps": []}')["steps"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: not what `loop kernels ... --json` prints") from error
    return steps


def _outputs(steps: Sequence[Step], name: str, kind: type[Kind]) -> list[Kind]:
    outputs = (step["output"] for step in steps if step["step"] == name and step["output"])
    known = ({key: value for key, value in output.items() if key in kind.model_fields} for output in outputs)
    return [kind.model_validate(fields) for fields in known]


def _same_code(rebuilt: Path, stored: Path) -> bool | None:
    try:
        return same_code(rebuilt, stored)
    except (OSError, subprocess.SubprocessError):
        return None
