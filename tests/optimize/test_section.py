"""The section on changes: tries, outcomes, and how to take a change over."""

from typing import Any

import pytest

from loop.base.places import shipped
from loop.model.campaign import Proposal
from loop.model.change import DecisionOutput, JudgedOutput, TriedChange, kept_gains
from loop.model.profile import Profile
from loop.model.record import Finished
from loop.optimize.briefing import render_brief
from loop.optimize.model import Brief, BriefOutput
from loop.optimize.section import sections, skips_judging
from tests.makers import make_finished, make_record, make_report


def finished(run: int, action: str, output: Any, status: str = "passed") -> Finished:
    fields = {
        "run": run,
        "pattern": "baseline-first",
        "step": action.split(".")[1],
        "seconds": 1.0,
        "budget_s": 1.0,
    }
    dumped = output.model_dump(mode="json")
    return Finished(status=status, message="", action=action, output=dumped, **fields)


def decision(number: int, *, kept: bool, variant: str = "cpu", gain: float = 1.5, **said: Any) -> DecisionOutput:
    """A change that was judged."""
    outcome = "kept" if kept else "reverted"
    fields: dict[str, Any] = {"number": number, "variant": variant, "outcome": outcome, "reason": "because"}
    tried = TriedChange(**fields, gain=gain if kept else None, files=("a.h",), patch=f"{number}.patch")
    return DecisionOutput(ok=True, message="", kept=kept, tried=tried, **said)


def brief() -> Brief:
    """A brief."""
    words = dict.fromkeys(("title", "workload", "rule", "resume", "decline"), "x")
    fields: dict[str, Any] = {"profile": None, "folder": "/tree", "files": (), "timed": ()}
    return Brief(number=3, variant="cpu", **words, **fields)


def test_every_change_has_a_row_and_a_patch() -> None:
    """An untimed change has no speed; a kept one can be merged."""
    records = [
        finished(1, "change.decide", decision(1, kept=False)),
        finished(2, "change.decide", decision(2, kept=True, branch="loop/x")),
    ]
    _, judged, rest = sections(records)
    assert judged.table is not None
    assert [("1", "reverted", "not timed"), ("2", "kept", "1.50x")] == [
        (row[0], row[3], row[4]) for row in judged.table.rows
    ]
    assert any("loop/x" in line for line in rest.lines)
    assert any("`git apply 1.patch`" in line for line in rest.lines)


def test_a_candidate_has_its_idea_and_the_number_of_its_change() -> None:
    """Candidates that came to no edit are counted, too: the numbers differ."""
    failed = Proposal(number=1, ended="failed", said="no quota", seconds=2.0)
    edited = Proposal(number=2, ended="edited", idea="two sums", seconds=3.0, left_out=("target.yaml",))
    output = BriefOutput(ok=True, message="", brief=brief(), edited=True, candidate=2, proposals=(failed, edited))
    nothing = Proposal(number=3, ended="unedited", left_out=("shared.h",))
    output = output.model_copy(update={"proposals": (failed, edited, nothing)})
    *_, section = sections(
        [finished(1, "change.brief", output), finished(1, "change.decide", decision(1, kept=True))]
    )
    assert {
        "Candidate 3: it edited nothing that may change: shared.h may not; 0 s",
        "Candidate 1: it ended with an error: no quota; 2 s",
        "Candidate 2 (two sums): change 1; 3 s; not taken: target.yaml",
    } <= {*section.lines}


def test_gains_of_one_variant_are_multiplied_and_those_of_searches_stand_apart() -> None:
    """A search is timed on workloads of its own."""
    records = [
        finished(1, "change.decide", decision(1, kept=True)),
        finished(2, "change.decide", decision(2, kept=False)),
        finished(3, "change.decide", decision(3, kept=True, gain=2.0)),
        finished(4, "change.decide", decision(4, kept=True, gain=1.1, tuning="tile")),
        finished(5, "change.decide", decision(5, kept=True, variant="gpu", gain=1.2)),
    ]
    gains = [(gain.variant, gain.tuning, gain.changes, gain.ratio) for gain in kept_gains(records)]
    assert [("cpu", None, 2, 3.0), ("cpu", "tile", 1, 1.1), ("gpu", None, 1, 1.2)] == gains


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ((BriefOutput(ok=True, message="", declined=True),), True),
        ((BriefOutput(ok=True, message="", edited=True), JudgedOutput(ok=True, message="", good=False)), True),
        ((BriefOutput(ok=True, message="", edited=True), JudgedOutput(ok=True, message="", good=True)), False),
        ((BriefOutput(ok=True, message="", edited=True), decision(1, kept=False)), True),
    ],
)
def test_a_step_that_no_change_came_to_is_not_missing(outputs: tuple[Any, ...], expected: bool) -> None:
    """It is one only where a change came so far, and something else was in its way."""
    actions = {"BriefOutput": "change.brief", "JudgedOutput": "change.build", "DecisionOutput": "change.decide"}
    steps = [finished(1, actions[type(output).__name__], output) for output in outputs]
    skipped = make_finished("verify", run=1, action="change.verify", status="skipped")
    elsewhere = finished(2, "change.brief", BriefOutput(ok=True, message="", edited=True))
    assert expected == skips_judging(skipped, [*steps, skipped, elsewhere])
    text = make_report(make_record(), [*steps, skipped, elsewhere])
    assert expected == ("step baseline-first/verify was skipped" not in text)


PROFILE = Profile(
    variant="cpu",
    workload="B1 S64",
    facts={"ratio": 0.8, "time_us": 12.0, "dram": None, "sm": 0.5},
    sources={"sm": "by ncu"},
    unknown={"dram": "there is no GPU"},
    severity="high",
    tool="counters",
    bottleneck="stalls",
    when="sm < 1",
    fix="more accumulators",
    gain="2 times",
    undecided=("memory (dram unknown)",),
)
BRIEF = Brief(
    number=2,
    variant="cpu",
    title="blocked <softmax>",
    workload="B1 S64",
    profile=PROFILE,
    folder="/tmp/tree/kernels",
    files=("cpu/a.h",),
    rule="right and faster",
    timed=("B1 S64", "B1 S128"),
    checks=("edges",),
    tried=(
        TriedChange(
            number=1, variant="cpu", outcome="reverted", reason="slower | on 2", gain=0.9, patch="1.patch"
        ),
    ),
    resume="loop run session --resume x",
    decline="loop run session --resume x --decline",
)


def test_it_says_where_why_what_and_how() -> None:
    """The section suffices for a reader who has read nothing else."""
    page = render_brief(shipped("templates"), BRIEF)
    for words in (
        "# Change 2: make cpu faster",
        "stalls, for `sm < 1`",
        "Fix: more accumulators",
        "Not decided: memory (dram unknown)",
        "cd /tmp/tree/kernels",
        "- `cpu/a.h`",
        "right and faster",
        "B1 S64, B1 S128",
        "loop run session --resume x --decline",
        "by ncu",
        "there is no GPU",
    ):
        assert words in page
    assert "slower \\| on 2" in page
    assert "&lt;softmax>" in page
