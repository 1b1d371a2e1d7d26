"""What a session spent on AI: agents' own results, else what the user stated. Kept as `ai.json` in its folder."""

from collections.abc import Sequence
from typing import Literal

from loop.base.documents import sums
from loop.base.errors import LoopError, UsageError, WorkFailed
from loop.model.base import Stored
from loop.model.money import AiUse
from loop.store.sessions import SessionFolder

NAME = "ai.json"


class AiGiven(Stored):
    """What agents reported and what the user stated; kept with the session, and so over a resume."""

    format: Literal[1] = 1
    """Format number."""
    stated_usd: float | None = None
    """What the AI cost, as the user says."""
    results: tuple[AiUse, ...] = ()
    """What agents reported of themselves, one a run."""


def stated(usd: float | None) -> AiGiven:
    """What `--ai-usd` says. Raises LoopError for what is no amount."""
    if usd is not None and not 0 <= usd < float("inf"):
        raise UsageError(f"--ai-usd {usd}: expected dollars, 0 or more", hint="--ai-usd 1.50")
    return AiGiven(stated_usd=usd)


def read(folder: SessionFolder) -> AiGiven:
    """What was given so far. Raises LoopError when the file is damaged."""
    path = folder.path / NAME
    try:
        return sums.read_sealed(AiGiven, path) if path.exists() else AiGiven()
    except OSError as error:
        raise WorkFailed(f"{path}: cannot be read: {error.strerror}") from error


def add(folder: SessionFolder, given: AiGiven) -> None:
    """Keep what is given on top of what was: results add up, a stated amount replaces the one before."""
    before = read(folder)
    usd = before.stated_usd if given.stated_usd is None else given.stated_usd
    after = AiGiven(stated_usd=usd, results=(*before.results, *given.results))
    if after != before:
        sums.write_sealed(folder.path / NAME, after)


def used(folder: SessionFolder) -> tuple[AiUse | None, str]:
    """What is known of a session's AI, the best source alone; else None, and why where a file is damaged."""
    try:
        given = read(folder)
    except LoopError as error:
        return None, error.message
    use = together(given.results) if given.results else None
    if given.stated_usd is not None and (use is None or use.usd is None):
        use = use or AiUse(source="stated", usd=None)
        use = use.model_copy(update={"source": "stated", "usd": given.stated_usd, "unpriced": ()})
    return use, ""


def together(results: Sequence[AiUse]) -> AiUse:
    """What several runs of agents used."""
    known = [one.usd for one in results if one.usd is not None]
    return AiUse(
        source="result",
        agents=tuple(dict.fromkeys(agent for one in results for agent in one.agents)),
        models=tuple(model for one in results for model in one.models),
        usd=sum(known) if known else None,
        unpriced=tuple(dict.fromkeys(name for one in results for name in one.unpriced)),
        notes=tuple(dict.fromkeys(note for one in results for note in one.notes)),
    )
