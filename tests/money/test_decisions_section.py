"""The section on decisions: both sides of keeping the GPU, stop rules, options."""

from loop.model.record import Finished
from loop.money import keep_or_stop, pivot
from loop.money.model import KeepOutput, MachineOption, Options, PivotOutput
from tests.makers import make_finished, make_record, make_report


def kept() -> Finished:
    """Keep or stop, at $1 an hour and 6 minutes of restart for an agent at $2."""
    stop = keep_or_stop.stop_cost(6, "as given", 1.0, "agent", 2.0)
    output = KeepOutput(ok=True, message="Keep it.", gpu_usd_per_hour=1.0, stop=stop)
    return make_finished("decide", action="session.keep_or_stop", output=output)


def weighed(*options: MachineOption) -> Finished:
    """Options, and stop rules of which nothing is known."""
    made = Options(format=1, question="what next", options=options) if options else None
    found = pivot.pivot(made, pivot.stop_rules([]))
    output = PivotOutput(ok=True, message=found.decision, pivot=found)
    return make_finished("weigh", action="session.pivot", output=output)


def section(*finished: Finished) -> str:
    """The section alone; empty where there is none."""
    text = make_report(make_record(), finished)
    return text.partition("### Decisions\n")[2].partition("\n## ")[0]


def test_both_sides_stand_in_the_report() -> None:
    """Rates, minutes, who waits, the break-even."""
    text = section(kept())
    for part in ("$1.00 an hour", "$0.30", "a restart of 6.0 min, as given", "18 min"):
        assert part in text
    assert "while an agent waits at $2.00 an hour" in text


def test_what_is_unknown_is_called_unknown() -> None:
    """An option without a probability, a rule without records."""
    text = section(weighed(MachineOption(name="go on", usd=(10, 20), value_usd=100)))
    (line,) = (line for line in text.splitlines() if line.startswith("- go"))
    said = "- go on: costs $10.00 to $20.00; unknown probability: it pays from a probability of 10 to 20 %"
    assert said == line
    rules = [line for line in text.splitlines() if line.startswith(("- 2 sessions", "- budget", "- a fix"))]
    assert [True] * 3 == [": unknown whether it is met; " in line for line in rules]
