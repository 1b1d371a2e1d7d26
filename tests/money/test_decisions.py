"""`loop cost keep-or-stop` and `loop cost pivot` as a user types them."""

import json
from pathlib import Path

import pytest

from tests.projects import loop, make_project

KEEP = ("cost", "keep-or-stop")
OPTIONS = """\
format: 1
question: what next
value_usd: 1000
options:
  - {name: go on, usd: [150, 250], probability: 0.5}
  - {name: rewrite, usd: [250, 350]}
"""


def test_both_sides_the_break_even_and_the_decision_are_json() -> None:
    """The history's first case: 5 h at $0.20 against $0.80."""
    done = loop(*KEEP, "--idle-hours", "5", "--gpu-usd-per-hour", "0.20", "--stop-cost-usd", "0.80", "--json")
    assert 0 == done.returncode, done.stderr
    found = json.loads(done.stdout)
    keys = ("schema_version", "idle_usd", "stop_usd", "break_even_hours", "decision")
    assert [3, 1.0, 0.8, 4.0, "stop"] == [found[key] for key in keys]


def test_people_see_both_sides_in_eighty_columns() -> None:
    """And where the decision turns."""
    done = loop(*KEEP, "--idle-hours", "5", "--gpu-usd-per-hour", "0.20", "--stop-cost-usd", "0.80..1.20")
    for part in ("$1.00", "$0.80 to $1.20", "4.0 h to 6.0 h", "It depends"):
        assert part in done.stdout
    assert [] == [line for line in done.stdout.splitlines() if len(line) > 80]


@pytest.mark.slow
def test_a_restart_and_who_waits_make_the_cost_of_a_stop() -> None:
    """12 minutes at $0.70 and nobody: the break-even is 12 minutes."""
    words = ("--idle-hours", "1", "--gpu-usd-per-hour", "0.70", "--restart-minutes", "12")
    found = json.loads(loop(*KEEP, *words, "--waiting", "nobody", "--json").stdout)
    assert (pytest.approx(0.2), "stop") == (found["break_even_hours"], found["decision"])
    assert "keep" == json.loads(loop(*KEEP, *words, "--waiting", "engineer", "--json").stdout)["decision"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--idle-hours", "-1", "--stop-cost-usd", "1"], "--idle-hours -1: expected a number from 0"),
        (["--idle-hours", "nan", "--stop-cost-usd", "1"], "--idle-hours nan: expected a number from 0"),
        (["--idle-hours", "inf", "--stop-cost-usd", "1"], "--idle-hours inf: expected a number from 0"),
        (["--idle-hours", "5", "--stop-cost-usd", ""], "--stop-cost-usd '': expected a number"),
        (["--idle-hours", "5", "--stop-cost-usd", "a..b"], "--stop-cost-usd 0.80..1.20"),
        (["--idle-hours", "5", "--stop-cost-usd", "1..2..3"], "expected a number, or two"),
        (["--idle-hours", "5", "--stop-cost-usd", "1.20..0.80"], "--stop-cost-usd 0.80..1.20"),
        (["--idle-hours", "5", "--stop-cost-usd", "-1"], "expected a number from 0"),
        (["--idle-hours", "5", "--stop-cost-usd", "nan"], "expected a number from 0"),
        (["--idle-hours", "5", "--gpu-usd-per-hour", "0"], "expected a price above 0"),
        (["--idle-hours", "5", "--gpu-usd-per-hour", "700"], "catalogues write 0 or 700"),
        (["--idle-hours", "5", "--gpu-usd-per-hour", "nan"], "expected a price above 0"),
        (["--idle-hours", "5", "--restart-minutes", "5", "--waiting", "cat"], "nobody, agent, engineer"),
        (["--idle-hours", "5", "--stop-cost-usd", "1", "--waiting", "agent"], "name one"),
        (["--idle-hours", "5"], "--restart-minutes"),
        ([], "--idle-hours 5"),
    ],
)
def test_what_is_no_amount_is_wrong_usage(words: list[str], said: str) -> None:
    """Exit 2, what was expected, never a traceback."""
    done = loop(*KEEP, *words)
    assert 2 == done.returncode
    assert said in done.stderr
    assert "\n  next: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_options_are_weighed_and_what_is_unknown_is_said(tmp_path: Path) -> None:
    """A probability that nobody gave is a break-even, not a guess."""
    file = tmp_path / "pivot.yaml"
    file.write_text(OPTIONS)
    found = json.loads(loop("cost", "pivot", "--options", str(file), "--json").stdout)
    assert (2, "what next", "go on") == (found["schema_version"], found["question"], found["best"])
    assert [[250.0, 350.0], None] == [one["expected_usd"] for one in found["options"]]
    assert [0.25, 0.35] == found["options"][1]["break_even_probability"]
    shown = loop("cost", "pivot", "--options", str(file)).stdout
    assert "2 sessions without measurable progress" in " ".join(shown.split())
    file.write_text(OPTIONS.replace("rewrite", "pivot to warp specialisation and tensor cores"))
    shown = loop("cost", "pivot", "--options", str(file)).stdout
    assert "it pays from a probability of 25 to 35 %" in " ".join(shown.split())
    assert [] == [line for line in shown.splitlines() if len(line) > 80]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("0.5", "1.5", "pivot.yaml:5:49: options.0.probability: expected"),
        ("0.5", "likely", "pivot.yaml:5:49: options.0.probability: expected"),
        ("[150, 250]", "[250, 150]", "pivot.yaml:5:5: options.0: expected"),
        ("[150, 250]", "[150]", "options.0.usd"),
        ("probability", "probabilty", "did you mean 'probability'?"),
        ("question: what next\n", "", "expected a value for 'question'"),
        ("options:", "options: []\nother:", "pivot.yaml:4:10: options"),
    ],
)
@pytest.mark.slow
def test_a_malformed_file_is_complained_about_with_its_line_and_column(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    """Exit 2."""
    file = tmp_path / "pivot.yaml"
    file.write_text(OPTIONS.replace(old, new))
    done = loop("cost", "pivot", "--options", str(file))
    assert 2 == done.returncode
    assert said in done.stderr


def test_a_file_that_is_not_there_is_said() -> None:
    """Exit 2, its name, no traceback."""
    done = loop("cost", "pivot", "--options", "nowhere.yaml")
    assert (2, True, False) == (done.returncode, "nowhere.yaml" in done.stderr, "Traceback" in done.stderr)


@pytest.mark.slow
def test_the_pattern_reads_options_beside_the_target(tmp_path: Path) -> None:
    """`loop run pattern roi-pivot`: stop rules and options are in the report; a malformed file fails the step."""
    folder = make_project(tmp_path / "project")
    assert 0 == loop("trust", str(folder)).returncode
    (folder / "pivot.yaml").write_text(OPTIONS)
    done = loop("run", "pattern", "roi-pivot", "--target", str(folder), "--json")
    assert 0 == done.returncode, done.stderr
    report = Path(json.loads(done.stdout)["report"]).read_text()
    assert "### Decisions" in report
    assert "expected $250.00 to $350.00" in report
    (folder / "pivot.yaml").write_text(OPTIONS.replace("0.5", "1.5"))
    broken = loop("run", "pattern", "roi-pivot", "--target", str(folder))
    assert (1, True) == (broken.returncode, "pivot.yaml:5:49" in broken.stderr)
