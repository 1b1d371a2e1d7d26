"""Plans, patterns and answers as a drawing: Mermaid for Markdown, lines for a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from loop.report.plain import shortened

LONGEST = 60
"""Characters of a label."""
MERMAID = frozenset('"#&<>`|{}[]()\\;@%*_~$')
"""Marks that Mermaid or the Markdown in its labels would act on; each is written as its number."""


@dataclass(frozen=True)
class Answer:
    """One pattern answers an outcome of another."""

    pattern: str
    when: str
    to: str


@dataclass(frozen=True)
class Graph:
    """Plans with their patterns in order, and the answers of patterns."""

    plans: Mapping[str, Sequence[str]]
    answers: Sequence[Answer]


def mermaid(graph: Graph) -> str:
    """A flowchart: a frame for each plan with its chain, and one for what answers which outcome.

    A pattern stands in every plan that lists it: arrows from all plans to one box each cannot be followed.
    """
    lines = ["flowchart TB"]
    for number, (plan, chain) in enumerate(graph.plans.items(), 1):
        lines += [f'  subgraph plan{number}["plan {_mermaid(plan)}"]', "    direction TB"]
        lines += [f'    plan{number}_{n}["{_mermaid(name)}"]' for n, name in enumerate(chain, 1)]
        lines += [f"    plan{number}_{n} --> plan{number}_{n + 1}" for n in range(1, len(chain))]
        lines.append("  end")
    names = _answering(graph)
    if names:
        lines += ['  subgraph answers["answers to outcomes"]', "    direction LR"]
        lines += [f'    {node}["{_mermaid(name)}"]' for name, node in names.items()]
        lines += [
            f'    {names[one.pattern]} -.->|"{_mermaid(one.when)}"| {names[one.to]}' for one in graph.answers
        ]
        lines.append("  end")
    return "\n".join(lines) + "\n"


def tree(graph: Graph) -> Iterator[str]:
    """The same as lines for a terminal: each plan, its patterns, and what answers them."""
    for plan, chain in graph.plans.items():
        yield f"plan {plan}"
        for pattern, (branch, stem) in zip(chain, _branches(len(chain)), strict=True):
            yield f"  {branch} {pattern}"
            answers = [one for one in graph.answers if one.pattern == pattern]
            for one, (twig, _) in zip(answers, _branches(len(answers)), strict=True):
                yield f"  {stem}  {twig} when {one.when}: {one.to}"


def _branches(count: int) -> Iterator[tuple[str, str]]:
    """What stands before each of so many lines, and before what hangs below it."""
    yield from [("├─", "│ ")] * (count - 1)
    yield from [("└─", "  ")] * (count > 0)


def _answering(graph: Graph) -> dict[str, str]:
    """Patterns that answer or are answered, to names of boxes: letters and numbers, whatever they are called."""
    named = dict.fromkeys(name for one in graph.answers for name in (one.pattern, one.to))
    return {name: f"pattern{number}" for number, name in enumerate(named, 1)}


def _mermaid(text: str) -> str:
    """A label between quotes: all that is not plain by its number, which Mermaid takes back."""
    shown = shortened(text, LONGEST)
    return "".join(f"#{ord(letter)};" if letter in MERMAID else letter for letter in shown)
