"""What a build rests on: every file that its programs looked for, also in vain, and what each was.

`builds/opens` writes down what is looked for. Here that becomes facts: whether something is there, the hash of its
content, where a link points. Facts are held against the disk by what stat(2) says; where that differs, contents
are read.
"""

import functools
import json
import os
import re
import stat
import struct
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from loop.base.documents import content_hash
from loop.base.processes import Completed, Tick, run
from loop.builds import opens
from loop.builds.opens import Signature, signature

NOTHING, FOLDER, OTHER = "nothing", "folder", "other"
UNSEEN = "what its compiler read was not written down"
OF_THE_PROCESS = re.compile(r"/dev/|/proc/(\d|self|thread-self)")
"""Paths that say nothing of the machine."""
POINTERS = re.compile(r"/etc/(?:ld\.so\.cache|passwd|group|nsswitch\.conf|localtime|hosts)$|/proc/|/sys/")
"""What only leads to other files, or tells of the machine: held against the disk, but no part of an id."""
CLOCK = re.compile(rb"__(?:DATE|TIME|TIMESTAMP)__")
LOADING = re.compile(rb"dlm?open\b")
CUDA_RUNTIME = "libcudart_static.a"
"""NVIDIA's runtime, which loads the driver itself."""
BINARIES = (b"\x7fELF", b"!<arch>")
INTERPRETER = 3
"""PT_INTERP of elf(5)."""


class Fact(NamedTuple):
    """What one path was."""

    does: str
    """What was done with it besides reading: `list`, `link`, or both."""
    content: str
    """`nothing`, `folder`, `other`, or a hash: of a file's bytes, of the names in a folder."""
    link: str
    """Where it points, if it was read as a link and is one."""
    signature: Signature
    """What stat(2) says of it; None where there is nothing."""


Facts = Mapping[str, Fact]
"""By path: relative to the folder in which the command ran, where it lies there or was named so."""


class Changed(Exception):
    """A file changed while it was compiled: nobody knows which of its contents went in."""


@dataclass(frozen=True)
class Looked:
    """What a command looked for, as `builds/opens` tells it."""

    paths: Mapping[str, tuple[Signature, list[str]]]
    changed: tuple[str, ...]
    unknown: tuple[str, ...]
    seen: bool
    """Whether it could be seen at all."""


def traced(
    command: list[str], answer: Path, *, cwd: Path, limit_s: float, env: Mapping[str, str], note: str
) -> Generator[Tick, None, tuple[Completed, Looked]]:
    """Run a command as `processes.run` does, and what it looked for; that is written to `answer` meanwhile."""
    seen = [sys.executable, "-I", "-S", opens.__file__, str(answer), *command]
    done = yield from run(seen, cwd=cwd, limit_s=limit_s, env=env, note=note)
    return replace(done, command=tuple(command)), _looked(answer)


def _looked(answer: Path) -> Looked:
    try:
        found = json.loads(answer.read_text())
    except (OSError, ValueError):
        return Looked({}, (), (UNSEEN,), seen=False)
    paths = {path: (seen, does) for path, (seen, does) in found.get("looked", {}).items()}
    return Looked(paths, tuple(found.get("changed", ())), tuple(found["unknown"]), seen="looked" in found)


def settled(looked: Looked, base: Path, made: Path, *, moves: bool) -> dict[str, Fact]:
    """Facts of what was looked for by a command that ran in `base`; its own folder `made` is left out.

    Where the base `moves` what lies in it is called by its path from there. Raises Changed where a file is not any
    more what it was at first sight.
    """
    found: dict[str, Fact] = {}
    for path, (seen, does) in looked.paths.items():
        name = named(path, base if moves else None, made)
        if name is None:
            continue
        before = found[name].does.split() if name in found else []
        fact = fact_of(os.path.join(base, name), {*before, *does})
        if _moved_on(seen, fact.signature) and not path.startswith(("/proc", "/sys")):
            raise Changed(path)
        found[name] = fact
    started = (path for path, (seen, does) in looked.paths.items() if seen and opens.RUN in does)
    return {**{name: fact_of(name, set()) for path in started for name in interpreters(base / path)}, **found}


def changed(looked: Looked, base: Path, made: Path) -> Iterator[str]:
    """What was read before it was written: the next time it is read as it is now."""
    found = (path for path in looked.changed if named(path, base, made) is not None)
    yield from (f"it changes {path}, which it also reads" for path in found)


def _moved_on(seen: Signature, now: Signature) -> bool:
    """Whether a file is another: folders may well have got another file."""
    return seen != now and not (seen and now and stat.S_ISDIR(seen[0]) and stat.S_ISDIR(now[0]))


def named(path: str, base: Path | None, made: Path) -> str | None:
    """How a fact calls a path; None for what says nothing: our own files, what leads to us, the process itself."""
    if OF_THE_PROCESS.match(path) or not path.startswith("/"):
        return None if path.startswith("/") else path
    for own in {str(made), os.path.realpath(made)}:
        if is_below(path, own) or is_below(own, path):
            return None
    for own in {str(base), os.path.realpath(base)} if base else ():
        if is_below(path, own):
            return path[len(own) + 1 :] or "."
        if is_below(own, path):
            return None
    return path


