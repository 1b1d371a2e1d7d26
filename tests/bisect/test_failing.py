"""A search uses the workloads on which the bad end is wrong or slower, and reports what it tried."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from loop.base.errors import UsageError
from loop.bisect.command import BisectRequest, run_bisect
from loop.bisect.trying import choose_slower_workloads
from loop.library import trust
from loop.library.definitions import find_project
from loop.report.screen import Screen
from loop.timing.verdicts import MAX_BLOCKS
from tests.bench.coverage import by_bisection
from tests.bench.coverage_histories import History, check_out, make_history
from tests.bench.rig import Rig


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """Wrong on the set `edges` alone."""
    return make_history(tmp_path_factory.mktemp("histories"), 2)


def searched(
    history: History, capsys: pytest.CaptureFixture[str], *sets: str, metric: str = "correctness"
) -> dict[str, Any]:
    """Reply of `--json` for a search from the first commit."""
    request = BisectRequest(
        history.commits[0], variant="c", metric=metric, workloads=sets, target=history.folder, json=True
    )
    run_bisect(request, Screen(is_quiet=True))
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_every_set_is_tried_unless_some_are_named(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    """By default all sets are tried; `quick` alone misses the mistake, and `edges` is listed as left out."""
    chosen = find_project(history.folder, history.folder)
    trust.grant(chosen.target, trust.definition_hash(chosen))
    check_out(history, history.wrong_at)
    answer = searched(history, capsys)
    assert ("culprit", ["quick", "edges"], []) == (answer["outcome"], answer["sets"], answer["left_out"])
    assert history.commits[history.wrong] == answer["culprits"][0]["commit"]
    assert ["N1027 float32"] == answer["workloads"]
    answer = searched(history, capsys, "quick")
    assert ("no_regression", ["quick"], ["edges"]) == (answer["outcome"], answer["sets"], answer["left_out"])
    assert answer["checks"]


def test_no_target_is_searched_that_nobody_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside a project, the bundled target is not searched by default."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no target to search") as refused:
        run_bisect(BisectRequest("HEAD~3"), Screen())
    assert 2 == refused.value.exit_code


@pytest.mark.slow
def test_a_kernel_that_fails_only_after_other_calls_is_searched_on_all_workloads(tmp_path: Path) -> None:
    """Its table stays from the first value of an attribute, so the workloads that fail are right by themselves."""
    rig = Rig(tmp_path)
    right, ran = by_bisection(rig, tmp_path / "history", "rope", 2)
    assert right, ran.text


def blocks(
    step: float, sd: float = 0.005, seed: int = 0, *, count: int = 20, outliers: float = 0.0
) -> list[float]:
    """Log ratios of a bad end that is slower by `step`; a share of them is far off, either way."""
    rng = random.Random(f"{step} {sd} {seed}")
    return [step + rng.gauss(0, 0.5 if rng.random() < outliers else sd) for _ in range(count)]


ALIKE = {f"same {number}": blocks(0.0, seed=number) for number in range(4)}  # Workloads on which nothing changed.


def test_a_slower_workload_is_searched_alone_else_open_ones_or_all() -> None:
    """Eight per cent of one would be 1.6 in the mean of five; open ones scatter too much alone."""
    assert ("slower",) == choose_slower_workloads({**ALIKE, "slower": blocks(0.08)})
    assert ("open",) == choose_slower_workloads({**ALIKE, "open": blocks(0.0, 0.06, count=MAX_BLOCKS)})
    assert tuple(ALIKE) == choose_slower_workloads(ALIKE)


@pytest.mark.parametrize(("step", "is_slower"), [(0.0, False), (0.08, True), (0.5, True)])
def test_blocks_that_are_far_off_change_nothing(step: float, is_slower: bool) -> None:
    """One block in ten is far off, as on a machine with other work."""
    for seed in range(20):
        noisy = blocks(step, seed=seed, count=MAX_BLOCKS, outliers=0.1)
        assert is_slower == (choose_slower_workloads({**ALIKE, "noisy": noisy}) == ("noisy",))
