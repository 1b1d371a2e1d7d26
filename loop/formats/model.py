"""What a task of somebody else's says, in one form for all formats."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from loop.model.base import Model, Printed

FLOATS = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
ITEM_BYTES = {
    **FLOATS,
    **dict.fromkeys(
        ("float8_e4m3fn", "float8_e5m2", "float4_e2m1", "float4_e2m1fn_x2", "int8", "uint8", "bool"), 1
    ),
    "int64": 8,
    "int32": 4,
    "int16": 2,
}
"""Element types that tasks name, and bytes an element."""
COPIES = 2
"""Our verdict keeps the inputs as they are made, and as they are called."""
DOUBLE = 8
"""Bytes of an element in float64, in which the reference is worked out."""
Obstacle = Literal["cuda", "several GPUs", "dependency", "memory", "file", "hardware", "download", "contract"]


class Tensor(Model):
    """One tensor of a call, as far as the text of the task says it."""

    name: str
    """Its name; `0`, `1`, ... where the task gives none."""
    shape: tuple[int, ...]
    """Elements along each dimension; empty for a scalar."""
    dtype: str
    """Element type, in torch's word."""

    @property
    def elements(self) -> int:
        """How many there are."""
        count = 1
        for size in self.shape:
            count *= size
        return count


class Case(Model):
    """One call that the task makes."""

    name: str
    """As the task writes it, or its number."""
    use: tuple[Literal["check", "time"], ...]
    """What the format does with it."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """What its generator is given, or the sizes of its axes."""
    inputs: tuple[Tensor, ...] | None = None
    """Its inputs; None where only the generator knows them."""


class Judging(Model):
    """When an output counts as right."""

    atol: float | None = None
    """Absolute error; None where the task has a checker of its own."""
    rtol: float | None = None
    """Relative error."""
    matched_ratio: float = 1.0
    """Share of elements that have to be within both."""
    cap: float | None = None
    """No element's absolute error may exceed this."""
    either: bool = False
    """An element is wrong only if it is beyond `atol` and beyond `rtol`; else beyond their sum."""
    checker: str | None = None
    """The task's own checker, where it has one."""
    note: str = ""
    """What else the format does."""


class Timing(Model):
    """How the format times an answer."""

    method: str
    """Clock, calls before and calls that count."""
    cold_cache: bool | None
    """Whether the L2 cache is cleared before each call; None: unknown."""
    fresh_inputs: bool | None
    """Whether timed calls get fresh inputs; None: unknown."""
    checked: bool | None
    """Whether outputs of timed calls are checked; None: unknown."""
    score: str
    """What the format makes of it."""


class Hindrance(Model):
    """Something that a task needs and that is not there."""

    kind: Obstacle
    """What is missing."""
    what: str
    """Which, in words."""
    cases: tuple[str, ...] | None = None
    """The cases that need it; None: all."""


class ForeignTask(Model):
    """One task of somebody else's, as its files say it."""

    format: str
    """Name of the format in the table."""
    why: str
    """By what it was recognised."""
    name: str
    """What the task is called."""
    path: Path
    """Its file or folder."""
    files: tuple[Path, ...]
    """Every file that was read."""
    entry: str
    """What an answer has to define."""
    languages: tuple[str, ...]
    """What an answer may be written in."""
    reference: str
    """Where the right answer comes from."""
    cases: tuple[Case, ...]
    """The calls it makes."""
    dtypes: tuple[str, ...]
    """Element types of inputs and outputs; empty where only the generator knows them."""
    judging: Judging
    """When an output counts as right."""
    timing: Timing
    """How the format times an answer."""
    imports: tuple[str, ...] = ()
    """Packages that its files import."""
    made_for: tuple[str, ...] = ()
    """Hardware that the task names."""
    devices: tuple[str, ...] = ("cpu", "cuda")
    """Where its code can run."""
    gpus: int = 1
    """GPUs that it needs where it runs on GPUs."""
    downloads: bool = False
    """Whether its code fetches weights from the network."""
    own_contract: bool = False
    """Whether its judging program makes inputs and checks outputs in a way of its own."""
    needs_files: tuple[Path, ...] = ()
    """Data files that cases name."""
    hints: tuple[str, ...] = ()
    """What is odd about the task, by its text alone."""


class InspectedTask(ForeignTask):
    """A task, and what of it runs on this machine."""

    runs: tuple[str, ...]
    """Cases that run here."""
    hindrances: tuple[Hindrance, ...]
    """What stands in the way of the others."""


class UnreadableTask(Model):
    """A task that cannot be read."""

    format: str
    """Name of the format."""
    path: Path
    """Its file or folder."""
    error: str
    """Why."""
    hint: str | None
    """What to do."""


class InspectedOne(Printed, InspectedTask):
    """One task."""


class InspectedFolder(Printed):
    """The tasks below a folder."""

    tasks: tuple[InspectedTask | UnreadableTask, ...]
    """Each of them."""


Inspected = InspectedOne | InspectedFolder
"""What `loop targets inspect` prints."""


def least_bytes(case: Case) -> int:
    """Bytes that judging a case needs at least; 0 where its inputs are not known."""
    sizes = ((tensor.elements, ITEM_BYTES.get(tensor.dtype, 4)) for tensor in case.inputs or ())
    return sum(elements * (COPIES * item + DOUBLE) for elements, item in sizes)
