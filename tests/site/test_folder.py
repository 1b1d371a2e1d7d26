"""The site's folder: put in place whole or not at all, and never in the place of something else."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from loop.base.errors import ExitCode, LoopError, Stopped
from loop.site import catalog

FILES = [("index.html", "one"), ("sessions/a.html", "a")]


def test_only_a_new_or_an_empty_folder_is_written(tmp_path: Path) -> None:
    """A folder of something else, and an older catalogue, stay as they are."""
    out = tmp_path / "photos"
    out.mkdir()
    assert 2 == catalog.write_site(out, FILES)
    with pytest.raises(LoopError, match="is there already") as caught:
        catalog.write_site(out, [("index.html", "two")])
    assert "remove this one" in (caught.value.hint or "")
    assert {"index.html", "sessions"} == set(os.listdir(out))
    assert "one" == (out / "index.html").read_text()


@pytest.mark.parametrize(
    "stop", [Stopped("interrupted", ExitCode.INTERRUPTED), KeyboardInterrupt(), OSError(28, "full")]
)
def test_whatever_breaks_it_off_leaves_nothing(tmp_path: Path, stop: BaseException) -> None:
    """There is neither half a site nor another file."""

    def broken() -> Iterator[tuple[str, str]]:
        yield "index.html", "half"
        raise stop

    with pytest.raises((Stopped, KeyboardInterrupt, LoopError)):
        catalog.write_site(tmp_path / "site", broken())
    assert {"here"} >= set(os.listdir(tmp_path))
