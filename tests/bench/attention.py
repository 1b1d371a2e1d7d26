"""`make bench-attention`: the CUDA variants against PyTorch's own attention kernels, on a GPU.

Same tensors, turn about, CUDA-graph replay and eager calls (ours as operators of PyTorch); SDPA's flash,
memory-efficient and cuDNN backends, each forced. A ratio is the library's time over ours. The floor is an empty
kernel. Correctness is the gate's business (`loop kernels verify --device cuda`); here each output is compared with
float64, or with flash where that would not fit.
"""

import argparse
import contextlib
import ctypes
import datetime
import functools
import json
import math
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from loop.base.places import cache_folder, include_folder, shipped
from loop.base.processes import run_side_by_side, run_to_end
from loop.builds.build import build
from loop.calls.call import DTYPE_NUMBERS, LoopTensor
from loop.library.definitions import read_file
from loop.machine.machine import cores, machine
from loop.model.target import Target
from loop.pytorch import operator
from tests.attention import eager
from tests.bench.attention_page import PAGE, RECORDED, page
from tests.bench.decode import decode_rows
from tests.bench.graphs import BACKENDS, REPLAY_US, Graph, Plain, Run, held_to, times

HISTORY = [(1, 1, s, 64, c) for s in (32, 64, 128, 256, 512) for c in (True, False)] + [
    (2, 8, 128, 64, True),
    (2, 8, 128, 64, False),
]
SIZES = ((8, 32, 1024), (4, 16, 2048), (2, 16, 8192))
LONG = [(1, 1, 16, 2048), (1, 1, 16, 8192), (1, 1, 64, 4096), (1, 8, 1, 4096), (1, 1, 128, 4096)]
"""Few queries and many keys, for `split_k`: batches, heads, queries, keys."""
LARGE = [(*size, depth, causal) for depth in (64, 128, 256) for size in SIZES for causal in (True, False)]
MORE = (
    *((1, 4, 300, 256, True), (1, 8, 512, 256, True), (4, 16, 2048, 256, True), (4, 16, 2048, 256, False)),
    *((2, 8, 1024, 96, True), (4, 16, 2048, 96, True), (4, 16, 2048, 96, False), (4, 16, 2048, 192, True)),
    *((2, 20, 1500, 64, False), (2, 20, 1500, 64, True), (1, 24, 4250, 128, False), (1, 24, 4250, 128, True)),
)
"""Other numbers of features; sequences that no tile divides."""
CHOICES = ("decode", "small", "split_k", "tensor_core", "warp_specialized")  # What `auto` chooses from.
EVERY = ("auto", *CHOICES, "fa1")
SETS = (
    ("History rows", HISTORY, ("auto", "decode", "small", "split_k", "tensor_core", "fa1"), torch.float16),
    ("Large rows", LARGE, ("auto", "warp_specialized", "tensor_core"), torch.float16),
    ("Other sizes", MORE, ("auto",), torch.float16),
    ("History rows", HISTORY, ("auto",), torch.bfloat16),
    ("Large rows", LARGE, ("auto",), torch.bfloat16),
)
"""Titles, shapes, variants, and the type."""
ROUNDS = 15
HELD_OUT = 41  # Seed of the shapes that `auto` is held against PyTorch's backends on.
Shape = tuple[int, int, int, int, int, int, bool]
"""Batches, heads of keys, heads of queries for each, queries, keys, features; causal."""
UNSEEN = 202  # Seed of random shapes. `auto` was fitted to those of others: 200, 201 and 300 to 324.
RANDOM_US = 200.0  # A replay of a random shape takes about this long: there are many of them.


@dataclass(frozen=True)
class Case:
    """One workload with its tensors."""

    shape: tuple[int, int, int, int, int]
    """Batches, heads, queries, keys, features."""
    causal: bool
    q: Tensor
    k: Tensor
    v: Tensor
    output: Tensor

    @property
    def name(self) -> str:
        """`B1 H1 S128 D64 causal`."""
        b, h, queries, keys, d = self.shape
        size = f"S{queries}" if queries == keys else f"Sq{queries} Sk{keys}"
        heads = f"H{h}" if self.k.shape[1] == h else f"Hq{h} Hk{self.k.shape[1]}"
        return f"B{b} {heads} {size} D{d} {'causal' if self.causal else 'full'}"


