"""Run a proposer: a process group with a deadline, ended completely. Report what its AI used."""

import contextlib
import functools
import json
import os
import re
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from loop.base.documents import sums, write_atomic
from loop.base.errors import LoopError, UsageError
from loop.base.places import PACKAGE, cache_folder, state_folder
from loop.base.processes import STARTED_PIDS, Child, Tick, Waiting, kill_trees, output_of
from loop.model.base import Model
from loop.model.campaign import Campaign, Ended, Proposal
from loop.model.money import AiUse, ModelUse
from loop.report import format as say
from loop.store.sessions import SessionFolder

LOGIN_PATTERN = (  # In the output of a program that has to be logged in.
    r"not logged in|please (run )?.{0,20}log ?in|/login|invalid api key|\b401\b|unauthorized"
)
SHELL_WORDS = ("exec", "cd", "if", "for", "while")  # A command may begin with one of these.


@dataclass(frozen=True)
class Preset:
    """How to call a program, and how to read its output."""

    command: str  # Shell command with braces (`fill_placeholders`); reads the brief as input.
    budget_arguments: str = ""  # Limit its cost to `{usd}`, if it prints its cost.
    variables: tuple[str, ...] = ()  # Environment variables besides those of every child.
    config_files: tuple[str, ...] = ()  # Its configuration files, relative to the home folder.


