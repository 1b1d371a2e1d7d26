"""What came of answers that were judged twice: rows that `formats_judged` writes, and their part of the page."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loop.formats.theirs import VERDICTS

ROWS = Path(__file__).parent / "recorded/formats_judged.jsonl"
SAMPLE = Path(__file__).with_name("formats_sample.json")
MISTAKES = {
    "zeros": "returns zeros",
    "mean": "returns the mean everywhere",
    "one_off": "one element is off",
    "one_nan": "one element is NaN",
    "zero_tail": "zeros in the last rows",
    "leave_tail": "leaves the last rows as they were",
    "round_inputs": "computes in a narrower type",
    "other_type": "returns another element type",
    "stale": "returns what the call before computed",
    "skip_every_other": "computes in every other call only",
    "by_address": "remembers answers by the inputs' address",
    "write_input": "changes an input",
}
"""Wrong answers of the table: what `loop targets audit --control` calls them, and what they do."""
ALLOWED = {
    "one_off": "Where a task asks for a share of elements, as SOL-ExecBench does, that is right by its rule.",
    "by_address": "An evaluator that gives each call new memory never meets it, and loses nothing by it.",
    "write_input": "No format says whether an answer may change its inputs. `loop` wants that said.",
}
"""In fairness to who lets them pass."""
MODES = "theirs ran `test`, then `leaderboard`, which draws new inputs for each timed call and checks each output."
NAMES = {
    "kernelbench": "KernelBench",
    "gpumode": "GPU MODE",
    "flashinfer": "FlashInfer Trace",
    "sol": "SOL-ExecBench",
}
WRONG = ("mistake", "shipped wrong")
HONEST = ("honest", "shipped")
Row = Mapping[str, Any]


def rows(path: Path = ROWS) -> list[Row]:
    """Every line of a file; of a task that was judged again not its exclusion. None where there is no file.

    A task is judged in parts: each finding counts once, and of an honest answer the worst verdict.
    """
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    judged = {(one["task"], one["device"], *one.get("asked", ())) for one in found if "excluded" not in one}
    once: dict[object, Row] = {}
    for number, one in enumerate(found):
        task = one["task"], one["device"]
        answer = *task, one.get("control") or one.get("finding") or number
        if "excluded" in one and (*task, *one.get("asked", ())) in judged:
            continue
        if answer not in once or {one.get("ours"), one.get("theirs")} - {"right", None}:
            once[answer] = one
    return list(once.values())


def sections(found: Sequence[Row]) -> Iterator[str]:
    """The page's part in lines; nothing without rows."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for one in found:
        groups.setdefault((one["option"], one["device"]), []).append(one)
    if not groups:
        return
    yield "\n## Two verdicts on the same answers\n"
    yield "`make bench-formats-judged`. Answers: the task's own reference (as it is, and in float64), the same"
    yield "with a mistake of ours, and what repositories ship. `passes` counts honest answers, `finds` wrong ones."
    yield "Only answers with two verdicts count. A task is excluded with its reason.\n"
    heads = "| format | on | sample | judged | ours passes | theirs passes | ours finds"
    yield f"{heads} | theirs finds | same |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|--:|"
    for group, some in groups.items():
        yield _row(group, some)
    yield ""
    for group, some in groups.items():
        yield from _notes(group, some)
    yield from _disagreements(groups)
    yield from _mistakes(groups)


def _name(group: tuple[str, str]) -> str:
    return f"{NAMES[group[0]]}, {'GPU' if group[1] == 'cuda' else 'CPU'}"


def _both(some: Iterable[Row], kinds: Sequence[str]) -> list[Row]:
    """Answers of those kinds on which there are two verdicts."""
    return [one for one in some if one.get("kind") in kinds and {one["ours"], one["theirs"]} <= set(VERDICTS)]


def _row(group: tuple[str, str], some: Sequence[Row]) -> str:
    tasks = {one["task"] for one in some}
    honest, wrong = _both(some, HONEST), _both(some, WRONG)
    same = sum(one["ours"] == one["theirs"] for one in (*honest, *wrong))
    cells = [
        NAMES[group[0]],
        ", ".join(sorted({one["machine"] for one in some})),
        len(tasks),
        len({one["task"] for one in (*honest, *wrong)}),
    ]
    cells += [_of(honest, side, "right") for side in ("ours", "theirs")]
    cells += [_of(wrong, side, "wrong") for side in ("ours", "theirs")]
    return f"| {' | '.join(map(str, (*cells, f'{same} of {len(honest) + len(wrong)}')))} |"


def _of(some: Sequence[Row], side: str, verdict: str) -> str:
    return f"{sum(one[side] == verdict for one in some)} of {len(some)}"