def make_case(
    b: int, h: int, s: int, d: int, causal: bool, dtype: torch.dtype, keys: int | None = None, group: int = 1
) -> Case:
    """Unit normals; `h` heads of queries, of which so many in a row share a head of keys."""
    generator = torch.Generator("cuda").manual_seed(s)
    sizes = ((h, s), (h // group, keys or s), (h // group, keys or s))
    q, k, v = (torch.randn(b, *size, d, device="cuda", dtype=dtype, generator=generator) for size in sizes)
    return Case((b, h, s, keys or s, d), causal, q, k, v, torch.full_like(q, math.nan))


class Ours:
    """A variant's library, called as `loop` calls it."""

    def __init__(self, name: str, library: str, entry: str) -> None:
        self.operator = operator(name)
        self.library = ctypes.CDLL(library)
        self.entry = getattr(self.library, entry)
        self.entry.argtypes = [ctypes.c_void_p] * 4
        self.library.loop_error.restype = ctypes.c_char_p

    def call(self, case: Case) -> Run:
        """The variant on a case's tensors, on torch's current stream."""
        return self.on(case.q, case.k, case.v, case.output, case.causal)

    def on(self, q: Tensor, k: Tensor, v: Tensor, output: Tensor, causal: bool = False) -> Run:
        """The same for any tensors."""
        code = DTYPE_NUMBERS[{torch.float16: "float16", torch.bfloat16: "bfloat16"}[q.dtype]]
        tensors = (q, k, v, output)
        described = [LoopTensor(t.data_ptr(), code, t.dim(), tuple(t.shape), t.stride()) for t in tensors]
        inputs, outputs = (LoopTensor * 3)(*described[:3]), (LoopTensor * 1)(described[3])
        numbers = (ctypes.c_double * 3)(causal, 0, math.nan)

        def run() -> None:
            error = self.entry(inputs, outputs, numbers, torch.cuda.current_stream().cuda_stream)
            if error:
                raise RuntimeError(self.library.loop_error(error).decode())

        return run

    def eager(self, case: Case) -> Run:
        """The operator on a case's tensors, output allocated, as a program of PyTorch's calls it."""
        raw, q, k, v, causal = self.operator.raw, case.q, case.k, case.v, case.causal
        return lambda: raw(q, k, v, causal, 0, math.nan)


def library_call(case: Case) -> Run:
    """SDPA; `held_to` says by which backend."""
    shared = case.q.shape[1] != case.k.shape[1]
    return lambda: scaled_dot_product_attention(case.q, case.k, case.v, is_causal=case.causal, enable_gqa=shared)


def eager_us(name: str, run: Run, calls: int = 200) -> float:
    """Microseconds a call, issued one after the other from Python."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with held_to(name):
        run()
        torch.cuda.synchronize()
        begin.record()
        for _ in range(calls):
            run()
        end.record()
    end.synchronize()
    return 1e3 * begin.elapsed_time(end) / calls


def error_of(case: Case, output: Tensor) -> float:
    """Largest difference from float64, head by head: a matrix of scores in float64 takes up to 2 GB."""
    worst = 0.0
    for b in range(case.q.shape[0]):
        q, k, v = (tensor[b : b + 1].double() for tensor in (case.q, case.k, case.v))
        group = q.shape[1] // k.shape[1]
        for h in range(q.shape[1]):
            heads = (q[:, h : h + 1], k[:, h // group : h // group + 1], v[:, h // group : h // group + 1])
            exact = eager(*heads, causal=case.causal, alignment="top_left", scale=None)
            worst = max(worst, float((output[b, h].double() - exact[0, 0]).abs().max()))
    return worst


def measure(case: Case, ours: dict[str, Ours], rounds: int) -> dict[str, Any]:
    """Graph and eager times and errors of the backends and variants that take the shape."""
    calls: dict[str, Run] = dict.fromkeys(BACKENDS, library_call(case))
    calls |= {name: variant.call(case) for name, variant in ours.items()}
    errors, graphs = {}, {}
    for name, run in calls.items():
        case.output.fill_(math.nan)
        with held_to(name), contextlib.suppress(RuntimeError):  # It declines so many features.
            output = run()
            torch.cuda.synchronize()
            probe = Graph([run], 3).best_us()
            graphs[name] = Graph([run], max(2, min(200, int(REPLAY_US / probe))))
            errors[name] = error_of(case, output if isinstance(output, Tensor) else case.output)
    small = case.shape[3] <= 512
    eager_calls = {name: ours[name].eager(case) if name in ours else library_call(case) for name in graphs}
    return {
        "case": case.name,
        "graph": times({name: graph.time_us for name, graph in graphs.items()}, rounds),
        "eager": times({name: functools.partial(eager_us, name, run) for name, run in eager_calls.items()}, 5)
        if small
        else {},
        "error": errors,
    }


def libraries(names: Sequence[str], *flags: str) -> dict[str, Ours]:
    """Build variants with extra flags for the GPU at hand; variants for other GPUs are left out."""
    folder = shipped("kernels/attention")
    target = read_file(folder / "target.yaml", Target).value
    capability = "sm_{}{}".format(*torch.cuda.get_device_capability())
    terms: dict[str, Any] = {"cache": cache_folder() / "builds", "include": include_folder(), "limit_s": 600}
    kernels = {name: target.compiled_variant(name, capability) for name in names}
    ready = {
        name: variant.model_copy(
            update={"build": variant.build.model_copy(update={"flags": (*variant.build.flags, *flags)})}
        )
        for name, variant in kernels.items()
        if variant.architecture in (None, capability)
    }
    builds = run_to_end(
        run_side_by_side((build(name, variant, folder, **terms) for name, variant in ready.items()), cores())
    )
    return {built.variant: Ours(built.variant, built.library, ready[built.variant].entry) for built in builds}


def floor(plain: Plain) -> dict[str, float]:
    """What an empty kernel costs: as a node of a graph, and as a call from Python through ctypes."""
    graph = Graph([plain.empty], 200)
    return times({"node": graph.time_us, "call": functools.partial(eager_us, "empty", plain.empty)}, 9)


def draw_shapes(count: int = 200, seed: int = UNSEEN) -> list[Shape]:
    """Shapes at random: at most 256 MiB of keys and values, and about a millisecond."""
    draw = random.Random(seed)
    shapes: list[Shape] = []

    def between(low: int, high: int) -> int:
        return round(math.exp(draw.uniform(math.log(low), math.log(high))))

    while len(shapes) < count:
        b, shared, group = between(1, 64), between(1, 32), draw.choice((1, 1, 1, 4, 8))
        queries = draw.choice((1, between(1, 16), between(16, 128), between(128, 4096), between(128, 4096)))
        keys = queries if draw.random() < 0.5 else between(1, 65536)
        d, causal = draw.choice((64, 64, 64, 128, 128, 128, 96, 256, 32, 80, 192)), draw.random() < 0.5
        work = 4 * b * shared * group * queries * keys * d
        if 4 * b * shared * keys * d <= 256 << 20 and work <= 120e9:
            shapes.append((b, shared, group, queries, keys, d, causal))
    return shapes


def draw_prefill(count: int, seed: int) -> list[tuple[Shape, torch.dtype]]:
    """At random: 200 to 17,000 queries, ragged, both types, heads that share keys; up to 600 GFLOP."""
    draw = random.Random(seed)
    shapes: list[tuple[Shape, torch.dtype]] = []
    while len(shapes) < count:
        s, b = round(math.exp(draw.uniform(math.log(200), math.log(17000)))), 2 ** draw.randrange(4)
        h, group, d = (
            draw.choice((4, 8, 12, 16, 24, 32)),
            draw.choice((1, 1, 2, 4)),
            draw.choice((64, 64, 128, 128, 256)),
        )
        keys = s if draw.random() < 0.7 else round(s * math.exp(draw.uniform(-1.0, 1.0)))
        # PyTorch's flash declines a mask where queries and keys differ in number.
        causal, dtype = keys == s and draw.random() < 0.6, draw.choice((torch.float16, torch.bfloat16))
        if 4 * b * h * s * keys * d <= 600e9:
            shapes.append(((b, h // group, group, s, keys, d, causal), dtype))
    return shapes


def draw_held_out(count: int = 40, seed: int = HELD_OUT) -> Iterator[Case]:
    """Cases on which nothing was tuned."""
    for (b, shared, group, s, keys, d, causal), dtype in draw_prefill(count, seed):
        yield make_case(b, shared * group, s, d, causal, dtype, keys, group)


def random_row(shape: Shape, ours: dict[str, Ours]) -> dict[str, Any]:
    """Each variant on one shape; without those that decline it."""
    b, shared, group, queries, keys, d, causal = shape
    q = torch.randn(b, shared * group, queries, d, device="cuda", dtype=torch.float16)
    k, v = (torch.randn(b, shared, keys, d, device="cuda", dtype=torch.float16) for _ in "kv")
    output, runs = torch.empty_like(q), {}
    for name, variant in ours.items():
        run = variant.on(q, k, v, output, causal)
        with contextlib.suppress(RuntimeError):  # It declines so many features.
            run()
            runs[name] = run
    # Equal counts of calls share the cost of a replay equally; slow kernels get fewer calls.
    probes = {name: Graph([run], 3).best_us() for name, run in runs.items()}
    least = min(probes.values())
    shares = {name: min(1.0, 4 * least / probe) for name, probe in probes.items()}
    calls = {name: max(2, min(150, int(share * RANDOM_US / least))) for name, share in shares.items()}
    graphs = {name: Graph([run], calls[name]) for name, run in runs.items()}
    return {"shape": shape, "us": times({name: graph.time_us for name, graph in graphs.items()}, 7)}


def host_us(run: Run, calls: int = 1500, rounds: int = 7) -> float:
    """Microseconds that a call keeps the host, the median of some rounds."""
    times_us = []
    for _ in range(rounds + 1):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            run()
        times_us.append((time.perf_counter() - begin) / calls * 1e6)
    torch.cuda.synchronize()
    return median(times_us[1:])


def call_parts(ours: dict[str, Ours], plain: Plain) -> dict[str, float]:
    """The host's time of a small call: PyTorch's own, the operator's, and that of its entry without PyTorch."""
    case = make_case(1, 1, 128, 64, True, torch.float16)
    q, k, v, whole = case.q, case.k, case.v, ours["auto"].operator
    runs: dict[str, Run] = {
        "`q + q`": lambda: q + q,
        "`q.add_(0)`": lambda: q.add_(0),
        "`torch.ops.aten.add.Tensor(q, q)`": lambda: torch.ops.aten.add.Tensor(q, q),
        "`torch.empty_like(q)`": lambda: torch.empty_like(q),
        "`torch.ops.aten.alias(q)`": lambda: torch.ops.aten.alias(q),
        "an empty kernel by ctypes": plain.empty,
        "the entry by ctypes": ours["auto"].call(case),
        "the raw operator": ours["auto"].eager(case),
        "the overload in `torch.ops`": lambda: whole.op(q, k, v, True, 0, math.nan),
        "the operator": lambda: whole(q, k, v, causal=True),
    }
    host_times = {name: host_us(run) for name, run in runs.items()}
    for name in BACKENDS:
        with held_to(name):
            host_times[f"SDPA, {name}"] = host_us(library_call(case))
    return host_times


USED_MEM_HIGH = 8  # `CU_MEMPOOL_ATTR_USED_MEM_HIGH` of the driver's interface.


def peak_bytes(run: Run) -> int:
    """The most that one call adds, its output included: of PyTorch's memory and of the device's own pool."""
    driver, pool, high = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64(0)
    if driver.cuDeviceGetDefaultMemPool(ctypes.byref(pool), torch.cuda.current_device()):
        raise RuntimeError("the driver gives no memory pool")
    torch.cuda.synchronize()
    if driver.cuMemPoolSetAttribute(pool, USED_MEM_HIGH, ctypes.byref(high)):
        raise RuntimeError("the pool's high-water mark cannot be set back")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    output = run()
    torch.cuda.synchronize()
    if driver.cuMemPoolGetAttribute(pool, USED_MEM_HIGH, ctypes.byref(high)):
        raise RuntimeError("the pool's high-water mark cannot be read")
    del output
    return torch.cuda.max_memory_allocated() - before + high.value


def memory_rows(ours: dict[str, Ours]) -> Iterator[dict[str, Any]]:
    """What a call adds at its peak beside flash's: `auto`, and `split_k`, whose workspace is the largest."""
    cases = [make_case(*shape, torch.float16) for shape in (*HISTORY, *LARGE) if shape[3] <= 128]
    cases += [make_case(b, h, queries, 64, False, torch.float16, keys) for b, h, queries, keys in LONG]
    for case in cases:
        with held_to("flash"):
            flash = peak_bytes(library_call(case))
        mine = {name: peak_bytes(ours[name].eager(case)) for name in ("auto", "split_k")}
        yield {"case": case.name, "flash": flash, **mine}


def record(rounds: int) -> dict[str, Any]:
    """Measure all figures of the page."""
    ours, plain = libraries(EVERY), Plain()
    data: dict[str, Any] = {"about": about(rounds), "floor": floor(plain)}
    left, right = (torch.randn(8192, 8192, device="cuda", dtype=torch.float16) for _ in "ab")
    data |= times({"product": Graph([lambda: left @ right], 3).time_us}, 15)
    data["decode"] = list(decode_rows(ours["auto"].on, plain, rounds))
    long = [make_case(b, h, queries, 64, False, torch.float16, keys) for b, h, queries, keys in LONG]
    few = {name: ours[name] for name in ("auto", *CHOICES[:3])}
    data["long"] = [measure(case, few, rounds) for case in long]
    data["sets"] = []
    for title, shapes, names, dtype in SETS:
        chosen = {name: ours[name] for name in names if name in ours}
        measured = [measure(make_case(*shape, dtype), chosen, rounds) for shape in shapes]
        data["sets"].append({"title": title, "dtype": str(dtype)[6:], "names": [*chosen], "rows": measured})
    held_out = [measure(case, {"auto": ours["auto"]}, rounds) for case in draw_held_out()]
    data["sets"].append({"title": "Held-out shapes", "dtype": "both types", "names": ["auto"], "rows": held_out})
    chosen = {name: ours[name] for name in ("auto", *CHOICES) if name in ours}
    data["random"] = [random_row(shape, chosen) for shape in draw_shapes()]
    data["calls"] = call_parts(ours, plain)
    data["memory"] = list(memory_rows(ours))
    return data


def main() -> None:
    """Measure if there is a GPU, and write the page of what was recorded last."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.attention")
    parser.add_argument("--page", action="store_true", help="measure nothing")
    options = parser.parse_args()
    if not options.page:
        if not torch.cuda.is_available():
            sys.exit("no GPU: --page writes the page of what was recorded last")
        RECORDED.write_text(json.dumps(record(ROUNDS), indent=1) + "\n")
    PAGE.write_text(page(json.loads(RECORDED.read_text())))


def about(rounds: int) -> str:
    """Machine, versions, command."""
    here = machine()
    return (
        f"{torch.cuda.get_device_name()}, driver {here.driver}, nvcc {here.nvcc}, torch {torch.__version__}, "
        f"{datetime.date.today()}; medians of {rounds} replays turn about; `make bench-attention`. Microseconds."
    )


if __name__ == "__main__":
    main()
