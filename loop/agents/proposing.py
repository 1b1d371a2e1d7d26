"""Run a proposer: a process group with a deadline, ended completely. Report what its AI used."""

import contextlib
import functools
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from loop.base.documents import sums
from loop.base.errors import LoopError, UsageError
from loop.base.places import PACKAGE, cache_folder, state_folder
from loop.base.processes import STARTED_PIDS, Child, Tick
from loop.base.screen import seconds_text
from loop.model.base import Model
from loop.model.campaign import Campaign, Ended, Proposal
from loop.model.money import AiUse, ModelUse, Tokens
from loop.store.sessions import SessionFolder

REFUSALS: dict[Ended, str] = {
    "limited": r"rate.?limit|\b429\b|overloaded|too many requests|usage limit",
    "login": r"not logged in|please (run )?.{0,20}log ?in|/login|invalid api key|\b401\b|unauthorized",
}
"""How a proposal ended, to a regular expression for the last output of the failed program."""


@dataclass(frozen=True)
class Preset:
    """How to call a program, and how to read its output."""

    command: str
    """Shell command; gets the brief on standard input. See `fill_places` for its braces."""
    in_dollars: str = ""
    """Arguments that limit its cost to `{usd}`, added if the campaign has a dollar budget."""
    env: tuple[str, ...] = ()
    """Environment variables to pass on, besides those of every child process."""
    ended: str = ""
    """Regular expression for the output that ends its turn; `loop` ends the program 30 s later."""
    reports_cost: bool = False
    """Whether its output includes its cost in dollars."""
    own: tuple[str, ...] = ()
    """Its configuration files, relative to the home folder."""


PLACES = ("brief", "json", "workdir", "answer", "usd")
"""Names that a command may use in braces."""
PRESETS: dict[str, Preset] = {
    "claude": Preset(
        command="claude -p --output-format stream-json --verbose --permission-mode acceptEdits"
        " --allowedTools Bash Edit Write Read Glob Grep",
        in_dollars=" --max-budget-usd {usd}",
        env=("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR"),
        ended=r'^\{[^\n]*"type" ?: ?"result"',
        reports_cost=True,
        own=(".claude", ".claude.json"),
    ),
    "codex": Preset(
        command="codex exec --json -C {workdir} -s workspace-write --skip-git-repo-check --ephemeral -",
        env=("OPENAI_API_KEY", "CODEX_API_KEY", "CODEX_HOME"),
        ended=r'^\{[^\n]*"type" ?: ?"turn\.(completed|failed)"',
        own=(".codex",),
    ),
}
"""Known programs by the name that `--proposer` accepts."""


def preset_of(proposer: str) -> Preset:
    """The preset of this name, or a new one for a command."""
    return PRESETS.get(proposer.strip()) or Preset(proposer)


def fill_places(command: str, places: Mapping[str, str]) -> str:
    """A command with `{name}` replaced by the quoted value, for each name of `PLACES`."""
    return re.sub(rf"\{{({'|'.join(PLACES)})\}}", lambda match: shlex.quote(places.get(match[1], "")), command)


def refuse_unready(campaign: Campaign) -> None:
    """Raises UsageError if a campaign cannot begin: no such program, or no budget that ends it."""
    if not campaign.is_unattended:
        return
    preset = preset_of(campaign.proposer)
    try:
        words = [word for word in shlex.split(preset.command) if "=" not in word]
    except ValueError as error:
        raise UsageError(f"--proposer {preset.command!r}: {error}", hint="close the quote") from error
    if not words:
        raise UsageError(
            "--proposer: no command", hint="--proposer 'CMD {brief} {workdir}', claude, codex or person"
        )
    program = words[0]
    for_a_shell = re.search(r"[;&|<>$`(){}]", program) or program in ("exec", "cd", "if", "for", "while")
    if not for_a_shell and shutil.which(program) is None and not Path(program).exists():
        raise UsageError(
            f"--proposer: there is no program `{program}` on the PATH",
            hint=f"install it, or name another: {', '.join(PRESETS)}, or any command",
        )
    for name in re.findall(r"(?<![$'])\{(\w+)\}", preset.command):
        if name not in PLACES:
            known = ", ".join(f"{{{place}}}" for place in PLACES)
            raise UsageError(f"--proposer: nothing is put in the place of {{{name}}}", f"known: {known}")
    others = (campaign.candidates, campaign.minutes, campaign.tokens, campaign.gpu_s)
    if campaign.usd is not None and not preset.reports_cost and not any(others):
        raise UsageError(
            f"--max-usd {campaign.usd:g}: `{program}` does not say what it costs, so dollars alone end nothing",
            hint="add --max-candidates 20, or --max-minutes 60",
        )


