"""The AI that a session used, from the best source there is: agents' results, their logs, somebody's word."""

import datetime
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from loop.agents import ai_given, logs
from loop.agents.counting import total
from loop.agents.prices import price_list
from loop.agents.results import read_result
from loop.base.errors import LoopError
from loop.base.places import state_folder
from loop.model.metering import AiGiven, AiUse
from loop.model.money import RateCard
from loop.model.record import SessionHead
from loop.money.charging import NO_AI
from loop.repository import worktree
from loop.steps.setting import Setting
from loop.store.sessions import SessionFolder

CONSENT = "LOOP_METER_AI"


def given_by(result: Path | None, stated_usd: float | None, meter: bool) -> AiGiven:
    """What the options say. Raises LoopError for a result that is none, and for no amount."""
    if stated_usd is not None and not 0 <= stated_usd < float("inf"):
        raise LoopError(f"--ai-usd {stated_usd}: expected dollars, 0 or more", hint="--ai-usd 1.50")
    allowed = meter or os.environ.get(CONSENT, "") not in ("", "0")
    return AiGiven(meter=allowed, stated_usd=stated_usd, results=(_result(result),) if result else ())


def begin(
    setting: Setting, head: SessionHead, folder: SessionFolder, given: AiGiven, card: RateCard
) -> Iterator[str]:
    """Keep what was given with the session; says what will be read, before it is."""
    allowed = given.model_copy(update={"meter": given.meter or card.meter_ai})
    if ai_given.add(folder, allowed).meter:
        yield announce(setting, head)


def _result(path: Path) -> AiUse:
    try:
        printed = path.read_text(errors="replace")
    except OSError as error:
        raise LoopError(f"{path}: cannot be read: {error.strerror}", hint="--ai-result FILE") from error
    return read_result(printed, str(path), price_list())


def used(
    setting: Setting, head: SessionHead, folder: SessionFolder, now: datetime.datetime
) -> tuple[AiUse | None, str]:
    """What is known of a session's AI, the best source alone; else None, and why."""
    try:
        given = ai_given.read(folder)
    except LoopError as error:
        return None, error.message
    if given.results:
        return together(given.results), ""
    reason = NO_AI
    if given.meter:
        part = part_of(setting, head, now)
        found = logs.read(places(), part, price_list())
        if found is not None:
            return found, ""
        reason = f"the agents' logs hold no call from {_listed(part.folders)} in the session's time"
    if given.stated_usd is not None:
        return AiUse(source="stated", usd=given.stated_usd), ""
    return None, reason


def together(results: Sequence[AiUse]) -> AiUse:
    """What several runs of agents used."""
    agents = dict.fromkeys(agent for one in results for agent in one.agents)
    models = [model for one in results for model in one.models]
    notes = dict.fromkeys(note for one in results for note in one.notes)
    whole = total(models, "result", tuple(agents), tuple(notes))
    known = [one.usd for one in results if one.usd is not None]
    unpriced = dict.fromkeys(name for one in results for name in one.unpriced)
    return whole.model_copy(update={"usd": sum(known) if known else None, "unpriced": tuple(unpriced)})


def places() -> logs.Places:
    """Where agents keep their logs."""
    return logs.places(Path.home(), os.environ)


def part_of(setting: Setting, head: SessionHead, now: datetime.datetime) -> logs.Part:
    """The session's time, hand-overs included, in the target's repository and in the session's worktrees."""
    target = setting.project.target
    tree = state_folder() / "worktrees" / f"{head.id}-{head.ground[:8]}"
    return logs.Part((worktree.top_of(target) or target, tree), head.started, now)


def announce(setting: Setting, head: SessionHead) -> str:
    """What will be read, for the user to see before it is."""
    part = part_of(setting, head, head.started)
    where = _listed(tuple(places()))
    return f"AI is metered: at its end loop reads agents' logs ({where}) for calls from {_listed(part.folders)}"


def _listed(paths: Sequence[Path]) -> str:
    return ", ".join(str(path) for path in paths)
