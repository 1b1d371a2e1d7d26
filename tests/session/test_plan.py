"""Resolving: every mistake of every pattern a plan could reach is said before anything runs."""

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
from loop.session.opening import check_pattern, refuse_campaign, resolve_plan

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


def at(body: str, text: str, name: str = "one") -> str:
    """Where some text of a pattern's body stands, as a complaint says it."""
    before = body[: body.index(text)]
    return f"patterns/{name}.yaml:{9 + before.count(chr(10))}:{len(before.rpartition(chr(10))[2]) + 1}"


def read_plan(*patterns: str, parameters: str = "{}", more: str = "") -> ParsedFile[Plan]:
    """A plan that lists these patterns, in `plans/p.yaml`; on line 4; what it says more is on line 8."""
    text = (
        f"format: 1\nname: p\ntitle: T\npatterns: [{', '.join(patterns)}]\n"
        f"workloads: [some]\nbudget: {{minutes: 1}}\nparameters: {parameters}\n{more}\n"
    )
    document = load_yaml(text, "plans/p.yaml")
    return ParsedFile(parse(Plan, document), document, Path(document.name))


def resolved(plan: ParsedFile[Plan], *patterns: ParsedFile[Pattern]) -> ResolvedPlan:
    """The plan, resolved against these patterns."""
    return resolve_plan(plan, {read.value.name: read for read in patterns})


def complaints(*patterns: ParsedFile[Pattern], plan: ParsedFile[Plan] | None = None) -> list[str]:
    """What is wrong with a plan of these patterns."""
    with pytest.raises(DefinitionError) as caught:
        resolved(plan or read_plan(*(read.value.name for read in patterns)), *patterns)
    return [str(one) for one in caught.value.complaints]


def test_a_step_sees_earlier_steps_only() -> None:
    """Its own output in its gate, not in its `when`; never that of a later one."""
    own = STEP.replace("budget_s: 1}", "budget_s: 1, when: first.ok}")
    assert ["'first.ok'"] == [text.split("got ")[1].split(" ")[0] for text in complaints(read_pattern(own))]
    later = STEP.replace("first", "zeroth").replace("budget_s: 1}", "budget_s: 1, gate: first.ok}") + STEP
    assert 1 == len(complaints(read_pattern(later)))
    earlier = STEP + STEP.replace("first", "second").replace("budget_s: 1}", "budget_s: 1, when: first.code == 0}")
    assert resolved(read_plan("one"), read_pattern(earlier))


@pytest.mark.parametrize(
    "path", sorted((shipped("patterns") / "bench").glob("*.yaml")), ids=lambda path: path.stem
)
def test_the_patterns_of_single_commands_are_patterns_like_any(path: Path) -> None:
    """Though no list shows them."""
    read = read_file(path, Pattern)
    assert path.stem == read.value.name
    assert [] == check_pattern(read, {}, {"variants": True, "emulated": True, "sanitized": True})


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("success: cpu.ratoi >= 1", "plans/p.yaml:8:10: success: expected a known name, got 'cpu.ratoi'"),
        ("success: sesion.minutes > 1", "did you mean 'session.minutes'?"),
        ("success: cpu.ratio >=", "plans/p.yaml:8:10: success: expected an expression"),
        ("stop_if: other.ratio > 1", "expected a known name, got 'other.ratio'"),
        ("requires: machine.gpu == []", "did you mean 'machine.gpus'?"),
        ("otherwise: twoo", "plans/p.yaml:8:12: otherwise: expected the name of a pattern or a plan, got 'twoo'"),
        ("success: 3", "plans/p.yaml:8:10: success: expected"),
    ],
)
def test_a_mistake_in_an_objective_is_said_with_its_place(line: str, told: str) -> None:
    """Before anything runs: unknown names, an answer that is nowhere."""
    known = {name: read_pattern(name=name) for name in ("one", "two")}
    with pytest.raises(DefinitionError) as caught:
        resolve_plan(read_plan("one", "two", more=line), known, ("tune",), ("cpu",))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("action", "proposer", "judges", "said"),
    [
        ("command.run, with: {run: 'true'}", "true", (), "asks for no change"),
        ("command.run, with: {run: 'true'}", "person", (), ""),
        ("change.brief", "true", (), ""),
        ("change.brief", "true", ("mine:reference",), "target t has mine"),
        ("change.brief", "person", ("mine:reference",), ""),
    ],
)
def test_a_campaign_needs_a_plan_that_asks_for_changes_and_a_file_to_edit(
    action: str, proposer: str, judges: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    """Its proposer was never called, and the campaign passed; a session without one may be any plan."""
    (tmp_path / "mine.py").write_text("def f(x): return x")
    plan = resolved(read_plan("one"), read_pattern(STEP.replace("command.run, with: {run: 'true'}", action)))
    fields = {"kind": "python", "device": "cpu", "module": "mine", "function": "f"}
    variant = TypeAdapter(Variant).validate_python(fields)
    head = SimpleNamespace(campaign=Campaign(proposer=proposer), plan=plan, variants=("mine",), device="cpu")
    target = SimpleNamespace(name="t", variants={"mine": variant}, python_functions=judges)
    with pytest.raises(UsageError, match=said) if said else contextlib.nullcontext():
        refuse_campaign(cast(SessionHead, head), cast(Target, target), tmp_path)


def test_an_unknown_field_in_a_gate_is_refused() -> None:
    """A gate reads what the action finds, and nothing else."""
    body = STEP.replace("budget_s: 1}", "budget_s: 1, gate: first.cod == 0}")
    said = "steps.0.gate: expected a known name, got 'first.cod' (did you mean 'first.code'?)"
    assert [f"{at(body, 'first.cod')}: {said}"] == complaints(read_pattern(body))


def test_arguments_are_checked_against_the_action() -> None:
    """A missing one, a misspelt one, a wrong type: each at its place."""
    body = STEP.replace("{run: 'true'}", "{}")
    said = "steps.0.with: expected a value for 'run', got nothing"
    assert [f"{at(body, '{}')}: {said}"] == complaints(read_pattern(body))
    misspelt = complaints(read_pattern(STEP.replace("{run: 'true'}", "{run: x, environmet: {}}")))
    assert "steps.0.with.environmet: expected a known name" in misspelt[0]
    wrong = complaints(read_pattern(STEP.replace("{run: 'true'}", "{run: [a]}")))
    assert "steps.0.with.run: expected a valid string, got a list" in wrong[0]
