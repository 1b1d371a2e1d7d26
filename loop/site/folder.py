"""The site as a folder: written beside its place, then put there in one go. What is not ours is not replaced."""

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from loop.base.documents.files import unusable
from loop.base.errors import UsageError
from loop.base.interrupts import check

MARKER = "catalogue.json"
"""Says that a folder is a catalogue of ours, and which files and folders at its top are."""
KIND = "loop catalogue"


def check_place(out: Path) -> Path:
    """The whole path of a folder that a catalogue may be written to. Raises LoopError for any other."""
    place = Path(os.path.realpath(out))
    hint = "choose another folder with --out; a new one is made"
    if place in (Path(os.path.realpath(os.curdir)), *Path(os.path.realpath(os.curdir)).parents):
        raise UsageError(
            f"{out}: this is where you are, or above it: it would be replaced", hint="--out catalogue"
        )
    if place.exists() and not place.is_dir():
        raise UsageError(f"{place}: there is a file of this name", hint=hint)
    if not place.is_dir() or not any(place.iterdir()):
        return place
    own = _ours(place)
    if own is None:
        raise UsageError(f"{place}: there are files, and it is not a catalogue made by loop", hint=hint)
    others = sorted(path.name for path in place.iterdir() if path.name not in own)
    if others:
        what = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
        raise UsageError(
            f"{place}: {what} is not of the catalogue, and would be lost", hint=f"move it away, or {hint}"
        )
    return place


def _ours(place: Path) -> set[str] | None:
    """What at the top of a catalogue is of it; None where the folder is none."""
    try:
        fields = json.loads((place / MARKER).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or fields.get("kind") != KIND or not isinstance(fields.get("top"), list):
        return None
    return {MARKER, *map(str, fields["top"])}


def write(place: Path, pages: Iterable[tuple[str, str]], facts: Mapping[str, Any]) -> int:
    """Write a site and put it in its place, instead of the one that is there; how many files it has.

    `pages`: path to text. Whatever breaks it off, what was there before is there still, and nothing else is left.
    Raises LoopError where the disk refuses.
    """
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with _beside(place) as scratch:
            count = _fill(scratch, pages, facts)
            _swap(scratch, place)
    except OSError as error:
        raise unusable(place, "written", error) from error
    return count


@contextlib.contextmanager
def _beside(place: Path) -> Iterator[Path]:
    """A folder on the same disk that is gone afterwards, unless it was moved to its place."""
    scratch = place.parent / f".{place.name}-{secrets.token_hex(6)}.tmp"
    try:
        scratch.mkdir()
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _fill(scratch: Path, pages: Iterable[tuple[str, str]], facts: Mapping[str, Any]) -> int:
    written = []
    for path, text in pages:
        check()
        (scratch / path).parent.mkdir(parents=True, exist_ok=True)
        (scratch / path).write_text(text, encoding="utf-8")
        written.append(path)
    top = sorted({path.partition("/")[0] for path in written})
    fields = {"schema_version": 1, "kind": KIND, "top": top, **facts}
    (scratch / MARKER).write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")
    return len(written) + 1


def _swap(scratch: Path, place: Path) -> None:
    """Two renames, between which nobody looks for signals; where the second fails, the first is taken back."""
    old = scratch.with_suffix(".old")
    if place.is_dir():
        os.rename(place, old)
    try:
        os.rename(scratch, place)
    except OSError:
        if old.is_dir():
            os.rename(old, place)
        raise
    shutil.rmtree(old, ignore_errors=True)
