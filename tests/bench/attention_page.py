"""The page that `make bench-attention` writes, from the rows that it recorded."""

from collections.abc import Iterator, Sequence
from statistics import geometric_mean
from typing import Any

from tests.conftest import ROOT

RECORDED = ROOT / "tests/bench/recorded/attention.json"
PAGE = ROOT / "tests/bench/ATTENTION.md"
BACKENDS = ("flash", "efficient", "cuDNN")
ALIKE = 1.03  # `auto` counts as best up to this multiple of the best variant's time.
WORST = 12  # Random shapes that are shown.
EARLY = """In a graph replay the launch of each of our kernels but `fa1` overlaps with the end of the kernel before
it. PyTorch's kernels are not launched early."""


def page(recorded: dict[str, Any]) -> str:
    node, call = recorded["floor"]["node"], recorded["floor"]["call"]
    floor = f"The floor, an empty kernel: {node:.2f} us as a node of a graph, {call:.2f} us as a call by ctypes."
    product = f"A matrix product of 8192, float16: {2e-6 * 8192**3 / recorded['product']:.0f} TFLOP/s."
    lines = ["# CUDA attention against PyTorch", "", recorded["about"], "", f"{floor} {product}", "", EARLY, ""]
    lines += decode(recorded["decode"])
    lines += ["## Few queries, many keys, float16, graph replay", ""]
    lines += [*rows(recorded["long"], [*recorded["long"][0]["error"]], "graph"), ""]
    for rows_of in recorded["sets"]:
        lines += table(rows_of)
    lines += [*choices(recorded["random"]), *calls(recorded["calls"]), *memory(recorded["memory"])]
    return "\n".join(lines).rstrip() + "\n"


def decode(records: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The table of one query a head, then the means of its ratios."""
    yield from ("## Decode: one query a head, float16, graph replay, inputs past the L2", "")
    yield "| B, Hk, group, Sk, D | MiB | flash | cuDNN | read | auto: us, x best, of read |"
    yield "|---" * 6 + "|"
    best, shares = [], []
    for row in records:
        (b, heads, _, keys, d), us = row["row"], row["us"]
        best.append(min(us[name] for name in BACKENDS if name in us) / us["ours"])
        shares.append(us["read"] / us["ours"])
        cells = f"{us['ours']:.2f}, **{best[-1]:.2f}**, {shares[-1]:.2f}"
        sizes, mib = ", ".join(map(str, row["row"])), (4 * b * heads * keys * d) >> 20
        yield f"| {sizes} | {mib} | {us['flash']:.2f} | {us['cuDNN']:.2f} | {us['read']:.2f} | {cells} |"
    yield ""
    for title, ratios in (("the faster of flash and cuDNN", best), ("what `read` takes", shares)):
        yield f"- against {title}: geometric mean **{geometric_mean(ratios):.2f}**, lowest {min(ratios):.2f}"
    yield ""


def rows(records: Sequence[dict[str, Any]], names: Sequence[str], kind: str) -> Iterator[str]:
    """A table: times of the library, then of each variant with its ratios to flash and to the best."""
    heads = ["workload", *BACKENDS, *(f"{name}: us, x flash, x best" for name in names)]
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for row in records:
        us = row[kind]
        theirs = [f"{us[name]:.2f}" if name in us else "-" for name in BACKENDS]
        mine = [f"{us[n]:.2f}, **{us['flash'] / us[n]:.2f}**, {best_of(us) / us[n]:.2f}" for n in names]
        yield f"| {' | '.join([row['case'], *theirs, *mine])} |"


def best_of(us: dict[str, float]) -> float:
    """Microseconds of the fastest backend of PyTorch."""
    return min(us[name] for name in BACKENDS if name in us)


def summary(records: Sequence[dict[str, Any]], name: str, kind: str) -> Iterator[str]:
    """Geometric mean and lowest ratio of a variant, by number of features where there are several."""
    features = sorted({int(row["case"].split(" D")[1].split()[0]) for row in records})
    parts = [("", records)]
    if len(features) > 1:
        parts += [(f"D {size}, ", [row for row in records if f" D{size} " in row["case"]]) for size in features]
    for part, chosen in parts:
        means = []
        for against in ("the best", "flash", "cuDNN"):
            ratios = [
                (best_of(row[kind]) if against == "the best" else row[kind][against]) / row[kind][name]
                for row in chosen
                if against == "the best" or against in row[kind]
            ]
            if ratios:
                means.append(f"{against} **{geometric_mean(ratios):.2f}**, lowest {min(ratios):.2f}")
        yield f"- {part}`{name}` against {'; '.join(means)} (geometric means)"


def table(part: dict[str, Any]) -> Iterator[str]:
    """A set of rows: graph times, eager times if all rows have them, and the largest errors of both sides."""
    for kind, words in (("graph", "graph replay"), ("eager", "eager calls")):
        timed = [row for row in part["rows"] if row[kind]]
        if len(timed) < len(part["rows"]):
            continue
        yield from (f"## {part['title']}, {part['dtype']}, {words}", "", *rows(timed, part["names"], kind), "")
        for name in part["names"]:
            yield from summary(timed, name, kind)
        if kind == "graph":
            ours = max(row["error"][name] for row in timed for name in part["names"])
            theirs = max(row["error"].get(name, 0.0) for row in timed for name in ("flash", "cuDNN"))
            yield f"- largest error {ours:.1e}; of flash and cuDNN {theirs:.1e}"
        yield ""


def choices(records: Sequence[dict[str, Any]]) -> Iterator[str]:
    """How much slower `auto` is than the best variant on shapes that it was not fitted to."""
    off = []
    for row in records:
        us = dict(row["us"])
        mine, best = us.pop("auto"), min(us, key=lambda name: us[name])
        off.append((mine / us[best], best, row))
    beyond = sum(ratio > ALIKE for ratio, *_ in off)
    yield from (f"## What `auto` chooses for {len(off)} shapes drawn at random, others than it was fitted to", "")
    mean = geometric_mean([ratio for ratio, *_ in off])
    excess = f"{ALIKE - 1:.0%} more than by the best variant"
    yield f"In float16, by graph replay. {beyond} of {len(off)} take over {excess}."
    yield f"The geometric mean is {mean:.3f} times the best. The last of them:"
    yield from ("", "| B, Hk, group, Sq, Sk, D, causal | auto | best variant | x best |", "|---|---|---|---|")
    for ratio, best, row in sorted(off, key=lambda entry: -entry[0])[:WORST]:
        sizes, us = ", ".join(str(int(size)) for size in row["shape"]), row["us"]
        yield f"| {sizes} | {us['auto']:.2f} | `{best}` {us[best]:.2f} | {ratio:.2f} |"
    yield ""


def calls(times: dict[str, float]) -> Iterator[str]:
    """The host's time of small calls."""
    yield from ("## A small call: B1 H1 S128 D64 causal, float16, microseconds of the host", "")
    yield from ("| call | us |", "|---|---|", *(f"| {name} | {us:.2f} |" for name, us in times.items()), "")


def memory(records: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Peak memory beside flash's."""
    yield from ("## Peak memory of a call, float16, bytes (output included)", "")
    yield from ("| workload | flash | auto | split_k |", "|---" * 4 + "|")
    yield from (f"| {row['case']} | {row['flash']:,} | {row['auto']:,} | {row['split_k']:,} |" for row in records)
    yield ""
