"""The figures of a session: which there are, and in which section each stands."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from loop.model.output import outputs_of
from loop.model.record import Finished, Line, SessionRecord
from loop.profile.model import ProfileOutput
from loop.report.figures.error_map import error_map
from loop.report.figures.ratios import ratios
from loop.report.figures.roofline import roofline
from loop.report.figures.svg import Figure
from loop.report.figures.timeline import timeline
from loop.report.spans import spans
from loop.session.chain import chain
from loop.session.chain_figure import chain_figure


@dataclass(frozen=True)
class Pictures:
    """One field a figure; None where there is nothing to draw."""

    chain: Figure | None
    timeline: Figure | None
    error_map: Figure | None
    ratios: Figure | None
    roofline: Figure | None

    @property
    def drawn(self) -> tuple[Figure, ...]:
        """Those that there are."""
        values = [getattr(self, field.name) for field in fields(self)]
        return tuple(value for value in values if value is not None)


def pictures(record: SessionRecord, finished: Sequence[Finished], lines: Sequence[Line] = ()) -> Pictures:
    """Every figure of a session. `lines`: its journal, for the times; without it steps follow one another."""
    head = record.head
    profiles = [one for output in outputs_of(finished, ProfileOutput) for one in output.profiles]
    return Pictures(
        chain=chain_figure(chain(finished, head.plan)),
        timeline=timeline(spans(lines, finished)),
        error_map=error_map(finished),
        ratios=ratios(record.verdicts, head.baseline),
        roofline=roofline(profiles, head.baseline),
    )
