"""A session in a comment: the verdict, what failed, the ratios, and never half a row."""

import re

import pytest
from markdown_it import MarkdownIt

from loop.session.first_screen import DEFAULT_LIMIT_BYTES, markdown_summary
from tests.makers import (
    make_check,
    make_finished,
    make_no_speed,
    make_record,
    make_session_head,
    make_speed,
    make_verify,
)

HOSTILE = "\x1b[31m|<script>alert(1)</script>\u202e` --> [a](javascript:b)\x00"
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
    head = make_session_head(target=HOSTILE, baseline=HOSTILE, variants=(HOSTILE,))
    bad = make_finished("verify", status="failed", message=f"{HOSTILE}\n```\n{HOSTILE}", hint=HOSTILE)
    verdicts = [make_speed(HOSTILE, variant=HOSTILE), make_no_speed(HOSTILE, variant=HOSTILE)]
    text = markdown_summary(make_record(head, verdicts, status="failed", reason=HOSTILE), [bad])
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
