"""`make bench-optimize-gpu`: the tuner and a pool of patches drive the bundled `auto`; the figure, measured again.

A copy of the target begins without some of its ideas. One session first searches values, then takes what a script
proposes, and at the end measures all that it kept against the start. Then two sessions that know nothing of it
build start and end, and measure them against each other: that figure has to lie in the interval of the first.
With `--device cpu` the same is done to the variant `cpu`, where there is no GPU.
"""

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from loop.base.documents import write_atomic
from loop.base.places import shipped
from loop.base.stats import geometric_mean
from loop.machine.gpus import gpus
from loop.machine.machine import machine
from tests.bench.optimize_live import LEAVER, play, session
from tests.bench.optimize_pool import PAD, PLAN, Kernel, Patch, pool

DONE = Path(__file__).parent / "recorded" / "optimize_gpu.json"
FIRST = ("faster", "cheat", "leaves", "layout", "wrong", "neutral")
"""Kinds that come before any other, one of each, in any order: also a short campaign has them."""
LIMIT_S = 12.0
"""What a proposer may take."""
WIDTH = 2
AGAIN = """
format: 1
name: again
title: Its figure, measured again
patterns: [single-compilation-unit, baseline-first]
workloads: [quick]
checks: [edges]
budget: {minutes: 2}
"""
DEPTHS = (16, 64, 128)
"""Features that the copy of `auto` is compiled for, so that a build takes seconds."""
SEARCHED = {
    "title": "keys that a warp of small takes at a time, up to 64 keys, up to 128, and above; 64 features",
    "variant": "auto",
    "macro": "ATTENTION_SMALL_64",
    "values": {"short": [16], "middle": [32], "long": [16, 32, 64], "warps": [4]},
    "best": {name: {"short": 16, "middle": 32, "long": 16, "warps": 4} for name in ("sm_89", "sm_90")},
    "workloads": [{"B": 1, "H": 1, "S": [256, 512], "D": 64, "causal": [True, False]}],
}
"""What the tuner finds: a warp that takes 16 keys at a time where 64 are faster."""
SEARCHED_CPU = """  scores:
    title: KB of the first-level cache that one tile of scores may take on a CPU
    variant: cpu
    macro: ATTENTION_SCORES
    values: {kb: [2, 16, 24]}
    best:
      cpu: {kb: 2}
    workloads:
      - {B: 1, H: 1, S: 256, D: 64, causal: [true, false]}
"""


def searching(manifest: str, name: str, instead: str) -> str:
    """A manifest with another entry under `tuning`."""
    made, found = re.subn(rf"(?m)^  {name}:\n(?:    .*\n)*?    macro:(?:.*\n)(?:    .*\n)*", instead, manifest)
    assert found == 1, f"{found} entries of tuning are named {name}"
    return made