@functools.cache
def namespaces_work() -> bool:
    """Whether `bwrap` can create namespaces here."""
    trial = ["bwrap", "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--unshare-pid", "true"]
    try:
        return subprocess.run(trial, capture_output=True, check=False, timeout=10).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def isolated_command(root: Path, locks: Path, notes: Path, preset: Preset) -> tuple[str, ...]:
    """The `bwrap` command line that isolates a proposer; empty if it runs without isolation.

    Its home folder has only the program's own configuration, and what `loop kernels check` needs:
    builds, trust, the device's locks, and loop. `root`: its worktree; `notes`: folder of the brief.
    """
    if not preset.own or not namespaces_work():  # A user's command may keep files anywhere.
        return ()
    home = Path.home()
    words = ["bwrap", "--die-with-parent", "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc"]
    words += ["--tmpfs", "/tmp", "--tmpfs", str(home)]
    # Folders below the home folder with programs of the PATH and their libraries.
    inside = [path for name in path_of_programs() if (path := Path(name)).is_relative_to(home)]
    read = [*dict.fromkeys(path.parent if path.name == "bin" else path for path in inside)]
    read += [cache_folder(), state_folder(), PACKAGE.parent, Path(sys.prefix), Path(sys.base_prefix), notes]
    for folder in read:
        words += ["--ro-bind-try", str(folder), str(folder)]
    for own in (*(home / name for name in preset.own), locks, root):
        words += ["--bind-try", str(own), str(own)]
    return tuple(words)


def path_of_programs() -> list[str]:
    """The PATH of a proposer: loop's PATH, then the folder of the `loop` program."""
    paths = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    return list(dict.fromkeys([*paths, str(Path(sys.executable).parent)]))


GRACE_S = 3.0
"""Seconds between SIGTERM and SIGKILL."""
LINGERS_S = 30.0
"""Seconds that a proposer may run on after the end of its turn."""
BACK_OFF_S = (5.0, 15.0, 45.0, 120.0, 300.0)
"""Waits between attempts after a provider's rate limit."""
SEEN = 1 << 16
"""Bytes at the end of the output that are searched for the end of the turn."""
PASSED_ON = ("LOOP_STATE", "LOOP_CACHE", "LOOP_SESSIONS", "PYTHONDONTWRITEBYTECODE")
"""Environment variables for `loop kernels check`, to find this session's folders."""


@dataclass(frozen=True)
class Errand:
    """One task for a proposer, with its limits."""

    preset: Preset
    page: Path
    """The brief in Markdown; the same as JSON next to it."""
    folder: Path
    """A copy of the target's folder, for its edits."""
    answer: Path
    """A file that the proposer may write: `{"idea": "...", "done": true}`."""
    limit_s: float
    """Time limit."""
    quiet_s: float
    """Longest time without output; then `loop` ends it."""
    usd: float | None = None
    """Its dollar budget; None: no limit."""
    env: tuple[str, ...] = ()
    """More environment variables to pass on."""
    under: Sequence[str] = ()
    """Command line that isolates the proposer."""
    cache: Path | None = None
    """Build cache of its `loop kernels check`, never judged. None: the session's cache."""

    @property
    def command(self) -> list[str]:
        """The full command line, for a shell."""
        places = {
            "brief": str(self.page),
            "json": str(self.page.with_suffix(".json")),
            "workdir": str(self.folder),
            "answer": str(self.answer),
            "usd": f"{self.usd:.2f}" if self.usd is not None else "",
        }
        text = self.preset.command + (self.preset.in_dollars if self.usd is not None else "")
        shell = f"{{ {fill_places(text, places)}\n}} < {shlex.quote(str(self.page))}"
        return [*self.under, "sh", "-c", shell]

    def answered(self) -> dict[str, Any]:
        """The answer file as a dictionary, its values unchecked; empty if unreadable."""
        try:
            answer = json.loads(self.answer.read_text(errors="replace")[:SEEN])
        except (OSError, ValueError, RecursionError):
            return {}
        return answer if isinstance(answer, dict) else {}


