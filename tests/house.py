"""`make house`: measures of the source tree. `--times` adds start-up times."""

import ast
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests import test_layers as layers
from tests.conftest import ROOT

PAGES = (ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md")))
"""Pages whose sentences are measured; the reference is generated."""
SENTENCES = ("message", "hint", "reason", "why", "note", "explanation", "detail")
"""Names of fields and variables that hold text which somebody wrote to be read."""
PARTS = (
    "startswith",
    "endswith",
    "find",
    "removeprefix",
    "removesuffix",
    "partition",
    "rpartition",
    "split",
    "replace",
)
SEARCHES = ("search", "match", "fullmatch", "findall", "finditer")
STARTS = {
    "loop --help": [sys.executable, "-c", "from loop.cli import main; main()", "--help"],
    "loop patterns list": [sys.executable, "-c", "from loop.cli import main; main()", "patterns", "list"],
}
FLOOR = [sys.executable, "-c", "import typer, rich, pydantic"]


def branches_on_text(path: Path) -> Iterator[str]:
    """Conditions that look into a sentence which somebody wrote to be read: a message, a reason, a hint."""
    for node in ast.walk(ast.parse(path.read_text())):
        if (isinstance(node, ast.Compare) and _looks_into(node)) or (
            isinstance(node, ast.Call) and _searches(node)
        ):
            yield f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"


def _looks_into(node: ast.AST) -> bool:
    """`"word" in one.message`, or `one.message == "word"`; whether there is one at all may be asked."""
    if not isinstance(node, ast.Compare):
        return False
    sides = [node.left, *node.comparators]
    inside = any(isinstance(operator, ast.In | ast.NotIn) for operator in node.ops)
    equal = any(isinstance(operator, ast.Eq | ast.NotEq) for operator in node.ops)
    words = any(isinstance(side, ast.Constant) and isinstance(side.value, str) and side.value for side in sides)
    return (inside and _read(node.comparators[-1])) or (equal and words and any(map(_read, sides)))


def _searches(node: ast.AST) -> bool:
    """`one.message.partition(...)`, or `re.search(..., reason)`."""
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
    found = (
        " ".join(part.split()) for block in re.split(r"\n\s*\n", text) for part in re.split(r"(?<=[.!?])\s", block)
    )
    return [one for one in found if len(one.split()) > 1]


def sentence_branches() -> list[str]:
    """All places that branch on a sentence."""
    return [one for path in layers.FILES for one in branches_on_text(path)]


def edited() -> set[str]:
    """Files that CONTRIBUTING's recipes edit by hand for an action that shows in the report, with its test."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    recipes = re.findall(r"^## Add (?:an action|a report section)$.*?(?=^## )", page, re.MULTILINE | re.DOTALL)
    files = {
        path for recipe in recipes for path in re.findall(r"^```(?:python|diff) (\S+)$", recipe, re.MULTILINE)
    }
    return {path for path in files if path.startswith("loop/") and not path.endswith("__init__.py")} | {"its test"}


def way_of_a_verdict() -> set[str]:
    """Files from samples to the word: what `ratios` and `verdicts` import of their room `timing`."""
    room = [path for path in layers.FILES if layers.room_of(path) == "timing"]
    modules = {layers.module_of(path): path for path in room}
    known, rest = set[str](), {"loop.timing.ratios", "loop.timing.verdicts"}
    while rest:
        known |= rest
        rest = {one for name in rest for one in layers.modules_imported(modules[name], modules)} & set(
            modules
        ) - known
    return known


def words() -> tuple[float, float]:
    """Words of a sentence, the median and the 90th percentile."""
    counts = [len(one.split()) for page in PAGES for one in sentences(page.read_text())]
    return statistics.median(counts), statistics.quantiles(counts, n=10)[-1]


def seconds(command: list[str], times: int = 7) -> float:
    """Seconds that a command takes, the median."""
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def measures() -> Iterator[tuple[str, str, str]]:
    """Each measure with its value and what it must be."""
    lines = sum(len(path.read_text().splitlines()) for path in layers.FILES)
    yield "lines of loop/", f"{lines:,}", ""
    yield "import circles, files in them", str(len(layers.circles())), "0"
    yield "upward imports", str(len(layers.offenders(layers.upward))), "0"
    yield "places that branch on a sentence", str(len(sentence_branches())), "0"
    yield "files edited to add an action that shows in the report", str(len(edited())), "4"
    yield "files from samples to the word of a verdict, one room", str(len(way_of_a_verdict())), "3"
    median, most = words()
    yield "words of a sentence, median / 90th percentile", f"{median:.0f} / {most:.0f}", "15 / 25"


if __name__ == "__main__":
    for name, value, must in measures():
        print(f"{name:58}{value:>16}   {must}")
    for one in sentence_branches():
        print(f"  {one}")
    if "--times" in sys.argv:
        floor = seconds(FLOOR)
        for name, command in STARTS.items():
            print(f"{name:58}{seconds(command) / floor:>16.2f}   x `import typer, rich, pydantic`")
