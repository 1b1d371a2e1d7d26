"""Campaigns of `loop optimize` for real: a scripted proposer plays patches of known worth from the pool."""

import json
import os
import random
import re
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
BUILDS = re.compile("reading the sources|compiling|loading")
LIMIT_S = 4.0  # What a proposer may take.
MINUTES = 2.75  # A campaign asks for no further candidate then.
STAYS = "100000"  # An argument of every process that a proposer leaves behind.
LEAVER = """
import ctypes, os, time
try:
    cuda, made, at = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
    said = [cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(made), 0), cuda.cuCtxSetCurrent(made)]
    said.append(cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(1 << 30)))
    print("holds a GiB of the GPU" if not any(said) else f"no memory of the GPU: {said}", flush=True)
except OSError as error:
    print(f"no GPU: {error}", flush=True)
time.sleep(100000)
"""
PROPOSER = """
import json, os, pathlib, subprocess, sys, time
dealt, brief, folder, answer = sys.argv[1:]
number = int(pathlib.Path(brief).name[:4])
every = json.loads(pathlib.Path(dealt).read_text())
if number > len(every):
    pathlib.Path(answer).write_text('{"done": true}')
    sys.exit()
patch = every[number - 1]
pathlib.Path(answer).write_text(json.dumps({"idea": patch["kind"] + ": " + patch["idea"]}))
if patch["kind"] == "leaves":
    words = [sys.executable, "-I", "-c", patch["texts"][0][0], "100000"]
    left = subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE, text=True)
    print("LEFT", left.stdout.readline().strip(), flush=True)
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
    found: list[Patch] = []
    for kinds in DEALT:
        left = [one for one in kernel.patches if one.kind in kinds and one not in found]
        found += [draw.choice(left)] if left else []
    draw.shuffle(found)
    return found


def make(kernel: Kernel, folder: Path, plans: Mapping[str, str]) -> None:
    """The target in a repository of its own, as a user has it, with these plans."""
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
    """Run one session with folders of its own: what it printed as JSON, and the seconds it took."""
    own = {f"LOOP_{name.upper()}": str(root / name) for name in ("sessions", "state", "cache")}
    env, begun = {**os.environ, **own}, time.monotonic()
    subprocess.run([*LOOP, "trust", str(target)], env=env, capture_output=True, check=True)
    log = root / "said.log"
    with log.open("w") as errors:
        asked = [*LOOP, *words, "--json"]
        done = subprocess.run(asked, env=env, stdout=subprocess.PIPE, stderr=errors, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"exit {done.returncode}: {log.read_text()[-3000:]}{done.stdout[-3000:]}")
    said: dict[str, Any] = json.loads(done.stdout)
    return said, time.monotonic() - begun


def play(root: Path, kernel: Kernel, plan: str, patches: Sequence[Patch], words: Sequence[str]) -> dict[str, Any]:
    """A campaign in which a script plays these patches: `summary`, and what is left of its processes."""
    make(kernel, root / "target", {"live": plan})
    (root / "dealt.json").write_text(json.dumps([asdict(one) for one in patches]))
    (root / "propose.py").write_text(PROPOSER)
    command = f"{sys.executable} -I {root}/propose.py {root}/dealt.json {{brief}} {{workdir}} {{answer}}"
    named = ["optimize", str(root / "target"), "--plan", "live", "--variant", kernel.variant]
    asked = ["--proposer", command, "--stall", "100", "--max-candidates", str(len(patches))]
    before = {one.pid for one in psutil.process_iter()}
    said, seconds = session(root, root / "target", [*named, *asked, *words])
    journal, ticks = (_lines(root / "sessions", name) for name in ("journal", "ticks"))
    left = [one for one in psutil.process_iter(["cmdline"]) if one.pid not in before]
    here = [one for one in left if STAYS in (one.info["cmdline"] or ())]
    return {
        "kernel": kernel.name,
        "load": round(os.getloadavg()[1], 1),
        "left": len(here),
        **summary(said["changes"], journal, ticks, seconds),
    }


def live(seed: int) -> dict[str, Any]:
    """One campaign: what became of each kind, the figure at the end, and where the time went."""
    kernel = pool()[seed % len(pool())]
    words = ["--proposer-minutes", str(LIMIT_S / 60), "--max-minutes", str(MINUTES), "--seed", str(seed)]
    with tempfile.TemporaryDirectory(prefix="loop-live-") as top:
        plan = PLAN.format(timed=kernel.timed, tuning="")
        found = play(Path(top), kernel, plan, dealt(kernel, seed), words)
    return {**found, "cores": machine().cores, "on": machine().processor}


def _lines(sessions: Path, name: str) -> list[dict[str, Any]]:
    (path,) = sessions.glob(f"*/{name}.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


Lines = Sequence[Mapping[str, Any]]


def summary(changes: Mapping[str, Any], journal: Lines, ticks: Lines, seconds: float) -> dict[str, Any]:
    """Each candidate with its outcome, the confirmed figure, and loop's own seconds.

    loop's own: all but the steps that build, check and measure, the proposers, and the builds in a brief.
    """
    records = [one for one in journal if one["event"] == "finished"]
    asked = {one["run"]: one["output"] for one in records if one["action"] in ("change.brief", "change.tune")}
    decided = [one for one in records if one["action"] == "change.decide" and one["output"].get("tried")]
    tried = {one["run"]: one["output"]["tried"] for one in decided}
    judged = {asked[run].get("candidate"): one for run, one in tried.items()}
    outcome = []
    for one in changes["proposals"]:
        ended = {"outcome": one["ended"], "reason": one["said"], "gain": None}
        found = judged.get(one["number"], ended)
        kind, _, idea = one["idea"].partition(": ")
        outcome.append({"kind": kind, "idea": idea, **{key: found[key] for key in ended}})
    at_work = sum(one["seconds"] for one in records if one["action"] not in ("change.brief", "change.decide"))
    edges = seconds - sum(one["seconds"] for one in records)
    own = seconds - at_work - _in_builds(records, ticks) - sum(one["seconds"] for one in changes["proposals"])
    confirmed = [[one["ratio"], *one["interval"]] for one in changes["confirmed"]]
    return {
        "outcome": outcome,
        "seconds": round(seconds, 1),
        "own_s": round(own, 1),
        "edges_s": round(edges, 1),
        "confirmed": confirmed,
        "tuned": [judged[None]] if None in judged else [],
        "searched": [one["message"] for one in records if one["output"].get("trials")],
        "failed": [f"{one['step']}: {one['message']}" for one in records if one["status"] == "failed"],
    }


def _in_builds(records: Lines, ticks: Lines) -> float:
    """Seconds in which briefs had the compiler read and compile, and an edit loaded: until the next note."""
    total = 0.0
    for one in records:
        if one["action"] == "change.brief":
            at = [tick for tick in ticks if all(tick[key] == one[key] for key in ("run", "step", "attempt"))]
            ends = [*(tick["seconds"] for tick in at[1:]), one["seconds"]]
            total += sum(end - t["seconds"] for t, end in zip(at, ends, strict=False) if BUILDS.match(t["note"]))
    return total


def page(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines of the page: a row a campaign, and the sums."""
    if not results:
        return []
    rows, every = [], []
    for number, one in enumerate(results, 1):
        every += one["outcome"]
        kinds = [each["kind"] for each in one["outcome"] if each["outcome"] == "kept"]
        false = len(kinds) - kinds.count("faster")
        figure = "; ".join("{:.3f}x [{:.3f}, {:.3f}]".format(*found) for found in one["confirmed"]) or "-"
        rows.append(
            f"| {number} | {one['kernel']} | {len(one['outcome'])} | {len(kinds)} | {false} | {figure} "
            f"| {one['seconds'] / 60:.1f} min | {one['own_s']:.1f} s | {one['load']} |"
        )
    proposed = Counter(one["kind"] for one in every)
    won = Counter(one["kind"] for one in every if one["outcome"] == "kept")
    kept = [f"{kind} {won[kind]} of {count}" for kind, count in proposed.items()]
    surprises = []
    for one in every:
        if (one["kind"] == "faster") != (one["outcome"] == "kept"):
            meant = "Meant to be faster, and not kept"
            if one["outcome"] == "kept":
                meant = "Not meant to be faster, and kept"
            surprises.append(f"- {meant}: {one['idea']}: {one['reason']}.")
    own, seconds, edges = (sum(one[name] for one in results) for name in ("own_s", "seconds", "edges_s"))
    where = dict.fromkeys(f"{one['on']}, cores for a campaign: {one['cores']}" for one in results)
    hour = (own - edges) / (seconds - edges) + edges / len(results) / 3600
    return [
        "",
        "## Campaigns for real",
        "",
        "Two kernels of a page and the bundled `cpu`, each without some of its ideas. A script plays patches of",
        "the pool in `optimize_pool.py`. `Own`: what `loop` took besides builds, checks, measuring and proposer.",
        f"On {'; '.join(where)}.",
        "",
        "| Campaign | Kernel | Candidates | Kept | False keeps | In the end, at 99 % | Took | Own | Load |",
        "|--:|:--|--:|--:|--:|:--|--:|--:|--:|",
        *rows,
        "",
        f"- Kept by kind, as the patches are meant: {', '.join(kept)}.",
        *surprises,
        f"- Processes of proposers left: {sum(one['left'] for one in results)}.",
        f"- Of {seconds / 60:.0f} minutes `loop` itself took {own / seconds:.1%}; proposers took next to nothing.",
        f"  Of an hour it is {hour:.1%}: beginning and end take {edges / len(results):.1f} s, and come once.",
    ]
