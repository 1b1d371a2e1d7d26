"""What `loop init` is asked for, and what the process that tries a function answers."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from loop.model.base import Model
from loop.model.workloads import RESERVED_KEYS

Scalar = bool | int | float
RESERVED_NAMES = (*RESERVED_KEYS, "seed", "device", "drawn")
"""Names that no size or attribute may have: workloads and generators use them."""


class TensorSpec(Model):
    """An input of a function, as `--like` describes it or a generator draws it; or an output."""

    name: str
    dims: tuple[str, ...]  # Names of its sizes; empty if they do not follow from those of inputs.
    dtype: str = ""  # Element type; empty: that of the workload.
    values: str = "normal"
    """What is drawn: `normal`, `positive`, `index`, `whole`, `sorted`, `mask` or `mask_out`."""
    high: str = ""  # For `index` and `sorted`: a size or number that bounds the values.


@dataclass(frozen=True)
class InitRequest:
    """The arguments of `loop init`."""

    folder: Path
    source: str | None = None  # `module:function`, or a file of C, C++ or CUDA.
    like: Sequence[str] = ()  # Tensor shapes, as in `x=N,M`, `x=64,1000` or `places=N:int64<V`.
    values: Sequence[str] = ()  # Values of other parameters, as in `heads=4` or `config.eps=1e-5`.
    reference: str | None = None  # `module:function` of the reference, for a kernel.
    tries_long_sizes: bool = True  # Whether to try sizes beyond 16 bits.

    def command_line(self, *more: str, folder: Path | None = None) -> str:
        """The same command line with more options, or for another folder, to print."""
        words = ["--from", self.source or "module:function"]
        words += ["--reference", self.reference] if self.reference else []
        words += [word for text in self.like for word in ("--like", text)]
        words += [word for text in self.values for word in ("--set", text)]
        return shlex.join(["loop", "init", str(folder or self.folder), *words, *more])


class InitAnswer(Model):
    """The files of a target; else what the user has to add."""

    files: dict[str, str] = Field(default_factory=dict)  # Path in the target to its text.
    edit: str = ""  # The file to edit.
    notes: tuple[str, ...] = ()  # What was guessed, a sentence each.
    problem: str = ""  # What is missing or wrong, as a message; empty if the function runs.
    hint: str | None = None