def auto() -> Kernel:
    """The bundled variant without some of its ideas: one comes back by the tuner, others by a patch each."""
    folder = shipped("kernels") / "attention"
    names = ("cuda/auto.cu", "cuda/auto.cuh", "cuda/small.cuh", "cuda/dispatch.cuh", "target.yaml")
    text = {name: (folder / name).read_text() for name in names}
    few = ", ".join(map(str, DEPTHS))
    instances = "".join(f"ATTENTION_INSTANCE(choose, {depth})\n" for depth in DEPTHS)
    entry = replaced(
        text["cuda/auto.cu"],
        ("ATTENTION_WIDE_INSTANCES(choose)\n", instances),
        ("Depths<16, 32, 64, 96, 128, 192, 256>", f"Depths<{few}>"),
    )
    manifest = yaml.safe_load(text["target.yaml"])
    variant = manifest["variants"]["auto"]
    variant["instances"][0]["over"]["D"] = [*DEPTHS]
    # A file that another variant is built from, too, may not be changed: there is no other.
    manifest["variants"] = {"auto": variant}
    # One search is left: of the others the best values are constants.
    others = [one for name, one in manifest["tuning"].items() if one["variant"] != "cpu" and name != "small_64"]
    fixed = [
        f"-D{one['macro']}_{field.upper()}={str(value).lower()}"
        for one in others
        for field, value in one["best"]["sm_90"].items()
    ]
    variant["build"]["flags"] += fixed
    variant["emulation"]["flags"] += fixed
    manifest["tuning"] = {"small_64": SEARCHED}
    del manifest["components"]
    early, late = "launch_early<small_kernel<T, Shape>>(", "launch<small_kernel<T, Shape>>("
    asked = "  if (tile < tiles) values.copy(value_tile, tile * Shape::kKeys);\n  cp_async_commit();\n\n"
    waiting = asked + "  cp_async_wait<0>();\n"
    slow = {
        "target.yaml": yaml.safe_dump(manifest, sort_keys=False, default_flow_style=None),
        "cuda/auto.cu": entry,
        "cuda/small.cuh": replaced(text["cuda/small.cuh"], (early, late), (asked, waiting)),
    }
    queue = "const auto queue = static_cast<cudaStream_t>(stream);"
    merging, kernels = "      for (int i = 0; i < 8; i += 4) {", "enum Kernel {"
    launching = "template <typename T, class Shape>\nError launch_small("
    patches = (
        Patch("faster", "early launch", "cuda/small.cuh", ((late, early),)),
        Patch("faster", "values arrive during the first products", "cuda/small.cuh", ((waiting, asked),)),
        Patch("maybe", "8 warps", "cuda/small.cuh", (("kWarps = ATTENTION_SMALL_64_WARPS;", "kWarps = 8;"),)),
        Patch(
            "maybe", "the merge is unrolled less", "cuda/small.cuh", ((merging, "#pragma unroll 1\n" + merging),)
        ),
        Patch("neutral", "another estimate", "cuda/costs.cuh", (("{1.17, 0.38", "{1.18, 0.38"),)),
        Patch(
            "neutral",
            "one more check a call",
            "cuda/auto.cu",
            ((queue, "if (entry.problem.depth < 0) return kNullArgument;\n  " + queue),),
        ),
        Patch(
            "neutral",
            "estimates are not told",
            "cuda/auto.cuh",
            (("choice.times[kernel] < INFINITY) simt::remark", "choice.times[kernel] < 0) simt::remark"),),
        ),
        Patch("layout", "a comment", "cuda/auto.cuh", (("#pragma once", "// A choice.\n#pragma once"),)),
        Patch("layout", "unused code before the kernel", "cuda/costs.cuh", ((kernels, PAD + kernels),)),
        Patch(
            "layout",
            "unused kernel before the kernel",
            "cuda/small.cuh",
            ((launching, "__global__ void unused(float *at) { at[threadIdx.x] *= 2; }\n\n" + launching),),
        ),
        Patch(
            "wrong",
            "one key too many under the mask",
            "cuda/small.cuh",
            (("first_row) / Shape::kKeys;", "first_row) / Shape::kKeys + 1;"),),
        ),
        Patch(
            "wrong",
            "warps are merged as if they had one maximum",
            "cuda/small.cuh",
            (("exp2_approx(tops[warp] * scale_log2 - subtracted)", "(tops[warp] == kMasked ? 0.0f : 1.0f)"),),
        ),
        Patch(
            "cheat",
            "the same input is not computed again",
            "cuda/auto.cu",
            (
                (
                    queue,
                    "static const void *last;\n  if (last == inputs[0].data) return kSuccess;\n"
                    "  last = inputs[0].data;\n  " + queue,
                ),
            ),
        ),
        Patch(
            "cheat",
            "a stream of its own",
            "cuda/auto.cu",
            (
                (
                    queue,
                    "static cudaStream_t queue = nullptr;\n  (void)stream;\n"
                    "  if (!queue) cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking);",
                ),
            ),
        ),
        Patch("cheat", "a tolerance of one's own", "target.yaml", (("atol: 0.001", "atol: 1000.0"),)),
        Patch("leaves", "a process on the GPU, and no edit", "", ((LEAVER, ""),)),
        Patch("hang", "the proposer does not end", ""),
    )
    return Kernel("auto", "auto", slow, patches, timed="quick", copied="attention")