@dataclass(frozen=True)
class Errands:
    """The result of an `Errand`."""

    ended: Ended
    """`edited` if it ended normally, whether or not it made an edit; the caller checks that."""
    said: str
    seconds: float
    output: str
    use: AiUse
    idea: str = ""


def run_errand(errand: Errand) -> Generator[Tick, None, Errands]:
    """Run the proposer to its end; retry after a provider's rate limit, if time allows.

    Closing the generator ends the proposer and all its child processes.
    """
    begun = time.monotonic()
    waits = iter(BACK_OFF_S)
    while True:
        result = yield from _once(errand, begun)
        wait_s = next(waits, BACK_OFF_S[-1])
        if result.ended != "limited" or time.monotonic() - begun + wait_s > errand.limit_s:
            return result
        end = time.monotonic() + wait_s
        while time.monotonic() < end:
            yield Tick(f"its provider refused it for its rate: again in {seconds_text(end - time.monotonic())}")
            time.sleep(0.1)


def _once(errand: Errand, begun: float) -> Generator[Tick, None, Errands]:
    names = (*PASSED_ON, *errand.preset.env, *errand.env)
    env = {name: os.environ[name] for name in names if name in os.environ}
    env |= {"LOOP_CACHE": str(errand.cache)} if errand.cache else {}
    env["PATH"] = os.pathsep.join(path_of_programs())  # The brief uses `loop` commands.
    with Child(errand.command, cwd=errand.folder, env=env) as child:
        cut = yield from _watch(child, errand, begun)
        if child.code is None:  # Ask the process group to end, then kill it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.process.pid, signal.SIGTERM)
            end = time.monotonic() + GRACE_S
            while child.code is None and time.monotonic() < end:
                yield Tick("ending the proposer")
                child.pump()
        child.kill()
        completed = child.completed(timed_out=cut is not None)
    printed, answer = completed.output + completed.errors, errand.answered()
    ended: Ended = cut or "edited"
    if cut is None and not completed.succeeded:
        reasons = (name for name, words in REFUSALS.items() if re.search(words, printed[-4000:], re.IGNORECASE))
        ended = next(reasons, "failed")
    lines = [line.strip()[:200] for line in (*completed.output.splitlines(), *completed.errors.splitlines())]
    program = Path(next(iter(errand.preset.command.split()), "an agent")).name
    note = f"{program} printed no result"
    unknown = AiUse(source="result", agents=(program,), usd=None, unpriced=(program,), notes=(note,))
    return Errands(
        ended="done" if answer.get("done") is True else ended,
        said=next(filter(None, reversed(lines)), "") if ended in ("failed", *REFUSALS) else "",
        seconds=completed.seconds,
        output=printed,
        use=read_result(completed.output) or unknown,
        idea=str(answer.get("idea", ""))[:200].replace("\n", " "),
    )


