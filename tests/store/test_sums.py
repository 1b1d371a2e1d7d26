"""One bit flipped, or an end cut off, in anything that a session stores: named, and never another figure."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from loop.base.documents import sums
from loop.base.errors import LoopError
from loop.model.measurement import Segment
from loop.store import journal
from loop.store.sessions import HEAD, RECORD, SessionFolder
from tests.makers import make_finished
from tests.store.folders import make_session
from tests.store.test_journal import EVENTS

FLIPS = 300
SAMPLED = "samples/1-measure-1-measure.json"


def made(root: Path) -> SessionFolder:
    """A session with samples."""
    step = make_finished(artifacts=(SAMPLED,))
    folder = make_session(root, "2026-11-22-120000-quick", *EVENTS, step)
    rows = [Segment(side="cpu", workload="B1", round=n, calls=3, seconds=(1e-6, 2.5e-6)) for n in range(9)]
    assert SAMPLED == folder.write_samples(Path(SAMPLED).stem, rows)
    return folder


def samples(folder: SessionFolder) -> object:
    """Its samples. Raises LoopError for a file whose checksum is another."""
    path = folder.path / SAMPLED
    return json.loads(sums.without_checksum(path, sums.read_regular(path)))["segments"]


READ: dict[str, Callable[[SessionFolder], object]] = {
    HEAD: SessionFolder.head,
    RECORD: SessionFolder.record,
    journal.NAME: SessionFolder.lines,
    SAMPLED: samples,
}


@pytest.mark.parametrize("name", READ)
def test_a_flipped_bit_changes_nothing_without_a_word(tmp_path: Path, name: str) -> None:
    """Either it is said, or what is read is what was written."""
    folder, draw = made(tmp_path), random.Random(1)
    whole, path = READ[name](folder), folder.path / name
    data = path.read_bytes()
    said = 0
    for place in draw.sample(range(8 * len(data)), FLIPS):
        damaged = bytearray(data)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            assert whole == READ[name](folder), f"bit {place}: {damaged[place // 8 - 20 : place // 8 + 20]!r}"
        except LoopError:
            said += 1
    assert said > 0.9 * FLIPS
    path.write_bytes(data)
    assert whole == READ[name](folder)


def test_lines_of_a_journal_cannot_be_exchanged(tmp_path: Path) -> None:
    """Each continues the checksum of the one before, also where its number fits."""
    one, two = (
        make_session(tmp_path, name, *EVENTS[:2], make_finished(seconds=s)) for name, s in (("a", 1.5), ("b", 7.5))
    )
    parts = [(folder.path / journal.NAME).read_bytes().splitlines(keepends=True) for folder in (one, two)]
    (one.path / journal.NAME).write_bytes(b"".join([*parts[0][:2], parts[1][2]]))
    with pytest.raises(LoopError, match=r"journal.jsonl:3: damaged journal line: its checksum does not match"):
        one.lines()
    assert 2 == len(journal.read_intact_lines(one.path / journal.NAME)[0])


@pytest.mark.parametrize("name", [HEAD, RECORD, journal.NAME])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, name: str, kind: str) -> None:
    """Reading a pipe or a device may never end."""
    folder = made(tmp_path)
    path = folder.path / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(LoopError, match=f"{name}: cannot be read: it is no regular file"):
        READ[name](folder)


@pytest.mark.parametrize("name", [HEAD, RECORD, SAMPLED])
def test_an_end_cut_off_is_said(tmp_path: Path, name: str) -> None:
    """Wherever it is cut; the last line end is none of the content."""
    folder, draw = made(tmp_path), random.Random(2)
    path = folder.path / name
    data = path.read_bytes()
    for size in draw.sample(range(len(data.rstrip())), min(100, len(data) - 2)):
        path.write_bytes(data[:size])
        with pytest.raises(LoopError):
            READ[name](folder)
