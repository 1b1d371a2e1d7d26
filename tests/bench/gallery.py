"""The sessions of docs/gallery, run again: campaigns that begin with a slower kernel.

    python -m tests.bench.gallery hopper --into docs/gallery/hopper    # on an H100 or H200
    python -m tests.bench.gallery cpu --into docs/gallery/cpu          # also: hopper-further, own, failure

A session measures the start against PyTorch. A campaign then takes one change after another from a script, each
judged. A last session measures the end against PyTorch. Records and reports are copied, samples are not.
"""

import argparse
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from loop.base.places import shipped
from tests.bench.coverage_histories import check_out, make_history
from tests.bench.optimize_live import LEAVER, play, session
from tests.bench.optimize_pool import Kernel, Patch, pool

STORY = """
format: 1
name: story
title: What the kernel is worth beside PyTorch, and what limits it
patterns: [environment-validation, single-compilation-unit, baseline-first, profiling-decision-tree]
workloads: [{timed}]
checks: [edges, values]
budget: {{minutes: 4}}
"""
CAMPAIGN = """
format: 1
name: live
title: One change after another, each judged
patterns: [single-compilation-unit, baseline-first, profile-before-optimise]
workloads: [{timed}]
checks: [edges, values]
budget: {{minutes: 3}}
"""
ENTRY = """// Attention for one GPU: the C interface. Which kernel runs is said here.
#include "tensor_core.cuh"
#include "warp_specialized.cuh"

namespace {
struct Ours {
  using Depths = attention::Depths<64, 128>;
  template <typename T, int kDepth>
  static attention::Error run(const attention::Problem &problem, cudaStream_t stream) {
    return attention::tensor_core<T, kDepth>(problem, stream);
  }
};
}  // namespace

LOOP_EXPORT int attention_hopper(const LoopTensor *inputs, LoopTensor *outputs, const double *attributes,
                                 void *stream) {
  return attention::enter<Ours>(inputs, outputs, attributes, stream);
}
"""
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
TIMED = [
    {"B": 2, "H": 16, "S": 2048, "D": 128, "causal": [True, False]},
    {"B": 4, "H": 16, "S": 1024, "D": 64, "causal": True},
]


def replaced(text: str, *pairs: tuple[str, str]) -> str:
    """A text with each old part, which must occur once, replaced by the new one."""
    for old, new in pairs:
        assert text.count(old) == 1, f"{text.count(old)} times: {old}"
        text = text.replace(old, new)
    return text


def cpu() -> Kernel:
    """The bundled `cpu` without some of its ideas: the tuner finds one again, patches bring the others."""
    kernel = pool()[2]
    text = (shipped("kernels") / "attention" / "target.yaml").read_text()
    entry = r"(?m)^  scores:\n(?:    .*\n)*?    macro:(?:.*\n)(?:    .*\n)*"
    manifest, count = re.subn(entry, SEARCHED_CPU, text)
    assert count == 1, f"{count} entries of tuning are named scores"
    leaver = Patch("leaves", "a process on the GPU, and no edit", "", ((LEAVER, ""),))
    files = {name: text for name, text in kernel.files.items() if name != "cpu/block.h"}
    patches = tuple(patch for patch in kernel.patches if patch.kind != "fork" and patch.file != "cpu/block.h")
    return replace(kernel, files={**files, "target.yaml": manifest}, patches=(*patches, leaver))


def hopper(further: bool = False) -> Kernel:
    """The `hopper` kernel, from `tensor_core` on; the further campaign begins where the first one ended."""
    folder = shipped("kernels") / "attention"
    manifest = yaml.safe_load((folder / "target.yaml").read_text())
    variant = manifest["variants"]["warp_specialized"]
    variant |= {"sources": ["cuda/hopper.cu"], "entry": "attention_hopper", "dtypes": ["float16"]}
    variant["takes"] = "(Hq == Hk or Hq % Hk == 0) and D % 8 == 0 and D <= 128"
    del variant["instances"], variant["budgets"]
    flags = [
        f"-D{entry['macro']}_{field.upper()}={str(value).lower()}"
        for entry in manifest["tuning"].values()
        if entry["variant"] != "cpu"
        for field, value in entry["best"]["sm_90"].items()
    ]
    for recipe in ("build", "emulation"):
        variant[recipe]["flags"] = [flag for flag in variant[recipe]["flags"] if flag != "{tuned}"] + flags
    manifest["variants"] = {"hopper": variant}
    manifest["workloads"]["timed"] = TIMED
    del manifest["components"], manifest["tuning"]

    groups, kernel, entry = "cuda/groups.cuh", "cuda/warp_specialized.cuh", "cuda/hopper.cu"
    two, three, estimated = (
        f"for (const Kernel kernel : {{{names}}})"
        for names in ("kTwoGroups", "kThreeGroups", "kThreeGroups, kTwoGroups")
    )
    today = "for (const Kernel kernel : {kThreeGroups, kTwoGroups, kFolded, kOneGroup})"
    cached = (
        "std::min<int64_t>(units, std::max<int64_t>(1, (24 << 20) / (int64_t(problem.keys) * problem.depth * 4)))"
    )
    whole = "heads_of_section(units, row_tiles)"
    hidden, all_tiles = (
        f"const int hidden = has_rows ? {text} : 0;"
        for text in ("(visible_keys(problem, group_row + 63) + kKeys - 1) / kKeys", "tiles")
    )
    together, apart = (f"section, tiles, {span}, groups, tiles" for span in ("tiles", "section * row_tiles"))
    turns = (
        ("{ named_barrier_sync(1 + group, 2 * kWarpGroup); }", "{}"),
        ("    named_barrier_arrive(1 + (group + 1 == Shape::kGroups ? 0 : group + 1), 2 * kWarpGroup);\n", ""),
        ("if (group == Shape::kGroups) named_barrier_arrive(1, 2 * kWarpGroup);", ""),
    )
    files = {
        "target.yaml": yaml.safe_dump(manifest, sort_keys=False, default_flow_style=None),
        entry: ENTRY,
        kernel: replaced((folder / kernel).read_text(), (today, two), (hidden, all_tiles)),
        groups: replaced((folder / groups).read_text(), (whole, cached), (apart, together)),
    }
    groups_compute = Patch(
        "faster",
        "wgmma and tensor copies: one group copies, two compute; blocks stay; sections by what the L2 holds",
        entry,
        (("attention::tensor_core<", "attention::warp_specialized<"),),
    )
    first = (
        groups_compute,
        Patch("faster", "three groups share each tile of keys", kernel, ((two, three),)),
        Patch("slower", "groups begin their products in any order", kernel, turns),
    )
    second = (
        Patch("faster", "a group passes over tiles that its mask hides", kernel, ((all_tiles, hidden),)),
        Patch("wrong", "the mask hides one key too many", kernel, (("8 * n + i > shown", "8 * n + i >= shown"),)),
        Patch(
            "faster",
            "sections of equal size, of two rounds at least, each shared out by itself",
            groups,
            ((cached, whole), (together, apart)),
        ),
        Patch("faster", "three groups or two, by estimated time", kernel, ((two, estimated),)),
        Patch("slower", "three stages of keys and values", groups, (("int kStages_ = 2", "int kStages_ = 3"),)),
    )
    if further:
        files[entry] = replaced(ENTRY, *groups_compute.texts)
    patches = second if further else first
    return Kernel("hopper", "hopper", files, patches, copied="attention")


