"""Which entry points report wrong kernels: wrong and right kernels of twelve functions by every door; COVERAGE.md.

    python -m tests.bench.coverage                # all: an hour and a half on two cores
    python -m tests.bench.coverage --parts init histories
    python -m tests.bench.coverage --only softmax --doors session quick    # stores no page

Each wrong kernel has one mistake that a quick look misses. A door has found it if it ends with an error, or names
beside its verdict the set of workloads that would find it.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import anyio
import yaml

from tests.bench import coverage_histories, coverage_init
from tests.bench.rig import Finished, Rig
from tests.driving.clients import Agent, drive
from tests.repository.test_reading import commit, git
from tests.targets import compiled, importable

HERE = Path(__file__).parent
CORPUS = HERE / "coverage_corpus"
PAGE = HERE / "COVERAGE.md"
RIGHT = {"fine": {}, "lazy": {"LAZY": 1}, "tunes": {"TUNES_S": 2}}
"""Macros of right kernels: none, a table built by the first call, and a slow first call."""
SLOW = {"softmax": 60, "rope": 45}  # Seconds of a self-tuning first call, by function.


@dataclass(frozen=True)
class Function:
    """A function of the corpus: parts of its manifest, and the mistakes of its five wrong kernels."""

    signature: dict[str, Any]
    workloads: dict[str, list[dict[str, Any]]]
    mistakes: tuple[str, ...]
    """Kind of each mistake; the macro WRONG counts from 1."""
    generator: str = ""
    python: bool = False
    words: tuple[str, ...] = ()
    """For each mistake: a pattern that names its cause or its rule."""
    extra: dict[str, Any] = field(default_factory=dict)


TAIL, STATE, RACE, IGNORED = (
    r"(?i)%|multiple|tail|last",
    r"(?i)between calls|earlier call|state|first call|later call|values? of",
    r"(?i)race|thread",
    r"(?i)ignor|as if|never read|wrong where (eps|temperature|base|window|spread) is",
)
LAYOUT = r"(?i)stride|layout|transposed|broadcast"
SIZE_ONE = r"N ?(==|=|<) ?[12]\b|size one|one row|N1\b"
WIDE = r"(?i)overflow|spread|infinit|large"
EMPTY = r"(?i)empty|K ?= ?0|K0\b|not written"
FUNCTIONS: dict[str, Function] = {
    "layernorm_grad": Function(
        signature={
            "inputs": {"x": "N D", "g": "N D"},
            "outputs": {"dx": "N D", "dgamma": "D"},
            "attributes": {"eps": {"kind": "number", "default": 1e-5}},
        },
        workloads={
            "quick": [{"N": 32, "D": 64}],
            "edges": [{"N": [1, 3], "D": [1, 9, 100]}, {"N": 300, "D": 257, "eps": 0.5}, {"N": 1000, "D": 128}],
        },
        mistakes=("race", "tail", "state between calls", "ignored argument", "size one"),
        words=(RACE, TAIL, STATE, IGNORED, SIZE_ONE),
    ),
    "depthwise": Function(
        signature={"inputs": {"x": "B C L", "w": "C K"}, "outputs": {"output": "B C L"}},
        workloads={
            "quick": [{"B": 2, "C": 8, "L": 64, "K": 3}],
            "edges": [{"B": 1, "C": [1, 5], "L": [1, 13, 100], "K": [1, 5]}, {"B": 4, "C": 16, "L": 777, "K": 7}],
        },
        mistakes=("tail", "border", "layout", "state between calls", "race"),
        words=(TAIL, r"(?i)last|border|edge|L-1", LAYOUT, STATE, RACE),
    ),
    "int8_matmul": Function(
        signature={"outputs": {"c": "..."}, "sizes": ["M", "K", "N"]},
        workloads={
            "quick": [{"M": 16, "K": 32, "N": 16}],
            "edges": [
                {"M": [1, 7], "K": [1, 20, 300], "N": 5},
                {"M": 3, "K": 0, "N": 4},
                {"M": 9, "K": 999, "N": 8},
            ],
        },
        generator="int8_inputs",
        mistakes=("overflow", "tail", "race", "empty", "overflow"),
        words=(r"(?i)overflow|K ?[><=]", TAIL, RACE, EMPTY, r"(?i)-128|overflow|smallest"),
    ),
    "prefix_sum": Function(
        signature={"inputs": {"x": "N D"}, "outputs": {"output": "N D"}},
        workloads={
            "quick": [{"N": 16, "D": 256}],
            "edges": [{"N": [1, 5], "D": [1, 2, 77]}, {"N": 40, "D": [1024, 1030, 3000]}],
        },
        mistakes=("threshold", "state between calls", "race", "size one", "layout"),
        words=(r"D ?[<>]=? ?10\d\d|1024", STATE, RACE, r"D ?(==|=|<) ?[12]\b|size one|D1\b", LAYOUT),
    ),
    "softmax": Function(
        signature={
            "inputs": {"x": "N D"},
            "outputs": {"output": "N D"},
            "attributes": {"temperature": {"kind": "number", "default": 1.0}},
        },
        workloads={
            "quick": [{"N": 32, "D": 64}],
            "edges": [
                {"N": [1, 3], "D": [1, 9, 100]},
                {"N": 200, "D": 333, "temperature": 0.5},
                {"N": 16, "D": 128, "values": "large_logits"},
                {"N": 500, "D": 64},
            ],
        },
        mistakes=("overflow", "ignored argument", "tail", "race", "layout"),
        words=(r"(?i)overflow|wide|large values|infinit", IGNORED, TAIL, RACE, LAYOUT),
        extra={"values": {"large_logits": {"x": {"kind": "normal", "scale": 60.0}}}},
    ),
    "row_max": Function(
        signature={"inputs": {"x": "N D"}, "outputs": {"output": "N"}},
        workloads={
            "quick": [{"N": 64, "D": 128}],
            "edges": [{"N": [1, 5], "D": [1, 2, 7, 130]}, {"N": 7, "D": [512, 513, 2000]}],
        },
        mistakes=("padded with zeros", "tail", "first call", "size one", "threshold"),
        words=(r"(?i)negative|zero", TAIL, r"(?i)first call", SIZE_ONE, r"D ?[<>]=? ?51\d|512"),
    ),
    "histogram": Function(
        signature={"outputs": {"y": "..."}, "sizes": ["N", "BINS"]},
        workloads={
            "quick": [{"N": 128, "BINS": 16}],
            "edges": [{"N": [1, 7, 100], "BINS": [3, 64]}, {"N": 50000, "BINS": 100}],
        },
        generator="histogram_inputs",
        mistakes=("race", "state between calls", "last element", "tail", "overflow"),
        words=(RACE, STATE, r"(?i)last", TAIL, r"(?i)overflow|N ?>|large"),
    ),
    "transpose_scale": Function(
        signature={"inputs": {"x": "M N", "s": "N"}, "outputs": {"output": "N M"}},
        workloads={
            "quick": [{"M": 64, "N": 64}],
            "edges": [{"M": [1, 33], "N": [1, 40, 100]}, {"M": 70, "N": 20}, {"M": 640, "N": 256}],
        },
        mistakes=("tail", "relation of sizes", "threshold", "layout", "race"),
        words=(TAIL, r"M ?(<=|<|>|>=) ?N|N ?(<=|<|>|>=) ?M", r"N ?[<>]=? ?6[45]|64", LAYOUT, RACE),
    ),
    "matmul": Function(
        signature={"inputs": {"a": "M K", "b": "K N"}, "outputs": {"output": "M N"}},
        workloads={
            "quick": [{"M": 32, "K": 32, "N": 32}],
            "edges": [{"M": [1, 7], "K": [1, 6, 100], "N": [1, 9]}, {"M": 60, "K": [256, 257, 400], "N": 50}],
        },
        mistakes=("tail", "threshold", "race", "state between calls", "layout"),
        words=(TAIL, r"K ?[<>]=? ?25\d|256", RACE, STATE, LAYOUT),
    ),
    "rope": Function(
        signature={
            "inputs": {"x": "B S D"},
            "outputs": {"output": "B S D"},
            "attributes": {"base": {"kind": "number", "default": 10000.0}},
        },
        workloads={
            "quick": [{"B": 2, "S": 32, "D": 16}],
            "edges": [
                {"B": [1, 4], "S": [1, 33], "D": [2, 8], "base": [500.0, 10000.0]},
                {"B": 3, "S": 200, "D": 8},
            ],
        },
        python=True,
        mistakes=("ignored argument", "state between calls", "overflow", "odd sizes", "changes its input"),
        words=(
            IGNORED,
            STATE,
            r"(?i)S ?[<>]=? ?1[23]\d|overflow",
            r"(?i)B ?%|odd|even|multiple|last|B",
            r"(?i)changed its input|in place",
        ),
    ),
    "cross_entropy": Function(
        signature={
            "outputs": {"loss": "..."},
            "sizes": ["N", "C"],
            "parameters": {"spread": {"kind": "number", "default": 1}},
        },
        workloads={
            "quick": [{"N": 32, "C": 10, "spread": 1}],
            "edges": [{"N": [1, 17, 40], "C": [2, 100], "spread": 1}, {"N": 64, "C": 33, "spread": 60}],
        },
        python=True,
        generator="cross_entropy_inputs",
        mistakes=("overflow", "ignored argument", "tail", "state between calls", "size one"),
        words=(WIDE, r"(?i)class|ignor|target|as if|0", TAIL, STATE, SIZE_ONE),
    ),
    "window_attention": Function(
        signature={
            "inputs": {"q": "H S D", "k": "H S D", "v": "H S D"},
            "outputs": {"output": "H S D"},
            "attributes": {"window": {"kind": "number", "default": 1000}},
        },
        workloads={
            "quick": [{"H": 2, "S": 64, "D": 64}],
            "edges": [{"H": 1, "S": [1, 17, 50], "D": [8, 16], "window": [3, 1000]}, {"H": 3, "S": 96, "D": 32}],
        },
        python=True,
        mistakes=("ignored argument", "one off", "relation of sizes", "state between calls", "mask"),
        words=(
            IGNORED,
            r"(?i)window|one off|as if|off by",
            r"S ?(==|!=|<|>) ?D|D ?(==|!=|<|>) ?S",
            STATE,
            r"(?i)mask|as if|zero|window",
        ),
    ),
}


def defined(name: str, wrong: int, **macros: float) -> str:
    """The source of a kernel with mistake `wrong` (0: none) and these macros."""
    function = FUNCTIONS[name]
    chosen = {"WRONG": wrong, **macros}
    if function.python:
        head = "import time\n\nLAZY = {LAZY}\nWRONG = {WRONG}\n_warm = []\n\n\ndef warm_up():\n"
        head += "    if {TUNES_S} and not _warm:\n        time.sleep({TUNES_S})\n    _warm.append(1)\n\n\n"
        text = (CORPUS / f"{name}.py").read_text()
        return head.format(**{"LAZY": 0, "TUNES_S": 0, **chosen}) + text
    lines = [f"#define {key} {value:g}" for key, value in chosen.items()]
    return "\n".join([*lines, '#include "prelude.h"', (CORPUS / f"{name}.cpp").read_text()])


def write(folder: Path, name: str, variants: dict[str, str]) -> Path:
    """A target of one function with variants by name and source."""
    function = FUNCTIONS[name]
    folder.mkdir(parents=True, exist_ok=True)
    kind = ".py" if function.python else ".cpp"
    for file in ("reference.py", *(() if function.python else ("prelude.h",))):
        shutil.copy(CORPUS / file, folder)
    described: dict[str, Any] = {}
    for variant, text in variants.items():
        (folder / f"{variant}{kind}").write_text(text)
        described[variant] = importable("run", module=variant)
        if not function.python:
            build = {"compiler": "g++", "flags": ["-O2", "-fopenmp"]}
            described[variant] = compiled("run", sources=[f"{variant}.cpp"], build=build)
    manifest: dict[str, Any] = {
        "format": 2,
        "name": name,
        "function": name,
        "signature": function.signature,
        "reference": {"python": f"reference:{name}"},
        "baseline": {"python": f"reference:{name}"},
        "tolerance": {"float32": {"atol": 2e-5, "rtol": 2e-5}},
        "dtypes": {"cpu": "float32"},
        "workloads": function.workloads,
        "variants": described,
        **({"generator": {"python": f"reference:{function.generator}"}} if function.generator else {}),
        **function.extra,
    }
    (folder / "target.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False, width=110))
    return folder


def is_reported(text: str, variant: str) -> bool:
    """Whether a session's screen calls a variant wrong, or names a set that was not verified."""
    row = re.search(rf"^{variant} +.*(incorrect|invalid|crash|wrong|not verified)", text, re.M)
    return (
        row is not None
        or f"{variant} is incorrect" in text
        or re.search(r"\d+ sets? of workloads", text) is not None
    )


