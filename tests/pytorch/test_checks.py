"""What the abstract kernel asks of tensors and devices, where there is no GPU to have them on."""

import re
from typing import Any

import pytest
import torch

from loop.model.signature import Attribute
from loop.pytorch.registration import TensorFacts, output_of
from loop.timing.contract import Contract, meanings

CUDA = Contract(
    space="loop_fake",
    name="add",
    device="cuda",
    inputs={"x": ("N", "M"), "y": ("N", "M")},
    output=("M", "N"),
    types={},
    dtypes=("float16", "float32"),
    attributes={},
)


def seen(*devices: str, **fields: Any) -> list[TensorFacts]:
    """A matrix on each device."""
    return [TensorFacts(fields.get("shape", (2, 3)), torch.float16, torch.device(name)) for name in devices]


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        (("cpu", "cuda:1"), "loop_fake::add: x: expected a tensor on cuda, got one on cpu"),
        (("cuda:1", "cuda:0"), "loop_fake::add: y: expected a tensor on cuda:1, as x is, got one on cuda:0"),
        (("cuda:0", "meta"), "loop_fake::add: y: expected a tensor on cuda, got one on meta"),
    ],
)
def test_a_tensor_on_another_device_is_told(devices: tuple[str, ...], words: str) -> None:
    """In the words of the bridge (test_bridge.py)."""
    with pytest.raises(RuntimeError, match=f"^{re.escape(words)}$"):
        output_of(CUDA, seen(*devices))


def test_the_output_is_where_the_inputs_are() -> None:
    """With sizes from where its dimensions are."""
    assert TensorFacts((3, 2), torch.float16, torch.device("cuda:1")) == output_of(CUDA, seen("cuda:1", "cuda:1"))
    meta = output_of(CUDA, seen("meta", "meta"), abstract=True)
    assert torch.device("meta") == meta.device


def test_what_is_said_of_an_attribute_becomes_a_number() -> None:
    """None is the default; a number without one is not given at all."""
    flag = Attribute(kind="flag", default=True)
    choice = Attribute(kind="choice", choices=("left", "right"), default="right")
    assert {None: True, True: True, False: False} == meanings(flag)
    assert {None: 1, "left": 0, "right": 1} == meanings(choice)
    assert {None: 0.25} == meanings(Attribute(kind="number", default=0.25))
    (missing,) = meanings(Attribute(kind="number")).values()
    assert missing != missing
