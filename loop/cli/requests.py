"""Commands that are short stories: a session by its options, and trust in a project."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from loop.agents import results
from loop.base.documents import to_json, write_atomic
from loop.base.errors import ExitCode, UsageError
from loop.base.locks import held
from loop.base.places import Project
from loop.base.screen import Screen
from loop.formats.translated import made_of
from loop.jobs import executor
from loop.learning.predicting import Foreseen
from loop.library import trust
from loop.model.base import Printed
from loop.model.campaign import TUNER, Campaign
from loop.model.exported import ExportedSession
from loop.optimize.stopping import STOP
from loop.session.bounds import Asked
from loop.session.opening import SessionRequest
from loop.session.run import resume_session
from loop.session.run import run_session as run_new
from loop.steps.setting import read_setting, what_runs
from loop.store import sessions
from loop.store.sessions import SessionFolder
from loop.timing.theirs import EvaluatorTerms


class TrustGranted(Printed):
    """A project's definitions are allowed, until they change; or what a stored session runs."""

    target: str
    """Folder of the project or the session."""
    trusted: Literal[True] = True
    """Always so."""
    runs: tuple[str, ...]
    """Every command and code that they run."""


class Stopping(Printed):
    """A campaign ends after its candidate."""

    session: str
    """Its session."""
    stopping: Literal[True] = True
    """Always so."""


SessionAnswer = ExportedSession | Foreseen
"""A session that was run; with `--dry-run`, what it would take."""
CampaignAnswer = ExportedSession | Foreseen | Stopping
"""The same; with `--stop`, which campaign ends."""
CAMPAIGN_FIELDS = {
    "proposer": "proposer",
    "width": "width",
    "executor": "executor",
    "max_candidates": "candidates",
    "max_minutes": "minutes",
    "max_tokens": "tokens",
    "max_gpu_seconds": "gpu_s",
    "stall": "stall",
    "target_ratio": "target",
    "proposer_minutes": "proposer_minutes",
    "quiet_minutes": "quiet_minutes",
    "env": "env",
}
"""Option of the command line to field of the campaign."""


def run_session(
    *,
    resume: str | None,
    budget_minutes: float | None,
    max_usd: float | None,
    watch_preemption: str,
    ai_usd: float | None,
    evaluator: Path | None,
    evaluator_python: str | None,
    screen: Screen,
    **given: Any,
) -> int:
    """Walk a plan, or go on with a session."""
    campaign = campaign_of(given, max_usd)
    request = SessionRequest(
        asked=Asked(budget_minutes, max_usd, watch_preemption),
        ai=results.stated(ai_usd),
        campaign=campaign,
        theirs=terms_of(evaluator, evaluator_python, given["target"]),
        json=given.pop("as_json"),
        **given,
    )
    if request.decline and resume is None:
        raise UsageError("--decline answers a session that waits", hint="loop run session --resume last --decline")
    return run_new(request, screen) if resume is None else resume_session(resume, request, screen)


def terms_of(evaluator: Path | None, python: str | None, target: Path | None) -> EvaluatorTerms | None:
    """Whose evaluator is asked; None where nobody named one. Raises UsageError for a target of loop's own."""
    if evaluator is None and python is None:
        return None
    if target is None or made_of(target) is None:
        raise UsageError("--evaluator: the target is no task of another format", hint="loop targets inspect PATH")
    if evaluator is not None and not evaluator.is_dir():
        raise UsageError(
            f"{evaluator}: no such folder", hint="--evaluator is a checkout of the format's evaluator"
        )
    return EvaluatorTerms(evaluator=str(evaluator.absolute()) if evaluator else None, evaluator_python=python)


