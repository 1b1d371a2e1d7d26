"""Answers judged by loop and by a format's evaluator: rows of `formats_judged`, and their part of the page."""

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
"""Mistakes that an evaluator may accept, with the reason."""
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
    """The recorded rows, one for each answer or finding; empty if there is no file.

    A task that was judged later loses its exclusion. A row that is not `right` replaces an earlier one.
    """
    records = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    judged = {(row["task"], row["device"], *row.get("asked", ())) for row in records if "excluded" not in row}
    by_answer: dict[object, Row] = {}
    for number, row in enumerate(records):
        task = row["task"], row["device"]
        answer = *task, row.get("control") or row.get("finding") or number
        if "excluded" in row and (*task, *row.get("asked", ())) in judged:
            continue
        if answer not in by_answer or {row.get("ours"), row.get("theirs")} - {"right", None}:
            by_answer[answer] = row
    return list(by_answer.values())


def sections(records: Sequence[Row]) -> Iterator[str]:
    """Lines of the page's part; none without rows."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in records:
        groups.setdefault((row["option"], row["device"]), []).append(row)
    if not groups:
        return
    yield "\n## Two verdicts on the same answers\n"
    yield "`make bench-formats-judged`. Answers: the task's own reference (as it is, and in float64), the same"
    yield "with a mistake of ours, and what repositories ship. `passes` counts honest answers, `finds` wrong ones."
    yield "Only answers with two verdicts count. A task is excluded with its reason.\n"
    heads = "| format | on | sample | judged | ours passes | theirs passes | ours finds"
    yield f"{heads} | theirs finds | same |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|--:|"
    for group, answers in groups.items():
        yield _row(group, answers)
    yield ""
    for group, answers in groups.items():
        yield from _notes(group, answers)
    yield from _disagreements(groups)
    yield from _mistakes(groups)


def _name(group: tuple[str, str]) -> str:
    return f"{NAMES[group[0]]}, {'GPU' if group[1] == 'cuda' else 'CPU'}"


def _rated(answers: Iterable[Row], kinds: Sequence[str]) -> list[Row]:
    """Rows of answers of these kinds that have two verdicts."""
    return [row for row in answers if row.get("kind") in kinds and {row["ours"], row["theirs"]} <= set(VERDICTS)]


def _row(group: tuple[str, str], answers: Sequence[Row]) -> str:
    tasks = {row["task"] for row in answers}
    honest, wrong = _rated(answers, HONEST), _rated(answers, WRONG)
    agreed = sum(row["ours"] == row["theirs"] for row in (*honest, *wrong))
    cells = [
        NAMES[group[0]],
        ", ".join(sorted({row["machine"] for row in answers})),
        len(tasks),
        len({row["task"] for row in (*honest, *wrong)}),
    ]
    cells += [_share(honest, side, "right") for side in ("ours", "theirs")]
    cells += [_share(wrong, side, "wrong") for side in ("ours", "theirs")]
    return f"| {' | '.join(map(str, (*cells, f'{agreed} of {len(honest) + len(wrong)}')))} |"


def _share(answers: Sequence[Row], side: str, verdict: str) -> str:
    return f"{sum(row[side] == verdict for row in answers)} of {len(answers)}"


def _notes(group: tuple[str, str], answers: Sequence[Row]) -> Iterator[str]:
    """Notes on one group: who judged as `theirs`, exclusions with their reasons, findings about tasks."""
    whose = Counter(row["whose"] for row in answers if "whose" in row)
    commits = ", ".join(sorted({row["commit"] for row in answers}))
    yield f"- {_name(group)} at {commits}: theirs: {', '.join(f'{name} ({n})' for name, n in whose.items())}."
    if group[0] == "gpumode":
        yield f"- {_name(group)}: {MODES}"
    reasons = Counter(row["excluded"].split(":")[0] for row in answers if "excluded" in row)
    if reasons:
        yield f"- {_name(group)}, excluded: {', '.join(f'{why} {n}' for why, n in reasons.most_common())}."
    judged = {row["task"] for row in _rated(answers, (*HONEST, *WRONG))}
    silent = Counter(_why_not(row) for row in answers if "kind" in row and row["task"] not in judged)
    if silent:
        listing = ", ".join(f"{why} ({n} answers)" for why, n in silent.most_common())
        yield f"- {_name(group)}, tasks without two verdicts: {listing}."
    stated = [row for row in answers if row.get("stated") in VERDICTS and row["theirs"] in VERDICTS]
    if stated:
        agreed = sum(row["stated"] == row["theirs"] for row in stated)
        yield f"- {_name(group)}: the rule as loop applies it says the same in {agreed} of {len(stated)} answers."
    findings = Counter(row["finding"].split(":")[0] for row in answers if "finding" in row)
    if findings:
        yield f"- {_name(group)}, about the tasks: {', '.join(f'{kind} {n}' for kind, n in findings.items())}."


def _why_not(row: Row) -> str:
    """Why there are not two verdicts on an answer."""
    if row["ours"] not in VERDICTS:
        return f"ours {row['ours']}{': ' if row.get('ours_why') else ''}{row.get('ours_why', '')}"[:160]
    return f"theirs {row['theirs']}{': ' if row['why'] else ''}{row['why']}"[:160]


def _disagreements(groups: Mapping[tuple[str, str], Sequence[Row]]) -> Iterator[str]:
    """A table of disagreements: of each kind its tasks and the likeliest cause."""
    disagreements: dict[tuple[str, ...], list[Row]] = {}
    for group, answers in groups.items():
        for row in _rated(answers, (*HONEST, *WRONG)):
            if row["ours"] != row["theirs"]:
                answer = MISTAKES.get(row["make"], row["control"])
                cause = next(iter(row.get("causes") or ()), "no cause known")
                disagreements.setdefault((_name(group), answer, row["ours"], row["theirs"], cause), []).append(row)
    if disagreements:
        yield "\n## Where the two differ\n"
        yield "| format | answer | ours | theirs | tasks | likeliest cause |"
        yield "|---|---|---|---|---|---|"
    for (name, answer, ours, theirs, cause), answers in disagreements.items():
        tasks = dict.fromkeys(Path(row["task"]).stem for row in answers)
        listed = ", ".join([*list(tasks)[:3], *([f"{len(tasks) - 3} more"] if len(tasks) > 3 else [])])
        yield f"| {name} | {answer} | {ours} | {theirs} | {len(tasks)}: {listed} | {cause.replace('|', '/')} |"


def _mistakes(groups: Mapping[tuple[str, str], Sequence[Row]]) -> Iterator[str]:
    """A table of the mistakes that each side finds, on the audited tasks."""
    sample = json.loads(SAMPLE.read_text())
    table = {
        group: [row for row in rows if row["task"] in sample[group[0]]["audited"][group[1]]]
        for group, rows in groups.items()
    }
    table = {group: rows for group, rows in table.items() if _rated(rows, WRONG)}
    if not table:
        return
    yield "\n## Which wrong answers are found\n"
    yield "Up to eight tasks a format, each with every mistake that fits it and makes a difference there."
    yield "`8 : 3 of 8`: `loop` finds 8, they find 3, of 8 that were tried. **Bold** where they find fewer.\n"
    yield f"| the answer | {' | '.join(f'{_name(group)}: {_who(rows)}' for group, rows in table.items())} |"
    yield f"|---|{':-:|' * len(table)}"
    for make, words in MISTAKES.items():
        cells = (_cell([row for row in _rated(rows, WRONG) if row["make"] == make]) for rows in table.values())
        yield f"| {words} | {' | '.join(cells)} |"
    yield f"| **all of them** | {' | '.join(_cell(_rated(rows, WRONG)) for rows in table.values())} |"
    honest = ([row for row in _rated(rows, HONEST) if row["kind"] == "honest"] for rows in table.values())
    yield f"| right answers that are rejected | {' | '.join(map(_cell, honest))} |\n"
    missed = {row["make"] for rows in table.values() for row in _rated(rows, WRONG) if row["theirs"] == "right"}
    yield from (f"- {MISTAKES[make]}: {text}" for make, text in ALLOWED.items() if make in missed)


def _who(rows: Sequence[Row]) -> str:
    """Who gave the verdicts `theirs`: an evaluator, or loop, which applies the format's stated rule."""
    kinds = {
        "its stated rule" if row["whose"].startswith("stated") else row["whose"] for row in rows if "whose" in row
    }
    return " or ".join(sorted(kinds)).replace("evaluator", "its evaluator")


def _cell(cell: Sequence[Row]) -> str:
    ours, theirs = (sum(row[side] == "wrong" for row in cell) for side in ("ours", "theirs"))
    counts = f"{ours} : {theirs} of {len(cell)}" if cell else "-"
    return f"**{counts}**" if theirs < ours else counts
