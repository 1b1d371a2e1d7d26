"""`make bench-causes`: does debugging name the right cause of mistakes in copies of the bundled kernels?

Each mistake is one edit. The cause that `loop run pattern defensive-debugging` names is compared with the edit's
own. An edit that fits none of the known faults must get no cause.
"""

import argparse
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from loop.model.output import DebugOutput, outputs_of
from loop.store.sessions import list_sessions
from tests.bench.rig import Rig
from tests.conftest import ROOT
from tests.faults.results import machine

PAGE = Path(__file__).with_name("CAUSES.md")
NONE = ""  # The edit is none of the known faults.
FA1, PROBLEM, BLOCK, MASK = "cuda/fa1.cuh", "cuda/problem.cuh", "cpu/block.h", "cpu/attention.h"
MISSING, SEEN = "missing = row + 1 + problem.lead;", "key <= last_key(problem, row)"
LATER = f"key < problem.keys && (row >= 128 || {SEEN})"


@dataclass(frozen=True)
class Edit:
    """One mistake."""

    title: str
    variant: str
    file: str
    old: str
    new: str
    cause: str
    """The cause that has to be named; empty: none."""


SCALE, BASE = "logits[r] * scale_log2", "scale * 1.44269504088896341f"
LATE, EARLY = (f"each query saw one key too {word} under the mask" for word in ("many", "few"))
UNSCALED, TWICE = "the scores were not scaled", "the sum of each row were counted twice"
OTHER_BASE = "powers of two were taken of scores meant for powers of e"
LAST = "the last index of Sk were left out"
FULL, TILES = "first_key < visible;", "tiles of 32 keys were not rescaled when the maximum grew"

EDITS = (
    Edit("mask left out", "fa1", PROBLEM, MISSING, "missing = 0;", "causal were false"),
    Edit("mask a key late", "fa1", PROBLEM, MISSING, MISSING.replace("1", "2"), LATE),
    Edit("mask a key early", "fa1", PROBLEM, MISSING, MISSING.replace(" + 1", ""), EARLY),
    Edit("no scale", "fa1", FA1, SCALE, "logits[r] * 1.442695f", UNSCALED),
    Edit("no change of base", "fa1", FA1, SCALE, f"{SCALE} * 0.6931472f", OTHER_BASE),
    Edit("sums left out", "fa1", FA1, ": 1.0f / sum[r]", ": 1.0f", "the rows were not divided by their sums"),
    Edit("sums twice", "fa1", FA1, ": 1.0f / sum[r]", ": 0.5f / sum[r]", TWICE),
    Edit("no rescaling", "fa1", FA1, "shrink[r] = exp2_approx(top[r] - subtracted);", "shrink[r] = 1.0f;", TILES),
    Edit("64 keys alone", "fa1", FA1, FULL, f"{FULL[:-1]} && first_key < 64;", "only the first 64 keys were seen"),
    Edit("a part of a tile lost", "fa1", FA1, FULL, "first_key + kKeys <= visible;", NONE),
    Edit("keys as values", "fa1", FA1, "Fa1::kPitch, values,", "Fa1::kPitch, keys,", "k were read for v"),
    Edit("queries of zero", "fa1", FA1, SCALE, f"0.0f * {SCALE}", "q were zero"),
    Edit("last key lost", "fa1", FA1, SEEN, f"{SEEN} && key + 1 < problem.keys", LAST),
    Edit("no mask in tiles from row 128 on", "fa1", FA1, SEEN, LATER, NONE),
    Edit("mask left out", "cpu", MASK, "if (problem.causal) {", "if (false) {", "causal were false"),
    Edit("mask a key late", "cpu", MASK, "block.first + 1 +", "block.first + 2 +", LATE),
    Edit("mask a key early", "cpu", MASK, "block.first + 1 +", "block.first +", EARLY),
    Edit("sums twice", "cpu", BLOCK, "inverse = 1.0f / sum;", "inverse = 0.5f / sum;", TWICE),
    Edit("no scale", "cpu", BLOCK, BASE, "1.44269504088896341f", UNSCALED),
    Edit("no change of base", "cpu", BLOCK, BASE, "scale", OTHER_BASE),
    Edit("half the scale", "cpu", BLOCK, BASE, f"0.5f * {BASE}", NONE),
)


def main() -> None:
    """Try every edit, and write the page."""
    rows, right, wrong = [], 0, 0
    for edit in EDITS:
        causes = causes_of(edit)
        is_right = (edit.cause in causes) if edit.cause else not causes
        right += bool(edit.cause) and is_right
        wrong += bool(causes) and not is_right
        claim = ", or ".join(causes) or "fits none of the known faults"
        rows.append(f"| `{edit.variant}` | {edit.title} | {claim} | {'yes' if is_right else 'no'} |")
        print(rows[-1], flush=True)
    with_cause = sum(bool(edit.cause) for edit in EDITS)
    head = [
        "# Causes named",
        "",
        f"`make bench-causes` on {machine()}: {len(EDITS)} mistakes in copies of the bundled kernels.",
        f"{with_cause} of them are known faults, and {right} of these were named. {wrong} were named wrongly.",
        "",
        "| Kernel | Mistake | As if | Right |",
        "|---|---|---|---|",
    ]
    PAGE.write_text("\n".join([*head, *rows, ""]))


def causes_of(edit: Edit) -> tuple[str, ...]:
    """The known faults that debugging names for a kernel with this edit, from a cause `as if FAULT, or FAULT`."""
    with tempfile.TemporaryDirectory() as name:
        target = Path(name) / "attention"
        shutil.copytree(ROOT / "kernels" / "attention", target)
        path = target / edit.file
        text = path.read_text()
        assert edit.old in text, edit
        path.write_text(text.replace(edit.old, edit.new))
        rig = Rig(Path(name), "sessions")
        rig.run("trust", str(target))
        rig.run("run", "pattern", "defensive-debugging", "--variant", edit.variant, "--target", str(target))
        finished = [record for folder in list_sessions(Path(name) / "sessions") for record in folder.finished()]
        causes = [cause for output in outputs_of(finished, DebugOutput) for cause in output.explanations]
    _, known, faults = causes[0].cause.partition("as if ") if causes else ("", "", "")
    return tuple(faults.split(", or ")) if known else ()


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
