"""The known good: each variant's build when all gates last passed, from cache or commit."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loop.base.processes import run_to_end
from loop.gate.kernel import NoKnownGood, find_known_good, known_good_build
from loop.learning.next_plan import sessions_needed
from loop.model.measurement import Build, VariantChecks
from loop.model.output import VerifyOutput
from loop.model.record import Event, KnownGood
from loop.workers.bench import Bench
from tests.makers import make_check, make_finished, make_machine, make_session_head
from tests.repository.test_reading import commit, files, git
from tests.store.folders import make_session
from tests.targets import compiled, importable, make_builds, make_context, open_bench, write_target

SESSION = "2026-11-20-090000-baseline"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A bench for the tiny target, in a folder of a repository with one commit; its cache is its own."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / ".gitignore").write_text("scratch\n")
    folder = root / "kernels" / "tiny"
    target = write_target(folder, {"right": compiled(), "double": importable("double")})
    commit(root)
    with open_bench(folder, target, tmp_path / "cache") as opened:
        yield opened


def passed_build(build: Build, **fields: Any) -> KnownGood:
    """A build that an earlier session found good."""
    return KnownGood.model_validate({"session": SESSION, "build_id": build.build_id, "commit": None, **fields})


def build_now(bench: Bench) -> Build:
    """The build of the files on disk."""
    return make_builds(bench, "right")["right"]


def head_of(bench: Bench) -> str:
    return git(bench.folder, "rev-parse", "HEAD")


def edit(bench: Bench, text: str = "#define SCALE 2.5f\n") -> None:
    """Change what the kernel computes."""
    (bench.folder / "scale.h").write_text(text)


def earlier(bench: Bench, build: Build, known_good: KnownGood | None, name: str = "right") -> Build:
    """The known-good build of a variant whose current build is `build`."""
    context = make_context(bench, name, known_good={name: known_good} if known_good else {})
    return run_to_end(known_good_build(context, name, build))


@pytest.mark.slow
def test_what_the_cache_has_lost_is_built_from_its_commit(bench: Bench) -> None:
    """In a temporary folder; the checkout and its uncommitted files stay as they are."""
    old, head = build_now(bench), head_of(bench)
    edit(bench)
    commit(bench.folder)
    (bench.folder / "notes.txt").write_text("mine")
    new = build_now(bench)
    shutil.rmtree(Path(old.library).parent)
    state = files(bench.folder), git(bench.folder, "status", "--porcelain")
    rebuilt = earlier(bench, new, passed_build(old, commit=head))
    assert (old.build_id, False) == (rebuilt.build_id, rebuilt.cached)
    assert Path(rebuilt.library).is_file()
    assert state == (files(bench.folder), git(bench.folder, "status", "--porcelain"))
    assert {new.build_id, old.build_id} == {path.name for path in bench.cache.glob("*/*")}


def test_it_is_built_by_its_own_recipe(bench: Bench) -> None:
    """The commit's manifest is used, not the current one."""
    good, then = build_now(bench), head_of(bench)
    manifest = bench.folder / "target.yaml"
    manifest.write_text(manifest.read_text().replace("-O0", "-O1"))
    commit(bench.folder)
    edit(bench)
    shutil.rmtree(Path(good.library).parent)
    now = good.model_copy(update={"build_id": "0" * 32})
    assert good.build_id == earlier(bench, now, passed_build(good, commit=then)).build_id


def test_what_builds_to_something_else_is_said(bench: Bench) -> None:
    """A commit that now builds to another build id is no known good; the message names possible reasons."""
    head, build = head_of(bench), build_now(bench)
    with pytest.raises(NoKnownGood) as caught:
        earlier(bench, build, KnownGood(session=SESSION, build_id="1" * 32, commit=head), "right")
    start = f"{head[:12]} builds to something else than {SESSION} measured: the compiler changed"
    assert str(caught.value).startswith(start)


NOW = "2026-11-21-120000-baseline"
COMMIT = "0123456789abcdef"  # That of the maker's head.


def verified(right: bool = True, **builds: str) -> Event:
    """The end of a verification of these variants with these builds."""
    checks = (make_check(right=right),)
    rows = builds.items()
    sides = tuple(VariantChecks(variant=name, build_id=build or None, checks=checks) for name, build in rows)
    return make_finished(output=VerifyOutput(ok=right, message="verified", variants=sides, right=tuple(builds)))


def known_goods(root: Path, id: str = NOW, **head: Any) -> dict[str, KnownGood]:
    """The known-good builds of a session that begins now."""
    return find_known_good(root, make_session_head(id=id, **head))


def build_of(root: Path, variant: str = "cpu", **head: Any) -> str | None:
    """The build of a variant that is known good."""
    good = known_goods(root, **head).get(variant)
    return good.build_id if good else None


def test_the_last_session_that_passed_counts(tmp_path: Path) -> None:
    """Its build, revision and name are returned."""
    make_session(tmp_path, "2026-11-19-090000-a", verified(cpu="first"))
    make_session(tmp_path, "2026-11-20-090000-a", verified(cpu="second"))
    expected = KnownGood(session="2026-11-20-090000-a", build_id="second", commit=COMMIT, branch="main")
    assert {"cpu": expected} == known_goods(tmp_path)


@pytest.mark.parametrize("status", ["failed", "aborted", "paused", ""])
def test_a_session_that_did_not_pass_is_passed_over(status: str, tmp_path: Path) -> None:
    """A session that is still open is passed over too."""
    make_session(tmp_path, "2026-11-19-090000-a", verified(cpu="first"))
    make_session(tmp_path, "2026-11-20-090000-a", verified(cpu="second"), status=status)
    assert "first" == build_of(tmp_path)


@pytest.mark.parametrize(
    "head",
    [{"target": "other"}, {"device": "cuda"}, {"machine": make_machine(processor="Another CPU")}],
    ids=lambda head: next(iter(head)),
)
def test_another_ground_has_another_known_good(head: dict[str, Any], tmp_path: Path) -> None:
    """Target, device and processor have to be the same."""
    make_session(tmp_path, "2026-11-20-090000-a", verified(cpu="there"), **head)
    assert None is build_of(tmp_path)
    assert "there" == build_of(tmp_path, **head)


def test_a_build_that_any_session_found_wrong_is_not_good(tmp_path: Path) -> None:
    """Later passes do not help it: an earlier build is the known good. Both sessions that show this are kept."""
    wrong = verified(right=False, cpu="second")
    make_session(tmp_path, "2026-11-18-090000-a", verified(cpu="first"))
    make_session(tmp_path, "2026-11-19-090000-edges", wrong, status="failed")
    make_session(tmp_path, "2026-11-20-090000-quick", verified(cpu="second"))
    assert "first" == build_of(tmp_path)
    assert {"2026-11-19-090000-edges", "2026-11-18-090000-a"} <= sessions_needed(tmp_path)
