"""The fault dictionary: known faults that explain a wrong output, and no others."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from loop.calls.call import Call, TensorFile
from loop.model.target import Attribute, Signature
from loop.workers import suspects
from loop.workers.truth import mask_outside
from tests.attention import eager

NEAR = re.compile(r"were one|sign|too (early|late)|only the first|negative")
"""Suspects whose answers may be almost the same as another's."""
ALLOWED = {"float32": 1e-5, "float16": 1e-3}  # Absolute and relative.


@dataclass
class Small:
    """A small target: its function and sizes."""

    function: Callable[..., Tensor]
    inputs: dict[str, str]
    output: str
    sizes: dict[str, int]
    attributes: dict[str, Any] = field(default_factory=dict)
    declared: dict[str, Attribute] = field(default_factory=dict)


def normalised(x: Tensor, w: Tensor) -> Tensor:
    """RMSNorm without an epsilon: NaN of zeros."""
    return x / x.square().mean(-1, keepdim=True).sqrt() * w


def summed(x: Tensor, y: Tensor) -> Tensor:
    """Row sums of products."""
    return (x * y).sum(-1)


SMALL = {
    "norm": Small(normalised, {"x": "N M", "w": "M"}, "N M", {"N": 12, "M": 16}),
    "matmul": Small(torch.matmul, {"a": "M K", "b": "K N"}, "M N", {"M": 16, "K": 16, "N": 16}),
    "softmax": Small(lambda x: torch.softmax(x, -1), {"x": "R C"}, "R C", {"R": 16, "C": 12}),
    "dot": Small(summed, {"x": "N K", "y": "N K"}, "N", {"N": 40, "K": 9}),
    "attention": Small(
        eager,
        {"q": "B H Sq D", "k": "B H Sk D", "v": "B H Sk D"},
        "B H Sq D",
        {"B": 1, "H": 2, "Sq": 12, "Sk": 20, "D": 8},
        {"causal": True, "alignment": "bottom_right", "scale": None},
        {
            "causal": Attribute(kind="flag"),
            "alignment": Attribute(kind="choice", choices=("top_left", "bottom_right")),
            "scale": Attribute(kind="number"),
        },
    ),
}


class Case:
    """A call of a small target: inputs, right answer, and the suspects that fit an output."""

    def __init__(self, small: Small, dtype: str = "float32", *, values: float | None = None, **sizes: int) -> None:
        self.small, self.dtype, sized = small, dtype, {**small.sizes, **sizes}
        torch.manual_seed(7)
        shapes = [tuple(sized[name] for name in text.split()) for text in small.inputs.values()]
        self.inputs = [torch.randn(shape) if values is None else torch.full(shape, values) for shape in shapes]
        files = tuple(TensorFile(n, "", s, "float32") for n, s in zip(small.inputs, shapes, strict=True))
        fields = {"inputs": small.inputs, "outputs": {"output": small.output}, "attributes": small.declared}
        self.signature = Signature.model_validate(fields)
        right = self.answer()
        output = TensorFile("output", "", tuple(right.shape), "float32")
        self.call = Call("k", "float32", files, output, small.attributes, ())
        self.right = right

    def answer(self, *inputs: Tensor, **attributes: Any) -> Tensor:
        """The target's answer for these inputs and attributes, by default its own."""
        doubles = [tensor.double() for tensor in (inputs or self.inputs)]
        return self.small.function(*doubles, **{**self.small.attributes, **attributes})

    def rounded(self, answer: Tensor) -> Tensor:
        """An output as a kernel gives it: in its type, a little off."""
        noise = 1 + 0.1 * ALLOWED[self.dtype] * torch.randn(answer.shape)
        return (answer * noise).to(getattr(torch, self.dtype)).double()

    def fits(self, *outputs: Tensor, own: Sequence[suspects.Suspect] = ()) -> dict[str, bool] | None:
        """Suspects that fit these outputs, with whether they fit right elements too; None: too few are wrong."""
        rtol = ALLOWED[self.dtype]
        allowed = rtol + rtol * self.right.abs().nan_to_num()
        held = [
            suspects.WrongOutput(self.right, allowed, rtol, output, mask_outside(output, self.right, allowed))
            for output in outputs
        ]
        return suspects.find_fitting_suspects(held, [*own, *self.suspects()])

    def named(self, *outputs: Tensor, own: Sequence[suspects.Suspect] = ()) -> list[str] | None:
        """Names of the suspects that fit these outputs."""
        fitting = self.fits(*outputs, own=own)
        return None if fitting is None else list(fitting)

    def suspects(self) -> list[suspects.Suspect]:
        """All suspects that the signature allows, with their answers."""
        terms = self.asked, self.call, self.inputs, self.signature, self.right
        every = suspects.find_suspects(*terms, has_plain_signature=True, is_integer=False)
        return [(as_if, ask) for as_if, ask in every if not NEAR.search(as_if)]

    def asked(self, inputs: Sequence[Tensor], call: Call) -> Tensor:
        """The reference, as the judge asks it."""
        return self.small.function(*(tensor.double() for tensor in inputs), **call.attributes)