PLACEHOLDERS = ("brief", "json", "workdir", "answer", "usd")  # Names that braces may hold.
PRESETS: dict[str, Preset] = {  # By the name that `--proposer` accepts.
    "claude": Preset(
        command="claude -p --output-format stream-json --verbose --permission-mode acceptEdits"
        " --allowedTools Bash Edit Write Read Glob Grep",
        budget_arguments=" --max-budget-usd {usd}",
        variables=(
            *("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
            *("CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR"),
        ),
        config_files=(".claude", ".claude.json"),
    ),
    "codex": Preset(
        command="codex exec --json -C {workdir} -s workspace-write --skip-git-repo-check"
        " --ephemeral -",
        variables=("OPENAI_API_KEY", "CODEX_API_KEY", "CODEX_HOME"),
        config_files=(".codex",),
    ),
}


def find_preset(proposer: str) -> Preset:
    """The preset of this name, or one for the user's own command."""
    return PRESETS.get(proposer.strip()) or Preset(proposer)


def fill_placeholders(command: str, values: Mapping[str, str]) -> str:
    """A command with `{name}` replaced by the quoted value, for each name of `PLACEHOLDERS`."""
    pattern = rf"\{{({'|'.join(PLACEHOLDERS)})\}}"
    return re.sub(pattern, lambda match: shlex.quote(values.get(match[1], "")), command)


def refuse_unready(campaign: Campaign) -> None:
    """Raise UsageError if a campaign with a proposer cannot begin: no command, no such program, an
    unknown placeholder, or dollars as the only budget of a program that states no cost."""
    if not campaign.is_unattended:
        return
    preset = find_preset(campaign.proposer)
    try:
        words = [word for word in shlex.split(preset.command) if "=" not in word]
    except ValueError as error:
        raise UsageError(f"--proposer {preset.command!r}: {error}", "close the quote") from error
    if not words:
        hint = "--proposer 'CMD {brief} {workdir}', claude, codex or person"
        raise UsageError("--proposer: no command", hint=hint)
    program = words[0]
    is_shell_syntax = program in SHELL_WORDS or re.search(r"[;&|<>$`(){}]", program)
    if not is_shell_syntax and shutil.which(program) is None and not Path(program).exists():
        message = f"--proposer: there is no program `{program}` on the PATH"
        hint = f"install it, or name another: {', '.join(PRESETS)}, or any command"
        raise UsageError(message, hint)
    for name in re.findall(r"(?<![$'])\{(\w+)\}", preset.command):
        if name not in PLACEHOLDERS:
            known = ", ".join(f"{{{place}}}" for place in PLACEHOLDERS)
            message = f"--proposer: nothing is put in the place of {{{name}}}"
            raise UsageError(message, f"known: {known}")
    other_limits = (campaign.candidates, campaign.minutes, campaign.tokens)
    if campaign.usd is not None and not preset.budget_arguments and not any(other_limits):
        message = f"`{program}` does not say what it costs, so dollars alone end nothing"
        hint = "add --max-candidates 20, or --max-minutes 60"
        raise UsageError(f"--max-usd {campaign.usd:g}: {message}", hint)


@functools.cache
def can_isolate() -> bool:
    """Whether `bwrap` can create namespaces here."""
    trial = ["bwrap", "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--unshare-pid", "true"]
    return output_of(trial, limit_s=10) is not None


def isolation_command(root: Path, locks: Path, notes: Path, preset: Preset) -> tuple[str, ...]:
    """The `bwrap` command that isolates a proposer, with its configuration and what `loop kernels
    check` needs; or empty. `root`: its worktree; `locks`: of devices; `notes`: of the brief."""
    # A user's own command may keep files anywhere, so it is not isolated.
    if not preset.config_files or not can_isolate():
        return ()
    home = Path.home()
    arguments = ["bwrap", "--die-with-parent", "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev"]
    arguments += ["--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", str(home)]
    readable = [cache_folder(), state_folder(), PACKAGE.parent]
    readable += [Path(sys.prefix), Path(sys.base_prefix), notes]
    for folder in map(Path, proposer_path()):  # Programs of the PATH below the home folder.
        if folder.is_relative_to(home):
            readable.append(folder.parent if folder.name == "bin" else folder)
    for folder in dict.fromkeys(readable):
        arguments += ["--ro-bind-try", str(folder), str(folder)]
    for path in (*(home / name for name in preset.config_files), locks, root):
        arguments += ["--bind-try", str(path), str(path)]
    return tuple(arguments)


def proposer_path() -> list[str]:
    """The PATH of a proposer: loop's PATH, then the folder of the `loop` program."""
    paths = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    return list(dict.fromkeys([*paths, str(Path(sys.executable).parent)]))


ANSWER_FILE = "loop-answer.json"  # May be at the worktree's top: `{"idea": "...", "done": true}`.
CACHE_FOLDER = ".git/loop-cache"  # For a candidate's checks; the gate never uses it.
LAST_CHARACTERS = 4000  # Most characters at the end of a failed program's output that are searched.
END_LIMIT_S = 3.0  # Seconds between SIGTERM and SIGKILL.
LONGEST_ANSWER = 1 << 16  # Most characters of an answer file that are read.
PASSED_VARIABLES = ("LOOP_STATE", "LOOP_SESSIONS", "PYTHONDONTWRITEBYTECODE")
"""Environment variables for `loop kernels check`, to find this session's folders."""


@dataclass(frozen=True)
class ProposerTask:
    """One run of a campaign's proposer, with its limits."""

    number: int  # Number of the candidate.
    campaign: Campaign  # Names proposer, longest silence, more variables to pass.
    brief_page: Path  # The brief in Markdown; the same as JSON next to it.
    root: Path  # The candidate's worktree.
    folder: Path  # The target's folder in it, for the proposer's edits.
    locks: Path  # Folder of the device's locks, which all candidates share.
    output: Path  # The file for all that it prints.
    limit_s: float
    usd: float | None = None  # Its share of the campaign's dollars, if it takes a limit.


def run_proposer(task: ProposerTask) -> Waiting[Proposal]:
    """Run the proposer to its end; its proposal without an edit (`ended` is `edited` if the program
    ended normally). Closing the generator ends the proposer and all its child processes."""
    preset = find_preset(task.campaign.proposer)
    value_by_name = {
        "brief": str(task.brief_page),
        "json": str(task.brief_page.with_suffix(".json")),
        "workdir": str(task.folder),
        "answer": str(task.root / ANSWER_FILE),
        "usd": f"{task.usd:.2f}" if task.usd is not None else "",
    }
    template = preset.command + (preset.budget_arguments if task.usd is not None else "")
    page = shlex.quote(str(task.brief_page))
    command = f"{{ {fill_placeholders(template, value_by_name)}\n}} < {page}"
    names = (*PASSED_VARIABLES, *preset.variables, *task.campaign.env)
    environment = {name: os.environ[name] for name in names if name in os.environ}
    environment["LOOP_CACHE"] = str(task.root / CACHE_FOLDER)
    environment["PATH"] = os.pathsep.join(proposer_path())  # The brief uses `loop` commands.
    isolation = isolation_command(task.root, task.locks, task.brief_page.parent, preset)
    with Child([*isolation, "sh", "-c", command], cwd=task.folder, env=environment) as child:
        stop_reason: Ended | None = None
        started_s = last_output_s = time.monotonic()
        known_bytes = 0
        while child.code is None and stop_reason is None:
            yield Tick(f"the proposer is at work ({say.seconds(time.monotonic() - started_s)})")
            child.wait_for_output()
            now_s = time.monotonic()
            streams = (child.output, child.errors)
            printed_bytes = sum(len(stream.kept) + stream.dropped_bytes for stream in streams)
            if printed_bytes != known_bytes:
                known_bytes, last_output_s = printed_bytes, now_s
            if now_s - last_output_s > task.campaign.quiet_minutes * 60:
                stop_reason = "stalled"
            if now_s - started_s > task.limit_s:
                stop_reason = "deadline"
        if child.code is None:  # Ask the process group to end, then kill it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.process.pid, signal.SIGTERM)
            kill_at_s = time.monotonic() + END_LIMIT_S
            while child.code is None and time.monotonic() < kill_at_s:
                yield Tick("ending the proposer")
                child.wait_for_output()
        child.kill()
        completed = child.completed(timed_out=stop_reason is not None)
    answer: dict[str, Any] = {}  # Its values are unchecked; empty if unreadable.
    with contextlib.suppress(OSError, ValueError, RecursionError):
        text = (task.root / ANSWER_FILE).read_text(errors="replace")
        document = json.loads(text[:LONGEST_ANSWER])
        answer = document if isinstance(document, dict) else {}
    printed = completed.output + completed.errors
    write_atomic(task.output, printed)
    ended: Ended = "done" if answer.get("done") is True else stop_reason or "edited"
    last_line = ""
    if stop_reason is None and not completed.succeeded:
        needs_login = re.search(LOGIN_PATTERN, printed[-LAST_CHARACTERS:], re.IGNORECASE)
        ended = ended if ended == "done" else "login" if needs_login else "failed"
        last_line = (printed.strip().splitlines() or [""])[-1].strip()[:200]
    agents = (Path(next(iter(preset.command.split()), "an agent")).name,)
    note = f"{agents[0]} printed no result"
    unknown_use = AiUse(source="result", agents=agents, usd=None, unpriced=agents, notes=(note,))
    idea = str(answer.get("idea", ""))[:200].replace("\n", " ")
    use = read_ai_use(completed.output) or unknown_use
    fields = {"seconds": completed.seconds, "isolated": bool(isolation)}
    return Proposal(number=task.number, ended=ended, said=last_line, use=use, idea=idea, **fields)


@contextlib.contextmanager
def kill_new_orphans() -> Iterator[None]:
    """At the end of the block, kill processes that lost their parent in it and became our children:
    also those that left their process group and cleared their environment."""
    earlier_children = {child.pid for child in psutil.Process().children()}
    try:
        yield
    finally:
        for _ in range(3):  # A killed process leaves its own children to us.
            loop_children = earlier_children | STARTED_PIDS
            children = [child.pid for child in psutil.Process().children()]
            orphans = [pid for pid in children if pid not in loop_children]
            if orphans:
                kill_trees(orphans)
            for pid in orphans:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)


