"""Operators under compilers: `opcheck`, shapes without memory, graphs without breaks."""

import re

import pytest
import torch
from torch import Tensor

from loop.pytorch import Operator
from tests.pytorch.operators import attention, exact, make_inputs, raw, worst


@pytest.fixture
def op() -> Operator:
    """The bundled target's operator."""
    return attention()


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    """No graph of another test."""
    torch.compiler.reset()


@pytest.mark.slow
def test_opcheck_finds_nothing(op: Operator) -> None:
    """Schema, autograd registration, abstract kernel, ahead-of-time graphs with symbols for sizes."""
    attributes = raw(causal=True, alignment=1, scale=0.5)
    results = torch.library.opcheck(op.op, (*make_inputs(2, 1, 5, 16, keys=7), *attributes))
    assert {"SUCCESS"} == set(results.values())


@pytest.mark.slow
def test_a_graph_has_no_break() -> None:
    """Attributes by name, defaults, a scale that changes, sizes that change."""
    op = attention()
    compiled = torch.compile(
        lambda q, k, v, scale: op(q * 2, k, v, causal=True, alignment="bottom_right", scale=scale) + op(q, k, v),
        fullgraph=True,
        backend="aot_eager",
    )
    for size, scale in ((5, None), (33, 0.25), (6, 0.5)):
        q, k, v = make_inputs(1, 2, size, 8, keys=size + 1)
        options = {"causal": True, "alignment": "bottom_right", "scale": scale}
        wanted = exact((q * 2, k, v), **options) + exact((q, k, v))
        assert 1e-5 > worst(compiled(q, k, v, scale), wanted)


def test_a_compiled_call_does_not_lose_a_gradient(op: Operator) -> None:
    """The error of an eager call is raised when the graph is made."""
    compiled = torch.compile(lambda q, k, v: op(q, k, v), fullgraph=True, backend="aot_eager")
    inputs = make_inputs(1, 1, 5, 4)
    inputs[1].requires_grad_()
    with pytest.raises(RuntimeError, match=re.escape("k requires a gradient, and the operator has none")):
        compiled(*inputs)
    with torch.no_grad():
        assert 1e-5 > worst(compiled(*inputs), exact(inputs))


@pytest.mark.filterwarnings("ignore:At pre-dispatch tracing")
def test_an_exported_program_computes_the_same(op: Operator) -> None:
    """The exported program calls the operator by its name."""

    class Module(torch.nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return op(q, k, v, causal=True)

    inputs = make_inputs(1, 2, 5, 8)
    exported = torch.export.export(Module(), tuple(inputs))
    assert op.op in [node.target for node in exported.graph.nodes]
    assert torch.equal(op(*inputs, causal=True), exported.module()(*inputs))
