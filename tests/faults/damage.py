"""Flip one bit of a stored file, or cut its end off: `loop` names the damage, or shows the same figures.

Each process makes one small world: a user's target, its sessions (failed, passed, imported), samples, a report,
and AI costs. It also holds the files of `loop` in its state and its cache. A case damages one file, runs its
readers, and restores everything.
"""

import atexit
import contextlib
import dataclasses
import functools
import io
import os
import random
import re
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from typer.testing import CliRunner

from loop.base import errors
from loop.base.documents import content_hash, sums
from loop.base.errors import LoopError
from loop.base.places import include_folder
from loop.base.processes import run_to_end
from loop.bisect.trying import Prober
from loop.builds.build import build
from loop.cli import app
from loop.library import targets
from loop.library.definitions import find_project
from loop.library.trust import definition_hash, grant, is_trusted
from loop.model.bisect import Probe
from loop.model.target import CAbiVariant
from loop.repository.worktree import Worktree
from tests.faults import stored_session
from tests.projects import add_commands, loop, make_project

NAME = "single-bit flips and truncations in every stored file"
MUST = "damage named every time; never another figure without a word; never a traceback"
CASES, A_CASE = 50, 100  # Cases, and pieces of damage in each.
LIMIT_S = 900.0
FLIP = 0.7  # Share of the cases that flip one bit; the others cut an end off.
WORDS = ("damaged", "left out", "missing", "cannot be read", "of format", "no session", "not a catalogue")
"""One of these words, with the name of the file or of its session, counts as naming damage."""
MADE = re.compile(r"Made \d[\d :-]+ UTC|\d{4}-\d\d-\d\d \d\d:\d\d UTC")  # Time of generation.
Shown = dict[str, tuple[int, str, str]]
"""Reader to its exit code, its output, and its remarks on stderr."""


@dataclass(frozen=True)
class World:
    """Filled folders, and their undamaged content."""

    top: Path
    environment: Mapping[str, str]
    files: Mapping[Path, tuple[bytes, int]]
    """Path to content and modification time."""
    whole: Mapping[str, tuple[int, str, str]] = dataclasses.field(default_factory=dict)
    """What readers show of the undamaged world, as `Shown`."""

    def put_back(self) -> None:
        """Restore content and time of every file."""
        shutil.rmtree(self.top / "site", ignore_errors=True)
        for path in set(_kept_files(self.top)) - set(self.files):
            path.unlink()
        for path, (data, at) in self.files.items():
            if not path.is_file() or path.stat().st_mtime_ns != at or path.read_bytes() != data:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                os.utime(path, ns=(at, at))


def cases(seed: int) -> Iterator[tuple[str, Callable[[Path], str]]]:
    """Many pieces of damage in one case, because making the world takes longer than checking a piece."""
    for number in range(CASES):
        yield f"{A_CASE} of {number * A_CASE}", functools.partial(_several, seed, number * A_CASE)


def _several(seed: int, start: int, folder: Path) -> str:
    broken = [problem for number in range(start, start + A_CASE) if (problem := one_damage(seed, number))]
    (folder / "figure-pieces of damage").write_text(str(A_CASE))
    return "; ".join(broken)


def one_damage(seed: int, number: int) -> str:
    """Damage one file, of a kind drawn evenly, and restore it; returns what broke the promise, else ""."""
    filled = world()
    draw = random.Random(f"{seed} {number}")
    path = _drawn(filled, draw)
    data, at = filled.files[path]
    damaged, kind = _damaged(data, draw)
    title = f"{path.relative_to(filled.top)}: {kind}"
    with mock.patch.dict(os.environ, filled.environment), contextlib.chdir(filled.top / "project"):
        path.write_bytes(damaged)
        if draw.random() < 0.5:  # A disk that forgets changes no time.
            os.utime(path, ns=(at, at))
        try:
            broken = _broken(filled, path, draw)
        finally:
            filled.put_back()
    return f"{title}: {broken}" if broken else ""


