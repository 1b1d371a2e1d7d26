"""The work of `loop run session`, `run pattern`, `optimize` and `trust`: from options to a request."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import PrivateAttr, ValidationError

from loop.agents.proposing import check_stated_usd
from loop.base.errors import UsageError
from loop.cli.command import make_request
from loop.jobs import executor as executors
from loop.library import trust
from loop.library.project import find_project
from loop.model.base import Printed
from loop.model.campaign import TUNER, Campaign
from loop.report.screen import Screen
from loop.session.closing import ExportedSession
from loop.session.drive import SessionLimits
from loop.session.opening import PlanForecast, SessionRequest
from loop.session.run import resume_session, run_session
from loop.steps.setting import read_setting
from loop.store import sessions

SessionAnswer = ExportedSession | PlanForecast  # What `run session --json` prints; the second with --dry-run.
FLAGS = {"candidates": "max_candidates", "target": "target_ratio"}
FLAGS |= {name: f"max_{name}" for name in ("minutes", "tokens", "usd")}
"""Field of `Campaign` to its option, if their names differ."""


def start_session(
    *,
    target: Path | None = None,
    plan: str | None = None,
    proposer: str | None = None,
    resume: str | None = None,
    screen: Screen,
    **values: Any,
) -> int:
    """`loop run session`, `run pattern`, `optimize`: run a plan, or resume a session. `proposer`: begins a
    campaign; None: as in a plan's steps. `values`: the other options by name. Returns the exit code."""
    ai_usd, campaign = check_stated_usd(values.get("ai_usd")), make_campaign(**values, proposer=proposer)
    if proposer is None:
        is_attended = os.environ.get("LOOP_ATTENDED", "") not in ("", "0")
        limits = SessionLimits(values.get("budget_minutes"), values.get("max_usd"))
    else:  # Its steps hold the limits of a campaign.
        is_attended, limits = False, SessionLimits()
        plan = None if resume else "tune" if proposer == TUNER else plan
    values |= {"target": target, "plan": plan, "limits": limits, "campaign": campaign}
    values |= {"stated_ai_usd": ai_usd, "attended": is_attended}
    request = make_request(SessionRequest, values)
    if request.decline and resume is None:
        raise UsageError("--decline answers a session that waits", hint="loop run session --resume last --decline")
    return run_session(request, screen) if resume is None else resume_session(resume, request, screen)


def make_campaign(**values: Any) -> Campaign:
    """A campaign from the values of options, by their names; None means the default. Raises UsageError that names
    the wrong option, or if the executor cannot work here."""
    if values.get("executor"):
        executors.load_executor(values["executor"])
    fields = {field: values.get(FLAGS.get(field, field)) for field in Campaign.model_fields}
    try:
        return Campaign(**{name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0])
        flag = f"--{FLAGS.get(field, field).replace('_', '-')}"
        message = f"{flag} {first['input']}: {first['msg'].lower()}"
        raise UsageError(message, "loop optimize --help") from error


class TrustGranted(Printed):
    """What `loop trust --json` prints: the commands that are allowed now."""

    target: str
    """Folder of the project or the session."""
    trusted: Literal[True] = True
    runs: tuple[str, ...]
    """Every command and code file that they run."""
    _note: str = PrivateAttr("")

    def show(self, screen: Screen) -> None:
        """Print a line for each command and code file, and for how long they are allowed."""
        for line in self.runs:
            screen.data(line)
        screen.say(self._note)


def trust_project(target: Path | None, variants: Sequence[str]) -> TrustGranted:
    """Trust all that a project or a stored session (a folder with a head) runs. `variants`: the answers to a task
    of another format, which `target` was made of; UsageError for any other name."""
    if target is not None and (target / sessions.HEAD).is_file():
        session = sessions.SessionFolder(target.resolve())
        trusted_folder, trusted_commands = session.path, trust.session_commands(session.head())
        note = "allowed, for this session"
        trust.grant_session(session.path, session.head())
    else:
        setting = read_setting(target)
        if unknown := [name for name in variants if name not in setting.target.variants]:
            message = f"{unknown[0]}: no answer to a task of another format"
            raise UsageError(message, hint=f"loop trust {target}")
        project = setting.project
        trusted_folder, trusted_commands = project.target, tuple(trust.what_runs(project))
        note = "it ships with loop: always trusted"
        if not project.bundled:
            note = "allowed, until what these definitions run changes"
            trust.grant(project.target, trust.definition_hash(project))
            if origin := trust.read_origin(project.target):
                from loop.formats.table import write_as_target  # Slow to import.

                for answer in origin.answers.values():  # A command may name one of them alone.
                    folder, _ = write_as_target(Path(origin.task), [answer], origin.format)
                    alone = find_project(folder, folder)
                    trust.grant(alone.target, trust.definition_hash(alone))
    granted = TrustGranted(target=str(trusted_folder), runs=tuple(trusted_commands))
    granted._note = note
    return granted
