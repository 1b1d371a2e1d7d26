"""`make bench-scale`: verification and campaigns on 1, 2, 4, 8 GPUs of one host, by any executor.

A row is the wall time of a command at a width, beside width 1; verdicts have to be the same at all. Rows are kept
in recorded/scale.json as they come, and SCALE.md is made of them. Without a GPU, `--device cpu` tries the script.
"""

import argparse
import datetime
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from loop.base.documents import write_atomic
from loop.machine.machine import detect_gpus, machine
from tests.bench.optimize_live import play
from tests.bench.optimize_pool import FUNCTIONS, PLAN, Kernel, Patch, pool
from tests.conftest import ROOT
from tests.projects import LOOP

NOTES = """
Before verification was cut by workloads: 78.7 s at width 1, 57.8 s at width 2 (1.36). On
2026-11-29, by the tree of 11-28 on another two H200: 53.8 s at width 1, 34.3 and 34.7 s at width 2
(1.56).

A profile of these runs (py-spy, 50 Hz) shows what does not shrink: 2.5 s of the command, 3 s until
a job checks, and 1.2 s until its processes have ended. The GPU contexts do not shrink either,
because the driver makes one at a time. Eight processes that start together need 2.3 s each, two
times eight 3.6 s.

Since then a side is checked on eight workloads in a row while the next processes start. Inputs are
read through pinned memory. On one H200, `loop kernels verify` of four variants takes 21.3 and 23.2
s in place of 23.6 and 23.9 (turn about). Later that day, on two other H200: 42.6 s at width 1, 25.8
s at width 2 (1.65). Both made 936 checks, with the same verdicts. The very first run there, at
width 2, took 66.5 s. On another pair, turn about: 41.9 and 51.0 s at width 1, 27.7 and 30.4 s at
width 2. On one H200 the GPU is busy 3 % of the time (nvidia-smi), and about one core (py-spy).

Later on 2026-11-29, on another pair: 46.0 s at width 1, 27.7 s at width 2 (1.66). Under Ray, each job on
cores of its own: 50.9 s and 35.6 s (1.43), 8 s of it Ray's start. With `kill -9` of the Ray worker of one job
after 28 s: 57 s, that job made twice, the other once, the same 936 checks and verdicts.

Beside other work there, by `loop kernels measure small` (10 rounds, four workloads). Alone it has 3.79 and
3.75 times the baseline's speed, beside 14 compilers 3.81, at most 1.5 % off on one workload. Beside matrix
products on the other card it has 3.78. With these on the same card it has 3.52, and a warning names the process.

Both cards at the same time against themselves: same on 4 of 4. Rounds differ by 0.12 % and 0.04 % (sd). A
slowdown of 5 % is seen on both.

A campaign of 6 candidates took 164 s at width 2. At width 1 it had not ended after 166 s. Since then a
candidate that is evidently not faster is timed no further: 25 blocks in place of 60, 14.5 s in place of 22.9.

A campaign of 16 candidates took 387 s at width 2, on 16 of 32 cores while other tests ran on the rest.
Verification, sanitizers and timings of all 16 took 192 s of it. Since then a candidate without a gain is
reverted by its comparison alone.

On another pair: 303.8 s at width 1 and 201.8 s at width 2 (1.51), with the same outcomes. The steps before the
first candidate and after the last take 35 to 40 s at each width. Between two groups of jobs pass 3 to 4 s at
either width: git, the proposer, and a compiler. A job takes 12 s at width 1 and 16 s at width 2, because each
set of fresh processes makes GPU contexts, and the driver makes one at a time for both cards.

Since then a candidate is timed without its controls until it is faster: 2 processes a set in place of 4. On a
pair on which the steps outside the jobs took 1.4 times as long, width 2 took 243 s, and jobs at width 1 10 to
14 s. Of a job, 4.6 s pass before it times: 1.1 s until the driver has told the GPUs, 2.1 s for the judge's torch.

On 2026-11-30, on another pair: 245.6 s at width 1 and 179.2 s at width 2 (1.37), with the same outcomes.
Verification there: 42.5 s at width 1, 28.5 s at width 2 (1.49).
Later that day, campaigns on another pair: 261.6 s and 179.5 s (1.46).

Never measured: 4 and 8 GPUs.
"""
DONE, PAGE = ROOT / "tests" / "bench" / "recorded" / "scale.json", ROOT / "tests" / "bench" / "SCALE.md"
MUST = {2: 1.9, 4: 3.5, 8: 6.0}
MUST_OPTIMIZE = {2: 1.8, 4: 3.2, 8: 5.0}
CANDIDATES = 16
NAMES = {"verify": "verify, all variants and sets", "optimize": f"optimize, {CANDIDATES} candidates"}
SOURCE = "kernel.cu"
TARGET = """
format: 2
name: rms
function: rms
signature: {inputs: {x: N M}, outputs: {output: N M}}
reference: {python: "functions:rms"}
baseline: {python: "functions:rms"}
tolerance: {float32: {atol: 1.0e-5, rtol: 1.0e-5}}
dtypes: {cuda: float32}
workloads:
  timed: [{N: 512, M: 1024}, {N: 2000, M: 300}]
  edges: [{N: 1, M: [1, 7, 33]}, {N: 3, M: 65}]
  held: [{N: 128, M: 384}]
variants:
  ours:
    kind: c_abi
    device: cuda
    sources: [kernel.cu]
    entry: rms
    build: {compiler: nvcc, flags: [-O3, "-arch={arch}"]}
"""
CUDA = """#include <cuda_runtime.h>
#include "loop_kernel.h"
constexpr int kThreads = 32;
__global__ void rms_kernel(const float *x, float *y, int m) {
  __shared__ float sums[1024];
  float sum = 0;
  x += (size_t)blockIdx.x * m, y += (size_t)blockIdx.x * m;
  for (int j = threadIdx.x; j < m; j += kThreads) sum += x[j] * x[j];
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  const float root = sqrtf(sums[0] / m + 1e-6f);
  for (int j = threadIdx.x; j < m; j += kThreads) y[j] = x[j] / root;
}
LOOP_EXPORT const char *loop_error(int error) { return error == 1 ? "not contiguous float32" : "unknown"; }
LOOP_EXPORT int rms(const LoopTensor *in, LoopTensor *out, const double *, void *stream) {
  if (in[0].dtype != LOOP_FLOAT32 || in[0].strides[0] != in[0].sizes[1]) return 1;
  const int rows = in[0].sizes[0], m = in[0].sizes[1];
  const float *x = static_cast<const float *>(in[0].data);
  float *y = static_cast<float *>(out[0].data);
  rms_kernel<<<rows, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(x, y, m);
  return 0;
}
"""
FASTER = ("constexpr int kThreads = 32;", "constexpr int kThreads = 64;")
WRONG = ("1e-6f", "1e-2f")


