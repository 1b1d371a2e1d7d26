"""The page that `make bench-attention` writes, from the rows that it recorded."""

from collections.abc import Iterator, Sequence
from statistics import geometric_mean
from typing import Any

from tests.conftest import ROOT

RECORDED = ROOT / "tests/bench/recorded/attention.json"
PAGE = ROOT / "tests/bench/ATTENTION.md"
BACKENDS = ("flash", "efficient", "cuDNN")
ALIKE = 1.03  # `auto` may take so many times what the best variant takes.
WORST = 12  # Random shapes that are shown.
EARLY = """In a graph replay the launch of each of our kernels but `fa1` overlaps with the end of the kernel before
it. PyTorch's kernels are not launched early."""


def page(found: dict[str, Any]) -> str:
    node, call = found["floor"]["node"], found["floor"]["call"]
    floor = f"The floor, an empty kernel: {node:.2f} us as a node of a graph, {call:.2f} us as a call by ctypes."
    product = f"A matrix product of 8192, float16: {2e-6 * 8192**3 / found['product']:.0f} TFLOP/s."
    lines = ["# CUDA attention against PyTorch", "", found["about"], "", f"{floor} {product}", "", EARLY, ""]
    lines += decode(found["decode"])
    lines += ["## Few queries, many keys, float16, graph replay", ""]
    lines += [*rows(found["long"], [*found["long"][0]["error"]], "graph"), ""]
    for one in found["sets"]:
        lines += table(one)
    lines += [*choices(found["random"]), *calls(found["calls"]), *memory(found["memory"])]
    return "\n".join(lines).rstrip() + "\n"


def decode(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Rows of one query a head, and their means."""
    yield from ("## Decode: one query a head, float16, graph replay, inputs past the L2", "")
    yield "| B, Hk, group, Sk, D | MiB | flash | cuDNN | read | auto: us, x best, of read |"
    yield "|---" * 6 + "|"
    best, shares = [], []
    for one in found:
        (b, heads, _, keys, d), us = one["row"], one["us"]
        best.append(min(us[name] for name in BACKENDS if name in us) / us["ours"])
        shares.append(us["read"] / us["ours"])
        said = f"{us['ours']:.2f}, **{best[-1]:.2f}**, {shares[-1]:.2f}"
        sizes, mib = ", ".join(map(str, one["row"])), (4 * b * heads * keys * d) >> 20
        yield f"| {sizes} | {mib} | {us['flash']:.2f} | {us['cuDNN']:.2f} | {us['read']:.2f} | {said} |"
    yield ""
    for title, ratios in (("the faster of flash and cuDNN", best), ("what `read` takes", shares)):
        yield f"- against {title}: geometric mean **{geometric_mean(ratios):.2f}**, lowest {min(ratios):.2f}"
    yield ""


def rows(found: Sequence[dict[str, Any]], names: Sequence[str], kind: str) -> Iterator[str]:
    """A table: times of the library, then of each variant with its ratios to flash and to the best."""
    heads = ["workload", *BACKENDS, *(f"{name}: us, x flash, x best" for name in names)]
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for one in found:
        us = one[kind]
        theirs = [f"{us[name]:.2f}" if name in us else "-" for name in BACKENDS]
        mine = [f"{us[n]:.2f}, **{us['flash'] / us[n]:.2f}**, {best_of(us) / us[n]:.2f}" for n in names]
        yield f"| {' | '.join([one['case'], *theirs, *mine])} |"


def best_of(us: dict[str, float]) -> float:
    """Microseconds of the fastest backend of PyTorch."""
    return min(us[name] for name in BACKENDS if name in us)


def summary(found: Sequence[dict[str, Any]], name: str, kind: str) -> Iterator[str]:
    """Geometric mean and lowest ratio of a variant, by number of features where there are several."""
    features = sorted({int(one["case"].split(" D")[1].split()[0]) for one in found})
    parts = [("", found)]
    if len(features) > 1:
        parts += [(f"D {size}, ", [one for one in found if f" D{size} " in one["case"]]) for size in features]
    for part, shown in parts:
        said = []
        for against in ("the best", "flash", "cuDNN"):
            ratios = [
                (best_of(one[kind]) if against == "the best" else one[kind][against]) / one[kind][name]
                for one in shown
                if against == "the best" or against in one[kind]
            ]
            if ratios:
                said.append(f"{against} **{geometric_mean(ratios):.2f}**, lowest {min(ratios):.2f}")
        yield f"- {part}`{name}` against {'; '.join(said)} (geometric means)"


def table(one: dict[str, Any]) -> Iterator[str]:
    """A set of rows, in graphs and eager where that was timed; the largest errors, ours and the library's."""
    for kind, words in (("graph", "graph replay"), ("eager", "eager calls")):
        timed = [row for row in one["rows"] if row[kind]]
        if len(timed) < len(one["rows"]):
            continue
        yield from (f"## {one['title']}, {one['dtype']}, {words}", "", *rows(timed, one["names"], kind), "")
        for name in one["names"]:
            yield from summary(timed, name, kind)
        if kind == "graph":
            ours = max(row["error"][name] for row in timed for name in one["names"])
            theirs = max(row["error"].get(name, 0.0) for row in timed for name in ("flash", "cuDNN"))
            yield f"- largest error {ours:.1e}; of flash and cuDNN {theirs:.1e}"
        yield ""


def choices(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """How far `auto` is from the best variant on shapes that it was not fitted to."""
    off = []
    for one in found:
        us = dict(one["us"])
        mine, best = us.pop("auto"), min(us, key=lambda name: us[name])
        off.append((mine / us[best], best, one))
    beyond = sum(ratio > ALIKE for ratio, *_ in off)
    yield from (f"## What `auto` chooses for {len(off)} shapes drawn at random, others than it was fitted to", "")
    mean = geometric_mean([ratio for ratio, *_ in off])
    more = f"{ALIKE - 1:.0%} more than by the best variant"
    yield f"In float16, by graph replay. {beyond} of {len(off)} take over {more}."
    yield f"The geometric mean is {mean:.3f} times the best. The last of them:"
    yield from ("", "| B, Hk, group, Sq, Sk, D, causal | auto | best variant | x best |", "|---|---|---|---|")
    for ratio, best, one in sorted(off, key=lambda each: -each[0])[:WORST]:
        sizes, us = ", ".join(str(int(size)) for size in one["shape"]), one["us"]
        yield f"| {sizes} | {us['auto']:.2f} | `{best}` {us[best]:.2f} | {ratio:.2f} |"
    yield ""


def calls(found: dict[str, float]) -> Iterator[str]:
    """The host's time of small calls."""
    yield from ("## A small call: B1 H1 S128 D64 causal, float16, microseconds of the host", "")
    yield from ("| call | us |", "|---|---|", *(f"| {name} | {us:.2f} |" for name, us in found.items()), "")


def memory(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Peak memory beside flash's."""
    yield from ("## Peak memory of a call, float16, bytes (output included)", "")
    yield from ("| workload | flash | auto | split_k |", "|---" * 4 + "|")
    yield from (f"| {one['case']} | {one['flash']:,} | {one['auto']:,} | {one['split_k']:,} |" for one in found)
    yield ""
