"""The status page: what it says, in a terminal and as Markdown, whatever stands in a record."""

import re
from typing import Any

from loop.cli.status_page import Gpu, Left, Milestone, Running, Status, Waiting, lines, markdown
from tests.makers import NOON

HOSTILE = "a|b `c` <script>x</script> [l](http://evil.example) \x1b[31mred\x07\n# head\n```"


def make_status(**fields: Any) -> Status:
    """Nothing runs, nothing waits."""
    base: dict[str, Any] = {
        "target": "scaling",
        "at": NOON,
        "running": (),
        "waiting": (),
        "more_waiting": 0,
        "left": (),
        "gpu": Gpu("unknown", "no session has run on a GPU here"),
        "sessions": 3,
        "usd": 1.5,
        "last": "2026-11-21-120000-quick",
        "milestone": Milestone("Make cpu faster", ("it is slow",), "2 min", "loop run session optimize"),
    }
    return Status(**{**base, **fields})


def make_running(**fields: Any) -> Running:
    """A session in its second step, over its budget."""
    base: dict[str, Any] = {
        "id": "s1",
        "plan": "quick",
        "step": "baseline-first/verify",
        "title": "Every variant",
        "since": NOON,
        "step_s": 30.0,
        "step_budget_s": 20.0,
        "note": "round 2",
        "done": 1,
        "of": 5,
        "seconds": 90.0,
        "budget_s": 60.0,
        "predicted_s": (50.0, 40.0, 80.0),
        "usd": 1.25,
    }
    return Running(**{**base, **fields})


def test_nothing_to_say() -> None:
    """It says that, and what comes next."""
    text = "\n".join(lines(make_status()))
    assert "nothing runs, nothing waits" in text
    assert "run it: loop run session optimize" in text
    page = markdown(make_status())
    assert "Nothing runs." in page
    assert "Nothing waits." in page


def test_what_runs() -> None:
    """Step, since when, budget and overrun, prediction, cost; each line fits a terminal."""
    found = list(lines(make_status(running=(make_running(),))))
    text = "\n".join(found)
    for words in (
        "s1 runs, at baseline-first/verify",
        "since 2026-11-21 12:00 UTC: 30.0 s of 20.0 s, 1.5 times its budget",
        "1 of 5 steps; $1.2500 so far",
        "90.0 s of 60.0 s, 1.5 times its budget",
        "predicted 50.0 s (80 %: 40.0 s to 80.0 s)",
    ):
        assert words in text
    assert max(map(len, found)) <= 80
    page = markdown(make_status(running=(make_running(),)))
    assert re.search(r"\| s1 +\| baseline-first/verify: Every variant \|", page)


def test_between_two_steps() -> None:
    """No step is named, and no time."""
    run = make_running(step="", title="", since=None, predicted_s=None)
    assert "  since" not in "\n".join(lines(make_status(running=(run,))))
    assert "between two steps" in markdown(make_status(running=(run,)))


def test_what_waits() -> None:
    """Each with the command that goes on; older ones are counted."""
    waiting = Waiting("s2", "paused", "one change is asked for", "loop run session --resume s2", 0.5)
    status = make_status(
        waiting=(waiting,), more_waiting=4, left=(Left("1 draft", "loop patterns drafts show x"),)
    )
    text, page = "\n".join(lines(status)), markdown(status)
    for words in ("loop run session --resume s2", "one change is asked for", "loop patterns drafts show x"):
        assert words in text
        assert words in page
    assert "4 older sessions" in text
    assert "```sh\nloop run session --resume s2\n```" in page


def test_hostile_text_stays_text() -> None:
    """No new heading, link, tag, fence, table border or escape comes of it."""
    status = make_status(
        target=HOSTILE,
        running=(make_running(id=HOSTILE, step=HOSTILE, title=HOSTILE, note=HOSTILE),),
        waiting=(Waiting(HOSTILE, "paused", HOSTILE, HOSTILE, 0.0),),
        left=(Left(HOSTILE, "loop worktrees"),),
        gpu=Gpu("keep", HOSTILE),
        last=HOSTILE,
        milestone=Milestone(HOSTILE, (HOSTILE,), HOSTILE, HOSTILE),
    )
    page, text = markdown(status), "\n".join(lines(status))
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f]", page + text)
    headings = [line for line in page.splitlines() if line.startswith("#")]
    assert ["Status", "Running", "Waiting", "Money", "Next"] == [line.split()[1] for line in headings]
    rows = [re.sub(r"\\\|", "", line).count("|") for line in page.splitlines() if line.startswith("|")]
    assert [7, 7, 7] == rows
    outside = re.sub(r"(?ms)^(`{3,})sh\n.*?^\1$|(?<!`)(`+)(?!`).*?(?<!`)\2(?!`)", "", page.replace("\\`", ""))
    assert "<script>" not in outside
    assert not re.search(r"(?<!\\)\]\(http", outside)


def test_no_milestone() -> None:
    """Why there is none: a definition with a mistake does not hide the sessions."""
    status = make_status(milestone=None, no_milestone="target.yaml:3: expected a number")
    assert "next: target.yaml:3: expected a number" in list(lines(status))
    assert "target.yaml:3: expected a number" in markdown(status)
