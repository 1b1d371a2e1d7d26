"""The files of FlashInfer Trace and SOL-ExecBench as models: definition, workload, solution."""

from typing import Annotated, Any, Literal

from pydantic import Field

from loop.model.base import Count, Model

Name = Annotated[str, Field(min_length=1)]


class Constant(Model):
    """An axis of one size."""

    type: Literal["const"]
    """One size."""
    value: Count
    """Which."""
    description: str | None = None
    """What it is."""


class Variable(Model):
    """An axis that each workload gives a size."""

    type: Literal["var"]
    """Given by the workload."""
    description: str | None = None
    """What it is."""


class ExpressionAxis(Model):
    """An axis whose size follows from others; SOL-ExecBench only."""

    type: Literal["expr"]
    """Worked out."""
    expression: Name
    """From what."""
    description: str | None = None
    """What it is."""


class Spec(Model):
    """One tensor, or a scalar."""

    shape: tuple[str, ...] | None
    """Its axes; None for a scalar."""
    dtype: str
    """Its element type."""
    description: str | None = None
    """What it is."""


class Definition(Model):
    """What is computed."""

    name: Name
    """Its name."""
    op_type: str | None = None
    """Its family."""
    axes: dict[str, Annotated[Constant | Variable | ExpressionAxis, Field(discriminator="type")]]
    """Axis to size."""
    inputs: dict[str, Spec]
    """Inputs, in the order of the call."""
    outputs: dict[str, Spec]
    """Outputs, in the order of the call."""
    reference: Name
    """Source of a function `run`."""
    description: str | None = None
    """What it is."""
    tags: tuple[str, ...] = ()
    """Words to find it by."""
    constraints: tuple[str, ...] = ()
    """What sizes have to fulfil."""
    custom_inputs_entrypoint: str | None = None
    """SOL-ExecBench: a function of the reference that makes the inputs."""
    hf_id: str | None = None
    """SOL-ExecBench: where it was published."""


class InputSource(Model):
    """Where the values of one input come from."""

    type: Literal["random", "scalar", "safetensors", "custom"]
    """How they are made."""
    value: int | float | bool | None = None
    """A scalar's."""
    path: str | None = None
    """The file that holds them, relative to the root."""
    tensor_key: str | None = None
    """Which of its tensors."""


class TraceTolerance(Model):
    """SOL-ExecBench: what a workload allows."""

    max_atol: float = 1e-2
    """Absolute error."""
    max_rtol: float = 1e-2
    """Relative error."""
    required_matched_ratio: float = 0.99
    """Share of elements within both."""
    max_error_cap: float | None = None
    """No absolute error may exceed this."""
    allow_negative_inf: bool = False
    """Whether minus infinity may match minus infinity."""


class TraceWorkload(Model):
    """One call."""

    uuid: Name
    """Its name."""
    axes: dict[str, Count]
    """Axis to size."""
    inputs: dict[str, InputSource]
    """Input to where its values come from."""
    tolerance: TraceTolerance = TraceTolerance()
    """What it allows."""


class TraceLine(Model):
    """A line of a FlashInfer Trace: a workload, and perhaps what was measured on it."""

    definition: str
    """Name of the definition."""
    workload: TraceWorkload
    """The call."""
    solution: str | None = None
    """Name of the solution, in a trace."""
    evaluation: dict[str, Any] | None = None
    """What was measured, in a trace."""


class Source(Model):
    """One file of a solution."""

    path: Name
    """Relative to the folder that it is unpacked into."""
    content: str
    """Its text."""


class SolutionBuild(Model):
    """How a solution is built and called."""

    language: str | None = None
    """FlashInfer: what it is written in."""
    languages: tuple[str, ...] = ()
    """SOL-ExecBench: the same."""
    target_hardware: tuple[str, ...]
    """GPUs it is made for."""
    entry_point: Annotated[str, Field(pattern=r"^[^:]+::[^:]+$")]
    """`file::function`."""
    dependencies: tuple[str, ...] = ()
    """Libraries that it needs."""
    destination_passing_style: bool = True
    """Whether it is given its outputs as arguments."""
    binding: str | None = None
    """How compiled code is called."""
    compile_options: dict[str, Any] | None = None
    """SOL-ExecBench: flags."""


class Solution(Model):
    """An answer."""

    name: Name
    """Its name."""
    definition: Name
    """What it answers."""
    author: str
    """Who wrote it."""
    spec: SolutionBuild
    """How it is built and called."""
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]
    """Its files."""
    description: str | None = None
    """Its idea."""
