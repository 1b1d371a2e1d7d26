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
from loop.calls.call import Call, Refused
from loop.calls.own_modules import describe_error
from loop.calls.torch_side import TORCH_DTYPES
from loop.model.target import Signature, Tolerance
from loop.workers.judge_messages import AdvanceProperty, Finding
from loop.workers.truth import largest_finite_magnitude
from loop.workers.workload_call import attribute_numbers

RequestedCall = tuple[list[Tensor], dict[str, Any]]  # Inputs and attributes of a call.
Property = Generator[RequestedCall, Tensor, tuple[Tensor, Tensor] | None]
"""A running property: yields calls, receives outputs, returns two tensors that must agree."""

PLAIN_ERROR_FACTOR = 2.0  # A property may be violated by this many times the error of `plain`.
MAX_ROUNDING_SHARE = 0.1  # Rounding errors stay below this share of the largest value.


class PropertyRunner:
    """Runs one property at a time; the variant computes outputs in its own process."""

    def __init__(
        self, signature: Signature, tolerance: Mapping[str, Tolerance], plain: torch_side.Function | None
    ) -> None:
        """`tolerance`: by element type. `plain`: the plain implementation; None without one."""
        self.signature, self.tolerance_by_dtype, self.plain = signature, tolerance, plain
        self.plain_errors: dict[tuple[str, str], float] = {}
        """Error of the plain implementation by (property, call key), so that all variants share it."""
        self.running: Generator[Call, str, Finding | None]
        """The property that runs now: yields calls, receives the file of each output."""

    def advance(self, request: AdvanceProperty) -> Call | Finding | None:
        """Start a property or give it the requested output. Returns the next call to make; at the end
        its Finding on both sides; None if it does not apply. Raises Refused if the property raises."""
        try:
            if request.output_file:
                return self.running.send(request.output_file)
            self.running = self._run(request)
            return next(self.running)
        except StopIteration as end:
            finding: Finding | None = end.value
            return finding
        except Refused:
            raise
        except Exception as error:
            place = f"property {request.property_name} on {request.call.key}"
            raise Refused(f"{place}: {describe_error(error)}") from error

    def _run(self, request: AdvanceProperty) -> Generator[Call, str, Finding | None]:
        """Run a property on the inputs of a call. Yields the calls that the variant has to make, receives the path
        of each output's file, returns what was found; None if the property does not apply."""
        call, error_key = request.call, (request.property_name, request.call.key)
        inputs = [torch_side.read_tensor(tensor).double() for tensor in call.inputs]
        property_function = torch_side.find_function(request.property_name)
        start_property = partial(property_function, *inputs, **call.attributes)
        if self.plain is not None and error_key not in self.plain_errors:
            torch.manual_seed(request.seed)
            # On `plain` in place of the variant, once: its error widens the limit below.
            sides, _ = yield from self._drive(start_property(), call, self.plain)
            self.plain_errors[error_key] = largest_finite_magnitude(sides[0] - sides[1]) if sides else 0.0
        torch.manual_seed(request.seed)  # Both draw the same values, if the property draws any.
        sides, call_count = yield from self._drive(start_property(), call, None)
        if sides is None:
            return None
        (got, expected), tolerance = sides, self.tolerance_by_dtype[call.dtype]
        allowed = call_count * (tolerance.atol + tolerance.rtol * expected.abs())
        plain_error = self.plain_errors.get(error_key, 0.0)
        # If rounding cannot explain the error of `plain`, the property is wrong: the limit stays.
        if plain_error <= MAX_ROUNDING_SHARE * largest_finite_magnitude(expected):
            allowed = allowed.clamp(min=PLAIN_ERROR_FACTOR * plain_error)
        error = (got - expected).abs()
        wrong_count, largest, largest_allowed = int((~(error <= allowed)).sum()), 0.0, 0.0
        if error.numel():  # JSON has no infinity.
            largest = min(float(error.nan_to_num(torch.inf).max()), 1e300)
            largest_allowed = min(float(allowed.nan_to_num(0.0).max()), 1e300)
        return Finding(max_error=largest, allowed_error=largest_allowed, wrong=wrong_count, total=error.numel())

    def _drive(
        self, running: Property, call: Call, plain: torch_side.Function | None
    ) -> Generator[Call, str, tuple[tuple[Tensor, Tensor] | None, int]]:
        """Run a property to its end on the function `plain`; None: on the variant, whose calls are yielded.
        Returns both sides (None if it does not apply), and the number of calls."""
        output: Any = None
        call_count = 0
        while True:
            try:
                inputs, attributes = running.send(output)
            except StopIteration as end:
                return end.value, call_count
            call_count += 1
            pairs = zip(inputs, call.inputs, strict=True)
            rounded = [tensor.to(TORCH_DTYPES[file.dtype]) for tensor, file in pairs]
            if plain is not None:
                output = plain(*rounded, **attributes).double()
                continue
            # The variant gets the inputs in files. Their dimensions give the output's shape.
            files, size_by_dimension = [], dict[str, int]()
            for tensor, file in zip(rounded, call.inputs, strict=True):
                path, shape = f"{file.path}.related", tuple(tensor.shape)
                size_by_dimension |= zip(self.signature.inputs[file.name].split(), shape, strict=True)
                torch_side.write_tensor(path, tensor)
                files.append(file.replace(path=path, shape=shape, extra_elements=0, offset=0))
            output_shape = tuple(size_by_dimension[name] for name in self.signature.output_dimensions.split())
            output_file = call.output.replace(shape=output_shape, path=f"{call.output.path}.related")
            numbers = attribute_numbers(self.signature, attributes)
            on_files = call.replace(inputs=tuple(files), output=output_file)
            on_files = on_files.replace(attributes=attributes, numbers=numbers)
            output = torch_side.read_tensor(output_file, (yield on_files)).double()
