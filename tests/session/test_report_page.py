"""The report and its summary, a session's grade, its plan's objective: verdict first."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from markdown_it import MarkdownIt

from loop.base.errors import UsageError
from loop.model.bisect import BisectOutput
from loop.model.plan import Reached
from loop.model.record import Finished, Revision, SessionHead, SessionRecord, Status
from loop.session.objective import (
    findings_of,
    judge_objective,
    objective_text,
    refuse_unmet_requirement,
    skipped_if_nothing_judged,
)
from loop.session.objective import grade_session as graded
from loop.session.page import DEFAULT_BYTES, markdown_summary
from loop.timing.against_known_good import CompareOutput
from tests.makers import (
    make_built,
    make_check,
    make_finished,
    make_machine,
    make_measured,
    make_measurement,
    make_no_speed,
    make_pattern,
    make_plan,
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


def report(record: SessionRecord | None = None, finished: Sequence[Finished] = (), **fields: object) -> str:
    """The report of a session, by the shipped template."""
    return make_report(record or make_record(), finished, **fields)  # type: ignore[arg-type]


def rows(text: str) -> list[list[str]]:
    """Cells of every table line, split as GitHub splits them: at pipes that no backslash escapes."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [re.split(r"(?<!\\)(?:\\\\)*\|", line)[1:-1] for line in lines]


def section(text: str, title: str) -> str:
    """The text of a fold, or below a heading."""
    begins = f"<summary>{title}</summary>\n" if f"<summary>{title}</summary>" in text else f"# {title}\n"
    ends = rf"\n\n</details>\n(?:\n<details>\n<summary>(?:{'|'.join(FOLDS)})<|\Z)|\n<details>\n<summary>Evidence"
    heading = r"|\n### " if begins.startswith("#") else ""
    return re.split(ends + heading, text.split(begins)[1])[0] + "\n"


def timed_steps(*ratios: float, **fields: object) -> list[Finished]:
    """Steps of a session that timed one workload a ratio."""
    output = make_measured(*(make_measurement(f"w{place}", ratio) for place, ratio in enumerate(ratios)), **fields)
    return [
        make_finished(output=make_verify(*(make_check(f"w{place}") for place in range(len(ratios))))),
        make_finished("measure", output=output, artifacts=("samples/measure.json",)),
    ]


def test_a_wrong_variant_or_an_open_interval_shows_no_speed() -> None:
    """One disturbed interval takes the mean away; a wrong variant's times stay in the journal."""
    noise = make_speed("w1", "inconclusive", 5.0, interval=(0.01, 2500.0))
    steps = timed_steps(1.5, 5.0)
    record = make_record(verdicts=[make_speed("w0", ratio=1.5), noise])
    text = report(record, steps)
    assert "geometric mean" not in text.partition("### How a number comes about")[0]
    speed = section(text, "Speed against torch_sdpa")
    assert "`cpu`: no mean over 2 workloads, 5 rounds each: too wide an interval on 1." in speed
    steps = timed_steps(1.5)
    text = report(make_record(verdicts=[make_speed("w0"), make_no_speed("v")], status="failed"), steps)
    assert "1.50x" not in text


