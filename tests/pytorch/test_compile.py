"""What compilers ask of an operator: `opcheck`, shapes without memory, graphs without breaks."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from loop.pytorch import Operator
from tests.conftest import ROOT
from tests.pytorch.operators import attention, exact, make_inputs, raw, worst

INDUCTOR = """
import torch
from tests.pytorch.operators import attention, exact, make_inputs, worst

op = attention()
compiled = torch.compile(lambda q, k, v: op(q * 2, k + 0, v, causal=True) * 3, fullgraph=True)
for size in (9, 12, 40):
    q, k, v = make_inputs(1, 2, size, 8)
    assert worst(compiled(q, k, v), 3 * exact((q * 2, k, v), causal=True)) < 1e-4
"""


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
def test_shapes_come_without_memory(op: Operator) -> None:
    """On the meta device and under a fake mode, where errors are those of a real call."""
    meta = [tensor.to("meta") for tensor in make_inputs(2, 3, 5, 8, keys=9)]
    assert torch.empty(2, 3, 5, 8, device="meta").shape == op(*meta, causal=True).shape
    with FakeTensorMode() as mode:
        q, k, v = (mode.from_tensor(tensor) for tensor in make_inputs(1, 2, 5, 8))
        assert torch.device("cpu") == op(q, k, v).device
        with pytest.raises(RuntimeError, match="v: expected Sk = 5, as in k, got 4"):
            op(q, k, v[:, :, :4])
        with pytest.raises(RuntimeError, match="k: expected float32, as q is, got float16"):
            op(q, k.half(), v)
        elsewhere = torch.empty(1, 2, 5, 8, device="cuda:1")
        with pytest.raises(RuntimeError, match="q: expected a tensor on cpu, got one on cuda:1"):
            op(elsewhere, elsewhere, elsewhere)


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
        wanted = exact((q * 2, k, v), True, "bottom_right", scale) + exact((q, k, v))
        assert 1e-5 > worst(compiled(q, k, v, scale), wanted)


def test_a_compiled_call_does_not_lose_a_gradient(op: Operator) -> None:
    """The error of an eager call comes when the graph is made."""
    compiled = torch.compile(lambda q, k, v: op(q, k, v), fullgraph=True, backend="aot_eager")
    inputs = make_inputs(1, 1, 5, 4)
    inputs[1].requires_grad_()
    with pytest.raises(RuntimeError, match=re.escape("k requires a gradient, and the operator has none")):
        compiled(*inputs)
    with torch.no_grad():
        assert 1e-5 > worst(compiled(*inputs), exact(inputs))


@pytest.mark.filterwarnings("ignore:At pre-dispatch tracing")
def test_an_exported_program_computes_the_same(op: Operator) -> None:
    """The operator stands in it by its name."""

    class Module(torch.nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return op(q, k, v, causal=True)

    inputs = make_inputs(1, 2, 5, 8)
    exported = torch.export.export(Module(), tuple(inputs))
    assert op.op in [node.target for node in exported.graph.nodes]
    assert torch.equal(op(*inputs, causal=True), exported.module()(*inputs))


@pytest.mark.soak
def test_inductor_compiles_around_it(tmp_path: Path) -> None:
    """The default compiler, in a process of its own: it writes and warns much."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    command = [sys.executable, "-c", INDUCTOR]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert 0 == done.returncode, done.stderr
