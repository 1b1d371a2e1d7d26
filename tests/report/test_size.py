"""A report has no endless lines and figures, whatever a session printed."""

from loop.base.places import shipped
from loop.session.page import render_session
from loop.session.view import View
from tests.makers import (
    make_check,
    make_finished,
    make_measured,
    make_measurement,
    make_pattern,
    make_plan,
    make_record,
    make_session_head,
    make_speed,
    make_verify,
)
from tests.session.golden_steps import profile, profile_step


def test_no_text_of_a_record_makes_a_line_or_a_figure_without_end() -> None:
    """Names, titles and a grade of 100 kB: in tables, headings, descriptions and drawings."""
    long = "y" * 100_000
    pattern = make_pattern("baseline-first", ("verify", "measure"), title=long, next=())
    head = make_session_head(plan=make_plan(pattern), baseline=long, variants=(long,))
    steps = [
        make_finished(output=make_verify(make_check(long), variant=long)),
        make_finished("measure", output=make_measured(make_measurement(long, variant=long))),
        profile_step(profile(long, long)),
    ]
    record = make_record(head, [make_speed(long, variant=long)], reason=long, grade=long)
    made = render_session(shipped("templates"), View(record, steps))
    assert 50_000 > max(map(len, made[0].splitlines()))
    assert {"ratios", "roofline"} == {one.name for one in made[1]}
    assert 100_000 > max(len(one.file) for one in made[1])
