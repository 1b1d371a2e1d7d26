"""One bit flipped, or an end cut off, in anything stored: it is named, and no figure changes without a word.

One small world is made once a process: a target of a user's with sessions that failed and passed, samples, a
report, signs of life, AI that was stated, recorded sessions, and what `loop` keeps in its state and its
cache. A case damages one file of it, runs what reads that file, and puts everything back.
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
from loop.base.places import find_project, include_folder
from loop.base.processes import run_to_end
from loop.bisect.trying import Prober
from loop.builds.build import build
from loop.cli import app
from loop.library import targets
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
"""One of them, with the name of the file or of its session, names damage."""
MADE = re.compile(r"Made \d[\d :-]+ UTC|\d{4}-\d\d-\d\d \d\d:\d\d UTC")  # When a page was made, to the minute.
Shown = dict[str, tuple[int, str, str]]
"""What each reader showed: exit code, what was asked for, and what was said beside it."""


@dataclass(frozen=True)
class World:
    """Folders that are full, and what was in them."""

    top: Path
    environment: Mapping[str, str]
    files: Mapping[Path, tuple[bytes, int]]
    """Content and time of each."""
    whole: Mapping[str, tuple[int, str, str]] = dataclasses.field(default_factory=dict)
    """What is shown of it undamaged."""

    def put_back(self) -> None:
        """Make every file what it was."""
        shutil.rmtree(self.top / "site", ignore_errors=True)
        for path in set(_kept_files(self.top)) - set(self.files):
            path.unlink()
        for path, (data, at) in self.files.items():
            if not path.is_file() or path.stat().st_mtime_ns != at or path.read_bytes() != data:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                os.utime(path, ns=(at, at))


def cases(seed: int) -> Iterator[tuple[str, Callable[[Path], str]]]:
    """Many pieces of damage a case: making the world takes longer than looking at one of them."""
    for number in range(CASES):
        yield f"{A_CASE} of {number * A_CASE}", functools.partial(_several, seed, number * A_CASE)


def _several(seed: int, first: int, folder: Path) -> str:
    broken = [said for number in range(first, first + A_CASE) if (said := one_damage(seed, number))]
    (folder / "figure-pieces of damage").write_text(str(A_CASE))
    return "; ".join(broken)


def one_damage(seed: int, number: int) -> str:
    """Damage one file, each kind as often, and put it back; returns what was not as promised."""
    here = world()
    draw = random.Random(f"{seed} {number}")
    path = _drawn(here, draw)
    data, at = here.files[path]
    hurt, what = _damaged(data, draw)
    told = f"{path.relative_to(here.top)}: {what}"
    with mock.patch.dict(os.environ, here.environment), contextlib.chdir(here.top / "project"):
        path.write_bytes(hurt)
        if draw.random() < 0.5:  # A disk that forgets changes no time.
            os.utime(path, ns=(at, at))
        try:
            broken = _broken(here, path, draw)
        finally:
            here.put_back()
    return f"{told}: {broken}" if broken else ""


def _drawn(here: World, draw: random.Random) -> Path:
    kinds: dict[str, list[Path]] = {}
    for path, (data, _) in here.files.items():
        if data and path.suffix not in (".svg", ".md"):  # A report is rendered again from its record.
            kinds.setdefault(_kind(path.relative_to(here.top)), []).append(path)
    return draw.choice(kinds[draw.choice(sorted(kinds))])


def _kind(path: Path) -> str:
    """Its place without the names of sessions and builds."""
    return "/".join((path.parts[0], *(p for p in path.parts[1:-1] if len(p) < 10), path.suffix or path.name, ""))


def _damaged(data: bytes, draw: random.Random) -> tuple[bytes, str]:
    if draw.random() < FLIP:
        bit = draw.randrange(8 * len(data))
        hurt = bytearray(data)
        hurt[bit // 8] ^= 1 << bit % 8
        return bytes(hurt), f"bit {bit % 8} of byte {bit // 8} flipped"
    size = draw.randrange(len(data))
    return data[:size], f"cut to {size} of {len(data)} bytes"


def _broken(here: World, path: Path, draw: random.Random) -> str:
    """What is wrong with what is shown of the damaged world; empty where the promise holds."""
    slow = [name for name in _readers(here, path) if _slow(name)]
    one = draw.choice(slow) if slow else ""
    for name, (code, out, said) in shown(here, path, lambda name: name == one or not _slow(name)).items():
        if "Traceback" in said:
            return f"{name}: {said[-300:]}"
        if (code, out) == here.whole[name][:2]:
            continue
        text = out + said
        if not any(part in text for part in _names(here, path)) or not any(word in text for word in WORDS):
            return f"{name}: exit {code}, another output, and nothing names it: {said[-200:]!r}"
    return ""


def _names(here: World, path: Path) -> list[str]:
    """What damage of a file may be called by."""
    parts = path.relative_to(here.top).parts
    return [path.name, *parts[1:2]] if parts[0] in ("sessions", "cache") else [path.name]


def shown(here: World, path: Path, chosen: Callable[[str], bool] = lambda name: True) -> Shown:
    """What reads a file, each with what it showed."""
    found = {}
    for name, read in _readers(here, path).items():
        if not chosen(name):
            continue
        errors.PRINTED_REMARKS.clear()
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            code, out = _tried(read, said)
        found[name] = code, out.replace(str(here.top), ""), said.getvalue()
    return found


def _slow(name: str) -> bool:
    """Readers that render: one of them a case."""
    return name.startswith(("report", "catalog"))


def _tried(read: Callable[[], str], said: io.StringIO) -> tuple[int, str]:
    try:
        return 0, read()
    except LoopError as error:
        said.write(f"error: {error.message}\n")
        return error.exit_code, ""
    except Exception:
        said.write(traceback.format_exc())
        return 3, ""


def _readers(here: World, path: Path) -> dict[str, Callable[[], str]]:
    """Commands that look at a session's files; the functions of loop that read what is kept elsewhere."""
    parts = path.relative_to(here.top).parts
    if parts[0] == "sessions":
        return _of_session(parts[1])
    if parts[1] == "index":
        return {name: _command(*name.split()) for name in LISTS}
    return {parts[-1]: functools.partial(_kept, here, path)}


