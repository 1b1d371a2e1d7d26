"""A session searches regressions by itself: wrong or slower, on a processor or emulated, in any plan."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from loop.base.processes import run_to_end
from loop.bisect.actions import bisect, choose_lines, find_regressions, lines_from_good_sessions
from loop.bisect.hunt import Regression
from loop.gate.kernel import VerifyTerms, emulate, verify
from loop.model.bisect import BisectOutput, Metric
from loop.model.index import SessionRow
from loop.model.record import Finished
from loop.steps.context import Context, NoArguments, ResultLifetime
from loop.workers.bench import Bench
from tests.gate.test_emulating import SCALE, emulated
from tests.makers import make_finished
from tests.repository.test_reading import commit, git, put_under_git
from tests.site.catalogues import make_row
from tests.targets import compiled, make_context, open_bench, write_target


@pytest.fixture
def bench(tmp_path: Path, build_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A target under git, its factor in a header of its own."""
    monkeypatch.setenv("LOOP_STATE", str(tmp_path / "state"))
    folder = tmp_path / "target"
    folder.mkdir()
    target = write_target(
        folder, {"ours": compiled(), "gpu": emulated("twice")}, dtypes={"cpu": "float32", "cuda": "float32"}
    )
    (folder / "scale.cu").write_text(SCALE)
    put_under_git(folder)
    with open_bench(folder, target, build_cache) as opened:
        yield opened


def edit(folder: Path, name: str, old: str, new: str) -> None:
    """Change a file."""
    path = folder / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def right_at(sources: str | None, **fields: Any) -> SessionRow:
    """The row of a session that passed on that commit."""
    base: dict[str, Any] = {"variants": ("ours",), "emulated": ("gpu",), "right": ("ours", "gpu"), **fields}
    return make_row(commit=sources, **base)


def now(bench: Bench, *, gpu: bool = False, sessions: Sequence[SessionRow] = ()) -> Context:
    """A session that has checked the variant."""
    before = make_context(bench, "ours", emulated=("gpu",) if gpu else ())
    working = emulate(before, ResultLifetime()) if gpu else verify(before, VerifyTerms(seeds=1))
    step = "emulate" if gpu else "verify"
    record: Finished = make_finished(step, output=run_to_end(working).output)
    return make_context(bench, "ours", emulated=before.task.emulated, finished=(record,), sessions=tuple(sessions))


def search(context: Context) -> BisectOutput:
    """The output of the step."""
    output = run_to_end(bisect(context, NoArguments())).output
    assert isinstance(output, BisectOutput)
    return output


@pytest.mark.slow
@pytest.mark.parametrize("gpu", [False, True], ids=["processor", "emulator"])
def test_the_commit_that_made_a_kernel_wrong_is_named(bench: Bench, *, gpu: bool) -> None:
    """It is found among harmless commits, also if the first good end turns out wrong."""
    folder = bench.folder
    good = commit(folder, "harmless")
    bug = ("scale.cu", "run(in, out, 2)", "run(in, out, 3)") if gpu else ("scale.h", "2.0f", "3.0f")
    edit(folder, *bug)
    culprit = commit(folder, "breaks it")
    late = commit(folder, "harmless again")
    output = search(now(bench, gpu=gpu, sessions=[right_at(good, workloads=("other",))]))
    assert output.answer is not None
    assert (True, [culprit]) == (output.ok, [entry.commit for entry in output.answer.culprits]), output.message
    (folder / "README").write_text("an edit in no commit")
    second = search(now(bench, gpu=gpu, sessions=[right_at(good), right_at(late)]))
    assert second.answer is not None
    assert [culprit] == [entry.commit for entry in second.answer.culprits], second.message