def campaign_of(given: dict[str, Any], usd: float | None) -> Campaign:
    """What the options of a campaign say; they are taken out of what was given."""
    fields = {field: given.pop(option) for option, field in CAMPAIGN_FIELDS.items() if option in given}
    if fields.get("executor"):
        executor.check(fields["executor"])
    try:
        return Campaign(usd=usd, **{name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        options = {**CAMPAIGN_FIELDS, "max_usd": "usd"}
        option = next(one for one, field in options.items() if field == first["loc"][0])
        name = f"--{option.replace('_', '-')}"
        if isinstance(first["input"], int | float):
            above = first.get("ctx", {}).get("gt", 0)
            raise UsageError(
                f"{name} {first['input']:g}: expected a number above {above:g}", f"{name} 10"
            ) from error
        raise UsageError(f"{name}: {first['msg'].lower()}", hint="loop optimize --help") from error


def optimize(
    *,
    target: Path | None,
    plan: str,
    max_usd: float | None,
    stop: bool,
    resume: str | None,
    watch_preemption: str,
    as_json: bool,
    screen: Screen,
    **given: Any,
) -> int:
    """Rounds of candidates until a stop rule holds; or end the campaign that runs after its candidate."""
    campaign = campaign_of(given, max_usd)
    if stop:
        return stop_campaign(target, screen, as_json=as_json)
    request = SessionRequest(
        plan=None if resume else "tune" if campaign.proposer == TUNER else plan,
        target=target,
        asked=Asked(watch=watch_preemption),
        campaign=campaign,
        json=as_json,
        **given,
    )
    if resume is not None:
        return resume_session(resume, request, screen)
    for other in _running(read_setting(target).project.sessions) if campaign.unattended else ():
        screen.say(
            f"campaign {other.id} runs on this target: they take turns to measure, and share nothing they keep"
        )
    return run_new(request, screen)


def stop_campaign(target: Path | None, screen: Screen, *, as_json: bool) -> int:
    """Have the campaign that runs here end after its candidate."""
    root = read_setting(target).project.sessions
    running = _running(root)
    if not running:
        raise UsageError(f"no campaign runs in {root}", hint="loop status")
    folder = running[-1]
    (folder.path / STOP).parent.mkdir(exist_ok=True)  # It may still be preparing.
    write_atomic(folder.path / STOP, "")
    return ends_after_candidate(folder.id, screen, as_json=as_json)


def _running(root: Path) -> list[SessionFolder]:
    """Campaigns of these sessions that run now."""
    busy = [folder for folder in sessions.every(root) if held(folder.path / sessions.LOCK)]
    return [folder for folder in busy if folder.head().campaign.unattended]


def ends_after_candidate(session: str, screen: Screen, *, as_json: bool) -> int:
    """Say that a campaign was told to end."""
    screen.say(f"{session} ends after this candidate")
    if as_json:
        screen.data(to_json(Stopping(session=session)))
    return ExitCode.OK


def run_pattern(*, watch_preemption: str, as_json: bool, screen: Screen, **given: Any) -> int:
    """Walk one pattern as a session of its own."""
    return run_new(SessionRequest(asked=Asked(watch=watch_preemption), json=as_json, **given), screen)


def trust_project(target: Path | None, variants: tuple[str, ...], screen: Screen, *, as_json: bool) -> int:
    """Show every command of a project or a stored session, and allow it. Saying so by name is the consent."""
    if target is not None and (target / sessions.HEAD).is_file():
        return trust_session(sessions.SessionFolder(target.resolve()), screen, as_json=as_json)
    setting = read_setting(target)
    if unknown := [name for name in variants if name not in setting.target.variants]:
        raise UsageError(f"{unknown[0]}: no answer to a task of another format", hint=f"loop trust {target}")
    return _granted(setting.project, what_runs(setting), screen, as_json=as_json)


def _granted(project: Project, lines: Sequence[str], screen: Screen, *, as_json: bool) -> int:
    """Allow a project, and show what it runs."""
    changed = [] if project.bundled else trust.difference(project)
    if not project.bundled:
        trust.grant(project, trust.definition_hash(project), trust.hosts_hash(project))
    if as_json:
        screen.data(to_json(TrustGranted(target=str(project.target), runs=tuple(lines))))
        return ExitCode.OK
    for line in lines:
        screen.data(line)
    for line in changed:
        screen.say(f"changed: {line}")
    screen.say(
        "it ships with loop: always trusted"
        if project.bundled
        else "allowed, until what these definitions run changes"
    )
    return ExitCode.OK


def trust_session(folder: sessions.SessionFolder, screen: Screen, *, as_json: bool) -> int:
    """The same for what a stored session runs besides its target."""
    head = folder.head()
    lines = trust.session_runs(head)
    trust.grant_session(folder.path, head)
    if as_json:
        screen.data(to_json(TrustGranted(target=str(folder.path), runs=lines)))
        return ExitCode.OK
    for line in lines:
        screen.data(line)
    screen.say("allowed, for this session")
    return ExitCode.OK
