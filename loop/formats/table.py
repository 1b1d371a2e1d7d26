"""The formats that `loop` knows: how a path is recognised as a task of one, and which file reads it."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from loop.base.documents import did_you_mean
from loop.base.errors import LoopError, UsageError
from loop.base.places import MANIFEST
from loop.formats import flashinfer, flashinfer_target, gpumode, gpumode_target, kernelbench
from loop.formats.model import ForeignTask
from loop.formats.target import Made

MOST_FOLDERS = 20_000
"""Folders that are looked into below one path."""


@dataclass(frozen=True)
class Format:
    """One format of tasks."""

    name: str
    title: str
    claims: Callable[[Path], str | None]
    """Why a file or folder looks like one of its tasks; None where it does not."""
    load: Callable[[Path, str], ForeignTask]
    """Reads one; raises DefinitionError with file and line."""
    target: Callable[[ForeignTask, Mapping[str, Path]], Made]
    """Makes a target of one, with the answers by name."""
    looks_for: str
    """What makes a path one of its tasks, in words."""


FORMATS = (
    Format(
        kernelbench.NAME,
        "KernelBench",
        kernelbench.claims,
        kernelbench.load,
        kernelbench.target,
        "a Python file with Model, get_inputs and get_init_inputs",
    ),
    Format(
        gpumode.NAME, "GPU MODE", gpumode.claims, gpumode.load, gpumode_target.target, "a folder with task.yml"
    ),
    Format(
        flashinfer.TRACE,
        "FlashInfer Trace",
        flashinfer.claims_trace,
        flashinfer.load_trace,
        flashinfer_target.target,
        "a JSON file below a folder `definitions`",
    ),
    Format(
        flashinfer.SOL,
        "SOL-ExecBench",
        flashinfer.claims_sol,
        flashinfer.load_sol,
        flashinfer_target.target,
        "a folder with definition.json and workload.jsonl",
    ),
)


@dataclass(frozen=True)
class Unreadable:
    """A path that looks like a task, and cannot be read as one."""

    format: str
    path: Path
    error: LoopError


def load(path: Path, wanted: str | None = None) -> ForeignTask:
    """The task at a path. Raises LoopError for none, for two formats at once, and for mistakes in its files."""
    chosen, why = recognised(path, wanted)
    return chosen.load(path, why)


def recognised(path: Path, wanted: str | None = None) -> tuple[Format, str]:
    """The format of a task, and by what it was recognised. Raises UsageError for none, and for two at once."""
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder")
    claims = claimed(path, wanted)
    if not claims and ((path / MANIFEST).is_file() or path.name == MANIFEST):
        hint = "`loop kernels verify` says what its inputs cannot show, `loop kernels prove-gate` tries mistakes"
        raise UsageError(f"{path}: a target of loop's own, and no task of another format", hint=hint)
    if not claims:
        sought = "; ".join(
            f"{known.title}: {known.looks_for}" for known in FORMATS if wanted in (None, known.name)
        )
        raise UsageError(f"{path}: no task of a known format", hint=f"looked for {sought}")
    if len(claims) > 1:
        both = " and ".join(f"{form.title} ({why})" for form, why in claims)
        raise UsageError(f"{path}: {both}: two formats at once", hint=f"name one: --format {claims[0][0].name}")
    return claims[0]


def claimed(path: Path, wanted: str | None = None) -> list[tuple[Format, str]]:
    """Formats of which a path looks like a task, each with the reason."""
    names = [known.name for known in FORMATS]
    if wanted is not None and wanted not in names:
        hint = did_you_mean(wanted, names) or f"there are {', '.join(names)}"
        raise UsageError(f"unknown format {wanted!r}", hint=hint)
    reasons = ((known, known.claims(path)) for known in FORMATS if wanted in (None, known.name))
    return [(known, why) for known, why in reasons if why is not None]


def of(name: str) -> Format:
    """The format of that name."""
    return next(known for known in FORMATS if known.name == name)


def is_foreign(path: Path) -> bool:
    """Whether a path is a task of somebody else's rather than a target of loop's own."""
    own = path.name == MANIFEST or (path / MANIFEST).is_file()
    return not own and path.exists() and bool(claimed(path))


def tasks_below(path: Path, wanted: str | None = None) -> Iterator[ForeignTask | Unreadable]:
    """Every task at or below a path, in the order of their names; those that cannot be read with the reason."""
    for place in _places(path, wanted):
        try:
            yield load(place, wanted)
        except LoopError as error:
            names = [known.name for known, _ in claimed(place, wanted)]
            yield Unreadable(" and ".join(names), place, error)


def _places(path: Path, wanted: str | None) -> Iterator[Path]:
    """Files and folders that look like tasks; nothing inside a task is one."""
    if claimed(path, wanted):
        yield path
        return
    for number, (folder, names, files) in enumerate(os.walk(path)):
        here = Path(folder)
        if number > MOST_FOLDERS:
            raise UsageError(f"{path}: more than {MOST_FOLDERS:,} folders", hint="name one of them")
        names[:] = sorted(name for name in names if not name.startswith((".", "__")))
        inside = [name for name in names if claimed(here / name, wanted)]
        yield from (here / name for name in inside)
        names[:] = [name for name in names if name not in inside]
        yield from (here / name for name in sorted(files, key=_by_number) if claimed(here / name, wanted))


def _by_number(name: str) -> tuple[int, str]:
    """Files that begin with a number, in its order."""
    digits = name.split("_")[0]
    return (int(digits) if digits.isdigit() and len(digits) < 9 else 0, name)
