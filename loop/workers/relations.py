"""Properties: relations between outputs that need no reference.

A property is a generator function. It takes a workload's inputs as float64 tensors (already rounded to the element
type) and its attributes by keyword. It yields calls, `(inputs, attributes)`, and receives the variant's output of
each in float64. It returns `(got, expected)`, which must agree, or None if it does not apply.
"""

from collections.abc import Generator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from loop.calls import torch_side
from loop.calls.call import Call, Refused, attribute_number
from loop.calls.torch_side import TORCH_DTYPES
from loop.model.signature import Signature, Tolerance
from loop.workers.judge_messages import AdvanceProperty, PropertyAgreement
from loop.workers.messages import describe_error

RequestedCall = tuple[list[Tensor], dict[str, Any]]
"""Inputs and attributes of a call."""
Property = Generator[RequestedCall, Tensor, tuple[Tensor, Tensor] | None]
"""A running property: yields calls, receives outputs, returns two tensors that must agree."""

PLAIN_ERROR_FACTOR = 2.0
"""A variant may violate a property by this many times the error of the plain implementation."""
MAX_ROUNDING_SHARE = 0.1
"""Rounding errors stay below this share of the largest value."""


class PropertyRunner:
    """Runs one property at a time; the variant computes outputs in its own process."""

    def __init__(
        self, signature: Signature, tolerance: Mapping[str, Tolerance], plain: torch_side.Function | None
    ) -> None:
        """`tolerance`: by element type. `plain`: the plain implementation; None without one."""
        self.signature, self.tolerance_by_dtype, self.plain = signature, tolerance, plain
        self.plain_error = 0.0
        """Error of the plain implementation on this property, with the same types and inputs."""
        self.plain_errors: dict[tuple[str, str], float] = {}
        """Those errors by (property, call key), so that all variants share them."""
        self.running_property: Property | None = None
        """The property that runs now; None if none does."""
        self.call: Call
        """The workload's call, on whose inputs the property runs."""
        self.requested_call: Call
        """The call that the property requested last."""
        self.property_name = ""
        self.request_count = 0
        """Number of calls that it has requested so far."""

    def advance(self, request: AdvanceProperty) -> Call | PropertyAgreement | None:
        """Start a property or give it the requested output. Returns the next call to make; at the
        end its PropertyAgreement, or None if the property does not apply."""
        if request.output_file:
            return self._resume(torch_side.read_tensor(self.requested_call.output, request.output_file).double())
        self.call, self.request_count, self.property_name = request.call, 0, request.property_name
        inputs = [torch_side.read_tensor(tensor).double() for tensor in self.call.inputs]
        start = partial(torch_side.find_function(self.property_name), *inputs, **self.call.attributes)
        error_key = (self.property_name, self.call.key)
        try:
            if error_key not in self.plain_errors:
                torch.manual_seed(request.seed)
                self.plain_errors[error_key] = self._measure_plain_error(start())
            self.plain_error = self.plain_errors[error_key]
            torch.manual_seed(request.seed)
            self.running_property = start()
        except Refused:
            raise
        except Exception as error:
            raise self._make_refusal(error) from error
        return self._resume(None)

    def _make_refusal(self, error: Exception) -> Refused:
        """A Refused that names the property which raised `error`."""
        return Refused(f"property {self.property_name} on {self.call.key}: {describe_error(error)}")

    def _measure_plain_error(self, running_property: Property) -> float:
        """Run a property on the plain implementation; return how far both sides differ: 0.0 if it
        does not apply or there is no plain implementation."""
        if self.plain is None:
            return 0.0
        output: Any = None
        dtypes = [TORCH_DTYPES[tensor.dtype] for tensor in self.call.inputs]
        while True:
            try:
                inputs, attributes = running_property.send(output)
            except StopIteration as end:
                if end.value is None:
                    return 0.0
                got, expected = end.value
                difference = (got - expected).abs()
                difference = difference[difference.isfinite()]
                return float(difference.max()) if difference.numel() else 0.0
            rounded = [tensor.to(dtype) for tensor, dtype in zip(inputs, dtypes, strict=True)]
            output = self.plain(*rounded, **attributes).double()

    def _resume(self, output: Tensor | None) -> Call | PropertyAgreement | None:
        """Continue the property with the output of its requested call; None starts it. Returns the
        next call to make; at the end the comparison, or None if the property does not apply. Raises
        Refused if the property raises."""
        assert self.running_property is not None
        try:
            # `send(None)` starts a generator.
            inputs, attributes = self.running_property.send(output)  # type: ignore[arg-type]
        except StopIteration as end:
            self.running_property = None
            return None if end.value is None else self._compare_sides(*end.value)
        except Exception as error:
            raise self._make_refusal(error) from error
        self.request_count += 1
        self.requested_call = self._make_requested_call(inputs, attributes)
        return self.requested_call

    def _make_requested_call(self, inputs: list[Tensor], attributes: dict[str, Any]) -> Call:
        """Make the call that a property requested: write its inputs to files of its own, derive the
        output's shape from the sizes of their dimensions."""
        size_by_dimension: dict[str, int] = {}
        files = []
        for tensor, file in zip(inputs, self.call.inputs, strict=True):
            dimensions = self.signature.inputs[file.name].split()
            size_by_dimension |= zip(dimensions, tensor.shape, strict=True)
            path = f"{file.path}.related"
            torch_side.write_tensor(path, tensor.to(TORCH_DTYPES[file.dtype]))
            files.append(file.replace(path=path, shape=tuple(tensor.shape), extra_elements=0, offset=0))
        output_dimensions = self.signature.output_dimensions.split()
        output_shape = tuple(size_by_dimension[name] for name in output_dimensions)
        output_path = f"{self.call.output.path}.related"
        numbers = []
        for name, attribute in self.signature.attributes.items():
            numbers.append(attribute_number(attribute.choices, attributes[name]))
        return self.call.replace(
            inputs=tuple(files),
            output=self.call.output.replace(shape=output_shape, path=output_path),
            attributes=attributes,
            numbers=tuple(numbers),
        )

    def _compare_sides(self, got: Tensor, expected: Tensor) -> PropertyAgreement:
        """Compare both sides of a property. The allowed error is the tolerance times the number of
        calls, or twice the plain implementation's error. A larger error of the plain implementation
        than rounding explains does not count, because then the property is wrong."""
        tolerance = self.tolerance_by_dtype[self.call.dtype]
        allowed = self.request_count * (tolerance.atol + tolerance.rtol * expected.abs())
        finite = expected[expected.isfinite()].abs()
        plausible = MAX_ROUNDING_SHARE * (float(finite.max()) if finite.numel() else 0.0)
        if self.plain_error <= plausible:
            allowed = allowed.clamp(min=PLAIN_ERROR_FACTOR * self.plain_error)
        error = (got - expected).abs()
        wrong = ~(error <= allowed)
        largest = float(error.nan_to_num(torch.inf).max()) if error.numel() else 0.0
        largest_allowed = float(allowed.max()) if allowed.numel() else 0.0
        # JSON has no infinity.
        return PropertyAgreement(int(wrong.sum()), wrong.numel(), min(largest, 1e300), largest_allowed)