def by_session(rig: Rig, target: Path, wrong: Sequence[str], *words: str) -> tuple[dict[str, bool], Finished]:
    """`loop run session`: every variant at once."""
    run = rig.run("run", "session", *words, "--target", str(target))
    return {name: run.code == 1 and is_reported(run.text, name) for name in wrong}, run


def by_check(rig: Rig, target: Path, wrong: Sequence[str]) -> tuple[dict[str, bool], Finished]:
    """`loop kernels check`."""
    run = rig.run("kernels", "check", "--target", str(target), "--json")
    reply = run.text[run.text.find("{") :]
    return {name: f'"{name}"' in reply and "wrong" in reply and told_by_check(reply, name) for name in wrong}, run


def told_by_check(text: str, variant: str) -> bool:
    """Whether the reply of `kernels check` calls a variant wrong, or names sets that were not verified."""
    answer, _ = json.JSONDecoder().raw_decode(text)
    outputs = [step.get("output") or {} for step in answer.get("steps", [])]
    return any(
        variant in output.get("wrong", {}) or any("set" in text for text in output.get("not_exercised", []))
        for output in outputs
    )


def by_mcp(rig: Rig, target: Path, wrong: Sequence[str]) -> tuple[dict[str, bool], Finished]:
    """Tool `run_session` of `loop mcp`, until the session has ended; 900 s at most."""
    begun = time.monotonic()
    answers = list[dict[str, Any]]()

    async def story(agent: Agent) -> None:
        with anyio.fail_after(900):
            answers.append(await agent.ended("run_session", plan="quick", target=str(target)))

    with mock.patch.dict(os.environ, rig.environment):
        drive(story, target)
    text = json.dumps(answers)
    plain = text.replace("\\", "")
    verdict = r'"variant": "{}"[^{{}}]*"verdict": "(incorrect|invalid)"'
    rejected = {name: re.search(verdict.format(name), plain) is not None for name in wrong}
    return rejected, Finished(0, text, time.monotonic() - begun)


