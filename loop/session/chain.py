"""The chain of patterns as it ran: which came after which, which answered which, and how each ended."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from loop.model.plan import ResolvedPlan
from loop.model.record import Finished, latest_attempts
from loop.report import format as say
from loop.report.plain import one_line, shortened
from loop.session.course import ended

LONGEST = 60
"""Letters of a title."""
MOST = 60
"""Runs that are drawn."""


@dataclass(frozen=True)
class Link:
    """One run of a pattern, or a planned pattern that was not reached."""

    title: str
    outcome: str
    """`passed`, `failed at verify`, `not reached`."""
    status: str
    """One word for its colour: passed, failed, skipped, paused or open."""
    answers: int | None
    """Place of the link that it answers; None where it follows by plan."""
    when: str
    """The outcome that it answers, as the pattern has it."""


def chain(finished: Sequence[Finished], plan: ResolvedPlan) -> tuple[Link, ...]:
    """The runs in their order, then what was planned and not reached."""
    records = latest_attempts(finished)
    every = list(dict.fromkeys((one.run, one.pattern) for one in records))
    runs = every[:MOST]
    links: list[Link] = []
    for place, (run, name) in enumerate(runs):
        mine = [one for one in records if (one.run, one.pattern) == (run, name)]
        answered, when = _answered(place, [pattern for _, pattern in runs], plan)
        planned = plan.find(name)
        outcome = ended(mine, len(planned.pattern.steps))
        took = say.seconds(sum(one.seconds for one in mine))
        links.append(Link(planned.pattern.title, f"{outcome}, {took}", _status(outcome), answered, when))
    if len(every) > MOST:
        links.append(
            Link(say.count(len(every) - MOST, "more run"), "in the table of patterns", "skipped", None, "")
        )
    reached = {name for _, name in every}
    for one in plan.patterns:
        if one.planned and one.pattern.name not in reached:
            links.append(Link(one.pattern.title, "not reached", "open", None, ""))
    return tuple(links)


def _status(outcome: str) -> str:
    word = outcome.split()[0]
    return {"aborted": "failed", "stopped": "failed"}.get(word, word)


def _answered(place: int, names: Sequence[str], plan: ResolvedPlan) -> tuple[int | None, str]:
    """The run before it whose outcome it answers; none for what the plan lists."""
    if plan.find(names[place]).planned and names.index(names[place]) == place:
        return None, ""
    for earlier in range(place - 1, -1, -1):
        for one in plan.find(names[earlier]).pattern.next:
            if one.pattern == names[place]:
                return earlier, one.when
    return None, ""


def mermaid(links: Sequence[Link]) -> tuple[str, ...]:
    """Lines of a Mermaid flowchart. Texts are data: any letter with a meaning there is written by number."""
    if not links:
        return ()
    lines = ["flowchart TD"]
    for place, link in enumerate(links):
        lines.append(f'  p{place}["{_quoted(link.title)}<br/>{_quoted(link.outcome)}"]:::{link.status}')
    last = 0
    for place, link in enumerate(links[1:], start=1):
        if link.answers is not None:
            lines.append(f'  p{link.answers} -. "{_quoted(link.when)}" .-> p{place}')
            continue
        lines.append(f"  p{last} {'-.-' if link.status == 'open' else '-->'} p{place}")
        last = place
    return (*lines, *_CLASSES)


_CLASSES = (
    "  classDef passed stroke:#0067a5,stroke-width:2px",
    "  classDef failed stroke:#b34700,stroke-width:4px",
    "  classDef paused stroke:#8f3d78,stroke-width:2px,stroke-dasharray:6 3",
    "  classDef skipped stroke:#59636e,stroke-dasharray:2 2",
    "  classDef open stroke:#59636e,stroke-dasharray:2 2",
)
"""Edges only: what is inside a box is the reader's theme."""


def _quoted(text: str) -> str:
    """Text between two quotes; Mermaid knows `#60;` as the letter of that number."""
    return re.sub(r"[^\w .,:/()+=-]", lambda one: f"#{ord(one.group())};", shortened(one_line(text), LONGEST))
