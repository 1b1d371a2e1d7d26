"""Campaigns of `loop optimize` for real: a scripted proposer plays patches of known worth from the pool."""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from loop.base.places import shipped
from loop.machine.machine import machine
from tests.bench.optimize_pool import PLAN, Kernel, Patch, pool
from tests.projects import LOOP
from tests.repository.test_reading import put_under_git

ONCE = (("wrong",), ("cheat",), ("hang", "fork"))
DEALT = (*[("faster",)] * 2, *[("neutral",)] * 2, ("layout",), *ONCE)
"""Kinds of one campaign's candidates, which come in any order."""
LIMIT_S = 4.0  # Limit of a proposer.
MINUTES = 2.75  # A campaign asks for no further candidate then.
STAYS = "100000"  # An argument of every process that a proposer leaves behind.
LEAVER = """
import ctypes, os, time
try:
    cuda, ctx, block = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
    codes = [cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(ctx), 0), cuda.cuCtxSetCurrent(ctx)]
    codes.append(cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(1 << 30)))
    print("holds a GiB of the GPU" if not any(codes) else f"no memory of the GPU: {codes}", flush=True)
except OSError as error:
    print(f"no GPU: {error}", flush=True)
time.sleep(100000)
"""
PROPOSER = """
import json, os, pathlib, subprocess, sys, time
dealt, brief, folder, answer = sys.argv[1:]
number = int(pathlib.Path(brief).name[:4])
patches = json.loads(pathlib.Path(dealt).read_text())
if number > len(patches):
    pathlib.Path(answer).write_text('{"done": true}')
    sys.exit()
patch = patches[number - 1]
pathlib.Path(answer).write_text(json.dumps({"idea": patch["kind"] + ": " + patch["idea"]}))
if patch["kind"] == "leaves":
    words = [sys.executable, "-I", "-c", patch["texts"][0][0], "100000"]
    child = subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE, text=True)
    print("LEFT", child.stdout.readline().strip(), flush=True)
    sys.exit()
if not patch["file"]:
    for _ in range(4):
        subprocess.Popen(["sleep", "100000"], start_new_session=True)
    if patch["kind"] == "hang":
        time.sleep(100000)
    sys.exit()
path = pathlib.Path(folder) / patch["file"]
text = path.read_text()
for old, new in patch["texts"]:
    if old not in text and new in text:  # An idea before this one was not kept.
        continue
    assert text.count(old) == 1, (old, text.count(old))
    text = text.replace(old, new)
path.write_text(text)
"""


def dealt(kernel: Kernel, seed: int) -> list[Patch]:
    """The candidates of one campaign, no patch twice."""
    draw = random.Random(f"live {seed}")
    chosen: list[Patch] = []
    for kinds in DEALT:
        eligible = [patch for patch in kernel.patches if patch.kind in kinds and patch not in chosen]
        chosen += [draw.choice(eligible)] if eligible else []
    draw.shuffle(chosen)
    return chosen


def make(kernel: Kernel, folder: Path, plans: Mapping[str, str]) -> None:
    """Write the target with these plans into a git repository of its own."""
    if kernel.copied:
        shutil.copytree(shipped("kernels") / kernel.copied, folder)
    for name, text in kernel.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "plans").mkdir(exist_ok=True)
    for name, text in plans.items():
        (folder / "plans" / f"{name}.yaml").write_text(text)
    put_under_git(folder, "start")


def session(root: Path, target: Path, words: Sequence[str]) -> tuple[dict[str, Any], float]:
    """Run one session with folders of its own; return its JSON output and its seconds."""
    folders = {f"LOOP_{name.upper()}": str(root / name) for name in ("sessions", "state", "cache")}
    env, begun = {**os.environ, **folders}, time.monotonic()
    subprocess.run([*LOOP, "trust", str(target)], env=env, capture_output=True, check=True)
    log = root / "said.log"
    with log.open("w") as errors:
        command = [*LOOP, *words, "--json"]
        child = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=errors, text=True, check=False)
    if child.returncode not in (0, 1):
        raise RuntimeError(f"exit {child.returncode}: {log.read_text()[-3000:]}{child.stdout[-3000:]}")
    reply: dict[str, Any] = json.loads(child.stdout)
    return reply, time.monotonic() - begun


def play(root: Path, kernel: Kernel, plan: str, patches: Sequence[Patch], words: Sequence[str]) -> dict[str, Any]:
    """Run a campaign whose proposer plays these patches; return `summary` and the count of processes left."""
    make(kernel, root / "target", {"live": plan})
    (root / "dealt.json").write_text(json.dumps([asdict(patch) for patch in patches]))
    (root / "propose.py").write_text(PROPOSER)
    command = f"{sys.executable} -I {root}/propose.py {root}/dealt.json {{brief}} {{workdir}} {{answer}}"
    arguments = ["optimize", str(root / "target"), "--plan", "live", "--variant", kernel.variant]
    options = ["--proposer", command, "--stall", "100", "--max-candidates", str(len(patches))]
    before = {process.pid for process in psutil.process_iter()}
    reply, seconds = session(root, root / "target", [*arguments, *options, *words])
    journal = _lines(root / "sessions", "journal")
    started = [process for process in psutil.process_iter(["cmdline"]) if process.pid not in before]
    remaining = [process for process in started if STAYS in (process.info["cmdline"] or ())]
    return {
        "kernel": kernel.name,
        "load": round(os.getloadavg()[1], 1),
        "left": len(remaining),
        **summary(reply["changes"], journal, seconds),
    }