def by_bisection(rig: Rig, folder: Path, name: str, number: int) -> tuple[bool, Finished]:
    """`loop bisect --metric correctness` over six commits, of which the fourth and later ones are wrong."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    for number_of_commit in range(1, 7):
        mark = "\n{} {}\n".format("#" if FUNCTIONS[name].python else "//", number_of_commit)
        mistake = number if number_of_commit >= 4 else 0
        write(folder / "k", name, {"kernel": defined(name, mistake) + mark})
        commit(folder, f"commit {number_of_commit}")
    show = ("log", "--format=%h", "--abbrev=7", "-1")
    first, fourth = (git(folder, *show, f"HEAD~{back}") for back in (5, 2))
    rig.run("trust", str(folder / "k"))
    run = rig.run(
        "bisect", "--good", first, "--metric", "correctness", "--variant", "kernel", "--target", str(folder / "k")
    )
    return f"culprit: commit {fourth}" in run.text, run


DOORS = ("session", "quick", "ci", "check", "mcp", "bisect")


def judge_wrong(rig: Rig, folder: Path, name: str, doors: Sequence[str]) -> dict[str, Any]:
    """A row: the variants that each door missed, and whether the first lines of `verify` name each cause."""
    numbers = range(1, len(FUNCTIONS[name].mistakes) + 1)
    variants = [f"w{number}" for number in numbers]
    target = write(
        folder / name, name, {key: defined(name, number) for key, number in zip(variants, numbers, strict=True)}
    )
    rig.run("trust", str(target))
    row: dict[str, Any] = {"function": name, "missed": {}, "seconds": {}}
    ways: dict[str, Callable[[], tuple[dict[str, bool], Finished]]] = {
        "session": lambda: by_session(rig, target, variants),
        "quick": lambda: by_session(rig, target, variants, "quick"),
        "ci": lambda: by_session(rig, target, variants, "quick", "--budget-minutes", "20"),
        "check": lambda: by_check(rig, target, variants),
        "mcp": lambda: by_mcp(rig, target, variants),
    }
    for door in doors:
        if door == "bisect":
            results = [by_bisection(rig, folder / f"{name}-{number}", name, number) for number in numbers]
            hits = {key: right for key, (right, _) in zip(variants, results, strict=True)}
            row["seconds"][door] = sum(run.seconds for _, run in results)
        elif door == "cause":
            row["named"] = {
                key: names_cause(rig, target, name, number) for key, number in zip(variants, numbers, strict=True)
            }
            continue
        else:
            hits, run = ways[door]()
            row["seconds"][door] = run.seconds
        row["missed"][door] = [key for key, right in hits.items() if not right]
    return row


def names_cause(rig: Rig, target: Path, name: str, number: int) -> bool:
    """Whether the first three lines of `kernels verify` on a wrong kernel name its cause or its rule."""
    run = rig.run("kernels", "verify", f"w{number}", "--target", str(target))
    lines = [
        line for line in run.text.splitlines() if re.match(rf"(w{number}:|What is wrong|  Cause|  Rule)", line)
    ]
    return re.search(FUNCTIONS[name].words[number - 1], "\n".join(lines[:3])) is not None


def judge_right(rig: Rig, folder: Path, name: str) -> dict[str, Any]:
    """A row: right kernels that a session rejected or whose checks it did not pass."""
    macros = {**RIGHT, "tunes": {"TUNES_S": SLOW.get(name, 2)}}
    target = write(
        folder / f"{name}-right", name, {key: defined(name, 0, **flags) for key, flags in macros.items()}
    )
    rig.run("trust", str(target))
    run = rig.run("run", "session", "quick", "--target", str(target), limit_s=1800)
    rejected = [
        key
        for key in macros
        if re.search(rf"^{key} +.*(incorrect|invalid|crash|hung|\d+ of \d+ checks failed)", run.text, re.M)
    ]
    return {"function": name, "rejected": rejected, "code": run.code, "seconds": run.seconds}


def mistakes_of(rows: Sequence[dict[str, Any]]) -> int:
    """How many wrong kernels these rows cover."""
    return sum(len(FUNCTIONS[row["function"]].mistakes) for row in rows)


def page(wrong: Sequence[dict[str, Any]], right: Sequence[dict[str, Any]], tail: Sequence[str]) -> str:
    doors = [door for door in DOORS if any(door in row["missed"] for row in wrong)]
    lines = [
        "# What a session says is what was tried",
        "",
        "`make bench-coverage` writes this page: wrong and right kernels of twelve functions, by every door.",
        f"Two cores, {time.strftime('%Y-%m-%d')}. A door has found it where it fails it, or names the set.",
        "",
        "| Door | Found | Missed | Seconds a target of five kernels, median |",
        "|---|--:|---|--:|",
    ]
    for door in doors:
        tried = [row for row in wrong if door in row["missed"]]
        count = mistakes_of(tried)
        missed = [f"{row['function']} {name}" for row in tried for name in row["missed"][door]]
        median = statistics.median(row["seconds"][door] for row in tried)
        lines.append(f"| {door} | {count - len(missed)} of {count} | {', '.join(missed) or '-'} | {median:.0f} |")
    if causes := [row for row in wrong if "named" in row]:
        count = mistakes_of(causes)
        unnamed = [f"{row['function']} {name}" for row in causes for name, hit in row["named"].items() if not hit]
        lines += [
            "",
            f"First lines name the cause: {count - len(unnamed)} of {count}. Not: {', '.join(unnamed) or '-'}.",
        ]
    if right:
        rejected = [f"{row['function']} {name}" for row in right for name in row["rejected"]]
        lines += [
            "",
            f"Right kernels rejected: {len(rejected)} of {3 * len(right)} ({', '.join(rejected) or 'none'}).",
        ]
        failed = [row["function"] for row in right if row["code"]]
        lines.append(f"Among them first calls of {' and '.join(str(SLOW[name]) for name in SLOW)} s.")
        lines.append(f"Sessions of them that failed: {', '.join(failed) or 'none'}.")
    return "\n".join([*lines, *tail, ""])


def init_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """`loop init` on thirty examples."""
    failed = [f"{row['name']} ({row['last'][:80]})" for row in rows if row["outcome"] == "failed"]
    judged, hints = (sum(row["outcome"] == outcome for row in rows) for outcome in ("judged", "told"))
    return [
        "",
        f"`loop init` on {len(rows)} functions, modules, C++ files: {judged} judged at once, {hints} told what is "
        f"missing. Failed: {', '.join(failed) or 'none'}.",
    ]


def history_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Lines on what was found in the histories, a line for each boolean of a row."""
    lines = [
        "",
        f"{len(rows)} histories of {coverage_histories.COMMITS} commits, a wrong and a slow one in each:",
        "",
    ]
    for key in rows[0]:
        if isinstance(rows[0][key], bool):
            missed = [f"{row['function']}, {row['dirty'] or 'clean'}" for row in rows if not row[key]]
            lines.append(
                f"- {key}: {len(rows) - len(missed)} of {len(rows)}{'; not ' * bool(missed)}{'; '.join(missed)}"
            )
    return lines


PARTS = ("kernels", "init", "histories")


def main() -> None:
    """Run the chosen parts and print each row; write the page if all functions ran."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(FUNCTIONS))
    parser.add_argument("--doors", nargs="*", default=[*DOORS, "cause"])
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="loop-coverage-"))
    rig = Rig(folder, "cache")
    wrong, right, tail = list[dict[str, Any]](), list[dict[str, Any]](), list[str]()
    for name in options.only if "kernels" in options.parts else ():
        wrong.append(printed(judge_wrong(rig, folder / "wrong", name, options.doors)))
        right.append(printed(judge_right(rig, folder / "right", name)))
    if "init" in options.parts:
        tail += init_lines([printed(row) for row in coverage_init.rows(rig)])
    if "histories" in options.parts:
        tail += history_lines([printed(row) for row in coverage_histories.rows(rig)])
    text = page(wrong, right, tail)
    print(text)
    if {row["function"] for row in wrong} == set(FUNCTIONS):
        PAGE.write_text(text)


def printed(row: dict[str, Any]) -> dict[str, Any]:
    """Print a row at once, because the bench takes hours; return it."""
    print(json.dumps(row), flush=True)
    return row


if __name__ == "__main__":
    main()
