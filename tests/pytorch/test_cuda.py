"""An operator on a GPU: its stream, graphs, devices, memory. Skipped where there is no GPU or no nvcc."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from loop.pytorch import Operator, operator
from tests.pytorch.operators import BUNDLED, exact, make_inputs, worst

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that PyTorch sees"),
    pytest.mark.nvcc,
]
TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 2e-2}
LONG = 200_000_000  # Cycles of a GPU: about a tenth of a second.


@pytest.fixture(scope="module")
def op(build_cache: Path) -> Iterator[Operator]:
    """The variant `small`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOOP_CACHE", str(build_cache))
        yield operator("small", BUNDLED)


def make(*shape: int, dtype: torch.dtype = torch.float16, device: str = "cuda") -> list[torch.Tensor]:
    return make_inputs(*shape, dtype=dtype, device=device)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("size", [1, 33, 128])
def test_values_are_those_of_the_reference(op: Operator, dtype: torch.dtype, size: int) -> None:
    """Values agree in each type."""
    inputs = make(2, 3, size, 64, dtype=dtype)
    output = op(*inputs, causal=True)
    assert TOLERANCE[dtype] > worst(output, exact(inputs, causal=True))


def test_a_call_goes_to_the_current_stream(op: Operator) -> None:
    """It waits for work on that stream, and for no other stream."""
    (q, k, v), (later, *_) = make(1, 1, 64, 64), make(1, 1, 64, 64)
    later = later + 1
    op(q, k, v)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(LONG)
        q.copy_(later)
        output = op(q, k, v)
    assert torch.cuda.default_stream().query()
    assert not side.query()
    side.synchronize()
    assert 2e-3 > worst(output, exact((later, k, v)))


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "in a graph"])
def test_a_call_waits_for_the_call_before_it(op: Operator, captured: bool) -> None:
    """Launches may overlap with the previous kernel, but each reads the previous output."""
    q, k, v = make(1, 2, 64, 64)
    turns = [(8 * k, v), (8 * v, k)] * 20
    slowly = q
    for keys, values in turns:
        slowly = op(slowly, keys, values)
        torch.cuda.synchronize()

    def quickly() -> torch.Tensor:
        output = q
        for keys, values in turns:
            output = op(output, keys, values)
        return output

    output = quickly()
    if captured:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = quickly()
        graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(slowly, output)


def test_tensors_elsewhere_are_refused(op: Operator) -> None:
    """All tensors may be on the CPU, or one."""
    q, k, v = make(1, 1, 16, 64)
    with pytest.raises(RuntimeError, match="q: expected a tensor on cuda, got one on cpu"):
        op(q.cpu(), k.cpu(), v.cpu())
    with pytest.raises(RuntimeError, match="v: expected a tensor on cuda, got one on cpu"):
        op(q, k, v.cpu())
    with pytest.raises(RuntimeError, match="q: expected a tensor on cpu, got one on cuda:0"):
        operator("cpu", BUNDLED)(q, k, v)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU only")
def test_the_second_gpu_is_as_good(op: Operator) -> None:
    """The tensors' device is used; the current device stays; mixed devices are refused."""
    inputs = make(1, 2, 96, 64, device="cuda:1")
    output = op(*inputs, causal=True)
    assert 2e-3 > worst(output, exact(inputs, causal=True))
    assert 0 == torch.cuda.current_device()
    with pytest.raises(RuntimeError, match="k: expected a tensor on cuda:1, as q is, got one on cuda:0"):
        op(inputs[0], inputs[1].to("cuda:0"), inputs[2])


def test_a_call_can_be_captured(op: Operator) -> None:
    """A replay computes with the inputs' values at that time."""
    q, k, v = make(1, 2, 96, 64)
    op(q, k, v)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = op(q, k, v, causal=True)
    q.mul_(-2)
    graph.replay()
    torch.cuda.synchronize()
    assert 2e-3 > worst(output, exact((q, k, v), causal=True))
