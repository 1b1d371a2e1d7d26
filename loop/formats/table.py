"""The known formats of foreign tasks: recognise a path, read its task, make a target of it."""

import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from loop.base.documents import content_hash, did_you_mean, hash_files, to_json, write_atomic
from loop.base.errors import ExitCode, UsageError
from loop.base.places import MANIFEST, tasks_folder
from loop.base.screen import Screen, table_lines, terminal_columns
from loop.formats import flashinfer, flashinfer_target, gpumode, kernelbench
from loop.formats.gpumode import target
from loop.formats.model import AcceptanceRule, ForeignTask, Inspected, hindrances
from loop.formats.target import TargetDraft
from loop.library import trust as origin
from loop.machine.gpus import gpus


@dataclass(frozen=True)
class Format:
    """One format of foreign tasks, with the functions that handle it."""

    name: str
    title: str
    claims: Callable[[Path], str | None]
    """Gives why a path looks like a task of this format; None if it does not."""
    load: Callable[[Path, str], ForeignTask]
    """Reads a task, from its path and the reason of `claims`; raises DefinitionError."""
    target: Callable[[ForeignTask, Mapping[str, Path]], TargetDraft]
    """Makes a target of a task and its answers (name to file)."""
    looks_for: str
    """The files by which the format is recognised, in words."""


