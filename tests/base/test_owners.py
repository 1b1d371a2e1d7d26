"""Caches, state and sessions are used only where nobody else can change them; what is used instead is said."""

import json
import os
import pwd
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loop.base import owners
from loop.base.documents import content_hash, sums
from loop.base.owners import make_private, private_folder, stranger
from loop.base.places import cache_folder, state_folder
from loop.base.remarks import forget
from loop.cli import app
from tests.store.folders import make_session
from tests.targets import build_one, compiled, open_bench, write_target

SOMEBODY = 12345
"""A number that no user of a test machine has."""


def given_away(path: Path) -> None:
    """Make it another user's; only root can."""
    if os.geteuid():
        pytest.skip("only root gives files away")
    os.lchown(path, SOMEBODY, SOMEBODY)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder that only its own mode protects."""
    tmp_path.chmod(0o755)
    made = tmp_path / "place"
    made.mkdir(mode=0o755)
    made.chmod(0o755)
    return made


@pytest.fixture(autouse=True)
def anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is said again; temporary files lie in the test's own folder, the way to which is closed."""
    forget()
    private_folder.cache_clear()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(owners, "_way", _from(tmp_path, owners._way))


def _from(top: Path, way):  # type: ignore[no-untyped-def]
    """What lies above the test's folder is no concern of the test."""
    return lambda path: (one for one in way(path) if one[0].is_relative_to(top))


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o757, 0o722])
def test_what_everybody_can_write_is_refused(place: Path, mode: int) -> None:
    """With the mode; the sticky bit protects entries that are there, no new ones."""
    assert "" == stranger(place)
    place.chmod(mode)
    assert f"everybody can write {place} (mode {mode:04o})" == stranger(place)


@pytest.mark.parametrize(("mode", "safe"), [(0o777, False), (0o1777, True), (0o755, True)])
def test_folders_above_count_and_a_sticky_one_is_fine(place: Path, mode: int, safe: bool) -> None:
    """As /tmp is: only the owner of an entry replaces it."""
    (place / "inner").mkdir(mode=0o755)
    place.chmod(mode)
    assert safe == (stranger(place / "inner") == "") == (stranger(place / "not there yet") == "")


def test_behind_a_closed_folder_modes_do_not_matter(place: Path) -> None:
    """A umask of 0 makes files that everybody could write, if anybody came to them."""
    inner = place / "inner"
    inner.mkdir()
    inner.chmod(0o777)
    place.chmod(0o700)
    assert "" == stranger(inner)


