"""The decode rows of `make bench-attention`: few queries, many keys, beside SDPA and beside reading K and V once.

The rows were listed before any of them was measured. Every call of a graph has inputs of its own, so that they
come from memory and not from the L2: `read` is what a kernel takes that does nothing else with them.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from tests.bench.graphs import READS, Graph, Plain, Run, held_to, times

Call = Callable[[Tensor, Tensor, Tensor, Tensor], Run]
Inputs = tuple[Tensor, Tensor, Tensor, Tensor]
DECODE = (
    *((1, 1, 1, 131072, 128), (1, 1, 8, 131072, 128), (1, 8, 1, 1024, 128), (1, 8, 4, 16384, 128)),
    *((1, 8, 8, 4096, 64), (1, 8, 1, 131072, 64), (1, 32, 1, 1024, 64), (1, 32, 1, 8192, 128)),
    *((1, 32, 4, 2048, 128), (1, 32, 1, 32768, 64), (2, 1, 8, 65536, 128), (2, 8, 4, 8192, 128)),
    *((4, 8, 8, 2048, 128), (4, 4, 8, 32768, 128), (4, 32, 1, 4096, 64), (8, 32, 1, 4096, 128)),
    *((8, 8, 4, 1024, 64), (8, 1, 1, 16384, 128), (16, 8, 8, 4096, 128), (16, 2, 4, 8192, 64)),
    *((32, 8, 4, 1024, 128), (32, 32, 1, 1024, 128), (64, 8, 8, 4096, 128), (64, 32, 1, 2048, 128)),
)
"""Batches, heads of keys, heads of queries for each of them, keys, features; one query a head."""
PAST_CACHE = 256 << 20  # Bytes of keys and values that the calls of a graph go through.
GRAPH_US = 1200.0


def make_inputs(row: tuple[int, ...]) -> list[Inputs]:
    """Tuples of q, k, v, output: enough to exceed the L2, at most 256. Unit normals, float16."""
    b, heads, group, keys, d = row
    count = max(2, min(256, math.ceil(PAST_CACHE / (4 * b * heads * keys * d))))
    tuples = []
    for _ in range(count):
        q = torch.randn(b, heads * group, 1, d, device="cuda", dtype=torch.float16)
        k, v = (torch.randn(b, heads, keys, d, device="cuda", dtype=torch.float16) for _ in "kv")
        tuples.append((q, k, v, torch.empty_like(q)))
    return tuples


def measure_row(row: tuple[int, ...], ours: Call, plain: Plain, rounds: int) -> dict[str, float]:
    """Microseconds of a call: the library's backends, ours, and the best of the launches of `read`."""
    inputs = make_inputs(row)
    expected_us = sum(tensor.numel() * 2 for tensor in inputs[0]) / 4e6 + 4
    calls = max(len(inputs), min(256, int(GRAPH_US / expected_us)))
    reads = [Graph([plain.read(k, v, shape) for _, k, v, _ in inputs], calls) for shape in READS]
    graphs = {"read": min(reads, key=Graph.best_us)}
    for name in ("flash", "cuDNN"):
        with held_to(name):
            sdpa = partial(scaled_dot_product_attention, enable_gqa=True)
            graphs[name] = Graph([partial(sdpa, *tensors[:3]) for tensors in inputs], calls)
    graphs["ours"] = Graph([ours(*tensors) for tensors in inputs], calls)
    return times({name: graph.time_us for name, graph in graphs.items()}, rounds)


def decode_rows(ours: Call, plain: Plain, rounds: int) -> Iterator[dict[str, Any]]:
    """Each row and its microseconds."""
    for row in DECODE:
        yield {"row": row, "us": measure_row(row, ours, plain, rounds)}
