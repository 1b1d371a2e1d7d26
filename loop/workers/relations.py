"""Properties: relations between outputs that need no reference.

A property is a generator function. It takes a workload's inputs as float64 tensors (already rounded
to the element type) and its attributes by keyword. It yields calls, `(inputs, attributes)`, and
receives the variant's output of each in float64. It returns `(got, expected)`, which must agree, or
None if it does not apply.
"""

from collections.abc import Generator, Mapping
from typing import Any

import torch
from torch import Tensor

from loop.calls import torch_side
from loop.calls.call import Call, Refused, attribute_number
from loop.calls.torch_side import TORCH_DTYPES
from loop.model.signature import Signature, Tolerance
from loop.workers.judge_messages import Agreement, Relate
from loop.workers.messages import describe_error

Asked = tuple[list[Tensor], dict[str, Any]]
Property = Generator[Asked, Tensor, tuple[Tensor, Tensor] | None]

SLACK = 2.0
"""A variant may violate a property by this many times the error of the plain implementation."""
IMPLAUSIBLE = 0.1
"""Rounding errors stay below this share of the largest value."""


class Relations:
    """Runs one property at a time; the variant computes outputs in its own process."""

    def __init__(
        self, signature: Signature, tolerance: Mapping[str, Tolerance], plain: torch_side.Function | None
    ) -> None:
        self.signature, self.tolerance, self.plain = signature, tolerance, plain
        self.lost = 0.0
        """Error of the plain implementation on this property, with the same types and inputs."""
        self.losses: dict[tuple[str, str], float] = {}
        """Those errors by (property, call key), so that all variants share them."""
        self.going: Property | None = None
        """The property that runs now; None if none does."""
        self.call: Call
        self.derived: Call
        self.name = ""
        self.asked = 0
        """Number of calls that it has requested so far."""

    def relate(self, request: Relate) -> Call | Agreement | None:
        """Start a property or give it the requested output. Returns the next call to make; at the
        end its Agreement, or None if the property does not apply."""
        if request.output:
            return self._next(torch_side.read_tensor(self.derived.output, request.output).double())
        self.call, self.asked, self.name = request.call, 0, request.property
        inputs = [torch_side.read_tensor(tensor).double() for tensor in self.call.inputs]
        function, place = torch_side.find_function(self.name), (self.name, self.call.key)
        try:
            if place not in self.losses:
                torch.manual_seed(request.seed)
                self.losses[place] = self._lost_by_plain(function(*inputs, **self.call.attributes))
            self.lost = self.losses[place]
            torch.manual_seed(request.seed)
            self.going = function(*inputs, **self.call.attributes)
        except Refused:
            raise
        except Exception as error:
            raise Refused(f"property {self.name} on {self.call.key}: {describe_error(error)}") from error
        return self._next(None)

    def _lost_by_plain(self, going: Property) -> float:
        """Run a property on the plain implementation; return how far both sides differ."""
        if self.plain is None:
            return 0.0
        output: Any = None
        types = [TORCH_DTYPES[tensor.dtype] for tensor in self.call.inputs]
        while True:
            try:
                asked, attributes = going.send(output)
            except StopIteration as end:
                if end.value is None:
                    return 0.0
                difference = (end.value[0] - end.value[1]).abs()
                difference = difference[difference.isfinite()]
                return float(difference.max()) if difference.numel() else 0.0
            rounded = (tensor.to(dtype) for tensor, dtype in zip(asked, types, strict=True))
            output = self.plain(*rounded, **attributes).double()

    def _next(self, output: Tensor | None) -> Call | Agreement | None:
        """Advance the property by one step. Raises Refused with its name if it raises."""
        assert self.going is not None
        try:
            inputs, attributes = next(self.going) if output is None else self.going.send(output)
        except StopIteration as end:
            self.going = None
            return None if end.value is None else self._agreement(*end.value)
        except Exception as error:
            raise Refused(f"property {self.name} on {self.call.key}: {describe_error(error)}") from error
        self.asked += 1
        self.derived = self._derive(inputs, attributes)
        return self.derived

    def _derive(self, inputs: list[Tensor], attributes: dict[str, Any]) -> Call:
        """Make the call that a property requested: write its inputs, derive the output's shape."""
        sizes: dict[str, int] = {}
        files = []
        for tensor, file in zip(inputs, self.call.inputs, strict=True):
            sizes |= zip(self.signature.inputs[file.name].split(), tensor.shape, strict=True)
            path = f"{file.path}.related"
            torch_side.write_tensor(path, tensor.to(TORCH_DTYPES[file.dtype]))
            files.append(file.replace(path=path, shape=tuple(tensor.shape), extra_elements=0, offset=0))
        shape = tuple(sizes[name] for name in self.signature.output_dimensions.split())
        output = self.call.output.replace(shape=shape, path=f"{self.call.output.path}.related")
        known = self.signature.attributes.items()
        numbers = tuple(attribute_number(attribute.choices, attributes[name]) for name, attribute in known)
        return self.call.replace(inputs=tuple(files), output=output, attributes=attributes, numbers=numbers)

    def _agreement(self, got: Tensor, expected: Tensor) -> Agreement:
        """Compare both sides of a property. The allowed error is the tolerance times the number of
        calls, or twice the plain implementation's error. A larger error of the plain implementation
        than rounding explains does not count, because then the property is wrong."""
        tolerance = self.tolerance[self.call.dtype]
        allowed = self.asked * (tolerance.atol + tolerance.rtol * expected.abs())
        finite = expected[expected.isfinite()].abs()
        plausible = IMPLAUSIBLE * (float(finite.max()) if finite.numel() else 0.0)
        allowed = allowed.clamp(min=SLACK * self.lost if self.lost <= plausible else 0.0)
        error = (got - expected).abs()
        wrong = ~(error <= allowed)
        largest = float(error.nan_to_num(torch.inf).max()) if error.numel() else 0.0
        most = float(allowed.max()) if allowed.numel() else 0.0
        return Agreement(int(wrong.sum()), wrong.numel(), min(largest, 1e300), most)
