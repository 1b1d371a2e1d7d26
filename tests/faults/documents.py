"""Generated YAML and expressions are read, or refused with line and column, quickly and in little memory."""

import ast
import copy
import functools
import json
import random
import re
import resource
import string
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from loop.base.documents import load_yaml, parse
from loop.base.errors import DefinitionError
from loop.base.expressions import ALLOWED_NODES, Expression, ExpressionError
from loop.model.base import Model
from loop.model.plan import Pattern
from loop.model.target import Target
from tests.base.test_expressions import PIECES, VALUES
from tests.conftest import ROOT
from tests.faults import Case

NAME = "YAML 10,000 and expressions 5,000, generated, 100 a case"
MUST = "no traceback, each with line and column, <= 1 s and 50 ms, <= 200 MB"
YAML, EXPRESSIONS, EACH = 10_000, 5_000, 100
YAML_S, EXPRESSION_S = 1.0, 0.05  # Processor seconds of one.
LARGEST_MIB = 200
FILES: list[tuple[type[Model], Path]] = [
    (Pattern, ROOT / "patterns" / "baseline-first.yaml"),
    (Target, ROOT / "kernels" / "attention" / "target.yaml"),
]
DAMAGE = [None, True, 0, -1, 1.5, 10**299, "", "soon", "c_abi", "é" * 200, [], {}, [[]], {"kind": "python"}, ["x"]]
PLACED = re.compile(r"x\.yaml:\d+:\d+: .*expected .*, got ", re.DOTALL)
SIGNS = [
    *"[]{},:#&*!|>'\"%@`-?\n\t ",
    *(
        ": ",
        "- ",
        "? ",
        "\n  ",
        "\n    ",
        "\r\n",
        "---\n",
        "...\n",
        "<<: ",
        "&a ",
        "*a ",
        "!!str ",
        "|+2\n",
        ">-\n",
    ),
    *("a", "b: 1", "key:\n", "no", "true", "~", "1e-3", "0x", "0o7", "1e999", ".inf", "12:30:45", "\\", '"\\x'),
    *("\x00", "\x85", "\u2028", "\ufeff", "é", "😀", "\ud800", "9" * 400, "{a: ", "[[", "]]", "%YAML 1.2\n"),
]
SEED = """format: 1
name: baseline
steps:
  - id: build
    with: {flags: [-O3, "-g"], limit: 1.5e1}
    gate: >
      build.ok and
      not failed
    note: 'it''s'
"""


