"""The site's folder: put in place whole or not at all, and never in the place of something else."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from loop.base.errors import ExitCode, LoopError, Stopped
from loop.site import catalog

FIRST = [("index.html", "one"), ("sessions/a.html", "a")]
SECOND = [("index.html", "two")]


def write(place: Path, pages: list[tuple[str, str]]) -> int:
    return catalog.write_site(catalog.check_out_folder(place), pages)


def tree(top: Path) -> dict[str, str]:
    """Every file below a folder, hidden ones too."""
    return {str(path.relative_to(top)): path.read_text() for path in sorted(top.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("marker", [None, "not json", "{}", '{"kind": "loop catalogue"}', '["loop catalogue"]'])
def test_what_is_not_ours_is_not_replaced(tmp_path: Path, marker: str | None) -> None:
    """A file with the marker's name does not make a folder a site."""
    out = tmp_path / "photos"
    out.mkdir()
    (out / "holiday.jpg").write_text("dear")
    if marker is not None:
        (out / "catalogue.json").write_text(marker)
    unchanged = tree(tmp_path)
    with pytest.raises(LoopError, match="not a catalogue made by loop") as caught:
        write(out, FIRST)
    assert "--out" in (caught.value.hint or "")
    assert unchanged == tree(tmp_path)


def test_what_was_put_into_it_is_not_lost(tmp_path: Path) -> None:
    """A repository that publishes it has its `.git` there."""
    write(tmp_path / "site", FIRST)
    (tmp_path / "site" / ".git").mkdir()
    with pytest.raises(LoopError, match=r"\.git is not of the catalogue"):
        write(tmp_path / "site", SECOND)
    assert "one" == (tmp_path / "site" / "index.html").read_text()


@pytest.mark.parametrize(
    "stop", [Stopped("interrupted", ExitCode.INTERRUPTED), KeyboardInterrupt(), OSError(28, "full")]
)
def test_whatever_breaks_it_off_leaves_what_was(tmp_path: Path, stop: BaseException) -> None:
    """The old site stays whole, without other files."""

    def broken() -> Iterator[tuple[str, str]]:
        yield "index.html", "half"
        raise stop

    place = tmp_path / "site"
    write(place, FIRST)
    before = tree(tmp_path)
    with pytest.raises((Stopped, KeyboardInterrupt, LoopError)):
        catalog.write_site(place, broken())
    assert before == tree(tmp_path)
    assert {"site", "here"} == set(os.listdir(tmp_path))


def test_a_swap_that_fails_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the second rename fails, the old site is put back."""
    place, real, calls = tmp_path / "site", os.rename, []
    write(place, FIRST)
    before = tree(tmp_path)

    def rename(source: Path, to: Path) -> None:
        calls.append(to)
        if len(calls) == 2:
            raise OSError(1, "no")
        real(source, to)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(LoopError, match="cannot be written"):
        catalog.write_site(place, SECOND)
    assert 3 == len(calls)
    assert before == tree(tmp_path)
