"""Lines that each carry a checksum: a damaged one is named and left out, the others stand."""

from pathlib import Path

import pytest

from loop.base import errors
from loop.base.documents import sums
from loop.model.base import Model


class Note(Model):
    """What a line holds."""

    text: str


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A file of three lines."""
    errors.PRINTED_REMARKS.clear()
    path = tmp_path / "notes.jsonl"
    for word in ("one", "two", "three"):
        sums.append_sealed(path, f'{{"text": "{word}"}}')
    return path


def words(path: Path) -> list[str]:
    """What can be read."""
    return [note.text for note in sums.sealed_lines(path, Note)]


@pytest.mark.parametrize("old", ["two", '"text": "two', ', "sum"', "\n"])
def test_a_flipped_bit_costs_its_line_and_is_named(
    kept: Path, capsys: pytest.CaptureFixture[str], old: str
) -> None:
    """Wherever it is: in a value, a name, the checksum's own name, or a line end, which costs two lines."""
    data = kept.read_bytes()
    at = data.index(old.encode(), len(data) // 3)
    kept.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
    found = words(kept)
    assert {"one", "three"} >= set(found)
    assert f"{kept}:2: damaged line, left out" in capsys.readouterr().err


def test_a_torn_end_is_named_and_the_next_line_stands_on_its_own(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a kill leaves it."""
    kept.write_bytes(kept.read_bytes()[:-9])
    assert ["one", "two"] == words(kept)
    assert f"{kept}:3: a line without its end, left out" in capsys.readouterr().err
    sums.append_sealed(kept, '{"text": "four"}')
    assert ["one", "two", "four"] == words(kept)
