"""Where a wrong output is wrong: each dimension in parts, each part with its largest error."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loop.model.measurement import Check, MapPart
from loop.model.output import VerifyOutput, outputs_of
from loop.model.record import Finished
from loop.report import format as say
from loop.report.figures import svg
from loop.report.figures.svg import Figure

MOST = 4
"""Variants whose first failure is drawn; of more it is said how many."""
LEFT, ROW = 64.0, 44.0
HUGE = 1e300
"""From here on an error says no more than that it is not finite."""


@dataclass(frozen=True)
class Wrong:
    """The first check of a variant that has a map."""

    variant: str
    check: Check


def error_map(finished: Sequence[Finished]) -> Figure | None:
    """The figure; None where nothing is wrong, or nobody knows where."""
    every = list(_wrong(finished))
    wrong, left = every[:MOST], len(every[MOST:])
    if not wrong:
        return None
    parts, y = [svg.text(12, 22, "Where it is wrong", "big ink"), *_key()], 62.0
    for one in wrong:
        check = one.check
        said = f"{one.variant} on {check.workload.name}: {check.wrong:,} of {check.total:,} elements wrong"
        parts.append(svg.text(12, y + 4, said, room=svg.WIDTH - 24))
        y += 16
        for name, stretches in one.check.map.items():
            parts += _strip(name, stretches, y)
            y += ROW
        y += 14
    more = f"and {say.count(left, 'more variant')}" if left else ""
    parts += [svg.text(12, y + 4, more, "soft")] if more else []
    told = ". ".join(filter(None, (_told(wrong), more)))
    return svg.drawn("error-map", "Where the output is wrong", told, y + (18 if more else 0), parts)


def _wrong(finished: Sequence[Finished]) -> Iterator[Wrong]:
    seen = set()
    for checks in (one for output in outputs_of(finished, VerifyOutput) for one in output.variants):
        for check in checks.checks:
            if not check.passed and check.map and checks.variant not in seen:
                seen.add(checks.variant)
                yield Wrong(checks.variant, check)


def _key() -> Iterator[str]:
    yield svg.rect(12, 31, 14, 10, "box", stroke="line")
    yield svg.text(32, 40, "right", "soft")
    yield svg.rect(76, 31, 14, 10, "bad")
    yield svg.text(96, 40, "wrong; fuller: larger", "soft")
    yield svg.rect(252, 31, 14, 10, "bad", stroke="ink", dash="2 2")
    yield svg.text(272, 40, "not a number", "soft")


def _strip(name: str, stretches: Sequence[MapPart], top: float) -> Iterator[str]:
    """One dimension: a box a part, filled from below by the size of its largest error."""
    yield svg.text(LEFT - 8, top + 17, name, anchor="end", room=LEFT - 12)
    wide = (svg.WIDTH - 12 - LEFT) / len(stretches)
    for place, part in enumerate(stretches):
        x = LEFT + wide * place
        yield svg.rect(x, top, wide - 3, 24, "box", stroke="line")
        if part.wrong:
            share = _share(part, stretches)
            dash = "2 2" if _not_finite(part) else ""
            yield svg.rect(
                x, top + 24 * (1 - share), wide - 3, 24 * share, "bad", stroke="ink" if dash else "", dash=dash
            )
        yield svg.text(x + (wide - 3) / 2, top + 37, _said(part), "soft", anchor="middle", room=wide)


def _not_finite(part: MapPart) -> bool:
    return part.largest is None or part.largest > HUGE


def _share(part: MapPart, stretches: Sequence[MapPart]) -> float:
    """How full a box is: 1 for the largest error of its row, a quarter for one 10,000 times smaller, and below."""
    finite = [one.largest for one in stretches if one.wrong and one.largest and not _not_finite(one)]
    if _not_finite(part) or not part.largest or not finite:
        return 1.0
    return max(0.25, 1 + 0.75 * math.log10(part.largest / max(finite)) / 4)


def _said(part: MapPart) -> str:
    span = f"{part.first}" if part.first == part.last else f"{part.first}-{part.last}"
    if not part.wrong:
        return span
    return f"{span}: {'nan' if _not_finite(part) else f'{part.largest:.2g}'}"


def _told(wrong: Sequence[Wrong]) -> str:
    said = []
    for one in wrong:
        rows = [
            f"{name} {', '.join(_said(part) for part in parts if part.wrong)}"
            for name, parts in one.check.map.items()
        ]
        where = say.count(one.check.wrong, "element")
        said.append(
            f"{one.variant} on {one.check.workload.name}, {where} wrong, largest error along {'; '.join(rows)}"
        )
    return ". ".join(said)