def _notes(group: tuple[str, str], some: Sequence[Row]) -> Iterator[str]:
    """Who `theirs` is, what was excluded and why, and what is odd about tasks."""
    whose = Counter(one["whose"] for one in some if "whose" in one)
    commits = ", ".join(sorted({one["commit"] for one in some}))
    yield f"- {_name(group)} at {commits}: theirs: {', '.join(f'{one} ({n})' for one, n in whose.items())}."
    if group[0] == "gpumode":
        yield f"- {_name(group)}: {MODES}"
    reasons = Counter(one["excluded"].split(":")[0] for one in some if "excluded" in one)
    if reasons:
        yield f"- {_name(group)}, excluded: {', '.join(f'{why} {n}' for why, n in reasons.most_common())}."
    judged = {one["task"] for one in _both(some, (*HONEST, *WRONG))}
    silent = Counter(_why_not(one) for one in some if "kind" in one and one["task"] not in judged)
    if silent:
        told = ", ".join(f"{why} ({n} answers)" for why, n in silent.most_common())
        yield f"- {_name(group)}, tasks without two verdicts: {told}."
    stated = [one for one in some if one.get("stated") in VERDICTS and one["theirs"] in VERDICTS]
    if stated:
        same = sum(one["stated"] == one["theirs"] for one in stated)
        yield f"- {_name(group)}: the rule as loop applies it says the same in {same} of {len(stated)} answers."
    findings = Counter(one["finding"].split(":")[0] for one in some if "finding" in one)
    if findings:
        yield f"- {_name(group)}, about the tasks: {', '.join(f'{what} {n}' for what, n in findings.items())}."


def _why_not(one: Row) -> str:
    """Why there are not two verdicts on an answer."""
    if one["ours"] not in VERDICTS:
        return f"ours {one['ours']}{': ' if one.get('ours_why') else ''}{one.get('ours_why', '')}"[:160]
    return f"theirs {one['theirs']}{': ' if one['why'] else ''}{one['why']}"[:160]


def _disagreements(groups: Mapping[tuple[str, str], Sequence[Row]]) -> Iterator[str]:
    """Each kind of disagreement, with the tasks, and what may be behind it."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for group, some in groups.items():
        for one in _both(some, (*HONEST, *WRONG)):
            if one["ours"] != one["theirs"]:
                what = MISTAKES.get(one["make"], one["control"])
                cause = next(iter(one.get("causes") or ()), "no cause known")
                found.setdefault((_name(group), what, one["ours"], one["theirs"], cause), []).append(one)
    if found:
        yield "\n## Where the two differ\n"
        yield "| format | answer | ours | theirs | tasks | likeliest cause |"
        yield "|---|---|---|---|---|---|"
    for (name, what, ours, theirs, cause), some in found.items():
        tasks = dict.fromkeys(Path(one["task"]).stem for one in some)
        shown = ", ".join([*list(tasks)[:3], *([f"{len(tasks) - 3} more"] if len(tasks) > 3 else [])])
        yield f"| {name} | {what} | {ours} | {theirs} | {len(tasks)}: {shown} | {cause.replace('|', '/')} |"


def _mistakes(groups: Mapping[tuple[str, str], Sequence[Row]]) -> Iterator[str]:
    """How many of each mistake either side finds, on the tasks that got all of them."""
    sample = json.loads(SAMPLE.read_text())
    table = {
        group: [one for one in some if one["task"] in sample[group[0]]["audited"][group[1]]]
        for group, some in groups.items()
    }
    table = {group: some for group, some in table.items() if _both(some, WRONG)}
    if not table:
        return
    yield "\n## Which wrong answers are found\n"
    yield "Up to eight tasks a format, each with every mistake that fits it and makes a difference there."
    yield "`8 : 3 of 8`: `loop` finds 8, they find 3, of 8 that were tried. **Bold** where they find fewer.\n"
    yield f"| the answer | {' | '.join(f'{_name(group)}: {_who(some)}' for group, some in table.items())} |"
    yield f"|---|{':-:|' * len(table)}"
    for make, words in MISTAKES.items():
        told = (_cell([one for one in _both(some, WRONG) if one["make"] == make]) for some in table.values())
        yield f"| {words} | {' | '.join(told)} |"
    yield f"| **all of them** | {' | '.join(_cell(_both(some, WRONG)) for some in table.values())} |"
    right = ([one for one in _both(some, HONEST) if one["kind"] == "honest"] for some in table.values())
    yield f"| right answers that are rejected | {' | '.join(map(_cell, right))} |\n"
    missed = {one["make"] for some in table.values() for one in _both(some, WRONG) if one["theirs"] == "right"}
    yield from (f"- {MISTAKES[make]}: {text}" for make, text in ALLOWED.items() if make in missed)


def _who(some: Sequence[Row]) -> str:
    """Whose verdict `theirs` is, in few words: some are a rule as the format states it, applied by us."""
    kinds = {
        "its stated rule" if one["whose"].startswith("stated") else one["whose"] for one in some if "whose" in one
    }
    return " or ".join(sorted(kinds)).replace("evaluator", "its evaluator")


def _cell(cell: Sequence[Row]) -> str:
    ours, theirs = (sum(one[side] == "wrong" for one in cell) for side in ("ours", "theirs"))
    shown = f"{ours} : {theirs} of {len(cell)}" if cell else "-"
    return f"**{shown}**" if theirs < ours else shown