LISTS = ("sessions list --json", "cost show --json")


def _of_session(name: str) -> dict[str, Callable[[], str]]:
    asked = [*LISTS, f"sessions show {name} --json"]
    if not name.startswith("recorded"):
        asked += [f"report {name}"]
    return {**{one: _command(*one.split()) for one in asked}, "catalog build": _catalog}


def _catalog() -> str:
    shutil.rmtree("../site", ignore_errors=True)
    done = _command("catalog", "build", "--out", "../site")()
    pages = {str(path): MADE.sub("", path.read_text()) for path in _files(Path("../site"))}
    return f"{done.split(' ')[0]} {content_hash(repr(pages))}"


def _command(*words: str) -> Callable[[], str]:
    def run() -> str:
        done = CliRunner().invoke(app, words)
        sys.stderr.write(done.stderr)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return f"{done.exit_code} {done.stdout}"

    return run


def _kept(here: World, path: Path) -> str:
    """What loop reads of one file of its state or its cache."""
    place, name = path.relative_to(here.top).parts[1], path.name
    chosen = find_project(here.top / "project", here.top)
    if name == "trusted.json":
        return str(is_trusted(chosen))
    if place == "bisects":
        return str(Prober().open_memory("a question").probes())
    if place == "owner":
        return str(Worktree(path, path, None).owner)
    return _library(here)


def _library(here: World) -> str:
    """The build of the target, made anew where the cached one is damaged; its own note says so."""
    chosen = find_project(here.top / "project", here.top)
    variant = targets.read_target(chosen).value.variants["ours"]
    assert isinstance(variant, CAbiVariant)
    cache = here.top / "cache" / "builds"
    made = run_to_end(build("ours", variant, chosen.target, cache=cache, include=include_folder(), limit_s=60))
    sys.stderr.write(made.note or "")
    known = made.model_dump(exclude={"note", "cached", "seconds", "library"})
    seconds = made.seconds if made.cached else "made anew: kernel.so, build.json"
    return f"{known} {seconds}"


@functools.cache
def world() -> World:
    """Make it, and look at it undamaged."""
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
        here = World(top, environment, {})
        with contextlib.chdir(top / "project"):
            shown_first = _everything(here)  # Fills the index.
            contents = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in _kept_files(top)}
            here = World(top, environment, contents)
            again = _everything(dataclasses.replace(here))
        differ = [k for k, v in again.items() if v[:2] != shown_first[k][:2]]
        assert not differ, [(k, shown_first[k], again[k]) for k in differ]
        whole = World(top, environment, here.files, again)
        whole.put_back()
    return whole


def _everything(here: World) -> Shown:
    found: Shown = {}
    for path in _kept_files(here.top):
        if not _readers(here, path).keys() <= found.keys():
            found |= shown(here, path)
    return found


def _kept_files(top: Path) -> list[Path]:
    """What loop keeps; locks hold nothing that anybody reads later."""
    files = [(path, path.relative_to(top).parts) for path in _files(top)]
    return [path for path, parts in files if parts[0] not in ("project", "site") and path.suffix != ".lock"]


def _files(top: Path) -> list[Path]:
    return sorted(path for path in top.rglob("*") if path.is_file())


def _fill(top: Path) -> None:
    """Sessions by the program itself; by loop's own functions what only long sessions write."""
    target = make_project(top / "project")
    add_commands(target, "look", ["grep -q ready notes.c || { echo no such thing; exit 1; }", "true"])
    shutil.copy(target / "scale.c", target / "notes.c")
    chosen = find_project(target, top)
    grant(chosen, definition_hash(chosen))
    assert 1 == loop("run", "session", "look", "--target", str(target), "--ai-usd", "0.5").returncode
    (target / "notes.c").write_text("// ready\n")
    done = loop("run", "session", "look", "--target", str(target))
    assert 0 == done.returncode, done.stderr
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
    here = World(top, {}, {})
    _library(here)
