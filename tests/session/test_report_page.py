"""The report: verdict first, nothing empty, nothing that a message could break."""

import re
from collections.abc import Sequence

from loop.model.record import Finished, SessionRecord
from tests.makers import (
    make_check,
    make_finished,
    make_machine,
    make_measured,
    make_measurement,
    make_no_speed,
    make_record,
    make_report,
    make_session_head,
    make_speed,
    make_verify,
)

FOLDS = (
    *("Evidence", "Steps", "Environment", "Controls", "Bottleneck", "Model of the GPU", "Money", "Memory"),
    "How to have each number again",
)
HOSTILE = "a | b\n| c |`d` <img src=x onerror=alert(1)> **e** [f](http://g) $h$ \\| _i_ `"


def report(record: SessionRecord | None = None, finished: Sequence[Finished] = (), **more: object) -> str:
    """The report of a session, by the shipped template."""
    return make_report(record or make_record(), finished, **more)  # type: ignore[arg-type]


def rows(text: str) -> list[list[str]]:
    """Cells of every table line, split as GitHub splits them: at pipes that no backslash escapes."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [re.split(r"(?<!\\)(?:\\\\)*\|", line)[1:-1] for line in lines]


def section(text: str, title: str) -> str:
    """What stands in a fold, or under a heading."""
    begins = f"<summary>{title}</summary>\n" if f"<summary>{title}</summary>" in text else f"# {title}\n"
    ends = rf"\n\n</details>\n(?:\n<details>\n<summary>(?:{'|'.join(FOLDS)})<|\Z)|\n<details>\n<summary>Evidence"
    heading = r"|\n### " if begins.startswith("#") else ""
    return re.split(ends + heading, text.split(begins)[1])[0] + "\n"


def measured(*ratios: float, **fields: object) -> list[Finished]:
    """Steps of a session that timed one workload a ratio."""
    output = make_measured(*(make_measurement(f"w{place}", ratio) for place, ratio in enumerate(ratios)), **fields)
    return [
        make_finished(output=make_verify(*(make_check(f"w{place}") for place in range(len(ratios))))),
        make_finished("measure", output=output, artifacts=("samples/measure.json",)),
    ]


def test_a_mean_is_of_no_ratio_that_says_nothing() -> None:
    """One disturbed interval is enough: neither headline nor section has a figure then."""
    noise = make_speed("w1", "inconclusive", 5.0, interval=(0.01, 2500.0))
    steps = measured(1.5, 5.0)
    record = make_record(verdicts=[make_speed("w0", ratio=1.5), noise])
    text = report(record, steps)
    assert "geometric mean" not in text.partition("### How a number comes about")[0]
    speed = section(text, "Speed against torch_sdpa")
    assert "`cpu`: no mean over 2 workloads, 5 rounds each: too wide an interval on 1." in speed


def test_a_wrong_variant_shows_no_speed_even_where_one_was_timed() -> None:
    """Its measurements stay in the journal; the report does not print them."""
    steps = measured(1.5)
    text = report(make_record(verdicts=[make_speed("w0"), make_no_speed("v")], status="failed"), steps)
    assert "1.50x" not in text


def test_hostile_text_breaks_no_table() -> None:
    """Every line of a table keeps its number of cells, and no HTML, image or link comes through."""
    finished = [make_finished(status="failed", message=HOSTILE, hint=HOSTILE)]
    machine = make_machine(name=HOSTILE, processor=HOSTILE)
    record = make_record(
        make_session_head(machine=machine),
        status="failed",
        reason=HOSTILE,
        grade_reason=HOSTILE,
        learnings=(HOSTILE,),
        not_exercised=(HOSTILE,),
        proposal=HOSTILE,
    )
    text = re.sub(r"(?ms)^(`{3,})\w*\n.*?^\1$", "", report(record, finished))  # Inside a fence anything may stand.
    steps = rows(section(text, "Steps"))
    assert {5} == {len(cells) for cells in steps}
    assert 3 == len(steps)
    outside_code = re.sub(r"(?<!\\)(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    assert "<img" not in outside_code
    assert "[f](" not in outside_code
    assert "\n| c |" not in text


def test_only_commands_of_loop_are_offered_to_be_pasted() -> None:
    """A message with new lines in a proposal is no command."""
    text = report(make_record(proposal="Mend it.\nrm -rf ~\nloop report last")).partition("Next: ")[2]
    assert "Mend it. rm -rf \\~\n\n```sh\nloop report last\n```" == text.partition("\n\n- Grade")[0].strip()
