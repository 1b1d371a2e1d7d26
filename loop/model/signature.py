"""Signature of a target's function: inputs, outputs, attributes, and how inputs are generated."""

from collections.abc import Collection, Iterable
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from loop.base.errors import list_choices
from loop.model.base import Model
from loop.model.dtypes import Dtype
from loop.model.plan import Text


class PythonFunction(Model):
    """A Python function: takes tensors by position and attributes by keyword; returns the output."""

    python: Text
    """`module:function` or `file.py:function`, seen from the target's folder."""


class Fill(Model):
    """Random or constant values for one input tensor."""

    kind: Literal["normal", "constant", "one_hot", "zeros"] = "normal"
    """`normal`: normal distribution; `constant`: one value everywhere; `one_hot`: one non-zero per row; `zeros`:
    normal, but the first row is 0, and one element of each other row."""
    scale: Annotated[float, Field(gt=0)] = 1.0
    """Standard deviation for `normal` and `zeros`; the value itself for the other kinds."""
    offset: float = 0.0
    """Added to every value: -8 makes nearly all normal values negative."""
    nan_along: Text | None = None
    """A dimension of the tensor. All elements at one random index of this dimension become NaN."""


class Tolerance(Model):
    """Allowed error of one element: atol + rtol * |reference|. Zero for both requires equal values."""

    atol: Annotated[float, Field(ge=0)]
    rtol: Annotated[float, Field(ge=0)]
    matched: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the output's elements that must be within the allowed error."""
    cap: Annotated[float, Field(ge=0)] | None = None
    """Maximum absolute error of the remaining elements. Default: any finite error."""


OUTPUT = "output"
"""Default name of a single output."""
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z]\w{0,63}$")]
"""A name that can be a Python keyword argument."""
ANY = "..."
"""Stands for dimensions that are unknown until the generator or the reference makes the tensor."""
Passed = Literal["inputs", "expected", "outputs"]


class Attribute(Model):
    """A parameter of the call that is not a tensor. C kernels receive it as a double."""

    kind: Literal["flag", "choice", "number", "text"]
    """C receives a flag as 0 or 1, a choice as its index, a number as is. Text: only for `parameters`."""
    default: bool | int | float | str | None = None
    """Value if a workload gives none. A number without a default is NaN in C and None in Python."""
    choices: tuple[str, ...] = ()
    """Allowed words of a choice, in the order of their indices."""

    @model_validator(mode="after")
    def _refuse_wrong_default(self) -> "Attribute":
        """Refuse a default that the attribute's kind does not admit, and a choice without words."""
        if self.kind == "choice" and not self.choices:
            raise ValueError("a choice needs `choices`")
        if self.default is not None and not self.admits(self.default):
            raise ValueError(f"a {self.kind} cannot have the default {self.default!r}")
        return self

    def admits(self, value: object) -> bool:
        """Whether `value` is allowed for this attribute."""
        if self.kind == "flag":
            return isinstance(value, bool)
        if self.kind == "choice":
            return value in self.choices
        if self.kind == "text":
            return isinstance(value, str)
        return isinstance(value, int | float) and not isinstance(value, bool)

    def as_number(self, value: bool | int | float | str | None) -> float | None:
        """A value as C gets it, a double: a choice becomes its index; None stays None."""
        if isinstance(value, str):
            return float(self.choices.index(value))
        return None if value is None else float(value)

    @property
    def default_value(self) -> bool | int | float | str | None:
        """The default value. Without a stated one: False for a flag, the first word for a choice."""
        if self.default is None and self.kind in ("flag", "choice"):
            return False if self.kind == "flag" else self.choices[0]
        return self.default