def campaign(kernel: Kernel, device: str, root: Path, into: Path, minutes: float) -> Mapping[str, Any]:
    """A campaign below `root`. Its report and record are copied to `into`."""
    words = ["--device", device, "--proposer-minutes", "0.5", "--max-minutes", str(minutes)]
    played = play(root, kernel, CAMPAIGN.format(timed=kernel.timed), kernel.patches, words)
    copy(root / "sessions", into)
    return played


def story(kernel: Kernel, device: str, root: Path, into: Path, with_kept: bool) -> Any:
    """A session of the campaign's target below `root`, with or without the changes that the campaign kept."""
    target, folder = root / "target", root / into.name
    (target / "plans" / "story.yaml").write_text(STORY.format(timed=kernel.timed))
    folder.mkdir()
    if with_kept:
        (patch,) = root.glob("sessions/*/changes/kept.patch")
        subprocess.run(["git", "apply", str(patch)], cwd=target, check=True)
    words = ["run", "session", "story", "--target", str(target), "--variant", kernel.variant, "--device", device]
    _, reply = session(folder, target, words)
    copy(folder / "sessions", into)
    return reply


def copy(sessions: Path, into: Path) -> None:
    """Copy report, figures, record and kept changes of the only session in a folder."""
    (folder,) = (path.parent for path in sessions.glob("*/session.json"))
    into.mkdir(parents=True, exist_ok=True)
    for name in ("report.md", "record.json", "changes/kept.patch"):
        if (folder / name).exists():
            shutil.copy(folder / name, into / Path(name).name)
    if (folder / "figures").exists():
        shutil.copytree(folder / "figures", into / "figures", dirs_exist_ok=True)


def failure(root: Path, into: Path) -> Mapping[str, Any]:
    """Run a session of a good commit, then one of a later wrong commit: its message names the commit."""
    history = make_history(root, 1)
    words = ["run", "session", "quick", "--variant", "c", "--target", str(history.folder)]
    check_out(history, 0)
    session(root, history.folder, words)
    (good,) = (root / "sessions").iterdir()
    check_out(history, history.wrong_at)
    reply, _ = session(root, history.folder, words)
    shutil.rmtree(good)
    copy(root / "sessions", into)
    return {"wrong commit": history.commits[history.wrong], "said": reply.get("message", "")}


KERNELS: Mapping[str, tuple[Any, str]] = {
    "hopper": (hopper, "cuda"),
    "hopper-further": (lambda: hopper(further=True), "cuda"),
    "cpu": (cpu, "cpu"),
    "own": (lambda: pool()[1], "cpu"),
}


def main(words: Sequence[str] | None = None) -> None:
    """Make one campaign of the gallery."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=[*KERNELS, "failure"])
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=10.0, help="no further candidate is asked for then")
    parser.add_argument(
        "--folder", type=Path, help="a new folder for the sessions; default: one that goes afterwards"
    )
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="loop-gallery-") as top:
        root = options.folder or Path(top)
        root.mkdir(parents=True, exist_ok=True)
        if options.name == "failure":
            result = failure(root, options.into)
        else:
            make, device = KERNELS[options.name]
            kernel = make()
            result = {"campaign": campaign(kernel, device, root, options.into / "2-campaign", options.minutes)}
            for name in ("1-start", "3-end"):
                result[name] = story(kernel, device, root, options.into / name, name == "3-end")
        print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