def cpu() -> Kernel:
    """What stands for it where there is no GPU."""
    found = pool()[2]
    manifest = searching((shipped("kernels") / "attention" / "target.yaml").read_text(), "scores", SEARCHED_CPU)
    leaver = Patch("leaves", "a process on the GPU, and no edit", "", ((LEAVER, ""),))
    files = {name: text for name, text in found.files.items() if name != "cpu/block.h"}
    patches = tuple(one for one in found.patches if one.kind != "fork" and one.file != "cpu/block.h")
    return replace(found, files={**files, "target.yaml": manifest}, patches=(*patches, leaver))


def replaced(text: str, *pairs: tuple[str, str]) -> str:
    """A text in which each of these, which it has once, is another."""
    for old, new in pairs:
        assert text.count(old) == 1, f"{text.count(old)} times: {old}"
        text = text.replace(old, new)
    return text


def dealt(kernel: Kernel, seed: int) -> list[Patch]:
    """Every patch, in any order, some of each kind first."""
    draw = random.Random(f"gpu {seed}")
    every = draw.sample(kernel.patches, len(kernel.patches))
    first = [next(one for one in every if one.kind == kind) for kind in draw.sample(FIRST, len(FIRST))]
    return [*first, *(one for one in every if one not in first)]


def drive(minutes: float, seed: int, device: str, keep: Path | None) -> dict[str, Any]:
    """A campaign, and its figure again; each with builds of its own. `keep`: where its sessions are left."""
    kernel = auto() if device == "cuda" else cpu()
    chip = gpus().first if device == "cuda" else None
    with tempfile.TemporaryDirectory(prefix="loop-gpu-") as top, kept(Path(top), keep):
        root, begun = Path(top), time.monotonic()
        held = on_the_gpu()
        words = [
            "--device", device, "--width", str(WIDTH), "--proposer-minutes", str(LIMIT_S / 60),
            "--max-minutes", str(minutes), "--seed", str(seed),
        ]  # fmt: skip
        plan = PLAN.format(timed=kernel.timed, tuning="tuning, ")
        found = play(root, kernel, plan, dealt(kernel, seed), words)
        printed = root.glob("sessions/*/changes/candidates/*.txt")
        told = [text for path in printed for text in left(path.read_text())]
        now = on_the_gpu()
        return {
            **found,
            "minutes": minutes,
            "on": chip.name if chip else machine().processor,
            "told": told,
            "on_gpu": None if held is None or now is None else sorted(now - held),
            "again": again(root, kernel, device, seed + 1000),
            "whole_s": round(time.monotonic() - begun, 1),
        }


@contextlib.contextmanager
def kept(root: Path, keep: Path | None) -> Iterator[None]:
    """What was recorded below a folder, as an archive, also where the campaign breaks off."""
    try:
        yield
    finally:
        if keep:
            words = ["tar", "-czf", str(keep / "sessions.tgz"), "-C", str(root), "--exclude=worktree*"]
            found = [str(one.relative_to(root)) for one in (*root.rglob("sessions"), *root.glob("*.log"))]
            subprocess.run([*words, *found], check=False)


def left(printed: str) -> list[str]:
    """What a proposer said of the process that it left."""
    return re.findall(r"(?m)^LEFT (.*)$", printed)


def on_the_gpu() -> set[int] | None:
    """Processes that the driver sees on the GPUs that are visible here; None where it cannot be asked."""
    if shutil.which("nvidia-smi") is None:
        return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    asked = [
        "nvidia-smi",
        *(("-i", visible) if visible else ()),
        "--query-compute-apps=pid",
        "--format=csv,noheader",
    ]
    printed = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    return {int(line) for line in printed.split() if line.isdigit()}


def again(root: Path, kernel: Kernel, device: str, seed: int) -> dict[str, Any]:
    """What was kept against the start, by sessions that know nothing of the campaign: the mean, and each workload.

    The first finds the start right, and so it is the known good of the second.
    """
    (changes,) = root.glob("sessions/*/changes")
    kept = changes / "kept.patch"
    if not kept.exists():
        return {}
    fresh = root / "fresh"
    fresh.mkdir()
    target = root / "target"
    (target / "plans" / "again.yaml").write_text(AGAIN)
    words = ["run", "session", "again", "--target", str(target), "--variant", kernel.variant, "--device", device]
    session(fresh, target, [*words, "--seed", str(seed)])
    subprocess.run(["git", "apply", str(kept)], cwd=target, check=True)
    said, seconds = session(fresh, target, [*words, "--seed", str(seed + 1)])
    found = {
        one["workload"]: [one["interval"][0], one["ratio"], one["interval"][1]]
        for one in said["verdicts"]
        if one["against"] == "known_good" and "ratio" in one
    }
    mean = geometric_mean([one[1] for one in found.values()])
    return {"workloads": found, "ratio": mean, "seconds": round(seconds)}