class Signature(Model):
    """Inputs, outputs and attributes of the function, in the order of the C interface."""

    inputs: dict[Word, Text] = Field(default_factory=dict)
    """Input tensors: name to dimensions, as in `q: B H Sq D`. With a `generator`, dimensions may be `...`, or
    `inputs` may be empty; names, shapes and types then come from the generated tensors."""
    outputs: dict[Word, Text] = Field(default_factory=dict)
    """Output tensors: name to dimensions. Default: the outputs that the reference returns."""
    attributes: dict[Word, Attribute] = Field(default_factory=dict)
    """Keyword arguments of the function that are not tensors."""
    sizes: tuple[Word, ...] = ()
    """Further sizes, besides the dimensions above. Only the generator receives them."""
    parameters: dict[Word, Attribute] = Field(default_factory=dict)
    """Further values that only the generator receives."""
    updates: dict[Word, Word] = Field(default_factory=dict)
    """Output to the input that it overwrites in place, as in `cache: k_cache`. Such outputs are not returned
    and not passed again. All other inputs must stay unchanged."""
    shorthand: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Names by which a workload sets several dimensions to one size, as in `S: [Sq, Sk]`."""
    types: dict[Word, Dtype] = Field(default_factory=dict)
    """Input or output name to its element type, for tensors with another type than the workload's."""
    words: dict[str, Text] = Field(default_factory=dict)
    """Dimension to a plural noun for messages, as in `Sq: query rows`."""

    @model_validator(mode="after")
    def _refuse_unknown_names(self) -> "Signature":
        """Refuse names in `types`, `words` and `updates` that no tensor or dimension of the signature has."""
        tensors, empty_hint = (*self.inputs, *self.outputs), "which is empty: add it there first"
        no_tensor = "a name from `inputs` or `outputs`, which are empty"
        no_dimension = "a dimension, and no tensor of the signature has one"
        rules: tuple[tuple[str, Iterable[str], Collection[str], str], ...] = (
            ("types", self.types, tensors, no_tensor),
            ("words", self.words, self.dimensions, no_dimension),
            ("updates", self.updates, self.outputs, f"a name from `outputs`, {empty_hint}"),
            ("updates", self.updates.values(), self.inputs, f"a name from `inputs`, {empty_hint}"),
        )
        for field, names, allowed, text_if_none_allowed in rules:
            for name in names:
                if name not in allowed:
                    expected = list_choices(allowed, text_if_none_allowed)
                    raise ValueError(f"{field}: expected {expected}, got {name!r}")
        return self

    @property
    def dimensions(self) -> tuple[str, ...]:
        """All dimension names and sizes, in order of appearance."""
        names = " ".join([*self.inputs.values(), *self.outputs.values()]).split()
        return tuple(dict.fromkeys(name for name in (*names, *self.sizes) if name != ANY))

    @property
    def attributes_and_parameters(self) -> dict[str, Attribute]:
        """Attributes and parameters: all values that a workload may set besides sizes."""
        return {**self.attributes, **self.parameters}

    @property
    def is_plain(self) -> bool:
        """Whether sizes determine every shape (none is `ANY`), and the only output is no updated input."""
        shapes = (*self.inputs.values(), *self.outputs.values())
        return bool(self.inputs) and len(self.outputs) == 1 and ANY not in shapes and not self.updates

    @property
    def has_unknown_outputs(self) -> bool:
        """Whether only the reference knows the outputs or their shapes."""
        return not self.outputs or ANY in self.outputs.values()

    @property
    def output_dimensions(self) -> str:
        """Dimensions of the only output; empty if there are several, or none is named."""
        return next(iter(self.outputs.values())) if len(self.outputs) == 1 else ""


class Generator(PythonFunction):
    """A Python function that makes the inputs of a call: tensors (also in containers) and other values. It
    receives the workload's sizes, attributes and parameters by keyword, and `seed`, `dtype` (a `torch.dtype`) and
    `device` if it declares them. `loop` seeds `random`, NumPy and torch before each call: equal seeds must give
    equal values. If it makes GPU tensors, the reference runs on the GPU."""

    passes: Literal["positional", "keywords", "one"] = "positional"
    """How the function receives the generated value: items by position, by keyword, or one argument."""


class Modules(Model):
    """The functions are classes such as `torch.nn.Module`. `loop` makes one object of each and calls it. `loop`
    seeds with the same seed before each constructor, so that random weights are equal. It then converts the
    reference's parameters to float64. Calls must not change parameters and buffers."""

    arguments: PythonFunction | None = None
    """Function that returns constructor arguments: a list, or a dict of keywords. Default: no arguments."""
    seed: Seed | None = None
    """Seed before each constructor. Default: a new seed in every round."""
    state: Literal["fixed", "free"] = "fixed"
    """`free`: calls may change parameters and buffers, as BatchNorm does in training."""


class Checker(PythonFunction):
    """The task's own function that checks outputs. It runs in the judge's process. It returns a
    bool, a message (empty: right) or both; or it raises AssertionError for a wrong output."""

    given: Annotated[tuple[Passed, ...], Field(min_length=1)] = ("inputs", "outputs")
    """Its arguments, in order: the call's `inputs`, `expected` outputs of the reference (in the outputs'
    types), and the `outputs` to check."""
    alone: bool = False
    """Skip the comparison with the reference: for outputs that may differ, such as random samples."""