@pytest.mark.slow
def test_a_repeated_search_names_the_same_commit_from_its_saved_probes(bench: Bench) -> None:
    """Commits that build one program count once. A program that was taken back is to blame where it came again."""
    (bench.folder / ".gitignore").write_text("scratch/")
    commits, headers = [], {3: "2.0f  // Right.", 5: "3.0f", 7: "2.0f  // Right.", 9: "3.0f", 11: "3.0f  // Too."}
    for number in range(12):
        (bench.folder / "README").write_text(str(number))
        if number in headers:
            (bench.folder / "scale.h").write_text(f"#define SCALE {headers[number]}\n")
        commits.append(commit(bench.folder))
    first, second = (search(now(bench, sessions=[right_at(commits[0])])).answer for _ in range(2))
    assert first is not None
    assert second is not None
    assert [[commits[9]]] * 2 == [[entry.commit for entry in answer.culprits] for answer in (first, second)]
    assert first.probes == second.probes


@pytest.mark.slow
def test_what_was_never_right_is_said_with_the_command(bench: Bench) -> None:
    """The message says that it was never right, not that nothing regressed."""
    edit(bench.folder, "scale.h", "2.0f", "3.0f")
    commit(bench.folder, "breaks it")
    output = search(now(bench))
    assert "a search for why ours is wrong: no earlier session found it good" == output.message
    assert (output.message,) == output.not_exercised
    assert "loop bisect --variant ours --metric correctness --workloads 'N=2 M=3 dtype=float32'" in str(
        output.hint
    )
    assert "--good REV" in str(output.hint)
    uncommitted = search(now(bench, sessions=[right_at(None)]))
    assert uncommitted.message.endswith("the sources of the sessions that found it good were not committed")


@pytest.mark.slow
def test_good_ends_are_sessions_that_found_the_variant_right(bench: Bench) -> None:
    """A good end is a commit at which its checks passed; latest first, each commit once."""
    commits = [commit(bench.folder, str(number)) for number in range(4)]
    edit(bench.folder, "scale.h", "2.0f", "3.0f")
    commit(bench.folder, "breaks it")
    timed = right_at(commits[1], status="failed", right=("ours",))
    wrong = right_at(commits[2], status="failed", right=("theirs",))
    context = now(
        bench,
        sessions=[
            right_at(commits[0]),
            timed,
            timed,
            wrong,
            right_at(commits[3], status="failed", ratios={}, right=()),
        ],
    )
    (regression,) = find_regressions(context)
    assert [commits[1], commits[0]] == [line.good.commit for line in choose_lines(context, regression)[0]]
    dirty = now(bench, sessions=[right_at(None, base=commits[2])])
    assert [commits[2]] == [line.good.commit for line in choose_lines(dirty, regression)[0]]


def test_without_git_nothing_is_searched(tmp_path: Path) -> None:
    """The reason is that there is no repository, whatever sessions found."""
    lines, why = lines_from_good_sessions(tmp_path, Regression("ours", "latency", ()), [])
    assert ([], True) == (lines, "not under git" in why)


def test_a_search_begins_where_a_session_last_found_the_variant_good(tmp_path: Path) -> None:
    """Sessions that found it slower, and the current commit, are no good ends."""
    folder = tmp_path / "target"
    folder.mkdir()
    (folder / "target.yaml").write_text("format: 1\n")
    git(folder, "init", "-q", "-b", "main")
    good, slower, today = (commit(folder, name) for name in ("good", "slower", "today"))
    rows = [
        right_at(good, right=("ours",)),
        right_at(slower, right=("ours",), regressed=("ours",), status="failed"),
        right_at(today, right=("ours",)),
        right_at(None, right=("ours",)),
    ]
    good_ends: dict[Metric, str] = {"latency": good, "correctness": slower}
    for metric, expected in good_ends.items():
        lines, _ = lines_from_good_sessions(folder, Regression("ours", metric), rows, bad="HEAD")
        assert expected == lines[0].good.commit
    on_gpu = Regression("gpu", "correctness", emulated=True)
    assert ([], "no earlier session found it good") == lines_from_good_sessions(folder, on_gpu, rows)
