"""Resolving a plan reports all mistakes of all patterns that it could reach, before anything runs."""

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pydantic import TypeAdapter

from loop.base.documents import load_yaml, parse
from loop.base.errors import DefinitionError, UsageError
from loop.base.places import shipped
from loop.library.definitions import ParsedFile, read_file
from loop.model.campaign import Campaign
from loop.model.plan import Pattern, Plan, ResolvedPlan
from loop.model.record import SessionHead
from loop.model.target import Target, Variant
from loop.session.opening import check_pattern, refuse_changes, resolve_plan

HEAD = """\
format: 1
name: {name}
number: 1
title: T
problem: P
use_when: [always]
estimate: {{minutes: 2}}
steps:
"""
STEP = "  - {id: first, title: F, action: command.run, with: {run: 'true'}, budget_s: 1}\n"


def read_pattern(body: str = STEP, name: str = "one") -> ParsedFile[Pattern]:
    """A pattern with these steps, in `patterns/<name>.yaml`; its steps begin on line 9."""
    document = load_yaml(HEAD.format(name=name) + body, f"patterns/{name}.yaml")
    return ParsedFile(parse(Pattern, document), document, Path(document.name))


def place_of(body: str, text: str, name: str = "one") -> str:
    """`file:line:column` of a text in a pattern's body."""
    before = body[: body.index(text)]
    return f"patterns/{name}.yaml:{9 + before.count(chr(10))}:{len(before.rpartition(chr(10))[2]) + 1}"


def read_plan(*patterns: str, parameters: str = "{}", extra: str = "") -> ParsedFile[Plan]:
    """A plan `plans/p.yaml`: these patterns on line 4, `extra` on line 8."""
    text = (
        f"format: 1\nname: p\ntitle: T\npatterns: [{', '.join(patterns)}]\n"
        f"workloads: [some]\nbudget: {{minutes: 1}}\nparameters: {parameters}\n{extra}\n"
    )
    document = load_yaml(text, "plans/p.yaml")
    return ParsedFile(parse(Plan, document), document, Path(document.name))


def resolved(plan: ParsedFile[Plan], *patterns: ParsedFile[Pattern]) -> ResolvedPlan:
    """The plan, resolved against these patterns."""
    return resolve_plan(plan, {read.value.name: read for read in patterns})


def complaints(*patterns: ParsedFile[Pattern], plan: ParsedFile[Plan] | None = None) -> list[str]:
    """Complaints about a plan of these patterns."""
    with pytest.raises(DefinitionError) as caught:
        resolved(plan or read_plan(*(read.value.name for read in patterns)), *patterns)
    return [str(complaint) for complaint in caught.value.complaints]


def test_a_step_sees_earlier_steps_only() -> None:
    """A gate may read the step's own output, a `when` may not; neither may read a later step's output."""
    with_when = STEP.replace("budget_s: 1}", "budget_s: 1, when: first.ok}")
    assert ["'first.ok'"] == [text.split("got ")[1].split(" ")[0] for text in complaints(read_pattern(with_when))]
    later = STEP.replace("first", "zeroth").replace("budget_s: 1}", "budget_s: 1, gate: first.ok}") + STEP
    assert 1 == len(complaints(read_pattern(later)))
    earlier = STEP + STEP.replace("first", "second").replace("budget_s: 1}", "budget_s: 1, when: first.code == 0}")
    assert resolved(read_plan("one"), read_pattern(earlier))


@pytest.mark.parametrize(
    "path", sorted((shipped("patterns") / "bench").glob("*.yaml")), ids=lambda path: path.stem
)
def test_the_patterns_of_single_commands_are_patterns_like_any(path: Path) -> None:
    """They pass the checks of patterns, though no list shows them."""
    read = read_file(path, Pattern)
    assert path.stem == read.value.name
    assert [] == check_pattern(read, {}, {"variants": True, "emulated": True, "sanitized": True})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("success: cpu.ratoi >= 1", "plans/p.yaml:8:10: success: expected a known name, got 'cpu.ratoi'"),
        ("success: sesion.minutes > 1", "did you mean 'session.minutes'?"),
        ("success: cpu.ratio >=", "plans/p.yaml:8:10: success: expected an expression"),
        ("stop_if: other.ratio > 1", "expected a known name, got 'other.ratio'"),
        ("requires: machine.gpu == []", "did you mean 'machine.gpus'?"),
        (
            "otherwise: twoo",
            "plans/p.yaml:8:12: otherwise: expected the name of another pattern or plan, got 'twoo'",
        ),
        ("success: 3", "plans/p.yaml:8:10: success: expected"),
    ],
)
def test_a_mistake_in_an_objective_is_said_with_its_place(line: str, message: str) -> None:
    """Unknown names, or an answer that is no pattern, are refused before anything runs."""
    by_name = {name: read_pattern(name=name) for name in ("one", "two")}
    with pytest.raises(DefinitionError) as caught:
        resolve_plan(read_plan("one", "two", extra=line), by_name, ("tune",), ("cpu",))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("action", "proposer", "judges", "refusal"),
    [
        ("command.run, with: {run: 'true'}", "true", (), "asks for no change"),
        ("command.run, with: {run: 'true'}", "person", (), ""),
        ("change.brief", "true", (), ""),
        ("change.brief", "true", ("mine:reference",), "target t has mine"),
        ("change.brief", "person", ("mine:reference",), ""),
    ],
)
def test_a_campaign_needs_a_plan_that_asks_for_changes_and_a_file_to_edit(
    action: str, proposer: str, judges: tuple[str, ...], refusal: str, tmp_path: Path
) -> None:
    """Its proposer was never called, and the campaign passed; a session without one may be any plan."""
    (tmp_path / "mine.py").write_text("def f(x): return x")
    plan = resolved(read_plan("one"), read_pattern(STEP.replace("command.run, with: {run: 'true'}", action)))
    fields = {"kind": "python", "device": "cpu", "module": "mine", "function": "f"}
    variant = TypeAdapter(Variant).validate_python(fields)
    head = SimpleNamespace(campaign=Campaign(proposer=proposer), plan=plan, variants=("mine",), device="cpu")
    target = SimpleNamespace(name="t", variants={"mine": variant}, python_functions=judges)
    with pytest.raises(UsageError, match=refusal) if refusal else contextlib.nullcontext():
        refuse_changes(cast(SessionHead, head), cast(Target, target), tmp_path, tmp_path)


def test_an_unknown_field_in_a_gate_is_refused() -> None:
    """A gate may name only fields of its step's output."""
    body = STEP.replace("budget_s: 1}", "budget_s: 1, gate: first.cod == 0}")
    message = "steps.0.gate: expected a known name, got 'first.cod' (did you mean 'first.code'?)"
    assert [f"{place_of(body, 'first.cod')}: {message}"] == complaints(read_pattern(body))


def test_arguments_are_checked_against_the_action() -> None:
    """A missing one, a misspelt one, a wrong type: each at its place."""
    body = STEP.replace("{run: 'true'}", "{}")
    message = "steps.0.with: expected a value for 'run', got nothing"
    assert [f"{place_of(body, '{}')}: {message}"] == complaints(read_pattern(body))
    misspelt = complaints(read_pattern(STEP.replace("{run: 'true'}", "{run: x, environmet: {}}")))
    assert "steps.0.with.environmet: expected a known name" in misspelt[0]
    wrong = complaints(read_pattern(STEP.replace("{run: 'true'}", "{run: [a]}")))
    assert "steps.0.with.run: expected a valid string, got a list" in wrong[0]