def page() -> list[str]:
    """Lines of the page: a row a campaign, and what became of each kind."""
    results: Sequence[Mapping[str, Any]] = json.loads(DONE.read_text()) if DONE.exists() else []
    if not results:
        return []
    lines = [
        "",
        "## On a GPU",
        "",
        f"A copy of the bundled `auto`, for {' and '.join(map(str, DEPTHS))} features, without some of its ideas.",
        "One comes back by the tuner, others by patches that a script plays, two at a time. `Again`: two",
        "further sessions build start and end, with caches of their own, and measure them against each other.",
        "",
        "| On | Asked for | Candidates | Kept | False keeps | In the end, at 99 % | Again | Inside | Took |",
        "|:--|--:|--:|--:|--:|:--|--:|:--|--:|",
    ]
    for one in results:
        kept = [each for each in one["outcome"] if each["outcome"] == "kept"]
        tuned = sum(each["outcome"] == "kept" for each in one["tuned"])
        false = sum(each["kind"] not in ("faster", "maybe") for each in kept)
        figure = "; ".join("{:.3f}x [{:.3f}, {:.3f}]".format(*found) for found in one["confirmed"]) or "-"
        ratio = one["again"].get("ratio")
        agrees = "nothing kept" if ratio is None else "yes" if inside(ratio, one["confirmed"]) else "no"
        anew = "-" if ratio is None else f"{ratio:.3f}x"
        lines.append(
            f"| {one['on']} | {one['minutes']:g} min | {len(one['outcome'])} | {len(kept) + tuned} | {false} "
            f"| {figure} | {anew} | {agrees} | {one['seconds'] / 60:.1f} min |"
        )
    every = [each for one in results for each in one["outcome"]]
    told = [text for one in results for text in one["told"]]
    stayed = sum(one["left"] + len(one["on_gpu"] or ()) for one in results)
    return [
        *lines,
        "",
        *(_of_kind(every, kind) for kind in dict.fromkeys(each["kind"] for each in every)),
        *(f"- The tuner: {each}." for one in results for each in one["searched"]),
        *(f"- {one['note']}" for one in results if one.get("note")),
        f"- Left behind by proposers: {'; '.join(told) or 'nothing'}. Still there afterwards: {stayed}.",
    ]


def inside(ratio: float, confirmed: Sequence[Sequence[float]]) -> bool:
    """Whether a figure lies in the interval that the campaign stated."""
    return any(low <= ratio <= high for _, low, high in confirmed)


def _of_kind(every: Sequence[Mapping[str, Any]], kind: str) -> str:
    mine = [one for one in every if one["kind"] == kind]
    said = "; ".join(f"{one['idea']}: {one['outcome']}{_gain(one)}" for one in mine)
    return f"- {kind or 'without an idea'}: {said}."


def _gain(one: Mapping[str, Any]) -> str:
    return "" if one["gain"] is None else f" at {one['gain']:.3f}x"


def main() -> None:
    """Run one campaign, and add it to those that are stored."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="no further candidate is asked for then")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--into", type=Path, default=DONE, help="a file of rows")
    parser.add_argument("--keep", type=Path, help="a folder for an archive of its sessions")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # What was recorded is still kept.
    before = json.loads(given.into.read_text()) if given.into.exists() else []
    row = drive(given.minutes, given.seed, given.device, given.keep)
    write_atomic(given.into, json.dumps([*before, row], indent=1) + "\n")
    print(json.dumps(row, indent=1))
    if row["again"] and not inside(row["again"]["ratio"], row["confirmed"]):
        print("the figure measured again lies outside the campaign's interval")


if __name__ == "__main__":
    main()