def kernel(device: str, count: int) -> Kernel:
    """A slow kernel, and patches: one with more threads, a wrong one, and such as change nothing that matters."""
    if device == "cpu":
        return replace(pool()[0], patches=pool()[0].patches[:count])
    checks = "  if (in[0].dtype"  # Each check runs once a call, on the host, and is different code.
    neutral = [
        Patch("neutral", f"check {n}", SOURCE, ((checks, f"  if (in[0].sizes[0] == -{n}) return {n};\n{checks}"),))
        for n in range(2, count)
    ]
    special = [
        Patch("wrong", "another epsilon", SOURCE, (WRONG,)),
        Patch("faster", "more threads", SOURCE, (FASTER,)),
    ]
    patches = [*neutral[: count // 2], *special, *neutral[count // 2 :]][:count]
    return Kernel(
        "rms", "ours", {"target.yaml": TARGET, "functions.py": FUNCTIONS["rms"], SOURCE: CUDA}, tuple(patches)
    )


def verify(device: str, executor: str, width: int) -> dict[str, Any]:
    """Wall seconds of `loop kernels verify` of all variants on all sets, and its verdicts."""
    words = ["kernels", "verify", "--device", device, "--executor", executor, "--width", str(width), "--json"]
    begun = time.monotonic()
    child = subprocess.run([*LOOP, *words], stdout=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    seconds = time.monotonic() - begun
    steps = json.loads(child.stdout)["steps"]
    output = next(step["output"] for step in steps if step["step"] == "verify")
    checks = sum(len(side["checks"]) for side in output["variants"])
    verdicts = [output["right"], output["wrong"], checks, sorted(output["not_exercised"])]
    return {"seconds": seconds, "said": verdicts, "jobs": _jobs(output["jobs"])}


def optimize(device: str, executor: str, width: int) -> dict[str, Any]:
    """Wall seconds of a campaign that a script proposes for, and what became of each candidate."""
    chosen = kernel(device, CANDIDATES)
    words = ["--device", device, "--executor", executor, "--width", str(width), "--seed", "7"]
    with tempfile.TemporaryDirectory(prefix="loop-scale-") as top:
        plan = PLAN.format(timed=chosen.timed, tuning="")
        result = play(Path(top), chosen, plan, chosen.patches, words)
        rows = [json.loads(line) for path in Path(top).glob("sessions/*/journal.jsonl") for line in path.open()]
    ended = [row for row in rows if row["event"] == "finished"]
    outcome = sorted([patch["kind"], patch["outcome"], patch["idea"]] for patch in result["outcome"])
    steps: dict[str, float] = {}
    for row in ended:
        steps[row["step"]] = round(steps.get(row["step"], 0.0) + row["seconds"], 1)
    jobs = {job["id"]: job for row in ended for job in (row["output"] or {}).get("jobs", ())}
    return {"seconds": result["seconds"], "said": outcome, "steps": steps, "jobs": _jobs([*jobs.values()])}


def _jobs(jobs: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    return [[job["uuid"][-6:], round(job["seconds"], 1), job["tries"]] for job in jobs]


def page(rows: Sequence[Mapping[str, Any]]) -> str:
    """The page of all rows: the best run of each command and width beside width 1."""
    lines = [
        "# Figures of a fleet",
        "",
        "`make bench-scale`: wall time of a command at a width, and how many times as ",
    ]
    lines[-1] += "fast as at width 1 on the same day and machine."
    lines += ["", "| What | Executor | Width | s | Times | Must | Same verdicts | On | Day |"]
    lines += ["|:--|:--|--:|--:|--:|--:|:--|:--|:--|"]
    best: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for row in rows:
        key = (row["what"], row["executor"], row["on"], row["day"], row["width"])
        best[key] = min(row, best.get(key, row), key=lambda candidate: candidate["seconds"])
    for (*place, width), row in best.items():
        alone = best.get((*place, 1))
        must = (MUST if row["what"].startswith("verify") else MUST_OPTIMIZE).get(width)
        times = f"{alone['seconds'] / row['seconds']:.2f}" if alone and width > 1 else "-"
        agrees = ("yes" if row["said"] == alone["said"] else "no") if alone and width > 1 else "-"
        cells = (row["what"], row["executor"], width, f"{row['seconds']:.1f}", times, must or "-", agrees)
        lines.append(f"| {' | '.join(map(str, cells))} | {row['on']} | {row['day']} |")
    return "\n".join(lines) + "\n" + NOTES


def main() -> None:
    """Measure, add to the rows that are stored, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, nargs="+", help="widths; default: 1, 2, 4, 8 as far as there are GPUs")
    parser.add_argument("--executor", default="local")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    gpus, facts = len(detect_gpus().usable), machine()
    on = (
        f"{gpus} x {detect_gpus().usable[0].name}, {facts.cores} cores"
        if gpus
        else f"{facts.processor}, {facts.cores} cores"
    )
    for command in ("verify", "optimize"):
        for width in options.gpus or [width for width in (1, 2, 4, 8) if width <= max(gpus, 1)]:
            terms = (options.device, options.executor, width)
            row = verify(*terms) if command == "verify" else optimize(*terms)
            name = NAMES[command]
            day = str(datetime.datetime.now(datetime.UTC).date())
            row = {"what": name, "executor": options.executor, "width": width, "on": on, "day": day, **row}
            rows = [*(json.loads(DONE.read_text()) if DONE.exists() else []), row]
            write_atomic(DONE, json.dumps(rows, indent=1) + "\n")
            print(json.dumps({**row, "said": "..." if command == "verify" else row["said"]}), flush=True)
    PAGE.write_text(page(json.loads(DONE.read_text())))


if __name__ == "__main__":
    os.environ.setdefault("LOOP_STATE", tempfile.mkdtemp(prefix="loop-scale-state-"))
    main()
