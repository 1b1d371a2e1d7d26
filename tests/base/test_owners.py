"""`loop` uses caches, state and sessions only where no other user can change them, and reports a replacement."""

import json
import os
from pathlib import Path

import pytest

from loop.base import places
from loop.base.documents import content_hash, sums
from loop.base.errors import PRINTED_REMARKS
from loop.base.places import cache_folder, explain_foreign_access, private_folder, state_folder
from tests.targets import build_one, compiled, open_bench, write_target

SOMEBODY = 12345  # A number that no user of a test machine has.


def given_away(path: Path) -> None:
    """Make it another user's; only root can."""
    if os.geteuid():
        pytest.skip("only root gives files away")
    os.lchown(path, SOMEBODY, SOMEBODY)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder that only its own mode protects."""
    tmp_path.chmod(0o755)
    opened = tmp_path / "place"
    opened.mkdir(mode=0o755)
    opened.chmod(0o755)
    return opened


@pytest.fixture(autouse=True)
def anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear remembered warnings, and put temporary files into the test's own folder, whose parents are closed."""
    PRINTED_REMARKS.clear()
    private_folder.cache_clear()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(places, "_walk_down_to", _from(tmp_path, places._walk_down_to))


def _from(top: Path, way):  # type: ignore[no-untyped-def]
    """Leave out folders above the test's folder."""
    return lambda path: (entry for entry in way(path) if entry[0].is_relative_to(top))


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_what_everybody_can_write_is_refused(place: Path, mode: int) -> None:
    """With the mode; the sticky bit protects entries that are there, no new ones."""
    assert "" == explain_foreign_access(place)
    place.chmod(mode)
    assert f"everybody can write {place} (mode {mode:04o})" == explain_foreign_access(place)


def test_what_belongs_to_another_user_is_refused(place: Path) -> None:
    """A folder above that belongs to another user is refused too, whatever its mode."""
    (place / "inner").mkdir(mode=0o700)
    given_away(place)
    assert (
        f"{place} belongs to user {SOMEBODY}"
        == explain_foreign_access(place)
        == explain_foreign_access(place / "inner")
    )


def test_a_planted_link_is_refused_wherever_it_leads(place: Path, tmp_path: Path) -> None:
    """In a folder like /tmp, another user's link could replace the folder that `loop` would make."""
    place.chmod(0o1777)
    (tmp_path / "mine").mkdir(mode=0o700)
    link = place / "loop"
    link.symlink_to(tmp_path / "mine")
    assert "" == explain_foreign_access(link)
    given_away(link)
    assert (
        f"{link} belongs to user {SOMEBODY}"
        == explain_foreign_access(link)
        == explain_foreign_access(link / "inner")
    )


@pytest.mark.parametrize(("folder", "name"), [(cache_folder, "LOOP_CACHE"), (state_folder, "LOOP_STATE")])
def test_a_folder_that_others_can_write_is_not_used_and_that_is_said_once(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder, name: str
) -> None:
    """The default folder is used instead; if that is unsafe, too, a temporary one. One warning names both."""
    place.chmod(0o777)
    monkeypatch.setenv(name, str(place))
    assert (
        folder() == folder() == Path.home() / {"LOOP_CACHE": ".cache", "LOOP_STATE": ".local/state"}[name] / "loop"
    )
    warning = capsys.readouterr().err
    assert 1 == warning.count("\n")
    assert f"{place} is not used: everybody can write {place} (mode 0777)." in warning
    assert name in warning
    used = folder()
    for above in (used.parent, used.parent.parent):
        above.chmod(0o755)
    used.chmod(0o777)
    private = folder()
    assert (Path(os.environ["HOME"]) / "tmp", 0o700) == (private.parents[1], private.stat().st_mode & 0o777)


def test_a_build_that_another_user_made_is_built_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A build whose files belong to another user is not loaded, though library and record match."""
    target = write_target(tmp_path / "tiny", {"right": compiled()})
    with open_bench(tmp_path / "tiny", target, tmp_path / "cache") as bench:
        output = build_one(bench.folder, bench.compiled_variants(["right"])["right"], bench.cache)
        library = Path(output.library)
        evil = library.read_bytes() + b"evil"
        library.write_bytes(evil)
        record = library.parent / "build.json"
        fields = json.loads(sums.without_checksum(record, record.read_bytes()))
        sums.write_sealed(record, {**fields, "sha256": content_hash(evil)})
        given_away(library)
        given_away(record)
        rebuilt = build_one(bench.folder, bench.compiled_variants(["right"])["right"], bench.cache)
    assert not rebuilt.cached
    assert evil != Path(rebuilt.library).read_bytes()
    assert f"{library.parent} is not used: {library} belongs to user {SOMEBODY}" in capfd.readouterr().err
