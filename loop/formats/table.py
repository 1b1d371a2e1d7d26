"""The known formats of foreign tasks: recognise a path, read its task, make a target of it."""

import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from loop.base.documents import content_hash, did_you_mean, hash_files, to_json, write_atomic
from loop.base.errors import ExitCode, UsageError
from loop.base.places import MANIFEST, tasks_folder
from loop.formats import flashinfer, gpumode, kernelbench
from loop.formats.model import ForeignTask, Inspected, TargetDraft, find_hindrances
from loop.library.trust import MADE_MARK, ORIGIN_FILE, TaskOrigin
from loop.machine.machine import detect_gpus
from loop.model.measurement import BASELINE
from loop.report.screen import Screen, table_lines, terminal_columns


@dataclass(frozen=True)
class Format:
    """One format of foreign tasks, with the functions that handle it."""

    title: str
    claims: Callable[[Path], str | None]
    """Gives why a path looks like a task of this format; None if it does not."""
    load: Callable[[Path], ForeignTask]
    """Reads a task without `why`; raises DefinitionError with the line of a mistake."""
    make_target: Callable[[ForeignTask, Mapping[str, Path]], TargetDraft]
    """Makes a target of a task and its answers (name to file)."""
    looks_for: str  # The files by which the format is recognised, in words.


FORMATS = {
    kernelbench.NAME: Format(
        "KernelBench",
        kernelbench.claims,
        kernelbench.load,
        kernelbench.make_target,
        "a Python file with Model, get_inputs and get_init_inputs",
    ),
    gpumode.NAME: Format("GPU MODE", gpumode.claims, gpumode.load, gpumode.make_target, "task.yml"),
    flashinfer.TRACE: Format(
        "FlashInfer Trace",
        partial(flashinfer.claims, flashinfer.TRACE),
        partial(flashinfer.load, flashinfer.TRACE),
        flashinfer.make_target,
        "a JSON file below a folder `definitions`",
    ),
    flashinfer.SOL: Format(
        "SOL-ExecBench",
        partial(flashinfer.claims, flashinfer.SOL),
        partial(flashinfer.load, flashinfer.SOL),
        flashinfer.make_target,
        "a folder with definition.json and workload.jsonl",
    ),
}
"""Name of each known format to its functions."""


def load_task(path: Path, format_name: str | None = None) -> ForeignTask:
    """Read the task at a path, of this format if given. Raises LoopError, also for its mistakes."""
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder")
    claims = claiming_formats(path, format_name)
    if not claims and ((path / MANIFEST).is_file() or path.name == MANIFEST):
        hint = "`loop kernels verify` judges it, `loop kernels prove-gate` tries mistakes on it"
        raise UsageError(f"{path}: a target of loop's own, and no task of another format", hint)
    if not claims:
        formats = [entry for name, entry in FORMATS.items() if format_name in (None, name)]
        descriptions = "; ".join(f"{entry.title}: {entry.looks_for}" for entry in formats)
        raise UsageError(f"{path}: no task of a known format", hint=f"looked for {descriptions}")
    if len(claims) > 1:
        titles = " and ".join(f"{FORMATS[name].title} ({why})" for name, why in claims.items())
        hint = f"name one: --format {next(iter(claims))}"
        raise UsageError(f"{path}: {titles}: two formats at once", hint)
    ((name, why),) = claims.items()
    return FORMATS[name].load(path).model_copy(update={"why": why})


def claiming_formats(path: Path, format_name: str | None = None) -> dict[str, str]:
    """Name of each format that a path looks like, to the reason. `format_name`: try only this one.
    Raises UsageError for an unknown one."""
    if format_name is not None and format_name not in FORMATS:
        hint = did_you_mean(format_name, [*FORMATS]) or f"there are {', '.join(FORMATS)}"
        raise UsageError(f"unknown format {format_name!r}", hint=hint)
    names = FORMATS if format_name is None else [format_name]
    claims = {name: FORMATS[name].claims(path) for name in names}
    return {name: why for name, why in claims.items() if why is not None}


