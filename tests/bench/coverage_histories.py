"""Histories with one wrong and one slow commit: does bisection name both, as a command and within a session?

Each is a repository of one C kernel. The wrong commit is wrong everywhere, or on tails in the set `edges` alone.
The checkout is clean, has an edited note, or has an edited comment in the kernel.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.rig import Rig
from tests.repository.test_reading import commit, git

COMMITS = 20
FUNCTIONS = {
    "twice": ("2.0f * x[i]", "2 * x"),
    "square": ("x[i] * x[i]", "x * x"),
    "cube": ("x[i] * x[i] * x[i]", "x ** 3"),
    "negate": ("-x[i]", "-x"),
    "relu": ("x[i] > 0 ? x[i] : 0.0f", "x.clamp(min=0)"),
    "leaky": ("x[i] > 0 ? x[i] : 0.1f * x[i]", "x.where(x > 0, 0.1 * x)"),
    "absolute": ("x[i] < 0 ? -x[i] : x[i]", "x.abs()"),
    "shift": ("x[i] + 3.0f", "x + 3"),
    "affine": ("3.0f * x[i] - 1.0f", "3 * x - 1"),
    "hard_tanh": ("x[i] > 1 ? 1.0f : x[i] < -1 ? -1.0f : x[i]", "x.clamp(-1, 1)"),
    "reciprocal": ("1.0f / (1.0f + x[i] * x[i])", "1 / (1 + x * x)"),
    "polynomial": ("1.0f + x[i] * (0.5f + x[i] * 0.25f)", "1 + x * (0.5 + x * 0.25)"),
}
"""Name to the kernel's expression of an element, and the same expression of a tensor."""
DIRTY = ("", "notes", "kernel")  # The file with uncommitted changes, in turn.
MANIFEST = """\
format: 2
name: {name}
function: {name}
signature: {{inputs: {{x: N}}, outputs: {{output: N}}}}
reference: {{python: "ref:reference"}}
baseline: {{python: "ref:baseline"}}
tolerance: {{float32: {{atol: 1.0e-5, rtol: 1.0e-5}}}}
dtypes: {{cpu: float32}}
workloads: {{quick: [{{N: 16384}}], edges: [{{N: 1}}, {{N: 7}}, {{N: 1027}}]}}
variants:
  c: {{kind: c_abi, device: cpu, sources: [kernel.c], entry: kernel, build: {{compiler: gcc, flags: [-O2]}}}}
"""
KERNEL = """\
#include "loop_kernel.h"
LOOP_EXPORT const char *loop_error(int code) {{ (void)code; return "float32"; }}
LOOP_EXPORT int kernel(const LoopTensor *in, LoopTensor *out, const double *attributes, void *stream) {{
  (void)attributes, (void)stream;
  const int64_t count = in[0].sizes[0], step = in[0].strides[0];
  const float *data = (const float *)in[0].data;
  for (int64_t at = 0; at < {end}; at++) {{
    for (volatile int wait = 0; wait < {wait}; wait++) {{}}
    const float x[1] = {{data[at * step]}};
    const int i = 0;
    ((float *)out[0].data)[at] = {value};
  }}
  return 0; // {note}
}}
"""


@dataclass(frozen=True)
class History:
    """A repository, and the truth about its commits."""

    name: str
    folder: Path
    """The target's folder, inside the repository."""
    commits: tuple[str, ...]
    wrong: int
    """Number of the commit that made it wrong. If the slow commit comes later, the next commit mends it."""
    slow: int
    """Number of the commit that made it slow."""
    edge: bool
    """Whether it is wrong on the edges alone."""
    dirty: str

    @property
    def wrong_at(self) -> int:
        """A commit at which it is wrong."""
        return COMMITS - 1 if self.slow < self.wrong else self.wrong

    @property
    def slow_at(self) -> int:
        """The last commit at which it is slow and right."""
        return self.wrong - 1 if self.slow < self.wrong else COMMITS - 1