def _drawn(filled: World, draw: random.Random) -> Path:
    kinds: dict[str, list[Path]] = {}
    for path, (data, _) in filled.files.items():
        if data and path.suffix not in (".svg", ".md"):  # A report is rendered again from its record.
            kinds.setdefault(_kind(path.relative_to(filled.top)), []).append(path)
    return draw.choice(kinds[draw.choice(sorted(kinds))])


def _kind(path: Path) -> str:
    """A path without the names of sessions and builds."""
    return "/".join((path.parts[0], *(p for p in path.parts[1:-1] if len(p) < 10), path.suffix or path.name, ""))


def _damaged(data: bytes, draw: random.Random) -> tuple[bytes, str]:
    if draw.random() < FLIP:
        bit = draw.randrange(8 * len(data))
        hurt = bytearray(data)
        hurt[bit // 8] ^= 1 << bit % 8
        return bytes(hurt), f"bit {bit % 8} of byte {bit // 8} flipped"
    size = draw.randrange(len(data))
    return data[:size], f"cut to {size} of {len(data)} bytes"


def _broken(filled: World, path: Path, draw: random.Random) -> str:
    """How readers of the damaged world break the promise; "" if they keep it."""
    slow = [name for name in _readers(filled, path) if _slow(name)]
    chosen = draw.choice(slow) if slow else ""
    for name, (code, out, remarks) in reads(filled, path, lambda name: name == chosen or not _slow(name)).items():
        if "Traceback" in remarks:
            return f"{name}: {remarks[-300:]}"
        if (code, out) == filled.whole[name][:2]:
            continue
        text = out + remarks
        if not any(part in text for part in _names(filled, path)) or not any(word in text for word in WORDS):
            return f"{name}: exit {code}, another output, and nothing names it: {remarks[-200:]!r}"
    return ""


def _names(filled: World, path: Path) -> list[str]:
    """Names by which a reader may name damage of a file."""
    parts = path.relative_to(filled.top).parts
    return [path.name, *parts[1:2]] if parts[0] in ("sessions", "cache") else [path.name]


def reads(filled: World, path: Path, chosen: Callable[[str], bool] = lambda name: True) -> Shown:
    """Output of the readers of a file whose names are `chosen`."""
    results = {}
    for name, read in _readers(filled, path).items():
        if not chosen(name):
            continue
        errors.PRINTED_REMARKS.clear()
        remarks = io.StringIO()
        with contextlib.redirect_stderr(remarks):
            code, out = _run_reader(read, remarks)
        results[name] = code, out.replace(str(filled.top), ""), remarks.getvalue()
    return results


def _slow(name: str) -> bool:
    """Whether a reader renders, which is slow: a case runs one such reader."""
    return name.startswith(("report", "catalog"))


def _run_reader(read: Callable[[], str], remarks: io.StringIO) -> tuple[int, str]:
    try:
        return 0, read()
    except LoopError as error:
        remarks.write(f"error: {error.message}\n")
        return error.exit_code, ""
    except Exception:
        remarks.write(traceback.format_exc())
        return 3, ""


def _readers(filled: World, path: Path) -> dict[str, Callable[[], str]]:
    """Readers of a file: commands for a session's files, functions of loop for other files."""
    parts = path.relative_to(filled.top).parts
    if parts[0] == "sessions":
        return _of_session(parts[1])
    if parts[1] == "index":
        return {name: _command(*name.split()) for name in LISTS}
    return {parts[-1]: functools.partial(_read_kept, filled, path)}


LISTS = ("sessions list --json", "cost show --json")


def _of_session(name: str) -> dict[str, Callable[[], str]]:
    commands = [*LISTS, f"sessions show {name} --json"]
    if not name.startswith("recorded"):
        commands += [f"report {name}"]
    return {**{command: _command(*command.split()) for command in commands}, "catalog build": _catalog}


def _catalog() -> str:
    shutil.rmtree("../site", ignore_errors=True)
    output = _command("catalog", "build", "--out", "../site")()
    pages = {str(path): MADE.sub("", path.read_text()) for path in _files(Path("../site"))}
    return f"{output.split(' ')[0]} {content_hash(repr(pages))}"


def _command(*words: str) -> Callable[[], str]:
    def run() -> str:
        result = CliRunner().invoke(app, words)
        sys.stderr.write(result.stderr)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return f"{result.exit_code} {result.stdout}"

    return run


def _read_kept(filled: World, path: Path) -> str:
    """What loop reads from one file of its state or its cache."""
    place, name = path.relative_to(filled.top).parts[1], path.name
    chosen = find_project(filled.top / "project", filled.top)
    if name == "trusted.json":
        return str(is_trusted(chosen))
    if place == "bisects":
        return str(Prober().open_memory("a question").probes())
    if place == "owner":
        return str(Worktree(path, path, None).owner)
    return _library(filled)


def _library(filled: World) -> str:
    """The target's build; a damaged cached one is built again, and its note goes to stderr."""
    chosen = find_project(filled.top / "project", filled.top)
    variant = targets.read_target(chosen).value.variants["ours"]
    assert isinstance(variant, CAbiVariant)
    cache = filled.top / "cache" / "builds"
    output = run_to_end(build("ours", variant, chosen.target, cache=cache, include=include_folder(), limit_s=60))
    sys.stderr.write(output.note or "")
    facts = output.model_dump(exclude={"note", "cached", "seconds", "library"})
    seconds = output.seconds if output.cached else "made anew: kernel.so, build.json"
    return f"{facts} {seconds}"


@functools.cache
def world() -> World:
    """Make the world, and store what readers show of it undamaged."""
    top = Path(tempfile.mkdtemp(prefix="loop-damage-"))
    atexit.register(shutil.rmtree, top, ignore_errors=True)
    environment = {
        "LOOP_SESSIONS": str(top / "sessions"),
        "LOOP_STATE": str(top / "state"),
        "LOOP_CACHE": str(top / "cache"),
        "LOOP_WATCH_PREEMPTION": "off",
        "COLUMNS": "100",
    }
    with mock.patch.dict(os.environ, environment):
        _fill(top)
        filled = World(top, environment, {})
        with contextlib.chdir(top / "project"):
            shown_first = _everything(filled)  # Fills the index.
            contents = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in _kept_files(top)}
            filled = World(top, environment, contents)
            second = _everything(dataclasses.replace(filled))
        differ = [k for k, v in second.items() if v[:2] != shown_first[k][:2]]
        assert not differ, [(k, shown_first[k], second[k]) for k in differ]
        whole = World(top, environment, filled.files, second)
        whole.put_back()
    return whole


