"""A task of somebody else's as a target of loop's own: a folder in the cache that links to their files.

Theirs stay where they are, unchanged. The folder has a `target.yaml` (format 2) and a link to each file, under the
name that the format gives it. The manifest names the content of every file of the task: a task that changed has to
be allowed again. Answers may change freely, as variants of any target. The paths of the task and of the answers
decide which folder it is.
"""

import os
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loop.base.documents import content_hash, hash_files, to_json, write_atomic
from loop.base.errors import UsageError
from loop.base.places import MANIFEST, tasks_folder
from loop.formats import table
from loop.formats.hindrances import hindrances
from loop.formats.model import ForeignTask
from loop.library import made_of as origin
from loop.machine.gpus import gpus

FOR_GOOD = ("contract", "several GPUs", "dependency", "download", "file")
"""What no choice of cases or of a device gets round."""


def as_target(path: Path, answers: Sequence[str] = (), form: str | None = None) -> tuple[Path, tuple[str, ...]]:
    """The folder of a task as a target, and the names of its answers there; answers are paths.

    Raises LoopError for a task that cannot be read, that loop cannot run here, and for an answer that does not
    define what the format asks for.
    """
    task = table.load(path.absolute(), form)
    files = [Path(answer).absolute() for answer in answers]
    names = _names(files)
    folder = tasks_folder() / content_hash("\0".join(map(str, (task.path, form, *files))))[:16]
    refuse(task)
    target = table.of(task.format).target(task, dict(zip(names, files, strict=True)))
    paths = dict(zip(names, map(str, files), strict=True))
    _write(folder / origin.FILE, origin.MadeOf(task=str(task.path), format=form, answers=paths).as_text())
    _link(folder, target.links)
    for name, text in target.texts.items():
        _write(folder / name, text)
    _write(folder / MANIFEST, _manifest(task, target.fields))
    return folder, tuple(names)


def made_of(folder: Path) -> tuple[ForeignTask, dict[str, Path]] | None:
    """The task that a target was made of, and its answers by their names there; None for any other target."""
    manifest = origin.made_of(folder)
    if manifest is None:
        return None
    return table.load(Path(manifest.task), manifest.format), {
        name: Path(path) for name, path in manifest.answers.items()
    }


def refuse(task: ForeignTask) -> None:
    """Raise UsageError for a task that loop cannot run on this machine, with all reasons."""
    reasons = [need.what for need in hindrances(task, len(gpus().usable)) if need.kind in FOR_GOOD]
    if reasons:
        raise UsageError(
            f"{task.path}: not run here: it needs {'; '.join(reasons)}", f"loop targets inspect {task.path}"
        )


def _names(files: Iterable[Path]) -> list[str]:
    """A name for each answer, by its file."""
    names: list[str] = []
    for path in files:
        if not path.is_file():
            raise UsageError(f"{path}: no such file", hint="an answer to a task of another format is a file")
        name = re.sub(r"[^a-z0-9_]+", "_", path.stem.lower()).strip("_")[:48]
        name = name if name[:1].isalpha() else f"answer_{name}"
        names.append(name if name not in names else f"{name}_{len(names)}")
    return names


def _link(folder: Path, links: Mapping[str, Path]) -> None:
    """Links to files; what linked elsewhere before is replaced."""
    for name, path in links.items():
        link = folder / name
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink() or link.readlink() != path:
            # Another command, or another thread of this one, may make the same target.
            new = link.with_name(f"{link.name}.{os.getpid()}.{threading.get_ident()}")
            new.symlink_to(path)
            new.replace(link)


def _write(path: Path, text: str) -> None:
    """Write a file, unless it says that already: sessions know it by its content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text() != text:
        write_atomic(path, text)


def _manifest(task: ForeignTask, fields: Mapping[str, Any]) -> str:
    """The target's manifest: JSON, which is YAML too."""
    name = re.sub(r"[^a-z0-9_-]+", "-", f"{task.format}-{task.name}".lower())[:64]
    content = hash_files(task.files, Path("/"))
    head = f"{origin.MADE} {task.path} ({task.format}), whose files have the content {content}.\n"
    return head + to_json({"format": 2, "name": name, **fields}) + "\n"
