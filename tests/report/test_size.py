"""A report is at most 1 MiB, whatever a session printed, and stays whole Markdown."""

from markdown_it import MarkdownIt

from loop.report import render
from loop.report.render import LARGEST, fitted
from tests.makers import make_finished, make_record
from tests.report.test_report import report, rows, section


def test_long_output_is_folded_and_cut() -> None:
    """A fold with the end of what was printed, in a fence that nothing in it can close."""
    lines = "\n".join(f"line {number} ```" for number in range(5000))
    text = report(finished=[make_finished(status="failed", output={"output": lines})])
    steps = section(text, "Steps")
    assert "<details>\n<summary>What baseline-first/verify printed</summary>\n\n````text\n" in steps
    assert "... 4600 lines before these are left out" in steps
    assert "line 4999 ```\n````\n\n</details>" in steps


def test_a_huge_session_has_a_report_that_fits() -> None:
    """Tables are shortened, and say so; the last resort is a cut between two lines."""
    steps = [make_finished(f"s{n}", message="x" * 3000, status="failed", hint="y" * 3000) for n in range(3000)]
    text = report(make_record(learnings=("z" * 3000,) * 200), steps)
    assert len(text.encode()) <= LARGEST
    assert "more rows, which are in the records of the session." in text
    assert render.CUT in text or "## How to have each number again" in text


def test_a_cut_closes_what_is_open() -> None:
    """A fence and a fold."""
    for inside in ("y\n" * LARGEST, "```\n" * LARGEST):
        text = fitted(lambda room, inside=inside: f"# a\n\n<details>\n\n````text\n{inside}")  # type: ignore[misc]
        assert len(text.encode()) <= LARGEST
        assert text.endswith(f"\n````\n\n</details>\n\n{render.CUT}")
    last = [token.type for token in MarkdownIt().parse(text)][-1]
    assert "paragraph_close" == last


def test_a_small_report_is_not_shortened() -> None:
    """The widest room is tried first."""
    steps = [make_finished(f"s{number}", message="short") for number in range(500)]
    text = report(finished=steps)
    assert 502 == len(rows(section(text, "Steps")))