FORMATS = (
    Format(
        kernelbench.NAME,
        "KernelBench",
        kernelbench.claims,
        kernelbench.load,
        kernelbench.target,
        "a Python file with Model, get_inputs and get_init_inputs",
    ),
    Format(gpumode.NAME, "GPU MODE", gpumode.claims, gpumode.load, target, "a folder with task.yml"),
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
    """Read the task at a path. Raises LoopError unless one format fits and its files are right."""
    chosen, why = recognise(path, wanted)
    return chosen.load(path, why)


def recognise(path: Path, wanted: str | None = None) -> tuple[Format, str]:
    """The format of a task, and how it was recognised. Raises UsageError unless one format fits."""
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder")
    claims = claiming_formats(path, wanted)
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


def claiming_formats(path: Path, wanted: str | None = None) -> list[tuple[Format, str]]:
    """The formats that a path looks like, each with the reason; `wanted`: try only this one."""
    names = [known.name for known in FORMATS]
    if wanted is not None and wanted not in names:
        hint = did_you_mean(wanted, names) or f"there are {', '.join(names)}"
        raise UsageError(f"unknown format {wanted!r}", hint=hint)
    reasons = ((known, known.claims(path)) for known in FORMATS if wanted in (None, known.name))
    return [(known, why) for known, why in reasons if why is not None]


def format_named(name: str) -> Format:
    """The format of that name."""
    return next(known for known in FORMATS if known.name == name)


def is_foreign(path: Path) -> bool:
    """Whether a path is a foreign task rather than a target of `loop`."""
    own = path.name == MANIFEST or (path / MANIFEST).is_file()
    return not own and path.exists() and bool(claiming_formats(path))


FOR_GOOD = ("contract", "several GPUs", "dependency", "download", "file")
"""Kinds of hindrance that no choice of cases or device avoids."""


def as_target(path: Path, answers: Sequence[str] = (), form: str | None = None) -> tuple[Path, tuple[str, ...]]:
    """Write a task as a target; returns the target's folder and the names of its answers.

    `answers`: paths of answer files; `form`: the format's name, None: recognise it. Raises LoopError for a
    task that cannot be read or run here, and for an answer without the required entry.
    """
    task = load(path.absolute(), form)
    files = [Path(answer).absolute() for answer in answers]
    names = _names(files)
    folder = tasks_folder() / content_hash("\0".join(map(str, (task.path, form, *files))))[:16]
    refuse_unrunnable(task)
    target = format_named(task.format).target(task, dict(zip(names, files, strict=True)))
    paths = dict(zip(names, map(str, files), strict=True))
    _write(
        folder / origin.ORIGIN_FILE,
        origin.TaskOrigin(task=str(task.path), format=form, answers=paths).to_json_text(),
    )
    _link(folder, target.links)
    for name, text in target.texts.items():
        _write(folder / name, text)
    name = re.sub(r"[^a-z0-9_-]+", "-", f"{task.format}-{task.name}".lower())[:64]
    content = hash_files(task.files, Path("/"))
    head = f"{origin.MADE_MARK} {task.path} ({task.format}), whose files have the content {content}.\n"
    manifest = to_json({"format": 2, "name": name, **target.fields})  # JSON is valid YAML.
    _write(folder / MANIFEST, f"{head}{manifest}\n")
    return folder, tuple(names)


def made_of(folder: Path) -> tuple[ForeignTask, dict[str, Path]] | None:
    """The foreign task of a target, and its answers (name to path); None for other targets."""
    manifest = origin.read_origin(folder)
    if manifest is None:
        return None
    answers = {name: Path(path) for name, path in manifest.answers.items()}
    return load(Path(manifest.task), manifest.format), answers


def refuse_unrunnable(task: ForeignTask) -> None:
    """Raise UsageError, with all reasons, if `loop` cannot run a task on this machine."""
    reasons = [need.what for need in hindrances(task, len(gpus().usable)) if need.kind in FOR_GOOD]
    if reasons:
        raise UsageError(
            f"{task.path}: not run here: it needs {'; '.join(reasons)}", f"loop targets inspect {task.path}"
        )


def _names(files: Iterable[Path]) -> list[str]:
    """A unique name for each answer, from its file name. Raises UsageError for a missing file."""
    names: list[str] = []
    for path in files:
        if not path.is_file():
            raise UsageError(f"{path}: no such file", hint="an answer to a task of another format is a file")
        name = re.sub(r"[^a-z0-9_]+", "_", path.stem.lower()).strip("_")[:48]
        name = name if name[:1].isalpha() else f"answer_{name}"
        names.append(name if name not in names else f"{name}_{len(names)}")
    return names


def _link(folder: Path, links: Mapping[str, Path]) -> None:
    """Make symbolic links (name to file); a link to another file is replaced."""
    for name, path in links.items():
        link = folder / name
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink() or link.readlink() != path:
            # Another process or thread may make the same target now, so replace atomically.
            new = link.with_name(f"{link.name}.{os.getpid()}.{threading.get_ident()}")
            new.symlink_to(path)
            new.replace(link)


def _write(path: Path, text: str) -> None:
    """Write a file, unless its text is the same already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text() != text:
        write_atomic(path, text)


SHOWN = 3
"""Most cases that are shown."""
YES_NO = {True: "yes", False: "no", None: "unknown"}


def inspect(path: Path, form: str | None, screen: Screen, *, as_json: bool) -> int:
    """Print a description of the task at a path, without importing or running its code."""
    task = load(path, form)
    needs = hindrances(task, len(gpus().usable))
    names = () if needs else tuple(case.name for case in task.cases)
    if as_json:
        screen.data(to_json(Inspected(**dict(task), runs=names, hindrances=tuple(needs))))
        return ExitCode.OK
    timing, facts = task.timing, [("format", f"{format_named(task.format).title}: {task.why}")]
    facts += [("task", f"{task.name} ({task.path})"), ("answer", f"{task.entry}, in {', '.join(task.languages)}")]
    timed = sum("time" in case.use for case in task.cases)
    facts += [("reference", task.reference), ("cases", f"{len(task.cases)}, {timed} of them timed")]
    for case in task.cases[:SHOWN]:
        arguments = " ".join(f"{name}={value}" for name, value in case.arguments.items())
        facts.append(("", f"{case.name}: {arguments or 'inputs are known only when its generator runs'}"))
    cleared = f"cache cleared: {YES_NO[timing.cold_cache]}; fresh inputs: {YES_NO[timing.fresh_inputs]}"
    facts += [
        ("types", ", ".join(task.dtypes)),
        ("right if", _judging(task.judging)),
        ("timed by", timing.method),
        ("", f"{cleared}; timed outputs checked: {YES_NO[timing.checked]}"),
        ("score", timing.score),
        ("made for", ", ".join(task.made_for)),
        ("runs here", f"{len(names)} of {len(task.cases)} cases"),
        *(("needs", need.what) for need in needs),
        *(("note", hint) for hint in task.hints),
    ]
    _, *lines = table_lines(("", ""), [fact for fact in facts if fact[1]], terminal_columns(screen.out))
    screen.data("\n".join(lines))
    return ExitCode.OK


def _judging(judging: AcceptanceRule) -> str:
    """An acceptance rule in words."""
    words = [f"its own checker says so: {judging.checker}"] if judging.checker else []
    if judging.atol is not None and judging.rtol is not None:
        joint = "or" if judging.either else "+"
        words.append(f"error <= {judging.atol:g} {joint} {judging.rtol:g} x |expected|")
    words += [f"for {100 * judging.matched_ratio:g} % of elements"] if judging.matched_ratio < 1 else []
    words += [f"no error above {judging.cap:g}"] if judging.cap is not None else []
    return "; ".join([*words, *([judging.note] if judging.note else [])])
