"""`make bench-regressions`: regressions in a repository of the bundled target; does a plain session name them?

Each case begins with a good session. Five commits follow, and the third has the regression. Then one
`loop run session quick` has to name that commit, by itself. `--only CASE` runs one case and writes no page.
"""

import argparse
import datetime
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from loop.base.documents import write_atomic
from loop.model.bisect import BisectOutput
from loop.model.output import outputs_of
from loop.store.sessions import list_sessions
from tests.bench.rig import Rig
from tests.conftest import ROOT
from tests.faults.results import machine
from tests.repository.test_reading import commit, git, put_under_git

PAGE = Path(__file__).with_name("REGRESSIONS.md")
LIMIT_S = 60.0  # Within which a commit has to be named, on two quiet cores.
FA1 = "cuda/fa1.cuh"
STAIRCASE = "    score_staircase<N>(block, keys, 0, depth_, scores);\n"
CHAIN = "{ return std::max<int64_t>(32, (depth + 1) / 2); }"
Edit = Callable[[Path], None]  # Changes files below a target's folder.


def replaced(file: str, old: str, new: str) -> Edit:
    """An edit that replaces a text, which occurs once in the file."""

    def edit(target: Path) -> None:
        text = (target / file).read_text()
        assert text.count(old) == 1, f"{file}: {old!r} is there {text.count(old)} times"
        (target / file).write_text(text.replace(old, new))

    return edit


def added(text: str, file: str = "cpu/vector.h") -> Edit:
    """An edit that appends text to a file; by default one that every other includes."""

    def edit(target: Path) -> None:
        with (target / file).open("a") as source:
            source.write(text)

    return edit


def scored_again(percent: int) -> Edit:
    """An edit: so many per cent of a tile's keys are scored twice. Scores are nearly half of the work."""
    head = f"    Keys head = keys;\n    head.count = (keys.count * {percent} + 99) / 100;\n"
    scores = f"{head}    score_staircase<N>(block, head, 0, depth_, scores);\n{STAIRCASE}"
    return replaced("cpu/attention.h", STAIRCASE, scores)


@dataclass(frozen=True)
class Case:
    """One regression."""

    kind: str
    """`wrong` or `slower`: what the edit makes the kernel."""
    variant: str
    title: str
    edit: Edit

    @property
    def words(self) -> tuple[str, ...]:
        """The session's command line; a variant that a session does not measure by default is named."""
        return ("run", "session", "quick", *(() if self.variant == "cpu" else ("--variant", self.variant)))

    @property
    def source(self) -> str:
        """A file of the variant."""
        return "cpu/vector.h" if self.variant == "cpu" else f"cuda/{self.variant}.cu"


CHAINS = "{ return std::max<int64_t>(7, (depth + 1) / 9); }"
OPTIMISED = "flags:\n        [-std=c++17, -O3"
SUM, LATER = "total += weight * sums[i];", "block.first + 1 +"
WRONG = {
    "mask": ("cpu", "mask a key late", replaced("cpu/attention.h", LATER, "block.first + 2 +")),
    "sums": ("split_k", "row sums counted twice", replaced("cuda/split_k.cuh", SUM, f"{SUM} {SUM}")),
    "scale": ("fa1", "no scale", replaced(FA1, "logits[r] * scale_log2", "logits[r] * 1.442695f")),
}
SLOWER = {
    "scores": ("cpu", "15 % of the scores worked out twice", scored_again(15)),
    "chains": ("cpu", "short chains of products", replaced("cpu/products.h", CHAIN, CHAINS)),
    "flags": ("cpu", "-O1 in the recipe", replaced("target.yaml", OPTIMISED, OPTIMISED.replace("-O3", "-O1"))),
}
CASES = {
    name: Case(kind, variant, title, edit)
    for kind, cases in (("wrong", WRONG), ("slower", SLOWER))
    for name, (variant, title, edit) in cases.items()
}


@dataclass(frozen=True)
class Result:
    """The result of one case."""

    right: bool
    """Whether it named that commit, and no other."""
    seconds: float
    """How long the session took."""
    message: str


def try_case(case: Case, folder: Path) -> Result:
    """Run a good session in a new repository, commit the regression, and run a session that should name it."""
    target = folder / "attention"
    shutil.copytree(ROOT / "kernels" / "attention", target)
    put_under_git(target, "as it was")
    words = (*case.words, "--target", str(target))
    rig = Rig(folder, "sessions")
    rig.run("trust", str(target))
    if rig.run(*words).code:
        return Result(right=False, seconds=0.0, message="the session before it did not pass")
    harmless = (added("\nMore is to come.\n", "README.md"), added("\n// Harmless.\n", case.source))
    commits = []
    for edit in (*harmless, case.edit, *harmless):
        edit(target)
        commits.append(commit(target, case.title if edit is case.edit else "harmless"))
    culprit = commits[len(harmless)]
    seconds = rig.run("trust", str(target)).seconds + rig.run(*words).seconds
    last = list_sessions(folder / "sessions")[-1]
    outputs = outputs_of(last.finished(), BisectOutput)
    culprits = [blamed.commit for output in outputs if output.answer for blamed in output.answer.culprits]
    reported = last.report.is_file() and culprit[:12] in last.report.read_text()
    message = outputs[-1].message if outputs else "no search"
    return Result(right=culprits == [culprit] and reported, seconds=seconds, message=message)


def main(words: Sequence[str] | None = None) -> None:
    """Try the cases, and write the page if all were tried."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=[*CASES], help="one case")
    only = parser.parse_args(words).only
    rows, count = [], 0
    for name, case in CASES.items():
        if only not in (None, name):
            continue
        with tempfile.TemporaryDirectory() as folder:
            result = try_case(case, Path(folder))
        is_named = result.right and result.seconds <= LIMIT_S
        count += is_named
        cells = f"{case.title} | {result.seconds:.0f} | {'yes' if is_named else 'no'}"
        rows.append(f"| `{name}` | `{case.variant}` | {case.kind} | {cells} |")
        print(rows[-1], f"\n  {result.message}", flush=True)
    if only is None:
        write_atomic(PAGE, "\n".join([*_head(count), *rows, ""]))


def _head(named: int) -> list[str]:
    revision = git(ROOT, "rev-parse", "--short=12", "HEAD")
    return [
        "# Regressions named",
        "",
        f"`make bench-regressions` on {machine()}, {datetime.datetime.now(datetime.UTC):%Y-%m-%d}, at {revision}.",
        "Each is one of five commits after a good session. One plain `loop run session quick` follows.",
        f"It named the commit within {LIMIT_S:.0f} s in {named} of {len(CASES)} cases.",
        "",
        "| Case | Kernel | Kind | Regression | Seconds | Named |",
        "|:-----|:-------|:-----|:-----------|--------:|:------|",
    ]


if __name__ == "__main__":
    main()
