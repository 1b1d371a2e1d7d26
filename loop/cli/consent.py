"""`loop trust`: look at what a project's definitions would run, and allow it."""

from pathlib import Path

from loop.base.documents import to_json
from loop.base.errors import ExitCode
from loop.base.screen import Screen
from loop.library import trust
from loop.steps.setting import read_setting, what_runs


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
