"""`make house`: the source tree beside tests/budget.json; `--write` lowers the budget to it."""

import ast
import json
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests import test_layers as layers
from tests.conftest import ROOT

PAGES = (ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md")))
"""Pages whose sentences are measured; the reference is generated."""
SENTENCES = ("message", "hint", "reason", "why", "note", "explanation", "detail")
"""Names of fields and variables that hold sentences for people."""
PARTS = (
    *("startswith", "endswith", "find", "removeprefix", "removesuffix"),
    *("partition", "rpartition", "split", "replace"),
)
SEARCHES = ("search", "match", "fullmatch", "findall", "finditer")
VAGUE = ("one", "found", "made", "told", "said", "given", "taken", "seen", "theirs", "ours")
BUDGET = json.loads((ROOT / "tests" / "budget.json").read_text())
"""Limits of rooms and sizes today, and their aims. A commit that raises a limit says why."""


def branches_on_text(path: Path) -> Iterator[str]:
    """Conditions on the text of a message, a reason or a hint, which people write for people."""
    for node in ast.walk(ast.parse(path.read_text())):
        if (isinstance(node, ast.Compare) and _looks_into(node)) or (
            isinstance(node, ast.Call) and _searches(node)
        ):
            yield f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"


def _looks_into(node: ast.AST) -> bool:
    """Whether it is `"word" in x.message` or `x.message == "word"`; comparing with "" is allowed."""
    if not isinstance(node, ast.Compare):
        return False
    sides = [node.left, *node.comparators]
    inside = any(isinstance(operator, ast.In | ast.NotIn) for operator in node.ops)
    equal = any(isinstance(operator, ast.Eq | ast.NotEq) for operator in node.ops)
    words = any(isinstance(side, ast.Constant) and isinstance(side.value, str) and side.value for side in sides)
    return (inside and _read(node.comparators[-1])) or (equal and words and any(map(_read, sides)))


def _searches(node: ast.AST) -> bool:
    """Whether it is `x.message.partition(...)`, or `re.search(..., reason)`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr in PARTS:
        return _read(node.func.value)
    return node.func.attr in SEARCHES and any(map(_read, node.args))


def _read(node: ast.expr) -> bool:
    """Whether it is an attribute, a parameter or a variable that holds a sentence."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name in SENTENCES


def sentences(text: str) -> list[str]:
    """The sentences of a page of Markdown: no code, no headings, no tables."""
    text = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^\s*([#|>].*|<.*)$", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"^\s*([-*]|\d+\.) ", "\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`\n]*`", "x", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    parts = (
        " ".join(part.split()) for block in re.split(r"\n\s*\n", text) for part in re.split(r"(?<=[.!?])\s", block)
    )
    return [sentence for sentence in parts if len(sentence.split()) > 1]


def sentence_branches() -> list[str]:
    """All places that branch on a sentence."""
    return [branch for path in layers.FILES for branch in branches_on_text(path)]


def words() -> tuple[float, float]:
    """Words of a sentence, the median and the 90th percentile."""
    counts = [len(sentence.split()) for page in PAGES for sentence in sentences(page.read_text())]
    return statistics.median(counts), statistics.quantiles(counts, n=10)[-1]


@dataclass
class Tree:
    """Counts of the source tree."""

    rooms: Counter[str] = field(default_factory=Counter)
    """Room to lines."""
    bodies: list[int] = field(default_factory=list)
    """Lines of each function's body, without its docstring."""
    fragments: int = 0
    """Private functions of at most four lines that are called once."""
    classes: Counter[str] = field(default_factory=Counter)
    """Class name to classes that have it."""
    records: int = 0
    """Classes without a method."""
    vague: int = 0
    """Variables and parameters whose name says nothing."""


def tree() -> Tree:
    counts = Tree()
    for path in layers.FILES:
        text = path.read_text()
        counts.rooms[layers.room_of(path)] += text.count("\n")
        nodes = list(ast.walk(ast.parse(text)))
        read = Counter(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
        read.update(node.attr for node in nodes if isinstance(node, ast.Attribute))
        for node in nodes:
            if isinstance(node, ast.FunctionDef):
                body = node.body[ast.get_docstring(node) is not None :]
                lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
                counts.bodies.append(lines)
                private = node.name.startswith("_") and not node.name.startswith("__")
                counts.fragments += private and lines <= 4 and read[node.name] == 1
            elif isinstance(node, ast.ClassDef):
                counts.classes[node.name] += 1
                methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
                counts.records += all(part.name.startswith("__") for part in methods)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                counts.vague += node.id in VAGUE
            elif isinstance(node, ast.arg):
                counts.vague += node.arg in VAGUE
    return counts


def sizes() -> dict[str, float]:
    """What the budget limits, beside the rooms."""
    counts = tree()
    python = sum(path.read_text().count("\n") for path in (ROOT / "tests").rglob("*.py"))
    return {
        "lines of loop": sum(counts.rooms.values()),
        "lines of tests": python,
        "short private functions called once": counts.fragments,
        "classes without behaviour": counts.records,
        "class names used twice": sum(number > 1 for number in counts.classes.values()),
        "vague names": counts.vague,
    }


def over_budget() -> list[str]:
    """Rooms and sizes above what tests/budget.json allows today."""
    rooms = tree().rooms
    lines = [
        f"{room}: {rooms[room]} lines, {limit} allowed"
        for room, limit in BUDGET["rooms"].items()
        if rooms[room] > limit
    ]
    unknown = [f"{room}: no budget" for room in rooms if room not in BUDGET["rooms"]]
    measured = sizes()
    return [
        *lines,
        *unknown,
        *(
            f"{name}: {measured[name]}, {limit} allowed"
            for name, limit in BUDGET["sizes"].items()
            if measured[name] > limit
        ),
    ]


def measures() -> Iterator[tuple[str, str, str]]:
    """Each measure with its value and its budget; the aim follows where the budget is not yet the aim."""
    counts = tree()
    for room, lines in counts.rooms.most_common():
        yield f"lines of {room}", f"{lines:,}", _limits("rooms", room)
    for name, value in sizes().items():
        yield name, f"{value:,.0f}", _limits("sizes", name)
    yield "functions", f"{len(counts.bodies):,}", ""
    yield "lines of a function's body, median", f"{statistics.median(counts.bodies):.0f}", "7"
    yield "import circles, files in them", str(len(layers.circles())), "0"
    yield "upward imports", str(len(layers.offenders(layers.upward))), "0"
    yield "places that branch on a sentence", str(len(sentence_branches())), "0"
    median, tail = words()
    yield "words of a sentence, median / 90th percentile", f"{median:.0f} / {tail:.0f}", "15 / 25"


def _limits(kind: str, name: str) -> str:
    limit, aim = BUDGET[kind].get(name), BUDGET["aims"].get(name)
    return f"{limit}" + (f" (aim {aim})" if aim not in (None, limit) else "")


if __name__ == "__main__":
    if "--write" in sys.argv:
        # A budget only falls: what became smaller may not grow again.
        today = {"rooms": tree().rooms, "sizes": sizes()}
        for kind, values in today.items():
            limits = BUDGET[kind]
            BUDGET[kind] = {name: min(limits.get(name, value), value) for name, value in sorted(values.items())}
        (ROOT / "tests" / "budget.json").write_text(json.dumps(BUDGET, indent=1) + "\n")
    for name, value, budget in measures():
        print(f"{name:58}{value:>16}   {budget}")
    for place in sentence_branches():
        print(f"  {place}")