def _watch(child: Child, errand: Errand, begun: float) -> Generator[Tick, None, Ended | None]:
    """Wait for its end. Returns None if it ended or finished its turn, else why to stop it."""
    size_before, heard, over = 0, time.monotonic(), math.inf
    while child.code is None:
        yield Tick(f"the proposer is at work ({seconds_text(time.monotonic() - begun)})")
        child.pump()
        streams = (child.output, child.errors)
        now, size = time.monotonic(), sum(len(part.head) + len(part.tail) + part.dropped_bytes for part in streams)
        if size != size_before:
            size_before, heard = size, now
            last = (bytes(child.output.tail[-SEEN:]) or bytes(child.output.head[-SEEN:])).decode(errors="replace")
            if errand.preset.ended and re.search(errand.preset.ended, last, re.MULTILINE):
                over = min(over, now)
        if now - over > LINGERS_S:
            return None
        if now - begun > errand.limit_s:
            return "deadline"
        if now - heard > errand.quiet_s:
            return "stalled"
    return None


def sweep_orphans(before: Sequence[int]) -> None:
    """Kill processes that lost their parent while proposers ran, and became our children.

    `before`: process ids of our earlier children. No other way finds orphans that left their
    process group and cleared their environment.
    """
    for _ in range(3):
        children_now = psutil.Process().children()
        for orphan in [
            child for child in children_now if child.pid not in before and child.pid not in STARTED_PIDS
        ]:
            below: list[psutil.Process] = []
            with contextlib.suppress(psutil.Error):
                below = orphan.children(recursive=True)
            for process in (orphan, *below):
                with contextlib.suppress(psutil.Error):
                    process.kill()
            with contextlib.suppress(ChildProcessError):
                os.waitpid(orphan.pid, 0)


def child_processes() -> list[int]:
    """Process ids of our current children."""
    return [child.pid for child in psutil.Process().children()]


NAMELESS = "a model without a name"
FREE = "it states no cost for its tokens, as under a subscription"


def read_result(printed: str) -> AiUse | None:
    """The AI use that an agent's output reports; None without a report, or if a number is invalid.

    `claude` prints its total cost and the tokens of each model. `codex` prints tokens a turn and no
    price; an unknown agent may do the same.
    """
    objects: list[dict[str, Any]] = []
    for text in (printed, *printed.splitlines()):
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(text)
            objects += [part for part in (value if isinstance(value, list) else [value]) if isinstance(part, dict)]
            if text is printed:
                break
    totals = [line for line in objects if "total_cost_usd" in line]
    turns = [line for line in objects if line.get("type") == "turn.completed"]
    others = [line for line in objects if isinstance(line.get("usage"), dict)]
    name = next((str(line["model"]) for line in objects if line.get("model")), NAMELESS)
    try:
        if totals:
            return _of_claude(totals[-1], name)
        calls = [_tokens(_inner(line, "usage")) for line in turns or others[-1:]]
    except ValueError:
        return None
    if not calls:
        return None
    model = ModelUse(model=name, calls=len(calls), tokens=functools.reduce(Tokens.plus, calls), usd=None)
    agent = "codex" if turns else "an agent"
    return AiUse(source="result", agents=(agent,), models=(model,), usd=None, unpriced=(name,))


def _of_claude(total: Mapping[str, Any], name: str) -> AiUse:
    usd = total["total_cost_usd"]
    if isinstance(usd, bool) or not isinstance(usd, int | float) or not 0 <= usd < float("inf"):
        raise ValueError(f"total_cost_usd: expected dollars, got {usd!r}")
    models = []
    for model, values in _inner(total, "modelUsage").items():
        own = values.get("costUSD") if isinstance(values, dict) else None
        is_known = isinstance(own, int | float) and not isinstance(own, bool) and own > 0
        tokens = Tokens(
            input=_count(values, "inputTokens"),
            output=_count(values, "outputTokens"),
            cache_read=_count(values, "cacheReadInputTokens"),
            cache_write=_count(values, "cacheCreationInputTokens"),
            searches=_count(values, "webSearchRequests"),
        )
        models.append(ModelUse(model=model, calls=0, tokens=tokens, usd=own if is_known else None))
    if not models and _inner(total, "usage"):
        models = [ModelUse(model=name, calls=0, tokens=_tokens(_inner(total, "usage")), usd=float(usd))]
    use = AiUse(source="result", agents=("claude-code",), models=tuple(models), usd=float(usd))
    if usd == 0 and use.total_tokens:
        names = tuple(model.model for model in models)
        return use.model_copy(update={"usd": None, "unpriced": names, "notes": (FREE,)})
    return use