def is_below(path: str, folder: str) -> bool:
    """Whether a path is that of a folder or of something in it, by its text."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def fact_of(path: str, does: set[str]) -> Fact:
    """What a path is now."""
    now = signature(path)
    kept = " ".join(sorted(does & {opens.LIST, opens.LINK}))
    return Fact(kept, _content(path, kept, now), _link(path, kept), now)


def _content(path: str, does: str, now: Signature) -> str:
    if now is None:
        return NOTHING
    if stat.S_ISDIR(now[0]):
        return _names(path) if opens.LIST in does else FOLDER
    return _digest(path, tuple(now)) if stat.S_ISREG(now[0]) else OTHER


def _names(folder: str) -> str:
    """Hash of the names in a folder."""
    try:
        return content_hash("\0".join(sorted(os.listdir(folder))))
    except OSError:
        return OTHER


@functools.lru_cache(maxsize=1 << 14)
def _digest(path: str, now: tuple[int, ...]) -> str:
    """Hash of a file's bytes, worked out once for what stat(2) says of it."""
    try:
        return content_hash(Path(path).read_bytes())
    except OSError:
        return OTHER


def forget() -> None:
    """Work every hash out anew."""
    _digest.cache_clear()


def _link(path: str, does: str) -> str:
    if opens.LINK not in does:
        return ""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def hold(facts: Facts, base: Path) -> bool:
    """Whether everything is as it was; relative paths are looked for in `base`."""
    return all(_holds(fact, os.path.join(base, name)) for name, fact in facts.items())


def _holds(fact: Fact, path: str) -> bool:
    now = signature(path)
    same = now == fact.signature or _content(path, fact.does, now) == fact.content
    return same and _link(path, fact.does) == fact.link


def listed(facts: Facts) -> dict[str, list[Any]]:
    """Facts for JSON."""
    return {name: list(fact) for name, fact in facts.items()}


def read_back(found: Mapping[str, list[Any]]) -> dict[str, Fact]:
    """Facts from JSON, those first that change most: files of the folder itself."""
    names = sorted(found, key=lambda name: (name.startswith("/"), found[name][3] is None))
    return {name: Fact(*found[name]) for name in names}


def identity(facts: Facts, include: Path) -> list[str]:
    """Names and contents of all that is there, for a hash: wherever the folder and loop's own header lie.

    What is not there needs no mention: as soon as it is there it has one.
    """
    there = (name for name, fact in facts.items() if not POINTERS.match(name) and _tells(fact))
    rows = ((_portable(name, include), facts[name].content, facts[name].link) for name in there)
    return [text for row in sorted(rows) for text in row]


def _tells(fact: Fact) -> bool:
    return bool(fact.link) or fact.content not in (NOTHING, FOLDER, OTHER)


def _portable(name: str, include: Path) -> str:
    return name.replace(str(include), "loop", 1) if is_below(name, str(include)) else name


def unknowns(facts: Facts, base: Path, library: Path, flags: Iterable[str]) -> Iterator[str]:
    """Why a build may be another one the next time although all that it read is the same."""
    own_loader = any(name.endswith(CUDA_RUNTIME) for name in facts)
    if not own_loader and LOADING.search(library.read_bytes()):
        yield "it may load other libraries while it runs (dlopen)"
    if any(CLOCK.search(flag.encode()) for flag in flags):
        yield "a flag asks for the date"
    for name, fact in facts.items():
        if fact.signature is None or not stat.S_ISREG(fact.signature[0]):
            continue
        data = _bytes(os.path.join(base, name))
        if CLOCK.search(data) and b"\0" not in data[:4096]:
            yield f"{name} asks for the date (__DATE__, __TIME__ or __TIMESTAMP__)"
        if LOADING.search(data) and not name.startswith("/"):
            yield f"{name} may load other libraries while it runs (dlopen)"


def _bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            head = file.read(8)
            return head if head.startswith(BINARIES) and path.startswith("/usr/") else head + file.read()
    except OSError:
        return b""


def interpreters(program: Path) -> Iterator[str]:
    """What the kernel itself reads to start a program: the interpreter of a script, the loader of a binary."""
    try:
        with program.open("rb") as file:
            head = file.read(1 << 12)
    except OSError:
        return
    if head.startswith(b"#!"):
        words = head[2:].partition(b"\n")[0].split(maxsplit=1)
        path = os.fsdecode(words[0]) if words else ""
    else:
        path = _loader(head)
    if path.startswith("/"):
        yield path
        yield from interpreters(Path(path)) if head.startswith(b"#!") else ()


def _loader(head: bytes) -> str:
    """The loader that a 64-bit ELF file names in its first bytes; empty for any other."""
    if not head.startswith(b"\x7fELF\x02\x01") or len(head) < 64:
        return ""
    (table,) = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    for at in range(table, min(table + size * count, len(head) - size + 1), size or 1):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", head, at)
        if kind == INTERPRETER:
            return os.fsdecode(head[offset : offset + length].rstrip(b"\0"))
    return ""


def loading(library: Path, answer: Path, limit_s: float) -> Generator[Tick, None, Looked]:
    """What the loader looks for when the library is loaded by a process of ours; nothing of it is run."""
    loader = next(interpreters(Path(sys.executable)), "")
    if not loader:
        return Looked({}, (), ("this system does not say which libraries it loads",), seen=False)
    command = [loader, "--list", str(library)]
    _, looked = yield from traced(command, answer, cwd=Path.cwd(), limit_s=limit_s, env={}, note="loading it")
    return looked
