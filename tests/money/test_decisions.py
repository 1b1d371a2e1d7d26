"""`loop cost keep-or-stop` and `loop cost pivot` as a user types them."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from loop.base.errors import UsageError
from loop.cli import ALL
from loop.cli.command import default_of
from loop.money.command import pivot
from loop.report.screen import Screen
from tests.projects import loop, make_project

OPTIONS = """\
format: 1
question: what next
value_usd: 1000
options:
  - {name: go on, usd: [150, 250], probability: 0.5}
  - {name: rewrite, usd: [250, 350]}
"""


KEEP = next(command for command in ALL if command.words == "cost keep-or-stop")


def keep(**fields: Any) -> str:
    """What `keep-or-stop` prints."""
    out = io.StringIO()
    values = {parameter.name: default_of(parameter) for parameter in KEEP.parameters} | fields
    assert 0 == KEEP.call(values, Screen(out, io.StringIO()))
    return out.getvalue()


def test_both_sides_the_break_even_and_the_decision_are_json() -> None:
    """The history's first case: 5 h at $0.20 against $0.80."""
    words = ("--idle-hours", "5", "--gpu-usd-per-hour", "0.20", "--stop-cost-usd", "0.80", "--json")
    done = loop("cost", "keep-or-stop", *words)
    assert 0 == done.returncode, done.stderr
    answer = json.loads(done.stdout)
    keys = ("schema_version", "idle_usd", "stop_usd", "break_even_hours", "decision")
    assert [4, 1.0, 0.8, 4.0, "stop"] == [answer[key] for key in keys]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"idle_hours": -1, "stop_cost_usd": 1}, "--idle-hours -1: expected a number from 0"),
        ({"idle_hours": float("nan"), "stop_cost_usd": 1}, "--idle-hours nan: expected a number from 0"),
        ({"gpu_usd_per_hour": 0}, "expected a price above 0"),
        ({"gpu_usd_per_hour": 700}, "expected a price above 0"),
        ({"stop_cost_usd": 1, "waiting": "agent"}, "name one"),
        ({}, "no restart was measured"),
        ({"idle_hours": None}, "for how long will the GPU idle?"),
    ],
)
def test_what_is_no_amount_is_wrong_usage(fields: dict[str, Any], message: str) -> None:
    """The error says what was expected, and what to type."""
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        keep(**{"idle_hours": 5, "gpu_usd_per_hour": 0.5, **fields})
    assert caught.value.hint


def test_options_are_weighed_and_what_is_unknown_is_said(tmp_path: Path) -> None:
    """A missing probability gives a break-even, not a guess."""
    file = tmp_path / "pivot.yaml"
    file.write_text(OPTIONS)
    answer = pivot(file, None).model_dump(mode="json")
    assert (3, "what next", "go on") == (answer["schema_version"], answer["question"], answer["best"])
    assert [[250.0, 350.0], None] == [option["expected_usd"] for option in answer["options"]]
    file.write_text(OPTIONS.replace("rewrite", "pivot to warp specialisation and tensor cores"))
    out = io.StringIO()
    pivot(file, None).show(Screen(out, io.StringIO()))
    text = out.getvalue()
    assert "2 sessions without measurable progress" in " ".join(text.split())
    assert "it pays from a probability of 25 to 35 %" in " ".join(text.split())
    assert [] == [line for line in text.splitlines() if len(line) > 80]


@pytest.mark.slow
def test_the_pattern_reads_options_beside_the_target(tmp_path: Path) -> None:
    """`loop run pattern roi-pivot`: stop rules and options are in the report."""
    folder = make_project(tmp_path / "project")
    assert 0 == loop("trust", str(folder)).returncode
    (folder / "pivot.yaml").write_text(OPTIONS)
    done = loop("run", "pattern", "roi-pivot", "--target", str(folder), "--json")
    assert 0 == done.returncode, done.stderr
    report = Path(json.loads(done.stdout)["report"]).read_text()
    assert "### Decisions" in report
    assert "expected $250.00 to $350.00" in report
