"""What a manifest says of a function in Python, of the values it gets and of how exact it is."""

from typing import Annotated, Literal

from pydantic import Field

from loop.model.base import Model
from loop.model.pattern import Text


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
