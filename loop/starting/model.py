"""What `loop init` and the process that tries a function tell each other, as JSON."""

from typing import Any, Literal

from pydantic import ConfigDict

from loop.model.base import Model

Scalar = bool | int | float
WITH_INFINITY = ConfigDict(allow_inf_nan=True, ser_json_inf_nan="constants")


class TensorSpec(Model):
    """An input of the user's function, as `--like` describes it or a generator draws it, or an output."""

    name: str
    dims: tuple[str, ...]
    """Names of its sizes; empty for an output whose sizes do not follow from those of the inputs."""
    dtype: str = ""
    """Element type; empty: that of the workload."""
    values: str = "normal"
    """What is drawn: `normal`, `positive`, `index`, `distinct`, `whole`, `sorted`, `mask` or `mask_out`."""
    high: str = ""
    """For `index`, `distinct` and `sorted`: a size or number that bounds the values."""


Likes = dict[str, tuple[TensorSpec, ...]]
"""Path of a tensor (`x`, `config.scale`) to its `--like` options; several make a list of tensors."""


class TrialTerms(Model):
    """What to try: the user's function, and what the command line says about its arguments."""

    model_config = WITH_INFINITY
    folder: str
    """Folder from which the user's module is imported."""
    module: str
    name: str
    """Function or class in the module, as in `softmax`, `Block` or `Scaler.apply`."""
    function: str
    """Name of the target's function."""
    likes: Likes
    fixed_sizes: dict[str, int]
    """Dimension that the user gave by number to that number."""
    values: dict[str, Any]
    """Path of a parameter to its `--set` value."""
    attributes: tuple[str, ...] | None
    """Names of the numbers that a kernel or program takes; None for a Python function: any."""
    command_line: str
    """The user's command line, to which a hint appends what is missing."""
    module_names: dict[str, str]
    """`reference`, `mine` and `inputs` to the name of that module in the target."""


class TargetFacts(Model):
    """What trial calls showed of a function: all that its target.yaml says of it."""

    model_config = WITH_INFINITY
    function: str
    kind: Literal["function", "module", "object"]
    """Of a `module` or an `object`, an instance is made and called; its weights are an input."""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    updates: dict[str, str]
    """Output to the input that the function changes in place to that output."""
    sizes: tuple[str, ...]
    attributes: dict[str, Scalar]
    """Parameter that is a number or a flag to its value."""
    quick: tuple[dict[str, int], ...]
    """Workloads that are timed."""
    edges: tuple[dict[str, Scalar | str], ...]
    """Workloads that are only checked; an entry `drawn` names other values of the inputs."""
    tolerance: float
    notes: tuple[str, ...]
    """What was guessed, a sentence each."""
    files: dict[str, str]
    """Python module of the target to its text."""

    @property
    def needs_generator(self) -> bool:
        """Whether the target needs a Python function that makes its inputs: loop draws only normal values."""
        return self.kind != "function" or any(spec.values not in ("normal", "positive") for spec in self.inputs)


class TrialResult(Model):
    """The facts of a function that runs; else what the user has to add."""

    facts: TargetFacts | None = None
    problem: str = ""
    """What is missing or wrong, as a message."""
    hint: str | None = None
