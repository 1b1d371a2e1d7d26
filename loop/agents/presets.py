"""Programs that propose changes: a table. One more is a row; any other command works without one."""

import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from loop.base.errors import UsageError
from loop.model.campaign import Campaign

LIMITED = r"rate.?limit|\b429\b|overloaded|too many requests|usage limit"
LOGIN = r"not logged in|please (run )?.{0,20}log ?in|/login|invalid api key|\b401\b|unauthorized"


@dataclass(frozen=True)
class Preset:
    """How a program is called, and what it prints."""

    command: str
    """In a shell, the brief on its standard input. See `filled` for what stands in braces."""
    in_dollars: str = ""
    """Words that hold it within `{usd}`, where dollars are bounded."""
    env: tuple[str, ...] = ()
    """Variables that it needs besides those that every child has."""
    ended: str = ""
    """What it prints, as a regular expression, when its turn has ended; it is ended 30 s later."""
    tells_usd: bool = False
    """Whether it says what it cost."""
    own: tuple[str, ...] = ()
    """What of the home folder is its own configuration."""


PRESETS: dict[str, Preset] = {
    "claude": Preset(
        command="claude -p --output-format stream-json --verbose --permission-mode acceptEdits"
        " --allowedTools Bash Edit Write Read Glob Grep",
        in_dollars=" --max-budget-usd {usd}",
        env=("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR"),
        ended=r'^\{[^\n]*"type" ?: ?"result"',
        tells_usd=True,
        own=(".claude", ".claude.json"),
    ),
    "codex": Preset(
        command="codex exec --json -C {workdir} -s workspace-write --skip-git-repo-check --ephemeral -",
        env=("OPENAI_API_KEY", "CODEX_API_KEY", "CODEX_HOME"),
        ended=r'^\{[^\n]*"type" ?: ?"turn\.(completed|failed)"',
        own=(".codex",),
    ),
}
"""By the name that `--proposer` takes."""


PLACES = ("brief", "json", "workdir", "answer", "usd")
"""What a command may name in braces."""


def preset_of(proposer: str) -> Preset:
    """The row of a name, or one for a command."""
    return PRESETS.get(proposer.strip()) or Preset(proposer)


def filled(command: str, places: Mapping[str, str]) -> str:
    """A command with what stands for `PLACES` in their places, quoted."""
    return re.sub(rf"\{{({'|'.join(PLACES)})\}}", lambda match: shlex.quote(places.get(match[1], "")), command)


def refuse_unready(campaign: Campaign) -> None:
    """Raises UsageError where a campaign cannot begin: no such program, or nothing that certainly ends it."""
    if not campaign.unattended:
        return
    preset = preset_of(campaign.proposer)
    program = _program(preset.command)
    if not program:
        raise UsageError(
            "--proposer: no command", hint="--proposer 'CMD {brief} {workdir}', claude, codex or person"
        )
    if not program.startswith("{") and shutil.which(program) is None and not Path(program).exists():
        raise UsageError(
            f"--proposer: there is no program `{program}` on the PATH",
            hint=f"install it, or name another: {', '.join(PRESETS)}, or any command",
        )
    for name in re.findall(r"(?<![$'])\{(\w+)\}", preset.command):
        if name not in PLACES:
            known = ", ".join(f"{{{place}}}" for place in PLACES)
            raise UsageError(f"--proposer: nothing is put in the place of {{{name}}}", f"known: {known}")
    others = (campaign.candidates, campaign.minutes, campaign.tokens, campaign.gpu_s)
    if campaign.usd is not None and not preset.tells_usd and not any(others):
        raise UsageError(
            f"--max-usd {campaign.usd:g}: `{program}` does not say what it costs, so dollars alone end nothing",
            hint="add --max-candidates 20, or --max-minutes 60",
        )


def _program(command: str) -> str:
    """The program that a command begins with; `{` for what only a shell can tell, empty for none."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--proposer {command!r}: {error}", hint="close the quote") from error
    first = next((word for word in words if "=" not in word), "")
    return "{" if re.search(r"[;&|<>$`(){}]", first) or first in ("exec", "cd", "if", "for", "while") else first