def _tokens(usage: Mapping[str, Any]) -> Tokens:
    """`claude` excludes cached tokens from `input_tokens`; `codex` includes them."""
    hour = _count(_inner(usage, "cache_creation"), "ephemeral_1h_input_tokens")
    within = _count(usage, "cached_input_tokens")
    return Tokens(
        input=max(0, _count(usage, "input_tokens") - within),
        output=_count(usage, "output_tokens"),
        cache_read=within or _count(usage, "cache_read_input_tokens"),
        cache_write=max(0, _count(usage, "cache_creation_input_tokens") - hour),
        cache_write_1h=hour,
        searches=_count(_inner(usage, "server_tool_use"), "web_search_requests"),
    )


def _count(fields: Any, name: str) -> int:
    """A number of tokens; 0 if missing. Raises ValueError if it is not a count."""
    value = fields.get(name) if isinstance(fields, dict) else None
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name}: expected a number of tokens, got {value!r}")
    return value


def _inner(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A nested mapping; empty if missing."""
    value = fields.get(name)
    return value if isinstance(value, dict) else {}


NAME = "ai.json"
PROPOSALS = "changes/candidates/[0-9][0-9][0-9][0-9].json"
"""The result of each candidate of a campaign, relative to a session's folder."""


class AiGiven(Model):
    """The AI cost that the user stated; saved with the session."""

    format: Literal[1] = 1
    stated_usd: float | None = None
    """Dollars, from `--ai-usd`."""


def parse_stated_usd(usd: float | None) -> AiGiven:
    """Check `--ai-usd`. Raises LoopError for a negative or infinite amount."""
    if usd is not None and not 0 <= usd < float("inf"):
        raise UsageError(f"--ai-usd {usd}: expected dollars, 0 or more", hint="--ai-usd 1.50")
    return AiGiven(stated_usd=usd)


def add_stated(folder: SessionFolder, more: AiGiven) -> None:
    """Save the stated cost, replacing an earlier one; None changes nothing."""
    if more.stated_usd is not None:
        sums.write_sealed(folder.path / NAME, more)


def proposals_in(session: Path) -> list[Proposal]:
    """The saved proposals of a session, by number; each is saved as soon as it ends."""
    return [sums.read_sealed(Proposal, path) for path in sorted(session.glob(PROPOSALS))]


def usage_of_session(folder: SessionFolder) -> tuple[AiUse | None, str]:
    """A session's AI use, from the best source only; else None, and why if a file is damaged."""
    path = folder.path / NAME
    try:
        known = sums.read_sealed(AiGiven, path) if path.exists() else AiGiven()
        results = [proposal.use for proposal in proposals_in(folder.path) if proposal.use]
    except OSError as error:
        return None, f"{path}: cannot be read: {error.strerror}"
    except LoopError as error:
        return None, error.message
    use = total_usage(results) if results else None
    if known.stated_usd is not None and (use is None or use.usd is None):
        use = use or AiUse(source="stated", usd=None)
        use = use.model_copy(update={"source": "stated", "usd": known.stated_usd, "unpriced": ()})
    return use, ""


def total_usage(results: Iterable[AiUse]) -> AiUse:
    """The sum over several runs of agents; unknown costs are left out of `usd`."""
    uses = list(results)
    known = [use.usd for use in uses if use.usd is not None]
    return AiUse(
        source="result",
        agents=tuple(dict.fromkeys(agent for use in uses for agent in use.agents)),
        models=tuple(model for use in uses for model in use.models),
        usd=sum(known) if known else None,
        unpriced=tuple(dict.fromkeys(name for use in uses for name in use.unpriced)),
        notes=tuple(dict.fromkeys(note for use in uses for note in use.notes)),
    )
