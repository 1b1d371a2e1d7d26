"""The status page: what it says, in a terminal and as Markdown, whatever stands in a record."""

import io
import re
from typing import Any

from loop.base.screen import Screen
from loop.cli.status import GpuDecision, Running, Status, WaitingSession, sections
from loop.report.sections import markdown, show
from loop.session.next_session import NextSession
from tests.makers import NOON

HOSTILE = "a|b `c` <script>x</script> [l](http://evil.example) \x1b[31mred\x07\n# head\n```"


def make_next(**fields: Any) -> NextSession:
    """What the next session should do."""
    base: dict[str, Any] = {
        "objective": "Make cpu faster",
        "plan": "optimize",
        "chain": ("baseline-first",),
        "expected": "2 min",
        "benefit": "an answer",
        "why": ("it is slow",),
        "command": "loop run session optimize",
        "unjudged": "",
        **dict.fromkeys(("variant", "resume", "predicted")),
        **dict.fromkeys(("wrong", "others"), ()),
    }
    return NextSession(**{**base, **fields})


def make_status(**fields: Any) -> Status:
    """Nothing runs, nothing waits."""
    base: dict[str, Any] = {
        "target": "scaling",
        "at": NOON,
        "running": (),
        "waiting": (),
        "more_waiting": 0,
        "left": (),
        "gpu": GpuDecision("unknown", "no session has run on a GPU here"),
        "sessions": 3,
        "usd": 1.5,
        "last": "2026-11-21-120000-quick",
        "milestone": make_next(),
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
        "usd": 1.25,
    }
    return Running(**{**base, **fields})


def text(status: Status) -> str:
    """On a terminal."""
    out = io.StringIO()
    show(sections(status), Screen(out, io.StringIO()))
    return out.getvalue()


def page(status: Status) -> str:
    """As Markdown."""
    return markdown(f"Status of {status.target}", sections(status))


def test_hostile_text_stays_text() -> None:
    """No new heading, link, tag, fence or escape comes of it."""
    status = make_status(
        target=HOSTILE,
        running=(make_running(id=HOSTILE, step=HOSTILE, title=HOSTILE, note=HOSTILE),),
        waiting=(WaitingSession(HOSTILE, "paused", HOSTILE, HOSTILE, 0.0),),
        left=(HOSTILE,),
        gpu=GpuDecision("keep", HOSTILE),
        last=HOSTILE,
        milestone=make_next(
            **dict.fromkeys(("objective", "expected", "command"), HOSTILE), why=(HOSTILE,), wrong=(HOSTILE,)
        ),
    )
    found = page(status)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f]", found + text(status))
    assert 7 == len([line for line in found.splitlines() if line.startswith("#")])
    outside = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", found.replace("\\`", ""))
    assert "<script>" not in outside
    assert not re.search(r"(?<!\\)\]\(http", outside)


def test_correctness_is_a_section_of_its_own() -> None:
    """Nothing is wrong only where nothing is wrong and nothing unjudged."""
    assert "Nothing is wrong" in text(make_status())
    for known in ({"wrong": ("fast was wrong in s1",)}, {"unjudged": "not judged on these files: fast on edges"}):
        found = text(make_status(milestone=make_next(**known)))
        assert "othing is wrong" not in found
        assert "fast" in found