def test_a_group_of_the_user_alone_may_write(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many systems give each user a group of the same name, and a umask of 002."""
    place.chmod(0o775)
    me = pwd.getpwuid(os.geteuid())
    entry = type("Group", (), {"gr_name": me.pw_name, "gr_mem": []})
    monkeypatch.setattr("grp.getgrgid", lambda gid: entry)
    monkeypatch.setattr("pwd.getpwall", lambda: [me])
    assert "" == stranger(place)
    entry.gr_mem = ["mallory"]  # type: ignore[attr-defined]
    assert stranger(place).startswith("group ")
    entry.gr_mem, entry.gr_name = [], "users"  # type: ignore[attr-defined]
    assert f"group users can write {place} (mode 0775)" == stranger(place)


def test_what_belongs_to_another_user_is_refused(place: Path) -> None:
    """Also a folder above, whatever its mode."""
    (place / "inner").mkdir(mode=0o700)
    given_away(place)
    assert f"{place} belongs to user {SOMEBODY}" == stranger(place) == stranger(place / "inner")


def test_a_planted_link_is_refused_wherever_it_leads(place: Path, tmp_path: Path) -> None:
    """In a folder like /tmp another user's link takes the place of what we would make."""
    place.chmod(0o1777)
    (tmp_path / "mine").mkdir(mode=0o700)
    link = place / "loop"
    link.symlink_to(tmp_path / "mine")
    assert "" == stranger(link)
    given_away(link)
    assert f"{link} belongs to user {SOMEBODY}" == stranger(link) == stranger(link / "inner")


@pytest.mark.parametrize("link", ["../open", "/{top}/open", "inner/../../open"])
def test_a_link_of_ours_is_judged_by_where_it_leads(place: Path, tmp_path: Path, link: str) -> None:
    """Relative or whole."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o1777)
    (place / "inner").mkdir()
    (place / "loop").symlink_to(link.format(top=tmp_path).replace("//", "/"))
    assert f"everybody can write {tmp_path / 'open'} (mode 1777)" == stranger(place / "loop")


def test_folders_of_ours_are_made_for_us_alone(place: Path) -> None:
    """Those above that are missing too, whatever the umask."""
    before = os.umask(0)
    try:
        make_private(place / "one" / "two")
    finally:
        os.umask(before)
    assert [0o700, 0o700] == [(place / name).stat().st_mode & 0o777 for name in ("one", "one/two")]


@pytest.mark.parametrize(("folder", "name"), [(cache_folder, "LOOP_CACHE"), (state_folder, "LOOP_STATE")])
def test_a_folder_that_others_can_write_is_not_used_and_that_is_said_once(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder, name: str
) -> None:
    """The user's own is, in its usual place; where that is no better, one among temporary files."""
    place.chmod(0o777)
    monkeypatch.setenv(name, str(place))
    assert (
        folder() == folder() == Path.home() / {"LOOP_CACHE": ".cache", "LOOP_STATE": ".local/state"}[name] / "loop"
    )
    said = capsys.readouterr().err
    assert 1 == said.count("\n")
    assert f"{place} is not used: everybody can write {place} (mode 0777)." in said
    assert name in said
    used = folder()
    for above in (used.parent, used.parent.parent):
        above.chmod(0o755)
    used.chmod(0o777)
    private = folder()
    assert (Path(os.environ["HOME"]) / "tmp", 0o700) == (private.parents[1], private.stat().st_mode & 0o777)


def test_a_taken_name_among_temporary_files_is_not_used(place: Path, tmp_path: Path) -> None:
    """Then this process has a folder for itself, which goes with it."""
    (tmp_path / "tmp" / f"loop-{os.geteuid()}").mkdir()
    (tmp_path / "tmp" / f"loop-{os.geteuid()}").chmod(0o777)
    found = private_folder("cache")
    assert "" == stranger(found)
    assert tmp_path / "tmp" == found.parent


def test_a_command_says_it_and_goes_on(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a cache for everybody, where the index would have been."""
    place.chmod(0o777)
    monkeypatch.setenv("LOOP_CACHE", str(place))
    make_session(Path(os.environ["LOOP_SESSIONS"]), "2026-01-02-000000-a")
    done = CliRunner().invoke(app, ["sessions", "list"])
    assert (0, 1) == (done.exit_code, done.stderr.count(f"{place} is not used")), done.output
    assert [] == list(place.iterdir())


def test_a_build_that_another_user_made_is_built_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Library and record fit each other, and belong to somebody else: nothing of it is loaded."""
    target = write_target(tmp_path / "tiny", {"right": compiled()})
    with open_bench(tmp_path / "tiny", target, tmp_path / "cache") as bench:
        made = build_one(bench.folder, bench.compiled(["right"])["right"], bench.cache)
        library = Path(made.library)
        evil = library.read_bytes() + b"evil"
        library.write_bytes(evil)
        record = library.parent / "build.json"
        fields = json.loads(sums.opened(record, record.read_bytes()))
        sums.write_sealed(record, {**fields, "sha256": content_hash(evil)})
        given_away(library)
        given_away(record)
        again = build_one(bench.folder, bench.compiled(["right"])["right"], bench.cache)
    assert not again.cached
    assert evil != Path(again.library).read_bytes()
    assert f"{library.parent} is not used: {library} belongs to user {SOMEBODY}" in capfd.readouterr().err
