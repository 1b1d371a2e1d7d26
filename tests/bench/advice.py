"""`make bench-advice`: thirty sessions on three targets of the tests; did advice on speed come true?

Each session measures and profiles a kernel that was edited since the one before it: it is an outcome of the
advice there. The edits are what one would try: other flags in the source, made for speed or against it. Nothing
chooses them by the advice, so that the page is about the mechanism and the rules' intervals, not about edits.
"""

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loop.learning.prediction import judged
from loop.model.index import SessionRow
from loop.model.profile import GainOutcome
from loop.profile.bottleneck import held, outcomes
from loop.store import index
from tests.bench.prediction import counted
from tests.faults.results import machine
from tests.own_targets import write_own
from tests.projects import LOOP, loop

PAGE = Path(__file__).with_name("ADVICE.md")
PLAN = """
format: 1
name: advise
title: Measure, and say what holds it back
patterns: [single-compilation-unit, measured, profiling-decision-tree]
workloads: [quick]
budget: {minutes: 1}
"""
MEASURED = """
format: 1
name: measured
number: 101
title: What there is
problem: Without it nothing can be advised.
use_when: [testing]
estimate: {minutes: 0.2}
steps:
  - {id: verify, title: Right, action: kernel.verify, budget_s: 20}
  - {id: measure, title: Speed, action: kernel.measure, budget_s: 20, with: {rounds: 2}}
"""
TARGETS: dict[str, dict[str, Any]] = {
    "softmax": {"flops": "5 * R * C", "bytes": "8 * R * C", "workloads": {"quick": [{"R": 32, "C": 512}]}},
    "rmsnorm": {"flops": "4 * N * D", "bytes": "8 * N * D", "workloads": {"quick": [{"N": 64, "D": 256}]}},
    "matmul": {
        "flops": "2 * M * N * K",
        "bytes": "4 * (M * K + K * N + M * N)",
        "workloads": {"quick": [{"M": 64, "K": 64, "N": 96}]},
    },
}
ANY_ORDER = '"associative-math", "no-signed-zeros", "no-trapping-math"'
EDITS = {
    "as it was written": "",
    "vectorised": '#pragma GCC optimize("O3")',
    "for AVX2": '#pragma GCC optimize("O3")\n#pragma GCC target("avx2,fma")',
    "sums in any order": f'#pragma GCC optimize("O3", {ANY_ORDER})\n#pragma GCC target("avx2,fma")',
    "unrolled": f'#pragma GCC optimize("O3", "unroll-loops", {ANY_ORDER})\n#pragma GCC target("avx2,fma")',
    "small": '#pragma GCC optimize("Os")',
    "vectorised again": '#pragma GCC optimize("O2", "tree-vectorize")',
    "hardly optimised": '#pragma GCC optimize("O1")',
    "for AVX": '#pragma GCC optimize("O3")\n#pragma GCC target("avx")',
    "any order without AVX": f'#pragma GCC optimize("O3", {ANY_ORDER})',
}
INCLUDE = '#include "loop_kernel.h"\n'


def main() -> None:
    """Run every session, and write the page."""
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        os.environ |= {"LOOP_SESSIONS": f"{name}/sessions", "LOOP_STATE": f"{name}/state"}
        for target, formulas in TARGETS.items():
            run(top, target, formulas)
            PAGE.write_text("\n".join(page(index.rows(top / "sessions"))))


def run(top: Path, name: str, fields: dict[str, Any]) -> None:
    """One session for each edit of a target."""
    folder = write_own(top / name, name, **fields)
    for kind, file, text in (("plans", "advise", PLAN), ("patterns", "measured", MEASURED)):
        (folder / kind).mkdir()
        (folder / kind / f"{file}.yaml").write_text(text)
    source = folder / f"{name}.cpp"
    written = source.read_text()
    assert 0 == loop("trust", str(folder)).returncode
    for title, flags in EDITS.items():
        source.write_text(written.replace(INCLUDE, f"{INCLUDE}{flags}\n// {title}\n"))
        words = ("run", "session", "advise", "--variant", "in_c", "--target", str(folder))
        done = subprocess.run([*LOOP, *words], capture_output=True, check=False)
        print(f"{name}: {title}: exit code {done.returncode}", flush=True)


def page(rows: Sequence[SessionRow]) -> list[str]:
    """Hit rates by leaf, then every outcome."""
    found = outcomes(rows)
    times = [known.low_s <= seconds <= known.high_s for known, seconds in judged(rows)]
    return [
        "# Advice and what came of it",
        "",
        f"`make bench-advice` on {machine()}: {len(rows)} sessions on {len(TARGETS)} targets of the tests.",
        f"{sum(len(row.promises) for row in rows)} promised a gain, and {len(found)} of these have an outcome.",
        "The edits are fixed; nobody followed the advice. So the rates are those of an edit that was not advised.",
        "",
        f"- Inside the interval that the rule states: {_share(found)}",
        f"- Time of a session inside its 80 % interval: {counted(times)}",
        "",
        "| Leaf | Outcomes inside what it states, with the 90 % interval of the share |",
        "|---|---|",
        *(f"| {leaf} | {_share(some)} |" for leaf, some in _by_advice(found).items()),
        "",
        "| Session | Leaf | Stated, and what came of it |",
        "|---|---|---|",
        *(f"| {number} | {one.promise.advice} | {held(one)} |" for number, one in _numbered(found, rows)),
        "",
    ]


def _numbered(found: Sequence[GainOutcome], rows: Sequence[SessionRow]) -> list[tuple[str, GainOutcome]]:
    """Outcomes with the target and the number of their session."""
    places = {row.id: f"{row.target} {number % len(EDITS) + 1}" for number, row in enumerate(rows)}
    return [(places[one.session], one) for one in found]


def _by_advice(found: Sequence[GainOutcome]) -> dict[str, list[GainOutcome]]:
    """Outcomes by the name of the advice."""
    names = dict.fromkeys(one.promise.advice for one in found)
    return {name: [one for one in found if one.promise.advice == name] for name in names}


def _share(found: Sequence[GainOutcome]) -> str:
    return counted([one.side == "inside" for one in found])


if __name__ == "__main__":
    main()