def make_history(root: Path, number: int) -> History:
    """The history of that number; the first commit is good."""
    name = list(FUNCTIONS)[number % len(FUNCTIONS)]
    draw, value = random.Random(number), FUNCTIONS[name][0]
    slow, wrong = sorted(draw.sample(range(2, COMMITS - 2, 2), 2))
    slow, wrong = (slow, wrong) if number % 2 == 0 else (wrong, slow)
    edge, folder = number % 4 in (1, 2), root / f"{number}-{name}" / "target"
    folder.mkdir(parents=True)
    (folder / "target.yaml").write_text(MANIFEST.format(name=name))
    (folder / ".gitignore").write_text("sessions/\n__pycache__/\n")
    text = "def {}(x):\n    return {}\n\n"
    (folder / "ref.py").write_text(
        "".join(text.format(function, FUNCTIONS[name][1]) for function in ("reference", "baseline"))
    )
    git(folder.parent, "init", "-q", "-b", "main")
    commits = []
    for at in range(COMMITS):
        is_wrong = at >= wrong if slow < wrong else at == wrong
        end = "count - (count % 16 == 3)" if is_wrong and edge else "count"
        body = f"({value}) * 1.01f" if is_wrong and not edge else value
        note = f"as of {at}" if at % 3 or at in (slow, wrong) else f"as of {at - 1}"
        source = KERNEL.format(end=end, value=body, wait=40 if at >= slow else 2, note=note)
        (folder / "kernel.c").write_text(source)
        (folder / "notes.md").write_text(f"Note {at}.\n")
        commits.append(commit(folder.parent, f"Work {at}"))
    return History(name, folder, tuple(commits), wrong, slow, edge, DIRTY[number % len(DIRTY)])


def check_out(history: History, number: int) -> None:
    """Check out a commit, and write the uncommitted change on top."""
    git(history.folder.parent, "checkout", "-q", "--force", history.commits[number])
    if history.dirty == "notes":
        (history.folder / "notes.md").write_text("not committed\n")
    if history.dirty == "kernel":
        kernel = history.folder / "kernel.c"
        kernel.write_text(kernel.read_text().replace("as of", "edited, as of"))


def rows(rig: Rig) -> Iterator[dict[str, Any]]:
    """A row for each history: whether each of both commits was named by hand, and in a session."""
    folder = rig.folder / "histories"
    for number in range(len(FUNCTIONS)):
        history = make_history(folder, number)
        rig.run("trust", str(history.folder))
        sessions = str(folder / f"sessions-{history.name}")

        def say(*words: str, target: str = str(history.folder), place: str = sessions) -> str:
            return rig.run(*words, "--target", target, LOOP_SESSIONS=place).text

        verdicts = dict(_verdicts(history, say))
        changed = git(history.folder.parent, "status", "--porcelain").splitlines()
        facts = {"function": history.name, "wrong on": "edges" if history.edge else "all"}
        is_kept = len(changed) == bool(history.dirty)
        yield {**facts, "dirty": history.dirty, **verdicts, "checkout kept": is_kept}


def _verdicts(history: History, say: Callable[..., str]) -> Iterator[tuple[str, bool]]:
    """For each search its title, and whether it named the culprit and no other commit."""
    check_out(history, 0)
    say("run", "session", "quick", "--variant", "c")
    searches = (
        ("wrong", "correctness", history.wrong_at, history.wrong),
        ("slow", "latency", history.slow_at, history.slow),
    )
    for kind, metric, at, culprit in searches:
        check_out(history, at)
        by_hand = say("bisect", "--good", history.commits[0], "--variant", "c", "--metric", metric)
        yield f"{kind}, by hand", _names(by_hand, history, culprit)
        in_session = say("run", "session", "quick", "--variant", "c")
        yield f"{kind}, in a session", _names(in_session, history, culprit)


def _names(text: str, history: History, culprit: int) -> bool:
    """Whether the culprit is named, and no other commit is."""
    verdicts = [line for line in text.splitlines() if "culprit" in line or "several" in line]
    blamed = "\n".join(verdicts)
    commits = [name for name in history.commits if name[:12] in blamed]
    return commits == [history.commits[culprit]]