TOKEN_KEYS = (  # Kinds of tokens in a report of use; each token counts in one kind.
    *("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
    *("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens"),
)


def read_ai_use(printed: str) -> AiUse | None:
    """The AI use that an agent's output reports; None without one, or if a number is invalid.
    `claude` prints its total cost and the tokens of each model. `codex` prints tokens a turn."""
    objects: list[dict[str, Any]] = []
    lines = printed.splitlines()  # One JSON document a line, among lines of text.
    with contextlib.suppress(ValueError, RecursionError):
        lines = [json.dumps(json.loads(printed))]  # One document over several lines.
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            document = json.loads(line)
            parts = document if isinstance(document, list) else [document]
            objects += [part for part in parts if isinstance(part, dict)]
    claude_results = [fields for fields in objects if "total_cost_usd" in fields]
    turns = [fields.get("usage") for fields in objects if fields.get("type") == "turn.completed"]
    model = next((str(fields["model"]) for fields in objects if fields.get("model")), "")
    model = model or "a model without a name"
    with contextlib.suppress(ValueError):
        if claude_results:
            return _read_claude_use(claude_results[-1], model)
        if turns:
            use = ModelUse(model=model, tokens=sum(map(_count_tokens, turns)), usd=None)
            fields = {"agents": ("codex",), "models": (use,), "unpriced": (model,)}
            return AiUse(source="result", usd=None, **fields)
    return None


def _read_claude_use(result: Mapping[str, Any], default_model: str) -> AiUse:
    """The use in the final message of `claude`. `default_model`: name for the tokens if it lists no
    models. A cost of 0 with tokens is unknown. Raises ValueError for an invalid number."""
    usd = _check_number(result["total_cost_usd"])
    usage_by_model = result.get("modelUsage") or {default_model: result.get("usage")}
    models = []
    for model, usage in usage_by_model.items() if isinstance(usage_by_model, dict) else ():
        if isinstance(usage, dict):
            tokens, cost = _count_tokens(usage), _check_number(usage.get("costUSD", usd) or 0)
            models.append(ModelUse(model=model, tokens=int(tokens), usd=cost or None))
    names = tuple(model.model for model in models)
    use = AiUse(source="result", agents=("claude-code",), models=tuple(models), usd=usd)
    if usd == 0 and use.total_tokens:
        note = "it states no cost for its tokens, as under a subscription"
        return use.model_copy(update={"usd": None, "unpriced": names, "notes": (note,)})
    return use


def _count_tokens(usage: object) -> int:
    """The tokens of a report of use; 0 if it is none. Raises ValueError for an invalid number."""
    counts = [usage.get(key) or 0 for key in TOKEN_KEYS] if isinstance(usage, dict) else []
    return int(sum(_check_number(count) for count in counts))


def _check_number(value: Any) -> float:
    """The same number. Raises ValueError unless it is one of 0 or more, and finite."""
    if type(value) not in (int, float) or not 0 <= value < float("inf"):
        raise ValueError(f"expected a number, 0 or more, got {value!r}")
    return float(value)


STATED_FILE = "ai.json"


class StatedAiCost(Model):
    """The AI cost that the user stated; saved with the session."""

    format: Literal[1] = 1
    stated_usd: float | None = None
    """Dollars, from `--ai-usd`."""


def check_stated_usd(usd: float | None) -> float | None:
    """Dollars of `--ai-usd`. Raises LoopError for a negative or infinite amount."""
    if usd is not None and not 0 <= usd < float("inf"):
        raise UsageError(f"--ai-usd {usd}: expected dollars, 0 or more", hint="--ai-usd 1.50")
    return usd


def save_stated_cost(folder: SessionFolder, usd: float | None) -> None:
    """Save the cost that the user stated (`--ai-usd`) in a session, if any."""
    if usd is not None:
        sums.write_sealed(folder.path / STATED_FILE, StatedAiCost(stated_usd=usd))


def read_proposals(session: Path) -> list[Proposal]:
    """The saved proposals of a session, by number; each is saved as soon as it ends."""
    files = sorted(session.glob("changes/candidates/[0-9][0-9][0-9][0-9].json"))
    return [sums.read_sealed(Proposal, path) for path in files]


def read_session_use(folder: SessionFolder) -> tuple[AiUse | None, str]:
    """A session's AI use, as agents reported it; dollars that they left unknown are those the user
    stated. None without either; None and the reason if a file is damaged."""
    path = folder.path / STATED_FILE
    try:
        stated_usd = sums.read_sealed(StatedAiCost, path).stated_usd if path.exists() else None
        proposals = read_proposals(folder.path)
    except OSError as error:
        return None, f"{path}: cannot be read: {error.strerror}"
    except LoopError as error:
        return None, error.message
    use = sum_ai_use(proposals) if any(proposal.use for proposal in proposals) else None
    if stated_usd is not None and (use is None or use.usd is None):
        use = use or AiUse(source="stated", usd=None)
        use = use.model_copy(update={"source": "stated", "usd": stated_usd, "unpriced": ()})
    return use, ""


def sum_ai_use(proposals: Iterable[Proposal]) -> AiUse:
    """The AI use of all runs of a proposer together; unknown costs are left out of `usd`."""
    uses = [proposal.use for proposal in proposals if proposal.use]
    known_usd = [use.usd for use in uses if use.usd is not None]
    return AiUse(
        source="result",
        agents=tuple(dict.fromkeys(agent for use in uses for agent in use.agents)),
        models=tuple(model for use in uses for model in use.models),
        usd=sum(known_usd) if known_usd else None,
        unpriced=tuple(dict.fromkeys(name for use in uses for name in use.unpriced)),
        notes=tuple(dict.fromkeys(note for use in uses for note in use.notes)),
    )