def same(left: Tensor, right: Tensor) -> bool:
    """Whether two answers agree within 0.1 %."""
    return left.shape == right.shape and torch.allclose(left, right, 1e-3, 1e-3, equal_nan=True)


@pytest.mark.parametrize(("name", "dtype"), [*((name, "float32") for name in SMALL), ("attention", "float16")])
@pytest.mark.slow
def test_each_suspect_is_named_when_it_is_the_fault(name: str, dtype: str) -> None:
    """Suspects with the same answer are named too, no others; those with the right answer never."""
    case, count = Case(SMALL[name], dtype), 0
    answers = {as_if: ask() for as_if, ask in case.suspects()}
    for as_if, answer in answers.items():
        if answer.isnan().any() or same(answer, case.right):
            continue
        count += 1
        expected = {key for key, value in answers.items() if same(value, answer)}
        fits = case.fits(case.rounded(answer))
        assert fits is not None, as_if
        assert expected == set(fits), as_if
        assert all(fits.values()), as_if
    assert count >= 5


@pytest.mark.parametrize(("name", "times"), [("matmul", 0.5), ("dot", -1.0), ("attention", 3.0), ("norm", 1.05)])
def test_a_factor_is_told(name: str, times: float) -> None:
    """It is named if nothing else fits; a factor of 1 is none."""
    case = Case(SMALL[name])
    assert [f"it were multiplied by {times:.3g}"] == case.named(case.rounded(times * case.right))


def test_what_is_none_of_them_is_not_named() -> None:
    """Only near is not enough: low precision, noise, other values."""
    case = Case(SMALL["matmul"])
    right = case.right
    ramp = torch.linspace(0.5, 1.5, right.numel()).reshape(right.shape)
    for output in (right.bfloat16().double(), right + 0.01 * torch.randn(right.shape), ramp * right):
        assert not case.named(case.rounded(output))


def test_every_output_of_a_call_has_to_be_explained() -> None:
    """Unwritten memory may hold zeros by chance, so all outputs have to fit."""
    case = Case(SMALL["matmul"])
    zeros = torch.zeros_like(case.right)
    case.signature = case.signature.model_copy(update={"outputs": {"output": "..."}})
    assert ["a were zero", "b were zero", "nothing were computed (zeros)"] == case.named(zeros)
    assert [] == case.named(zeros, torch.full_like(zeros, torch.nan))
    assert [] == case.named(zeros, zeros + 3)


def test_attributes_are_taken_for_others_of_their_choices() -> None:
    """A flag and a choice, not a number; those that make no difference here are not named."""
    case = Case(SMALL["attention"])
    assert ["causal were false"] == case.named(case.rounded(case.answer(causal=False)))
    assert ["alignment were top_left"] == case.named(case.rounded(case.answer(alignment="top_left")))
    square = Case(SMALL["attention"], Sq=20)
    assert ["causal were false"] == square.named(square.rounded(square.answer(causal=False)))


def test_inputs_without_a_sign_are_suspected_of_less() -> None:
    """A mask and a byte have no sign to lose; asking for it must not end the search for a cause."""
    for dtype in (torch.bool, torch.uint8, torch.uint16, torch.float32):
        case = Case(SMALL["norm"])
        inputs = [case.inputs[0].abs().mul(3).to(dtype), case.inputs[1]]
        terms = case.asked, case.call, inputs, case.signature, case.right
        answers = suspects.find_suspects(*terms, has_plain_signature=True, is_integer=False)
        assert (dtype == torch.float32) == ("the sign of x were lost" in [as_if for as_if, _ in answers])
