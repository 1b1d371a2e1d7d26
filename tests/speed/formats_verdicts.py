"""What came of answers that were judged twice: rows that `formats_judged` writes, and their part of the page."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loop.formats.disagreements import VERDICTS

ROWS = Path(__file__).parent / "recorded/formats_judged.jsonl"
SAMPLE = Path(__file__).with_name("formats_sample.json")
MISTAKES = (
    *("zeros", "mean", "one_off", "one_nan", "zero_tail", "leave_tail"),
    *("round_inputs", "other_type", "stale", "skip_every_other", "by_address", "write_input"),
)
"""Wrong answers of the table, by what `loop targets audit --control` calls them."""
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
    """Every line of a file; of a task that was judged again not its exclusion. None where there is no file."""
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    judged = {(one["task"], one["device"]) for one in found if "excluded" not in one}
    return [one for one in found if "excluded" not in one or (one["task"], one["device"]) not in judged]


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
    heads = (
        "format",
        "on",
        "sample",
        "judged",
        "ours passes",
        "theirs passes",
        "ours finds",
        "theirs finds",
        "same",
    )
    yield f"| {' | '.join(heads)} |"
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
    excluded = {one["task"] for one in some if "excluded" in one}
    honest, wrong = _both(some, HONEST), _both(some, WRONG)
    same = sum(one["ours"] == one["theirs"] for one in (*honest, *wrong))
    cells = [
        NAMES[group[0]],
        ", ".join(sorted({one["machine"] for one in some})),
        len(tasks),
        len(tasks - excluded),
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
    reasons = Counter(one["excluded"].split(":")[0] for one in some if "excluded" in one)
    if reasons:
        yield f"- {_name(group)}, excluded: {', '.join(f'{why} {n}' for why, n in reasons.most_common())}."
    stated = [one for one in some if one.get("stated") in VERDICTS and one["theirs"] in VERDICTS]
    if stated:
        same = sum(one["stated"] == one["theirs"] for one in stated)
        yield f"- {_name(group)}: the rule as loop applies it says the same in {same} of {len(stated)} answers."
    findings = Counter(one["finding"].split(":")[0] for one in some if "finding" in one)
    if findings:
        yield f"- {_name(group)}, about the tasks: {', '.join(f'{what} {n}' for what, n in findings.items())}."


def _disagreements(groups: Mapping[tuple[str, str], Sequence[Row]]) -> Iterator[str]:
    """Each kind of disagreement, with what may be behind it."""
    found: dict[tuple[str, str, str, str], list[Row]] = {}
    for group, some in groups.items():
        for one in _both(some, (*HONEST, *WRONG)):
            if one["ours"] != one["theirs"]:
                found.setdefault((_name(group), one["control"], one["ours"], one["theirs"]), []).append(one)
    if found:
        yield "\n## Where the two differ\n"
    for (name, control, ours, theirs), some in found.items():
        tasks = ", ".join(Path(one["task"]).stem for one in some[:3])
        cause = next((f"; {one['causes'][0]}" for one in some if one.get("causes")), "")
        why = next((f" ({one['why']})" for one in some if one["why"]), "")
        yield f"- {name}, {control}: {ours} for us, {theirs} for them{why}: {len(some)}, as {tasks}{cause}"


def _mistakes(groups: Mapping[tuple[str, str], Sequence[Row]]) -> Iterator[str]:
    """How many of each mistake either side finds, on the tasks that got all of them."""
    sample = json.loads(SAMPLE.read_text())
    table = {
        group: [one for one in _both(some, WRONG) if one["task"] in sample[group[0]]["audited"][group[1]]]
        for group, some in groups.items()
    }
    table = {group: some for group, some in table.items() if some}
    if not table:
        return
    yield "\n## Which wrong answers are found\n"
    yield "Up to eight tasks a format, each with every mistake that fits it and makes a difference."
    yield "Found by us / found by them / tried.\n"
    yield f"| mistake | {' | '.join(map(_name, table))} |"
    yield f"|---|{'---|' * len(table)}"
    for make in MISTAKES:
        cells = [[one for one in some if one["make"] == make] for some in table.values()]
        told = (
            " / ".join((*(_count(cell, side) for side in ("ours", "theirs")), str(len(cell)))) for cell in cells
        )
        yield f"| {make} | {' | '.join(told)} |"


def _count(cell: Sequence[Row], side: str) -> str:
    return str(sum(one[side] == "wrong" for one in cell))