def cases(seed: int) -> Iterator[Case]:
    """A hundred texts a case."""
    for number in range(YAML // EACH):
        start = number * EACH
        yield f"YAML {start} to {start + EACH - 1}", functools.partial(many, seed=seed, start=start, check=yaml)
    for number in range(EXPRESSIONS // EACH):
        start = number * EACH
        name = f"expressions {start} to {start + EACH - 1}"
        yield name, functools.partial(many, seed=seed, start=start, check=expression)


def many(folder: Path, *, seed: int, start: int, check: Callable[[random.Random], str]) -> str:
    """Check a hundred texts; returns what the first bad one broke, else ""."""
    base_mib, slowest = peak_mib(), 0.0
    for number in range(start, start + EACH):
        began = time.process_time()
        broken = check(random.Random(f"{seed} {check.__name__} {number}"))
        slowest = max(slowest, time.process_time() - began)
        if broken:
            return f"{number}: {broken}"
    (folder / f"figure-slowest {check.__name__}, processor seconds").write_text(f"{slowest:.4f}")
    grown = peak_mib() - base_mib
    (folder / "figure-MiB of memory more").write_text(f"{grown:.1f}")
    return f"{grown:.0f} MiB of memory more" if grown > LARGEST_MIB else ""


def peak_mib() -> float:
    """Most memory that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def yaml(draw: random.Random) -> str:
    """One text of four kinds: signs in any order, a good file damaged, any data, a definition damaged."""
    text = draw.choice([pieces, damaged, any_data, definition])(draw)
    return within(YAML_S, text, lambda: read(text))


def read(text: str) -> str:
    """Read a text as YAML and as a pattern; returns a complaint that has no line and column, else ""."""
    try:
        document = load_yaml(text, "x.yaml")
        parse(Pattern, document)
    except DefinitionError as error:
        places = [str(complaint) for complaint in error.complaints]
        misplaced = [place for place in [error.message, *places] if not PLACED.match(place)]
        return f"no place in {misplaced[0]!r}" if misplaced else ""
    return ""


def any_data(draw: random.Random) -> str:
    """Data that is no definition at all."""
    return json.dumps({"a": plain_data(draw)}, ensure_ascii=False)


@functools.cache
def _whole(path: Path) -> str:
    return json.dumps(load_yaml(path).data)


def definition(draw: random.Random) -> str:
    """A good definition with values replaced, removed and added."""
    data: Any = json.loads(_whole(draw.choice(FILES)[1]))
    for _ in range(draw.randint(1, 3)):
        damage(data, draw)
    return json.dumps(data, indent=1)


def expression(draw: random.Random) -> str:
    """Check one expression: usually a valid one, or pieces of the grammar in any order."""
    text = grow(draw) if draw.random() < 0.5 else " ".join(draw.choices(PIECES, k=draw.randint(1, 15)))
    number = draw.random() < 0.7
    return within(EXPRESSION_S, text, lambda: answered(text, number=number))


def answered(text: str, *, number: bool) -> str:
    """Evaluate an expression; returns how it broke the rules, else "". A refused gate must have a place."""
    try:
        parsed = Expression.parse(text)
        foreign = {type(node).__name__ for node in ast.walk(parsed.tree) if not isinstance(node, ALLOWED_NODES)}
        if foreign:
            return f"{sorted(foreign)} in {text!r}"
        answer = parsed.evaluate_number(VALUES) if number else parsed.evaluate_bool(VALUES)
        return "" if isinstance(answer, float | bool) else f"the answer {answer!r} of {text!r}"
    except ExpressionError:  # As a gate of a pattern it is refused with its place.
        data = json.loads(_whole(FILES[0][1]))
        data["steps"][0]["gate"] = text
        return read(json.dumps(data, indent=1))


def within(limit_s: float, text: str, work: Callable[[], str]) -> str:
    """What `work` broke; an exception counts, and so does exceeding the limit of processor time three times."""
    took = []
    for _ in range(3):
        began = time.process_time()
        try:
            broken = work()
        except Exception as error:
            return f"{type(error).__name__}: {error} of {text[:200]!r}"
        took.append(time.process_time() - began)
        if broken or took[-1] <= limit_s:
            return broken
    return f"{min(took):.2f} s of {text[:200]!r}"


def damage(data: Any, chance: random.Random) -> None:
    """Replace, remove or add one value somewhere in nested data."""
    inner = [
        value
        for value in (data.values() if isinstance(data, dict) else data)
        if value and type(value) in (dict, list)
    ]
    if inner and chance.random() < 0.8:
        damage(chance.choice(inner), chance)
        return
    keys = list(data) if isinstance(data, dict) else list(range(len(data)))
    if not keys or chance.random() < 0.2:
        keys = ["with", "kind", "bogus"] if isinstance(data, dict) else []
    elif chance.random() < 0.3:
        del data[chance.choice(keys)]
        return
    if keys:
        data[chance.choice(keys)] = copy.deepcopy(chance.choice(DAMAGE))


def plain_data(chance: random.Random, depth: int = 0) -> Any:
    """Random plain data."""
    kind = chance.randint(0, 8 if depth < 5 else 5)
    if kind > 6:
        return {word(chance): plain_data(chance, depth + 1) for _ in range(chance.randint(0, 4))}
    if kind == 6:
        return [plain_data(chance, depth + 1) for _ in range(chance.randint(0, 4))]
    scalars = (None, chance.random() < 0.5, chance.randint(-(10**12), 10**12), chance.uniform(-1e9, 1e9))
    return [*scalars, word(chance), chance.choice(("no", "1e3", "12:30:45", "~", ""))][kind]


def word(chance: random.Random) -> str:
    """A random short text."""
    return "".join(chance.choices(string.ascii_letters + " :#-'\"\\[]{},\n\té", k=chance.randint(0, 8)))


def pieces(chance: random.Random) -> str:
    """Signs of the grammar in any order."""
    return "".join(chance.choices(SIGNS, k=chance.randint(1, 60)))


def damaged(chance: random.Random) -> str:
    """A good file with some characters changed, left out or put in."""
    text = list(SEED)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(text))
        text[at] = chance.choice(["", text[at] * 2, chance.choice(SIGNS)])
    return "".join(text)


def grow(chance: random.Random, depth: int = 0) -> str:
    """A random expression, usually a valid one."""
    if depth > 3 or chance.random() < 0.3:
        return chance.choice(
            ["B", "S", "causal", "build.units", "build.unknown", "absent", "1", "0", "'x'", "none", "true"]
        )
    left, right = grow(chance, depth + 1), grow(chance, depth + 1)
    shape = chance.choice(
        ["{} + {}", "{} - {}", "{} / {}", "{} // {}", "{} * {}", "{} < {}", "{} == {}", "{} and {}", "{} or {}"]
    )
    shapes = [
        shape.format(left, right),
        f"({left})",
        f"not {left}",
        f"-({left})",
        f"{left} in [1, 'x']",
        f"({left}) if ({right}) else 1",
    ]
    return chance.choice(shapes)