def test_hostile_text_breaks_no_table() -> None:
    """Every row keeps its count of cells, and no HTML, image or link appears."""
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
    text = re.sub(r"(?ms)^(`{3,})\w*\n.*?^\1$", "", report(record, finished))  # Any text may be inside a fence.
    steps = rows(section(text, "Steps"))
    assert {4} == {len(cells) for cells in steps}
    assert 3 == len(steps)
    outside_code = re.sub(r"(?<!\\)(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    assert "<img" not in outside_code
    assert "[f](" not in outside_code
    assert "\n| c |" not in text


def test_only_commands_of_loop_are_offered_to_be_pasted() -> None:
    """A multi-line message in a proposal is not shown as a command."""
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
    """A workflow finds the page by its mark; a reader sees the verdict first."""
    lines = many(3).splitlines()
    assert "<!-- loop: attention -->" == lines[0]
    assert lines[3].startswith("**`attention` passed: ")


@pytest.mark.parametrize("limit", [1500, 1700, 3000, 10_000, DEFAULT_BYTES])
@pytest.mark.slow
def test_it_fits_and_no_row_is_cut(limit: int) -> None:
    """Rows and fences are whole, and a note says what was left out."""
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
    """Markup in names, messages, hints and logs is escaped."""
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
    """`@triton.jit` in an error mentions no user; code, fenced or inline, stays as it is."""
    message = "error #20012 at `@here #1`: @triton.jit\n@other"
    bad = make_finished("verify", status="failed", message=message, hint="ask @somebody")
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


def test_the_verdict_says_of_how_many_workloads_and_the_worst_ratio() -> None:
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


SLOWER = "wrong == [] and slower == []"
RIGHT = make_finished("verify", output=make_verify())
WRONG = make_finished("verify", output=make_verify(make_check(right=False)).model_copy(update={"wrong": ("cpu",)}))


def speeds(*ratios: float) -> Finished:
    """A step that measured `cpu` on as many workloads."""
    every = [make_measurement(f"B1 H1 S{64 << n} D64 float32", ratio) for n, ratio in enumerate(ratios)]
    return make_finished("measure", output=make_measured(*every))


def head_of(**plan: Any) -> SessionHead:
    """A session head whose plan has these fields of an objective."""
    resolved = make_plan()
    return make_session_head(plan=resolved.model_copy(update={"plan": resolved.plan.model_copy(update=plan)}))


def verdict_on(success: str, *finished: Finished) -> Reached:
    """Whether these steps reach an objective."""
    reached = judge_objective(head_of(success=success), finished, {"minutes": 3.0})
    assert reached is not None
    return reached


def test_a_wrong_variant_has_no_ratio_and_is_unexplained_until_a_search_names_its_commit() -> None:
    """A search that named only a range does not explain it."""
    facts: Any = findings_of([WRONG], ["cpu"])
    assert (["cpu"], [], ["cpu"]) == (facts["wrong"], facts["right"], facts["unexplained"])
    assert None is facts["best"]["ratio"]
    output = BisectOutput(ok=True, message="nothing", variant="cpu")
    facts = findings_of([WRONG, make_finished("search", action="bisect.search", output=output)], ["cpu"])
    assert ["cpu"] == facts["unexplained"]


def test_an_objective_is_reached_or_missed_by_how_much() -> None:
    """An unknown value is missed; an objective over variants is not judged if none was."""
    assert () == verdict_on("cpu.ratio >= 1.5 and wrong == []", RIGHT, speeds(1.6, 1.7)).missed
    assert "cpu.ratio is 1.31, asked" in verdict_on("cpu.ratio >= 1.5", RIGHT, speeds(1.31)).missed[0].words
    assert "cpu.ratio is not known" in verdict_on("cpu.ratio >= 1.5", RIGHT).missed[0].words
    assert () == verdict_on("session.minutes < 5 and device == 'cpu'").missed
    bad = make_verify(make_check(right=False)).variants[0]
    untrusted = make_verify().model_copy(update={"control": bad, "right": ()})
    for steps in ([], [make_finished("build", output=make_built())], [make_finished(output=untrusted)]):
        assert not verdict_on("wrong == []", *steps).judged
    assert verdict_on("session.minutes < 5").judged
    assert verdict_on("wrong == []", RIGHT).judged
    shown = make_report(make_record(objective=Reached(success="wrong == []", judged=False)), [])
    assert "not judged" in shown
    assert "bjective reached" not in shown


def test_what_was_not_compared_with_a_known_good_is_named_beside_the_reached_objective() -> None:
    """Named are variants without a verdict against a known good, unless their machine code is unchanged."""
    head = head_of().model_copy(
        update={
            "variants": ("cpu", "same", "py", "example", "new"),
            "emulated": ("gpu",),
            "roles": {"example": "example"},
        }
    )
    output = CompareOutput(
        ok=True,
        message="compared",
        unchanged=("same",),
        no_known_good=("new",),
        verdicts=(make_speed(against="known_good"),),
    )
    compared = make_finished("compare", action="kernel.compare", output=output)
    goal = "nothing wrong, nothing slower than its known good: reached"
    has_none = "has no known good to compare with"
    for success, expected in (
        (SLOWER, f"{goal}, but not clearly compared with a known good: py, gpu; new {has_none}"),
        ("wrong == []", "nothing wrong: reached"),
    ):
        plan = head.plan.model_copy(update={"plan": head.plan.plan.model_copy(update={"success": success})})
        of_plan = head.model_copy(update={"plan": plan})
        reached = judge_objective(of_plan, [compared, RIGHT], {})
        assert expected == objective_text(make_record(of_plan, objective=reached), [compared])
        letter, reason = graded(of_plan, "passed", "", [compared], reached, 1.0)
        assert ("A", success == SLOWER) == (letter, "as far as it was judged" in reason)


def test_why_nothing_was_compared_stands_beside_the_verdict() -> None:
    """Also where a library's reason comes first."""
    reasons = ("eager against itself: too slow", "cpu against its known good: no earlier session passed")
    output = CompareOutput(ok=True, message="compared", not_exercised=reasons)
    compared = make_finished("compare", action="kernel.compare", output=output)
    shown = make_report(make_record(), [compared])
    assert all(f"Not compared with another build: {reason}." in shown for reason in reasons)


def test_a_plan_that_requires_what_is_missing_is_refused() -> None:
    """The message has the false part of the condition, and its values."""
    head = head_of(requires="revision.commit is not none and machine.cores >= 1")
    refuse_unmet_requirement(head)
    bare = head.model_copy(update={"revision": Revision(commit=None)})
    with pytest.raises(UsageError, match=r"revision.commit is not known, asked: `revision.commit is not none`"):
        refuse_unmet_requirement(bare)


def test_a_session_that_judged_nothing_did_not_pass() -> None:
    """Where its plan verifies, or its objective speaks of variants; steps that only look pass."""
    looks = make_plan(make_pattern("look", ("sources",)))
    for head in (make_session_head(), head_of(success="wrong == []")):
        assert "skipped" == skipped_if_nothing_judged(head, [], "passed", "all 2 steps passed")[0]
        assert "passed" == skipped_if_nothing_judged(head, [RIGHT], "passed", "all 2 steps passed")[0]
    assert "passed" == skipped_if_nothing_judged(make_session_head(plan=looks), [], "passed", "it passed")[0]
    assert ("F", "nothing to do: x") == graded(make_session_head(), "skipped", "nothing to do: x", (), None, 0.1)
    assert "-" == graded(make_session_head(plan=looks), "skipped", "nothing to do: x", (), None, 0.1)[0]


STEPS = (make_finished("verify"), make_finished("measure"))


def grade(status: Status = "passed", reason: str = "", steps: Any = STEPS, **terms: Any) -> tuple[str, str]:
    """Letter and reason of a session of a minute's plan that took 12 s and states no objective."""
    return graded(make_session_head(), status, reason, steps, terms.get("objective"), terms.get("seconds", 12.0))


def test_a_grade_needs_gates_objective_and_time() -> None:
    """All passed in time is an A; an overrun costs a letter, and the reason names it."""
    assert ("A", "The session passed every gate within its time") == grade()
    reached = Reached(success="wrong == []")
    assert ("A", "The session reached its objective, and passed every gate within its time") == grade(
        objective=reached
    )
    late = [make_finished("build", seconds=12.0)]
    assert ("B", "Every gate passed, but over budget: baseline-first/build (12.0 of 10 s)") == grade(steps=late)
    letter, reason = grade(seconds=102.0)
    assert ("B", "Every gate passed, but the session took 102 s of 60 s") == (letter, reason)
