"""The page that asks for a change."""

from loop.base.places import shipped
from loop.model.change import Brief, TriedChange
from loop.model.profile import Profile
from loop.optimize.briefing import render_brief

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
    """Everything that somebody needs who has read nothing else."""
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
