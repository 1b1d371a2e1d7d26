"""The report and its summary in a comment: verdict first, nothing empty, never half a row."""

import re
from collections.abc import Sequence

import pytest
from markdown_it import MarkdownIt

from loop.model.record import Finished, SessionRecord
from loop.session.first_screen import DEFAULT_LIMIT_BYTES, markdown_summary
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


def test_a_wrong_variant_or_an_open_interval_shows_no_speed() -> None:
    """One disturbed interval takes the mean away; a wrong variant's times stay in the journal."""
    noise = make_speed("w1", "inconclusive", 5.0, interval=(0.01, 2500.0))
    steps = measured(1.5, 5.0)
    record = make_record(verdicts=[make_speed("w0", ratio=1.5), noise])
    text = report(record, steps)
    assert "geometric mean" not in text.partition("### How a number comes about")[0]
    speed = section(text, "Speed against torch_sdpa")
    assert "`cpu`: no mean over 2 workloads, 5 rounds each: too wide an interval on 1." in speed
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


ESCAPES = "\x1b[31m|<script>alert(1)</script>\u202e` --> [a](javascript:b)\x00"
FAILED = make_finished("build", status="failed", message="cpu: k.cpp:3:1: error\n  int x\n  ^~~~", hint="mend it")


def many(count: int, **fields: object) -> str:
    """The digest of a session with that many workloads, one of them slower, one wrong."""
    verdicts = [make_speed(f"w{place}", ratio=1.0 + place / 100) for place in range(count)]
    worst = [make_speed("the slow one", "slower", 0.5), make_no_speed("the wrong one")]
    return markdown_summary(make_record(verdicts=[*verdicts, *worst], **fields), [])  # type: ignore[arg-type]


def tables(text: str) -> list[str]:
    """Lines of tables."""
    return [line for line in text.splitlines() if line.startswith("|")]


def test_it_begins_with_its_mark_and_the_verdict() -> None:
    """So that a workflow finds it again and a reader needs no more."""
    lines = many(3).splitlines()
    assert "<!-- loop: attention -->" == lines[0]
    assert lines[3].startswith("**`attention` passed: ")


@pytest.mark.parametrize("limit", [1500, 1700, 3000, 10_000, DEFAULT_LIMIT_BYTES])
@pytest.mark.slow
def test_it_fits_and_no_row_is_cut(limit: int) -> None:
    """Whole rows, whole fences, and it says what was left out."""
    names = tuple(f"v{place} · {'µ' * 30}" for place in range(2000))
    verdicts = [make_speed(variant=name) for name in names]
    failed = [FAILED.model_copy(update={"step": f"s{place}"}) for place in range(20)]
    head = make_session_head(variants=names)
    text = markdown_summary(make_record(head, verdicts, status="failed", reason="x" * 5000), failed, limit)
    assert limit >= len(text.encode())
    assert {3} >= {line.count("|") for line in tables(text)}
    assert 0 == text.count("```") % 2
    assert "Shortened for length." in text
    assert "The whole report: `loop report" in text


def test_hostile_text_stays_text() -> None:
    """In names, messages, hints and logs."""
    head = make_session_head(target=ESCAPES, baseline=ESCAPES, variants=(ESCAPES,))
    bad = make_finished("verify", status="failed", message=f"{ESCAPES}\n```\n{ESCAPES}", hint=ESCAPES)
    verdicts = [make_speed(ESCAPES, variant=ESCAPES), make_no_speed(ESCAPES, variant=ESCAPES)]
    text = markdown_summary(make_record(head, verdicts, status="failed", reason=ESCAPES), [bad])
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    for mark in ("\x1b", "\x00", "\u202e"):
        assert mark not in text
    assert "<script" not in page
    assert 'href="javascript' not in page
    assert 1 == page.count("<tr>") - 1
    assert 2 == page.count("<pre>"), "what failed, and what to do"


def test_nobody_is_called_and_no_issue_is_linked() -> None:
    """`@triton.jit` in an error is nobody's name in a comment; code, fenced or not, stays as it is."""
    said = "error #20012 at `@here #1`: @triton.jit\n@other"
    bad = make_finished("verify", status="failed", message=said, hint="ask @somebody")
    head = make_session_head(baseline="@w #3", variants=("@v",))
    text = markdown_summary(make_record(head, [make_speed(variant="@v")], status="failed", reason="@all"), [bad])
    for words in (
        "#<!-- -->20012",
        "@<!-- -->triton.jit",
        "@<!-- -->somebody",
        "@<!-- -->w #<!-- -->3",
        "`@here #1`",
    ):
        assert words in text
    assert "```text\nerror #20012 at `@here #1`: @triton.jit\n@other\n```" in text
    assert not re.search(r"(?m)^[^`\n]*@\w", re.sub(r"```text.*?```|`[^`]*`", "", text, flags=re.DOTALL))


def test_of_how_many_workloads_and_how_much_slower_at_worst() -> None:
    """A wrong variant is wrong on some of all; a regression on one workload is not hidden in a mean."""
    checks = [make_check(f"w{place}", right=place > 1) for place in range(5)]
    wrong = make_record(verdicts=[make_no_speed("w0"), make_no_speed("w1")], status="failed")
    assert "on w0 and 1 more of 5 workloads" in markdown_summary(
        wrong, [make_finished(output=make_verify(*checks))]
    )
    against = {"against": "known_good"}
    speeds = [make_speed("w0", "same", 1.0, **against), make_speed("w1", "slower", 0.8, **against)]
    (row,) = [line for line in tables(markdown_summary(make_record(verdicts=speeds), [])) if "slower" in line]
    assert "slower on 1: lowest 0.80x" in row
