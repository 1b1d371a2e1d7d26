"""A search for what made a kernel wrong uses the workloads on which it is wrong, and says what it tried."""

import json
from pathlib import Path
from typing import Any

import pytest

from loop.base.errors import UsageError
from loop.base.places import find_project
from loop.bisect.command import BisectRequest, run_bisect
from loop.library import trust
from loop.report.screen import Screen
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
    """What `--json` says of a search from the first commit."""
    request = BisectRequest(
        history.commits[0], variant="c", metric=metric, workloads=sets, target=history.folder, json=True
    )
    run_bisect(request, Screen(is_quiet=True))
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


@pytest.mark.slow
def test_every_set_is_tried_unless_some_are_named(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    """The tail is found without a word; with `quick` alone it is not, and `edges` is named as left out."""
    chosen = find_project(history.folder, history.folder)
    trust.grant(chosen, trust.definition_hash(chosen))
    check_out(history, history.wrong_at)
    found = searched(history, capsys)
    assert ("culprit", ["quick", "edges"], []) == (found["outcome"], found["sets"], found["left_out"])
    assert history.commits[history.wrong] == found["culprits"][0]["commit"]
    assert ["N1027 float32"] == found["workloads"]
    found = searched(history, capsys, "quick")
    assert ("no_regression", ["quick"], ["edges"]) == (found["outcome"], found["sets"], found["left_out"])
    assert found["checks"]


def test_no_target_is_searched_that_nobody_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside a project the bundled one is not meant."""
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
