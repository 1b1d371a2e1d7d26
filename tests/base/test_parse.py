"""Data to models: every mistake in words, at its line and column."""

import datetime
import enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, StringConstraints, model_validator

from loop.base.documents import load_yaml, parse
from loop.base.errors import Complaint, DefinitionError
from loop.model.base import Model
from tests.effort import counted


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Compiled(Model):
    kind: Literal["compiled"]
    sources: Annotated[tuple[str, ...], Field(min_length=1)]
    flags: tuple[str, ...] = ()


class Imported(Model):
    kind: Literal["imported"]
    module: str


class Step(Model):
    id: Annotated[str, StringConstraints(pattern=r"^[a-z]+$")]
    budget_s: Annotated[float, Field(gt=0)] = 1.0
    arguments: dict[str, Any] = Field(default_factory=dict, alias="with")


class Range(Model):
    """Two ends."""

    low: int
    high: int

    @model_validator(mode="after")
    def _ordered(self) -> "Range":
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


class Plan(Model):
    """Everything that can go wrong."""

    name: Annotated[str, StringConstraints(min_length=1)] = "x"
    count: Annotated[int, Field(ge=1, le=10)] = 1
    ratio: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    wide: float = 0.0
    ok: bool = True
    day: datetime.date = datetime.date(2026, 11, 21)
    at: datetime.datetime | None = None
    colour: Colour = Colour.RED
    priority: Literal["P0", "P1", "P2"] = "P2"
    steps: Annotated[tuple[Step, ...], Field(min_length=1)] = (Step(id="a"),)
    pair: tuple[int, str] = (1, "a")
    sizes: dict[Annotated[str, StringConstraints(pattern="^[a-z]+$")], int] = Field(default_factory=dict)
    entry: dict[str, bool | int | str | tuple[bool | int | str, ...]] = Field(default_factory=dict)
    variants: dict[str, Annotated[Compiled | Imported, Field(discriminator="kind")]] = Field(default_factory=dict)
    range: Range = Range(low=0, high=1)


WRONG = [
    ("just text", "1:1: expected an object, got 'just text'"),
    ("name: 3", "1:7: name: expected a valid string, got 3"),
    ("count: 0", "1:8: count: expected greater than or equal to 1, got 0"),
    ("day: 2026-02-30", "1:6: day: expected a valid date"),
    ("colour: blu", "1:9: colour: expected 'red' or 'blue', got 'blu' (did you mean 'blue'?)"),
    ("nmae: x", "1:1: nmae: expected a known name, got 'nmae' (did you mean 'name'?)"),
    (
        "steps:\n  - id: a\n    budget: 3",
        "3:5: steps.0.budget: expected a known name, got 'budget' (did you mean 'budget_s'?)",
    ),
    ("budget_s: 3", "1:1: budget_s: expected a known name, got 'budget_s'"),
    ("steps: [{}]", "1:9: steps.0: expected a value for 'id', got nothing"),
    ("steps:\n  - id: a\n    budget_s: -1", "x.yaml:3:15: steps.0.budget_s: expected greater than 0, got -1"),
    ("sizes: {A: 1}", "1:9: sizes.A: expected what fits, got 'A': String should match pattern '^[a-z]+$'"),
    ("entry: {a: {}}", "1:12: entry.a: expected a valid boolean or a valid integer or a valid string or"),
    ("variants: {a: {kind: script}}", "1:22: variants.a.kind: expected one of 'compiled', 'imported', got"),
    (
        "variants: {a: {kind: imported, modul: m}}",
        "1:32: variants.a.modul: expected a known name, got 'modul' (did you mean 'module'?)",
    ),
    (
        "variants: {compiled: {kind: compiled, sources: [1]}}",
        "x.yaml:1:49: variants.compiled.sources.0: expected a valid string, got 1",
    ),
    ("range: {low: 2, high: 1}", "1:8: range: expected what fits, got a mapping: low is above high"),
]


def complaints_of(text: str, model: type[Model] = Plan) -> tuple[Complaint, ...]:
    """Complaints about data that does not fit."""
    with pytest.raises(DefinitionError) as refused:
        parse(model, load_yaml(text, "x.yaml"))
    return refused.value.complaints


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_a_wrong_value_is_named_with_line_and_column(text: str, words: str) -> None:
    """The complaint has path, expected and actual value; branches of a union do not appear."""
    complaints = "\n".join(map(str, complaints_of(text)))
    assert words in complaints
    for foreign in ("union", "function-", "constrained", "[key]", "tuple["):
        assert foreign not in complaints


def test_right_data_becomes_the_model() -> None:
    """Whole numbers serve as numbers, lists become tuples, text becomes dates and enumerations."""
    text = "ratio: 2\nday: 2025-01-02\nat: 2026-11-21T05:19:00Z\ncolour: blue\nsteps: [{id: b, with: {x: [1]}}]\n"
    plan = parse(Plan, load_yaml(text, "x"))
    assert 2.0 == plan.ratio
    assert isinstance(plan.ratio, float)
    assert datetime.date(2025, 1, 2) == plan.day
    assert datetime.datetime(2026, 11, 21, 5, 19, tzinfo=datetime.UTC) == plan.at
    assert Colour.BLUE is plan.colour
    assert {"x": [1]} == plan.steps[0].arguments


def test_thousands_of_mistakes_are_counted_without_much_work() -> None:
    """Twenty are shown, the others counted; the work grows with the text, not with its square."""
    text = "".join(f"unknown_{number}: 1\n" for number in range(2_000))
    with counted() as effort:
        complaints = complaints_of(text)
    assert effort.calls < 700_000
    assert 2_000 == len(complaints)
    message = DefinitionError(complaints).message.splitlines()
    assert 21 == len(message)
    assert "... and 1980 more" == message[-1]
