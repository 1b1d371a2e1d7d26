"""The formats that `loop` knows: how a path is recognised as a task of one, and which file reads it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from loop.base.documents import did_you_mean
from loop.base.errors import UsageError
from loop.base.places import MANIFEST
from loop.formats import flashinfer, flashinfer_target, gpumode, gpumode_target, kernelbench
from loop.formats.model import ForeignTask
from loop.formats.target import Made


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
