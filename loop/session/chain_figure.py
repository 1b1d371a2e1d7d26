"""The chain of patterns as it ran: a box a run, from top to bottom; answers stand to the right."""

from collections.abc import Iterator, Sequence

from loop.report import format as say
from loop.report.figures import svg
from loop.report.figures.svg import Figure
from loop.session.chain import Link

WIDE, HIGH, GAP, IN = 340.0, 38.0, 18.0, 130.0
MIDDLE = 24.0
SIGNS = {"passed": "✓", "failed": "✗", "paused": "‖", "skipped": "–", "open": "…"}
EDGES = {"passed": "good", "failed": "bad"}


def chain_figure(links: Sequence[Link]) -> Figure | None:
    """The figure; None where nothing was begun."""
    if not links:
        return None
    places = [
        (MIDDLE + (0 if link.answers is None else IN), 40 + place * (HIGH + GAP))
        for place, link in enumerate(links)
    ]
    parts = [svg.text(12, 22, "The chain as it ran", "big ink")]
    parts += [part for one in _arrows(links, places) for part in one]
    for link, (x, y) in zip(links, places, strict=True):
        parts += _box(link, x, y)
    return svg.drawn("chain", "The chain as it ran", _told(links), 40 + len(links) * (HIGH + GAP), parts)


def _box(link: Link, x: float, y: float) -> Iterator[str]:
    dash = "4 3" if link.status in ("open", "skipped", "paused") else ""
    yield svg.rect(x, y, WIDE, HIGH, "box", stroke=EDGES.get(link.status, "soft"), dash=dash)
    yield svg.text(x + 12, y + 25, SIGNS.get(link.status, ""), EDGES.get(link.status, "soft"))
    yield svg.text(x + 30, y + 17, link.title, room=WIDE - 40)
    yield svg.text(x + 30, y + 33, link.outcome, "soft", room=WIDE - 40)


def _arrows(links: Sequence[Link], places: Sequence[tuple[float, float]]) -> Iterator[list[str]]:
    last = 0
    for place, link in enumerate(links[1:], start=1):
        x, y = places[place]
        if link.answers is None:
            yield _down(places[last][1] + HIGH, y, "soft" if link.status != "open" else "line")
            last = place
        else:
            yield _answer(places[link.answers], (x, y), link.when)


def _down(start: float, end: float, kind: str) -> list[str]:
    x = MIDDLE + 60
    head = svg.path(((x - 4, end - 7), (x, end - 1), (x + 4, end - 7)), kind)
    return [svg.line(x, start, x, end - 1, kind, wide=1.5), head]


def _answer(start: tuple[float, float], end: tuple[float, float], when: str) -> list[str]:
    """From the right of what failed down into the top of its answer, with the outcome that it answers."""
    x, y = start[0] + WIDE + 24, start[1] + HIGH / 2
    if start[0] == end[0]:
        x = start[0] + WIDE / 2
        line = svg.line(x, start[1] + HIGH, x, end[1] - 1, "bad", wide=1.5, dash="4 3")
    else:
        corner = [(start[0] + WIDE, y), (x, y), (x, end[1] - 1)]
        line = svg.path(corner, "bad")
    head = svg.path(((x - 4, end[1] - 7), (x, end[1] - 1), (x + 4, end[1] - 7)), "bad")
    said = svg.text(x + 8, y + 4, f"when {when}", "soft", room=svg.WIDTH - x - 16) if when else ""
    return [line, head, said]


def _told(links: Sequence[Link]) -> str:
    said = []
    for link in links:
        answers = f", in answer to {links[link.answers].title}" if link.answers is not None else ""
        said.append(f"{link.title}: {link.outcome}{answers}")
    return f"{say.count(len(links), 'pattern')}. " + "; ".join(said)
