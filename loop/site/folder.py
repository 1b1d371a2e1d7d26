"""The site as a folder: written beside its place, then put there in one go. What is not ours is not replaced."""

import json
import os
import secrets
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from loop.base.documents.files import unusable
from loop.base.errors import UsageError
from loop.base.interrupts import check

MARKER = "catalogue.json"
"""Says that a folder is a catalogue of ours, and which files and folders at its top are."""
KIND = "loop catalogue"


def check_place(out: Path) -> Path:
    """The whole path of a folder that a catalogue may be written to. Raises UsageError for any other."""
    place, here = Path(os.path.realpath(out)), Path(os.path.realpath(os.curdir))
    hint = "choose another folder with --out; a new one is made"
    if place in (here, *here.parents):
        raise UsageError(f"{out}: this is where you are, or above it: it would be replaced", "--out catalogue")
    if place.exists() and not place.is_dir():
        raise UsageError(f"{place}: there is a file of this name", hint=hint)
    if not place.is_dir() or not any(place.iterdir()):
        return place
    try:
        fields = json.loads((place / MARKER).read_bytes())
    except (OSError, ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or fields.get("kind") != KIND or not isinstance(fields.get("top"), list):
        raise UsageError(f"{place}: there are files, and it is not a catalogue made by loop", hint=hint)
    others = sorted(path.name for path in place.iterdir() if path.name not in {MARKER, *map(str, fields["top"])})
    if others:
        what = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
        lost = f"{place}: {what} is not of the catalogue, and would be lost"
        raise UsageError(lost, hint=f"move it away, or {hint}")
    return place


def write(place: Path, pages: Iterable[tuple[str, str]], facts: Mapping[str, Any]) -> int:
    """Write a site and put it in its place, instead of the one that is there; how many files it has.

    `pages`: path to text. Whatever breaks it off, what was there before is there still, and nothing else is left.
    Raises LoopError where the disk refuses.
    """
    scratch = place.parent / f".{place.name}-{secrets.token_hex(6)}.tmp"
    written = []
    try:
        scratch.mkdir(parents=True)
        for path, text in pages:
            check()
            (scratch / path).parent.mkdir(parents=True, exist_ok=True)
            (scratch / path).write_text(text, encoding="utf-8")
            written.append(path)
        top = sorted({path.partition("/")[0] for path in written})
        fields = {"schema_version": 1, "kind": KIND, "top": top, **facts}
        (scratch / MARKER).write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")
        _swap(scratch, place)
    except OSError as error:
        raise unusable(place, "written", error) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
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
