"""Commands that are short stories: a session by its options, and trust in a project."""

from pathlib import Path
from typing import Any

from loop.agents import results
from loop.agents.proposing import Agent
from loop.base.documents import to_json
from loop.base.errors import ExitCode, UsageError
from loop.base.screen import Screen
from loop.library import trust
from loop.session.bounds import Asked
from loop.session.opening import SessionRequest
from loop.session.run import resume_session
from loop.session.run import run_session as run_new
from loop.steps.setting import read_setting, what_runs


def run_session(
    *,
    resume: str | None,
    budget_minutes: float | None,
    max_usd: float | None,
    watch_preemption: str,
    ai_usd: float | None,
    agent: str | None,
    agent_changes: int,
    agent_minutes: float,
    screen: Screen,
    **given: Any,
) -> int:
    """Walk a plan, or go on with a session."""
    request = SessionRequest(
        asked=Asked(budget_minutes, max_usd, watch_preemption),
        ai=results.stated(ai_usd),
        agent=Agent(agent, agent_changes, agent_minutes * 60) if agent else None,
        json=given.pop("as_json"),
        **given,
    )
    if request.decline and resume is None:
        raise UsageError("--decline answers a session that waits", hint="loop run session --resume last --decline")
    return run_new(request, screen) if resume is None else resume_session(resume, request, screen)


def run_pattern(*, watch_preemption: str, as_json: bool, screen: Screen, **given: Any) -> int:
    """Walk one pattern as a session of its own."""
    return run_new(SessionRequest(asked=Asked(watch=watch_preemption), json=as_json, **given), screen)


def trust_project(path: Path | None, screen: Screen, *, as_json: bool) -> int:
    """Show every command of a project and remember that it is allowed. Saying so by name is the consent."""
    setting = read_setting(path)
    lines = what_runs(setting)
    if not setting.project.bundled:
        trust.grant(setting.project, trust.definition_hash(setting.project))
    if as_json:
        folder = str(setting.project.target)
        screen.data(to_json({"schema_version": 1, "target": folder, "trusted": True, "runs": lines}))
        return ExitCode.OK
    for line in lines:
        screen.data(line)
    shipped = setting.project.bundled
    screen.say("it ships with loop: always trusted" if shipped else "allowed, until these definitions change")
    return ExitCode.OK