def write_as_target(
    path: Path, answers: Sequence[str] = (), format_name: str | None = None
) -> tuple[Path, tuple[str, ...]]:
    """Write a task as a target, in a folder named by a hash of the paths. Returns the folder and
    the names of its answers. Equal files stay untouched, so that builds stay valid. `answers`:
    paths of answer files; `format_name`: None to recognise it. Raises LoopError for a task that
    cannot be read or run here, and for an answer without the required entry."""
    task = load_task(path.absolute(), format_name)
    files = [Path(answer).absolute() for answer in answers]
    names: list[str] = []  # A unique name for each answer, from its file name.
    for file in files:
        if not file.is_file():
            raise UsageError(f"{file}: no such file", "an answer to a foreign task is a file")
        name = re.sub(r"[^a-z0-9_]+", "_", file.stem.lower()).strip("_")[:48]
        name = name if name[:1].isalpha() and name != BASELINE else f"answer_{name}"
        names.append(name if name not in names else f"{name}_{len(names)}")
    parts = map(str, (task.path, format_name, *files))
    folder = tasks_folder() / content_hash("\0".join(parts))[:16]
    obstacles = find_hindrances(task, len(detect_gpus().usable))
    # A missing GPU alone does not count: answers may run on the processor.
    reasons = "; ".join(obstacle.what for obstacle in obstacles if obstacle.kind != "cuda")
    if reasons:
        hint = f"loop targets inspect {task.path}"
        raise UsageError(f"{task.path}: not run here: it needs {reasons}", hint)
    target = FORMATS[task.format].make_target(task, dict(zip(names, files, strict=True)))
    paths = dict(zip(names, map(str, files), strict=True))
    origin = TaskOrigin(task=str(task.path), format=format_name, answers=paths)
    for name, file in target.links.items():
        link = folder / name
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink() or link.readlink() != file:
            # Another process or thread may make the same target now, so replace atomically.
            new = link.with_name(f"{link.name}.{os.getpid()}.{threading.get_ident()}")
            new.symlink_to(file)
            new.replace(link)
    name = re.sub(r"[^a-z0-9_-]+", "-", f"{task.format}-{task.name}".lower())[:64]
    content = hash_files(task.files, Path("/"))
    header = f"{MADE_MARK} {task.path} ({task.format}), whose files have the content {content}.\n"
    manifest = to_json({"format": 2, "name": name, **target.fields})  # JSON is valid YAML.
    texts = {ORIGIN_FILE: to_json(origin), **target.texts, MANIFEST: f"{header}{manifest}\n"}
    for name, text in texts.items():  # An unchanged file keeps its time.
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text() != text:
            write_atomic(path, text)
    return folder, tuple(names)


MOST_CASES = 3
YES_NO = {True: "yes", False: "no", None: "unknown"}


def inspect_task(path: Path, format_name: str | None, screen: Screen, *, as_json: bool) -> int:
    """Print what the task at a path is, without running its code. Returns 0; raises LoopError."""
    task = load_task(path, format_name)
    obstacles = find_hindrances(task, len(detect_gpus().usable))
    runnable = () if obstacles else tuple(case.name for case in task.cases)
    if as_json:
        screen.data(to_json(Inspected(**dict(task), runs=runnable, hindrances=tuple(obstacles))))
        return ExitCode.OK
    rule, timing = task.judging, task.timing
    timed_count = sum("time" in case.use for case in task.cases)
    parts = [f"its own checker says so: {rule.checker}"] if rule.checker else []
    if rule.atol is not None and rule.rtol is not None:
        sign = "or" if rule.either else "+"
        parts.append(f"error <= {rule.atol:g} {sign} {rule.rtol:g} x |expected|")
    parts += [f"for {100 * rule.matched_ratio:g} % of elements"] if rule.matched_ratio < 1 else []
    parts += [f"no error above {rule.cap:g}"] if rule.cap is not None else []
    parts += [rule.note] if rule.note else []
    cases = []
    for case in task.cases[:MOST_CASES]:
        arguments = " ".join(f"{name}={value}" for name, value in case.arguments.items())
        cases.append(("", f"{case.name}: {arguments or 'only its generator knows the inputs'}"))
    flags = (timing.cold_cache, timing.fresh_inputs, timing.checked)
    cold, fresh, checked = map(YES_NO.get, flags)
    rows = [
        ("format", f"{FORMATS[task.format].title}: {task.why}"),
        ("task", f"{task.name} ({task.path})"),
        ("answer", f"{task.entry}, in {', '.join(task.languages)}"),
        ("reference", task.reference),
        ("cases", f"{len(task.cases)}, {timed_count} of them timed"),
        *cases,
        ("types", ", ".join(task.dtypes)),
        ("right if", "; ".join(parts)),
        ("timed by", timing.method),
        ("", f"cache cleared: {cold}; fresh inputs: {fresh}; timed outputs checked: {checked}"),
        ("score", timing.score),
        ("made for", ", ".join(task.made_for)),
        ("runs here", f"{len(runnable)} of {len(task.cases)} cases"),
        *(("needs", obstacle.what) for obstacle in obstacles),
        *(("note", hint) for hint in task.hints),
    ]
    _, *lines = table_lines(("", ""), [row for row in rows if row[1]], terminal_columns(screen.out))
    screen.data("\n".join(lines))
    return ExitCode.OK
