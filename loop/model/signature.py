"""What a target's function takes and gives, and how its inputs are made."""

from collections.abc import Collection, Iterable
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from loop.base.errors import one_of
from loop.model.base import Model
from loop.model.dtypes import Dtype
from loop.model.plan import Text


class PythonFunction(Model):
    """A Python callable: positional tensors in signature order, attributes by keyword, returns the output."""

    python: Text
    """A bundled function by name, or `module:function` found from the target's folder; also `file.py:function`."""


class Baseline(PythonFunction):
    """What the user would otherwise run."""

    compiled: bool = False
    """Whether it runs under `torch.compile`."""


class Fill(Model):
    """What one input tensor is filled with."""

    kind: Literal["normal", "constant", "one_hot"] = "normal"
    """Normals around zero; one value everywhere; or rows of zeros with a single value at a random place."""
    scale: Annotated[float, Field(gt=0)] = 1.0
    """Standard deviation of the normals, or the value itself."""
    offset: float = 0.0
    """Added to every value, as the mean of the normals: -8 makes nearly all of them negative."""
    nan_along: Text | None = None
    """A dimension of the tensor: everything at one random index of it is NaN."""


class Tolerance(Model):
    """How far one element may be from the reference: atol + rtol * |reference|. Zero of both asks for the same."""

    atol: Annotated[float, Field(ge=0)]
    rtol: Annotated[float, Field(ge=0)]
    matched: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of an output's elements that have to be within it."""
    cap: Annotated[float, Field(ge=0)] | None = None
    """Absolute error that none of the other elements may exceed. Default: any that is finite."""


OUTPUT = "output"
"""Name of the output of a function that has one."""
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z]\w{0,63}$")]
"""A name that Python takes as a keyword."""
ANY = "..."
"""Dimensions that are known once the generator, or the reference, has made the tensor."""
Passed = Literal["inputs", "expected", "outputs"]


class Attribute(Model):
    """A value of the call that is not a tensor; it reaches a C kernel as a double."""

    kind: Literal["flag", "choice", "number", "text"]
    """A flag is 0 or 1, a choice its index in `choices`, a number itself. A text is any word: a parameter only."""
    default: bool | int | float | str | None = None
    """Value where a workload gives none; a number without one reaches C as NaN and Python as None."""
    choices: tuple[str, ...] = ()
    """The words of a choice, in the order of their indices."""

    @model_validator(mode="after")
    def _default_fits(self) -> "Attribute":
        if self.kind == "choice" and not self.choices:
            raise ValueError("a choice needs `choices`")
        if self.default is not None and not self.admits(self.default):
            raise ValueError(f"a {self.kind} cannot have the default {self.default!r}")
        return self

    def admits(self, value: object) -> bool:
        """Whether a workload may give this attribute that value."""
        if self.kind == "flag":
            return isinstance(value, bool)
        if self.kind == "choice":
            return value in self.choices
        if self.kind == "text":
            return isinstance(value, str)
        return isinstance(value, int | float) and not isinstance(value, bool)

    @property
    def initial(self) -> bool | int | float | str | None:
        """The default: given, or a flag's false and a choice's first word."""
        if self.default is None and self.kind in ("flag", "choice"):
            return False if self.kind == "flag" else self.choices[0]
        return self.default