def live(seed: int) -> dict[str, Any]:
    """Run the campaign of a seed: outcome of each candidate, confirmed figure, and where the time went."""
    kernel = pool()[seed % len(pool())]
    words = ["--proposer-minutes", str(LIMIT_S / 60), "--max-minutes", str(MINUTES), "--seed", str(seed)]
    with tempfile.TemporaryDirectory(prefix="loop-live-") as top:
        plan = PLAN.format(timed=kernel.timed, tuning="")
        result = play(Path(top), kernel, plan, dealt(kernel, seed), words)
    return {**result, "cores": machine().cores, "on": machine().processor}


def _lines(sessions: Path, name: str) -> list[dict[str, Any]]:
    (path,) = sessions.glob(f"*/{name}.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


Lines = Sequence[Mapping[str, Any]]


def summary(changes: Mapping[str, Any], journal: Lines, seconds: float) -> dict[str, Any]:
    """Each candidate with its outcome, the confirmed figure, and loop's own seconds.

    loop's own seconds leave out steps that build, check or measure, and proposers.
    """
    records = [row for row in journal if row["event"] == "finished"]
    outputs = {row["run"]: row["output"] for row in records if row["action"] in ("change.brief", "change.tune")}
    decisions = [row for row in records if row["action"] == "change.decide" and row["output"].get("tried")]
    tried = {row["run"]: row["output"]["tried"] for row in decisions}
    judged = {outputs[run].get("candidate"): decision for run, decision in tried.items()}
    outcome = []
    for proposal in changes["proposals"]:
        ended = {"outcome": proposal["ended"], "reason": proposal["said"], "gain": None}
        decision = judged.get(proposal["number"], ended)
        kind, _, idea = proposal["idea"].partition(": ")
        outcome.append({"kind": kind, "idea": idea, **{key: decision[key] for key in ended}})
    at_work = sum(row["seconds"] for row in records if row["action"] not in ("change.brief", "change.decide"))
    edges = seconds - sum(row["seconds"] for row in records)
    own = seconds - at_work - sum(row["seconds"] for row in changes["proposals"])
    confirmed = [[figure["ratio"], *figure["interval"]] for figure in changes["confirmed"]]
    return {
        "outcome": outcome,
        "seconds": round(seconds, 1),
        "own_s": round(own, 1),
        "edges_s": round(edges, 1),
        "confirmed": confirmed,
        "tuned": [judged[None]] if None in judged else [],
        "searched": [row["message"] for row in records if row["output"].get("trials")],
        "failed": [f"{row['step']}: {row['message']}" for row in records if row["status"] == "failed"],
    }


def page(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines of the page: a row a campaign, and the sums."""
    if not results:
        return []
    rows, outcomes = [], []
    for number, result in enumerate(results, 1):
        outcomes += result["outcome"]
        kinds = [outcome["kind"] for outcome in result["outcome"] if outcome["outcome"] == "kept"]
        false = len(kinds) - kinds.count("faster")
        figure = "; ".join("{:.3f}x [{:.3f}, {:.3f}]".format(*bounds) for bounds in result["confirmed"]) or "-"
        rows.append(
            f"| {number} | {result['kernel']} | {len(result['outcome'])} | {len(kinds)} | {false} | {figure} "
            f"| {result['seconds'] / 60:.1f} min | {result['own_s']:.1f} s | {result['load']} |"
        )
    proposed = Counter(outcome["kind"] for outcome in outcomes)
    won = Counter(outcome["kind"] for outcome in outcomes if outcome["outcome"] == "kept")
    shares = [f"{kind} {won[kind]} of {count}" for kind, count in proposed.items()]
    surprises = []
    for outcome in outcomes:
        if (outcome["kind"] == "faster") != (outcome["outcome"] == "kept"):
            title = "Meant to be faster, and not kept"
            if outcome["outcome"] == "kept":
                title = "Not meant to be faster, and kept"
            surprises.append(f"- {title}: {outcome['idea']}: {outcome['reason']}.")
    own, seconds, edges = (sum(result[name] for result in results) for name in ("own_s", "seconds", "edges_s"))
    machines = dict.fromkeys(f"{result['on']}, cores for a campaign: {result['cores']}" for result in results)
    hour = (own - edges) / (seconds - edges) + edges / len(results) / 3600
    return [
        "",
        "## Campaigns for real",
        "",
        "Two kernels of a page and the bundled `cpu`, each without some of its ideas. A script plays patches of",
        "the pool in `optimize_pool.py`. `Own`: what `loop` took besides steps of the gate and proposer.",
        f"On {'; '.join(machines)}.",
        "",
        "| Campaign | Kernel | Candidates | Kept | False keeps | In the end, at 99 % | Took | Own | Load |",
        "|--:|:--|--:|--:|--:|:--|--:|--:|--:|",
        *rows,
        "",
        f"- Kept by kind, as the patches are meant: {', '.join(shares)}.",
        *surprises,
        f"- Processes of proposers left: {sum(result['left'] for result in results)}.",
        f"- Of {seconds / 60:.0f} minutes `loop` itself took {own / seconds:.1%}; proposers took next to nothing.",
        f"  Of an hour it is {hour:.1%}: beginning and end take {edges / len(results):.1f} s, and come once.",
    ]
