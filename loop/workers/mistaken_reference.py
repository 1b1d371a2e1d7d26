"""Do these inputs tell a mistake from the right answer? The mistake is put into the float64 reference itself."""

from typing import Any

import numpy
import torch
from torch import Tensor

from loop.calls.call import Call
from loop.calls.torch_side import Function
from loop.mistakes import MAKERS
from loop.mistakes.answers import structured
from loop.mistakes.arrays import Array, Attributes

MANTISSA = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}
"""Bits behind the point of an element type."""


def mistaken(reference: Function, call: Call, inputs: list[Tensor], terms: dict[str, Any]) -> Tensor:
    """The float64 reference with a control's mistake; NaN where it would write nothing."""
    if terms["make"] == "give_input":
        given: Tensor = inputs[terms["input"]].double()
        return given.reshape(call.output.shape)

    def honest(arrays: Any, result: Array, attributes: Attributes) -> None:
        result[...] = reference(*(torch.from_numpy(array) for array in arrays), **attributes).numpy()

    output = numpy.full(call.output.shape, numpy.nan)
    arrays = [tensor.double().contiguous().numpy().copy() for tensor in inputs]
    mistake = MAKERS[terms["make"]]({**terms, "mantissa": MANTISSA[call.dtype]})
    mistake(honest, arrays, output, dict(call.attributes))
    made: Tensor = torch.from_numpy(output)
    return made


def of_structure(reference: Function, call: Call, terms: dict[str, Any]) -> Function:
    """A reference of any structure that makes a control's mistake."""
    wrong: Function = structured(reference, {**terms, "mantissa": MANTISSA[call.dtype]})
    return wrong