class Signature(Model):
    """What the function takes and gives; the order here is the order of the C interface."""

    inputs: dict[Word, Text] = Field(default_factory=dict)
    """Input tensors: name to dimensions, as in `q: B H Sq D`. With a `generator` these may be `...`, or all inputs
    be left out: names, shapes and types are then those of what it makes."""
    outputs: dict[Word, Text] = Field(default_factory=dict)
    """Output tensors in the same way; without any, those of the reference."""
    attributes: dict[Word, Attribute] = Field(default_factory=dict)
    """Values that are not tensors: keywords of the function."""
    sizes: tuple[Word, ...] = ()
    """Sizes that no dimension above is called after: the generator is given them, the function is not."""
    parameters: dict[Word, Attribute] = Field(default_factory=dict)
    """Other values that only the generator is given."""
    updates: dict[Word, Word] = Field(default_factory=dict)
    """Outputs that are inputs changed in place, as in `cache: k_cache`: not returned, not passed again. Every
    other input must stay as it was."""
    shorthand: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Names a workload may use for several dimensions at once, as in `S: [Sq, Sk]`."""
    types: dict[Word, Dtype] = Field(default_factory=dict)
    """Element types of tensors that do not have the workload's, by the name of the input or output."""
    words: dict[str, Text] = Field(default_factory=dict)
    """What the indices of a dimension are, in the plural, as in `Sq: query rows`."""

    @model_validator(mode="after")
    def _names_are_known(self) -> "Signature":
        tensors, add = (*self.inputs, *self.outputs), "which is empty: add it there first"
        no_tensor = "a name from `inputs` or `outputs`, which are empty"
        rules: tuple[tuple[str, Iterable[str], Collection[str], str], ...] = (
            ("types", self.types, tensors, no_tensor),
            ("words", self.words, self.dimensions, "a dimension, and no tensor of the signature has one"),
            ("updates", self.updates, self.outputs, f"a name from `outputs`, {add}"),
            ("updates", self.updates.values(), self.inputs, f"a name from `inputs`, {add}"),
        )
        for field, names, known, nothing in rules:
            for name in names:
                if name not in known:
                    raise ValueError(f"{field}: expected {one_of(known, nothing)}, got {name!r}")
        return self

    @property
    def dimensions(self) -> tuple[str, ...]:
        """All dimension names and sizes, in order of appearance."""
        words = " ".join([*self.inputs.values(), *self.outputs.values()]).split()
        return tuple(dict.fromkeys(word for word in (*words, *self.sizes) if word != ANY))

    @property
    def named(self) -> dict[str, Attribute]:
        """Everything besides sizes that a workload may name: attributes and parameters."""
        return {**self.attributes, **self.parameters}

    @property
    def is_plain(self) -> bool:
        """Whether the shape of every tensor follows from a workload's sizes, and one output is given anew."""
        texts = (*self.inputs.values(), *self.outputs.values())
        return bool(self.inputs) and len(self.outputs) == 1 and ANY not in texts and not self.updates

    @property
    def output(self) -> str:
        """Dimensions of the only output, where `is_plain`."""
        return next(iter(self.outputs.values()))


class Generator(PythonFunction):
    """Makes the inputs of a call: any tensors in tuples, lists, dicts and modules, and any other values.

    It is given the workload's sizes, attributes and parameters by keyword, and `seed`, `dtype` (as `torch.dtype`)
    and `device` where it asks for them. Before each call `loop` seeds `random`, NumPy and torch: the same seed has
    to give the same values. Where it makes tensors on a GPU, the reference runs there, too.
    """

    passes: Literal["positional", "keywords", "one"] = "positional"
    """How what it returns reaches the function: its items one by one, by keyword, or as one argument."""


class Modules(Model):
    """The functions are classes, as `torch.nn.Module`: `loop` makes one of each and calls it.

    Each is made right after seeding, with the same seed, so that those that draw the same weights have them.
    The reference's parameters are then widened to float64. Parameters and buffers must stay as they were.
    """

    arguments: PythonFunction | None = None
    """Gives the constructor's arguments: a list, or a dict of keywords. Default: none."""
    seed: Seed | None = None
    """Seed that stands before each constructor. Default: another one in every round."""
    state: Literal["fixed", "free"] = "fixed"
    """Whether calls may change parameters and buffers: `free` as in training of BatchNorm."""


class Checker(PythonFunction):
    """The task's own check of the outputs, in the judge's process.

    It returns a bool, a message (empty: right) or both, or raises AssertionError for what is wrong.
    """

    given: Annotated[tuple[Passed, ...], Field(min_length=1)] = ("inputs", "outputs")
    """What it is called with, in order: inputs as the function was given them, `expected` outputs in their own
    types, and the outputs to be checked."""
    alone: bool = False
    """Whether it decides alone, for outputs that may differ from the reference's, such as samples."""
