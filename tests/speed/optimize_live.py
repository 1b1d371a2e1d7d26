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
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from loop.base.places import shipped
from tests.projects import LOOP, loop
from tests.speed.optimize_pool import PLAN, Kernel, Patch, pool

ONCE = (("wrong",), ("cheat",), ("hang", "fork"))
DEALT = (*[("faster",)] * 2, *[("neutral",)] * 2, ("layout",), *ONCE)
"""Kinds of one campaign's candidates, which come in any order."""
BUILDS = re.compile("reading the sources|compiling|loading")
LIMIT_S = 4.0
"""What a proposer may take."""
MINUTES = 2.75
"""A campaign asks for no further candidate then: what it judges then, and the last figure, end within four."""
SHARED = Path(tempfile.gettempdir()) / "loop-live-cache"
"""Builds and locks of all campaigns: those that run at the same time take turns to measure."""

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
if not patch["file"]:
    for _ in range(4):
        subprocess.Popen(["sleep", "100000"], start_new_session=True)
    if patch["kind"] == "hang":
        time.sleep(100000)
    sys.exit()
path = pathlib.Path(folder) / patch["file"]
text = path.read_text()
for old, new in patch["texts"]:
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


def make(kernel: Kernel, folder: Path) -> None:
    """The target in a repository of its own, as a user has it."""
    if kernel.copied:
        shutil.copytree(shipped("kernels") / kernel.copied, folder)
    for name, text in kernel.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "plans").mkdir(exist_ok=True)
    (folder / "plans" / "live.yaml").write_text(PLAN.format(timed=kernel.timed))
    who = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
    for words in (("init", "-q"), ("add", "-A"), (*who, "commit", "-q", "-m", "start")):
        subprocess.run(["git", *words], cwd=folder, check=True)


def live(seed: int) -> dict[str, Any]:
    """One campaign: what became of each kind, the figure at the end, and where the time went."""
    kernel = pool()[seed % len(pool())]
    with tempfile.TemporaryDirectory(prefix="loop-live-") as top:
        root = Path(top)
        make(kernel, root / "target")
        patches = dealt(kernel, seed)
        (root / "dealt.json").write_text(json.dumps([asdict(one) for one in patches]))
        (root / "propose.py").write_text(PROPOSER)
        env = {
            **os.environ,
            **{f"LOOP_{name.upper()}": str(root / name) for name in ("sessions", "state")},
            "LOOP_CACHE": str(SHARED),
        }
        loop("trust", str(root / "target"), **env)
        command = f"{sys.executable} -I {root}/propose.py {root}/dealt.json {{brief}} {{workdir}} {{answer}}"
        words = [
            "optimize", str(root / "target"), "--plan", "live", "--variant", kernel.variant, "--proposer", command,
            "--stall", "100", "--max-candidates", str(len(patches)), "--proposer-minutes", str(LIMIT_S / 60),
            "--max-minutes", str(MINUTES),
            "--seed", str(seed), "--json",
        ]  # fmt: skip
        before, begun = {one.pid for one in psutil.process_iter()}, time.monotonic()
        done = subprocess.run([*LOOP, *words], env=env, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - begun
        if done.returncode not in (0, 1):
            raise RuntimeError(f"exit {done.returncode}: {done.stderr[-3000:]}")
        said = json.loads(done.stdout)
        journal, ticks = (_lines(root / "sessions", name) for name in ("journal", "ticks"))
    left = [one for one in psutil.process_iter(["cmdline"]) if one.pid not in before]
    stayed = sum("100000" in (one.info["cmdline"] or ()) for one in left)
    return {
        "kernel": kernel.name,
        "load": round(os.getloadavg()[1], 1),
        "left": stayed,
        **summary(said["changes"], journal, ticks, seconds),
    }


def _lines(sessions: Path, name: str) -> list[dict[str, Any]]:
    (path,) = sessions.glob(f"*/{name}.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


Lines = Sequence[Mapping[str, Any]]


def summary(changes: Mapping[str, Any], journal: Lines, ticks: Lines, seconds: float) -> dict[str, Any]:
    """Each candidate with its outcome, the confirmed figure, and loop's own seconds.

    loop's own: all but the steps that build, check and measure, the proposers, and the builds in a brief.
    """
    records = [one for one in journal if one["event"] == "finished"]
    judged = iter(changes["judged"])
    outcome = []
    for one in changes["proposals"]:
        found = next(judged) if one["ended"] == "edited" else {"outcome": one["ended"], "reason": one["said"]}
        kind, _, idea = one["idea"].partition(": ")
        outcome.append({"kind": kind, "idea": idea, "outcome": found["outcome"], "reason": found["reason"]})
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
        won = [each["kind"] for each in one["outcome"] if each["outcome"] == "kept"]
        false = sum(kind != "faster" for kind in won)
        figure = "; ".join("{:.3f}x [{:.3f}, {:.3f}]".format(*found) for found in one["confirmed"]) or "-"
        rows.append(
            f"| {number} | {one['kernel']} | {len(one['outcome'])} | {len(won)} | {false} | {figure} "
            f"| {one['seconds'] / 60:.1f} min | {one['own_s']:.1f} s | {one['load']} |"
        )
    kinds = dict.fromkeys(one["kind"] for one in every)
    kept = [f"{kind} {_kept(every, kind)} of {_proposed(every, kind)}" for kind in kinds]
    own, seconds, edges = (sum(one[name] for one in results) for name in ("own_s", "seconds", "edges_s"))
    hour = (own - edges) / (seconds - edges) + edges / len(results) / 3600
    return [
        "",
        "## Campaigns for real",
        "",
        "Two kernels of a page and the bundled `cpu`, each without some of its ideas. A script plays patches of",
        "the pool in `optimize_pool.py`. `Own`: what `loop` took besides builds, checks, measuring and proposer.",
        "",
        "| Campaign | Kernel | Candidates | Kept | False keeps | In the end, at 99 % | Took | Own | Load |",
        "|--:|:--|--:|--:|--:|:--|--:|--:|--:|",
        *rows,
        "",
        f"- Kept by kind, as the patches are meant: {', '.join(kept)}.",
        *(f"- Meant to be faster, and not kept: {one['idea']}: {one['reason']}." for one in _missed(every)),
        f"- Processes of proposers left: {sum(one['left'] for one in results)}.",
        f"- Of {seconds / 60:.0f} minutes `loop` itself took {own / seconds:.1%}; proposers took next to nothing.",
        f"  Of an hour it is {hour:.1%}: beginning and end take {edges / len(results):.1f} s, and come once.",
    ]


def _missed(every: Lines) -> list[Mapping[str, Any]]:
    return [one for one in every if one["kind"] == "faster" and one["outcome"] != "kept"]


def _kept(every: Sequence[Mapping[str, Any]], kind: str) -> int:
    return sum(one["kind"] == kind and one["outcome"] == "kept" for one in every)


def _proposed(every: Sequence[Mapping[str, Any]], kind: str) -> int:
    return sum(one["kind"] == kind for one in every)
