"""A brief as a page: what a person or an agent is asked to change, and how it will be judged."""

from pathlib import Path

from loop.model.change import Brief, JudgedChange
from loop.model.profile import FACTS
from loop.profile.section import leaf, value
from loop.report import format as say
from loop.report.markdown import Table, columns, filled
from loop.report.templates import environment

TEMPLATE = "brief.md.j2"


def render_brief(templates: Path, brief: Brief) -> str:
    """The page as Markdown. `templates`: the folder of brief.md.j2."""
    template = environment(templates).get_template(TEMPLATE)
    return template.render(
        brief=brief,
        leaf=leaf(brief.profile) if brief.profile else None,
        facts=facts(brief),
        tried=tried(brief),
        lost=lost(brief),
    )


def facts(brief: Brief) -> Table | None:
    """What is known of the variant on that workload, with its source; why the rest is not."""
    one = brief.profile
    if one is None:
        return None
    rows = tuple(
        (
            name,
            value(one.facts[name]) if one.facts.get(name) is not None else "unknown",
            meaning,
            _note(brief, name),
        )
        for name, meaning in FACTS.items()
        if one.facts.get(name) is not None or name in one.unknown
    )
    return filled(columns("Fact", ">Value", "What it is", "Source"), rows)


def _note(brief: Brief, name: str) -> str:
    assert brief.profile is not None
    return brief.profile.sources.get(name) or brief.profile.unknown.get(name, "")


def tried(brief: Brief) -> Table | None:
    """The changes of this session that were judged before."""
    rows = tuple(
        (str(one.number), one.variant, one.outcome, _gain(one), one.reason, one.patch) for one in brief.tried
    )
    return filled(columns(">Change", "Variant", "Outcome", ">Speed", "Why", "Patch"), rows)


def lost(brief: Brief) -> Table | None:
    """Changes that earlier sessions took back."""
    rows = tuple((one.session, ", ".join(one.files), _gain(one), one.reason, one.patch) for one in brief.lost)
    return filled(columns("Session", "Files", ">Speed", "Why it was taken back", "Patch"), rows)


def _gain(change: JudgedChange) -> str:
    return say.times(change.gain) if change.gain else "not timed"