def _everything(filled: World) -> Shown:
    results: Shown = {}
    for path in _kept_files(filled.top):
        if not _readers(filled, path).keys() <= results.keys():
            results |= reads(filled, path)
    return results


def _kept_files(top: Path) -> list[Path]:
    """Files that loop stores; locks are left out, because nobody reads them later."""
    files = [(path, path.relative_to(top).parts) for path in _files(top)]
    return [path for path, parts in files if parts[0] not in ("project", "site") and path.suffix != ".lock"]


def _files(top: Path) -> list[Path]:
    return sorted(path for path in top.rglob("*") if path.is_file())


def _fill(top: Path) -> None:
    """Write sessions with commands; write files of long sessions with loop's own functions."""
    target = make_project(top / "project")
    add_commands(target, "look", ["grep -q ready notes.c || { echo no such thing; exit 1; }", "true"])
    shutil.copy(target / "scale.c", target / "notes.c")
    chosen = find_project(target, top)
    grant(chosen.target, definition_hash(chosen))
    assert 1 == loop("run", "session", "look", "--target", str(target), "--ai-usd", "0.5").returncode
    (target / "notes.c").write_text("// ready\n")
    child = loop("run", "session", "look", "--target", str(target))
    assert 0 == child.returncode, child.stderr
    assert 0 == loop("sessions", "import", "history").returncode
    stored_session.make(top / "sessions")
    for value in (0.5, 0.25):
        Prober().open_memory("a question").append(
            Probe(commit="a" * 40, against="b" * 40, why="try", status="measured", values=(value, 1.5))
        )
    (top / "state" / "owner").mkdir()
    sums.write_sealed(
        top / "state" / "owner" / "loop-session", {"format": 1, "session": str(top / "sessions" / "x")}
    )
    filled = World(top, {}, {})
    _library(filled)
