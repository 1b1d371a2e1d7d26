"""The bundled target's properties: they hold of attention in every type, and bite on plausible mistakes."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from loop.base.places import shipped
from loop.calls import callee
from loop.calls.call import Call
from loop.library.definitions import read_file
from loop.model.dtypes import Dtype
from loop.model.target import Fill, Target, Workload
from loop.workers.judge import PropertyRunner
from loop.workers.judge_messages import AdvanceProperty, Finding
from loop.workers.target_functions import make_tensor
from loop.workers.workload_call import make_call
from tests.attention import FILE, causal_mask, eager, torch_sdpa

Function = Callable[..., Tensor]

TARGET = read_file(shipped("kernels") / "attention" / "target.yaml", Target).value
SHAPES = [(33, 33, 16), (2, 2, 4), (5, 9, 8), (9, 5, 8)]  # Queries, keys and features.


def make_workload(
    queries: int, keys: int, features: int, group: int = 1, dtype: Dtype = "float32", **attributes: Any
) -> Workload:
    """Two heads of keys, `group` heads of queries for each."""
    sizes = {"B": 1, "Hq": 2 * group, "Hk": 2, "Sq": queries, "Sk": keys, "D": features}
    chosen = {"causal": False, "alignment": "top_left", "scale": None, **attributes}
    return Workload(name="w", sizes=sizes, attributes=chosen, dtype=dtype, seed=queries * 100 + features)


def written_call(workload: Workload, folder: Path) -> Call:
    """The call of a workload whose inputs are there."""
    call = make_call(TARGET, workload, str(folder), "test")
    for index, tensor in enumerate(call.inputs):
        flat = make_tensor(Fill(), workload.seed, index, tensor)
        Path(tensor.path).write_bytes(callee.bytes_of(flat))
    return call


def find(name: str, function: Function, workload: Workload, folder: Path) -> Finding | None:
    """The judge's finding on a property of a function, call by call."""
    relations = PropertyRunner(TARGET.signature, dict(TARGET.tolerance.items()), eager)
    step = AdvanceProperty(written_call(workload, folder), f"{FILE}:{name}", workload.seed)
    while isinstance(reply := relations.advance(step), Call):
        step = step.replace(output_file=compute(function, reply))
    return reply


def compute(function: Function, call: Call) -> str:
    """Compute the output of a call in its own type; its file."""
    inputs = [callee.read_tensor(tensor) for tensor in call.inputs]
    Path(call.output.path).write_bytes(callee.bytes_of(function(*inputs, **call.attributes)))
    return call.output.path


def mean_of_values(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Tensor:
    """Every key weighs the same."""
    return v.mean(dim=-2, keepdim=True).expand_as(q).contiguous()


def unmasked(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, alignment: str, scale: float | None) -> Tensor:
    """The mask is dropped."""
    return eager(q, k, v, causal=False, alignment=alignment, scale=scale)


def one_more_in_the_sum(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Tensor:
    """One is added to the normaliser, without subtracting the maximum."""
    scores = q.double() @ k.double().transpose(-1, -2) * (attributes["scale"] or 1 / math.sqrt(q.shape[-1]))
    if attributes["causal"]:
        mask = causal_mask(q.shape[-2], k.shape[-2], attributes["alignment"], q.device)
        scores = scores.masked_fill(~mask, -math.inf)
    weights = torch.exp(scores)
    return (weights @ v.double() / (weights.sum(-1, keepdim=True) + 1)).to(q.dtype)


def last_key_left_out(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Tensor:
    """A tail that is not computed."""
    count = max(k.shape[-2] - 1, 1)
    return eager(q, k[..., :count, :], v[..., :count, :], **attributes)


def clamped_values(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Tensor:
    """Values beyond one are cut off."""
    return eager(q, k, v.clamp(-1, 1), **attributes)


def heads_in_turn(q: Tensor, k: Tensor, v: Tensor, **attributes: Any) -> Tensor:
    """Heads of queries take heads of keys in turn."""
    times = q.shape[1] // k.shape[1]
    return eager(q, k.repeat(1, times, 1, 1), v.repeat(1, times, 1, 1), **attributes)


BITES: dict[str, Function] = {
    "by_hand": mean_of_values,
    "softmax_rows": one_more_in_the_sum,
    "key_permutation": last_key_left_out,
    "logit_shift": one_more_in_the_sum,
    "linear_in_v": clamped_values,
    "causal_prefix": unmasked,
    "split_merge": mean_of_values,
    "shared_heads": heads_in_turn,
}
"""Each property, and a mistake that it has to find."""


@pytest.mark.parametrize("name", BITES)
def test_it_holds_of_attention(name: str, tmp_path: Path) -> None:
    """Written out and by the library, masked or not, from either end, with another scale."""
    applied = 0
    choices: list[Any] = [{}, {"scale": 0.3}, {"causal": True}, {"causal": True, "alignment": "bottom_right"}]
    group = 3 if name == "shared_heads" else 1
    for (queries, keys, features), choice in itertools.product(SHAPES, choices):
        workload = make_workload(queries, keys, features, group, "float16", **choice)
        # For a row that sees no key the library has an answer of its own.
        for function in (eager, torch_sdpa) if "bottom" not in str(choice) or queries <= keys else (eager,):
            agreement = find(name, function, workload, tmp_path)
            applied += agreement is not None
            assert agreement is None or 0 == agreement.wrong, (function, workload, agreement)
    assert applied >= 4


@pytest.mark.parametrize(("name", "wrong"), BITES.items())
def test_it_bites(name: str, wrong: Function, tmp_path: Path) -> None:
    """A plausible mistake breaks it, with a mask or without, on a small workload already."""
    group = 2 if name == "shared_heads" else 1
    for size, causal in itertools.product((6, 33), (False, True)):
        agreement = find(name, wrong, make_workload(size, size, 16, causal=causal, group=group), tmp_path)
        if agreement is not None and agreement.wrong:
            return
    pytest.fail("not found")
