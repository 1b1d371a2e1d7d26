"""The judge: makes the inputs, knows the right answers, and never loads what it judges."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from loop.bench.child import torch_side
from loop.bench.child.refusal import Refused

MAX_SLACK, MAX_FLOOR = 2.0, 1e-5
MEAN_SLACK, MEAN_FLOOR = 1.5, 1e-6
"""A variant may lose this much more than the plain implementation in the same type, plus a floor."""


@dataclass
class Truth:
    """The right answer to one call, and what the element type itself costs."""

    reference: Tensor
    """float64."""
    plain_max: float
    plain_mean: float
    allowed: Tensor
    """Allowed absolute error of each element."""


class Judge:
    """Holds the truth of every call it was asked to expect."""

    def __init__(self, request: dict[str, Any]) -> None:
        torch_side.use_threads(request["threads"])
        self.reference = torch_side.find(request["reference"])
        self.plain = torch_side.find(request["plain"]) if request["plain"] else None
        self.tolerance = request["tolerance"]
        self.dimensions: list[str] = request["dimensions"]
        self.truths: dict[str, Truth] = {}

    def expect(self, request: dict[str, Any]) -> dict[str, Any]:
        """Write the inputs of a call and work out its right answer."""
        call = request["call"]
        inputs = [
            torch_side.make_values(request["values"], request["seed"], index, tuple(t["shape"]), call["dtype"])
            for index, t in enumerate(call["inputs"])
        ]
        for tensor, file in zip(inputs, call["inputs"], strict=True):
            torch_side.write_tensor(file["path"], tensor)
        self.truths[call["key"]] = self._truth(call, inputs)
        return {}

    def _truth(self, call: dict[str, Any], inputs: list[Tensor]) -> Truth:
        shape = tuple(call["output"]["shape"])
        reference = self.reference(*(tensor.double() for tensor in inputs), **call["attributes"])
        torch_side.check_result(reference, shape, torch.float64)
        plain_max = plain_mean = 0.0
        if self.plain is not None:
            plain_max, plain_mean = errors(self.plain(*inputs, **call["attributes"]), reference)
        tolerance = self.tolerance[call["dtype"]]
        allowed = tolerance["atol"] + tolerance["rtol"] * reference.abs().nan_to_num(0.0, 0.0, 0.0)
        return Truth(reference, plain_max, plain_mean, allowed.clamp(min=2 * plain_max))

    def compare(self, request: dict[str, Any]) -> dict[str, Any]:
        """Hold the output file of a call against the truth."""
        call = request["call"]
        file = call["output"]
        output = torch_side.read_tensor(file["path"], tuple(file["shape"]), call["dtype"])
        return self._finding(self.truths[call["key"]], output.double())

    def _finding(self, truth: Truth, output: Tensor) -> dict[str, Any]:
        wrong = outside(output, truth.reference, truth.allowed)
        largest, mean = errors(output, truth.reference)
        finding: dict[str, Any] = {
            "max_error": largest,
            "plain_max_error": truth.plain_max if self.plain else None,
            "wrong": int(wrong.sum()),
            "total": output.numel(),
            "message": bound_broken(truth, largest, mean) if self.plain else "",
        }
        if finding["wrong"]:
            excess = excess_of(output, truth)
            finding["first"] = self._mismatch(truth, output, int(wrong.reshape(-1).int().argmax()))
            finding["worst"] = self._mismatch(truth, output, int((excess * wrong).reshape(-1).argmax()))
        return finding

    def _mismatch(self, truth: Truth, output: Tensor, flat: int) -> dict[str, Any]:
        index = [int(i) for i in torch.unravel_index(torch.tensor(flat), output.shape)]
        return {
            "index": dict(zip(self.dimensions, index, strict=True)),
            "expected": number(truth.reference.reshape(-1)[flat]),
            "got": number(output.reshape(-1)[flat]),
            "allowed": float(truth.allowed.reshape(-1)[flat]),
        }


def outside(output: Tensor, reference: Tensor, allowed: Tensor) -> Tensor:
    """Which elements are not within their allowed error; NaN is right only where the reference is NaN."""
    near = (output - reference).abs() <= allowed
    same = (output == reference) | (output.isnan() & reference.isnan())
    return ~(near | same)


def excess_of(output: Tensor, truth: Truth) -> Tensor:
    """How many times its allowed error an element is off; a NaN or infinity out of place comes first."""
    excess = (output - truth.reference).abs() / truth.allowed.clamp(min=1e-300)
    return excess.nan_to_num(1e300, 1e300).clamp(max=1e300)


def errors(output: Tensor, reference: Tensor) -> tuple[float, float]:
    """Largest and mean absolute error over the elements that are finite on both sides."""
    difference = (output.double() - reference).abs()
    difference = difference[difference.isfinite()]
    if not difference.numel():
        return 0.0, 0.0
    return float(difference.max()), float(difference.mean())


def bound_broken(truth: Truth, largest: float, mean: float) -> str:
    """What a variant loses beyond the plain implementation, in words; empty when nothing."""
    if largest > MAX_SLACK * truth.plain_max + MAX_FLOOR:
        return f"largest error {largest:.2g} against {truth.plain_max:.2g} of the plain implementation"
    if mean > MEAN_SLACK * truth.plain_mean + MEAN_FLOOR:
        return f"mean error {mean:.2g} against {truth.plain_mean:.2g} of the plain implementation"
    return ""


def number(value: Tensor) -> float | None:
    """A scalar for JSON: None stands for NaN, the largest double for infinity."""
    found = float(value)
    if math.isnan(found):
        return None
    return max(min(found, 1.7976931348623157e308), -1.7976931348623157e308)


def start(request: dict[str, Any]) -> Judge:
    """A judge; raises Refused when a function of the target cannot be found."""
    try:
        return Judge(request)
    except AttributeError as error:
        raise Refused(str(error)) from error
