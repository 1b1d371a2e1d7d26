"""Trust: foreign definitions may run commands and code only after the user has allowed them.

`loop trust` shows one line per program, compiler with flags, Python function and template. The hash
of these lines is stored. Edits of workloads, tolerances and kernel sources do not change it.
Commands of a stored session need trust too, unless trusted definitions name them or this user began
it. A command sent to another machine carries what its sender says of price, folder and trust.
"""

import datetime
import os
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import RootModel, ValidationError

from loop.base import places
from loop.base.documents import content_hash, sums
from loop.base.errors import LoopError, Untrusted, UsageError, WorkFailed, remark_once
from loop.base.locks import locked
from loop.base.places import state_folder, tasks_folder
from loop.library.definitions import BUNDLED_TARGET, Project, read_file
from loop.model.base import Model
from loop.model.money import Price
from loop.model.plan import Pattern
from loop.model.record import SessionHead
from loop.model.target import CAbiVariant, PythonVariant, Target

ORIGIN_FILE = "made_of.json"
MADE_MARK = "# Made by loop of"  # A manifest that `loop` made of a task begins so; a hash follows.


class TaskOrigin(Model):
    """The task file and the answer files from which `loop` made a target."""

    task: str
    answers: dict[str, str]
    format: str | None


def read_origin(folder: Path) -> TaskOrigin | None:
    """Task and answers of a target in `tasks_folder()`; None for any other folder."""
    if folder.resolve().parent != tasks_folder().resolve():
        return None
    try:
        return TaskOrigin.model_validate_json((folder / ORIGIN_FILE).read_bytes())
    except (OSError, ValidationError):
        return None


GRANTS_FILE = "trusted.json"


def definition_hash(project: Project) -> str:
    """Hash of the lines of `what_runs`: of all commands and code that the user has to allow."""
    return digest_of(what_runs(project))


def is_trusted(project: Project) -> bool:
    """Whether the user allowed exactly these definitions, here or on the machine that sent this
    command. The bundled target and a job's copy are always trusted. A worktree needs any grant."""
    # `loop` submits only allowed targets as jobs. The copy of such a target is in the job's folder:
    # JOB/src, and on a node of a Ray cluster ray-PID/JOB/src.
    jobs = state_folder() / places.JOBS
    parts = project.target.relative_to(jobs).parts if project.target.is_relative_to(jobs) else ()
    job_parts = parts[1:] if parts and parts[0].startswith("ray-") else parts
    if project.bundled or job_parts[1:2] == ("src",):
        return True
    grants, current_hash, sender = Grants.read(), definition_hash(project), read_sender()
    if sender and current_hash in sender.trusted:  # Allowed on the sending machine.
        return True
    if project.target.is_relative_to(state_folder() / places.WORKTREES):
        # `loop` makes worktrees only of allowed or bundled targets, so any allowed hash will do.
        folder = places.shipped(BUNDLED_TARGET)
        bundled = definition_hash(Project(folder, folder, bundled=True))
        if current_hash in {*grants.values(), bundled}:
            return True
    return grants.get(str(project.target)) == current_hash


def grant_session(folder: Path, head: SessionHead) -> None:
    """Store that the user began or allowed a session with commands of its own. Raises LoopError."""
    if lines := session_commands(head):
        grant(folder.resolve(), digest_of(lines))


def untrusted_commands(folder: Path, head: SessionHead, patterns: Iterable[Pattern]) -> list[str]:
    """Commands of a stored session that are not in the project's patterns; none if allowed."""
    lines = session_commands(head)
    defined_lines = {*_command_lines(patterns)}
    sender = read_sender()  # The sending machine may have allowed it.
    allowed = {Grants.read().get(str(folder.resolve())), *(sender.trusted if sender else ())}
    is_allowed = digest_of(lines) in allowed
    return [] if is_allowed else [line for line in lines if line not in defined_lines]


def session_commands(head: SessionHead) -> tuple[str, ...]:
    """One line per command that a session runs besides its target: of its steps, its proposer."""
    lines = tuple(_command_lines(planned.pattern for planned in head.plan.patterns))
    if not head.campaign.is_unattended:
        return lines
    env = f", which sees {', '.join(head.campaign.env)}" if head.campaign.env else ""
    return (*lines, f"proposer: {head.campaign.proposer}{env}")


def digest_of(lines: Iterable[str]) -> str:
    """SHA-256 (hex) of lines that the user is shown and allows."""
    return content_hash("\0".join(lines))


def grant(folder: Path, digest: str) -> None:
    """Store the hash of the lines that the user allowed for this target or session. LoopError."""
    path = state_folder() / GRANTS_FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"{path.parent}: cannot be made: {error.strerror}"
        raise WorkFailed(problem, hint="set LOOP_STATE") from error
    with locked(path.with_suffix(".lock"), 30.0):  # Another process may grant at the same time.
        sums.write_sealed(path, {**Grants.read(), str(folder): digest})


class Grants(RootModel[dict[str, str]]):
    """The stored grants: folder of a target or session, to the hash that the user allowed."""

    @classmethod
    def read(cls) -> dict[str, str]:
        """Folder to hash; empty, with a message, if the file is damaged or others may write it."""
        path = state_folder() / GRANTS_FILE
        if distrust_reason := places.explain_foreign_access(path):
            remark_once(f"{path} is not used: {distrust_reason}; nothing is allowed")
            return {}
        try:
            return sums.read_sealed(cls, path).root
        except FileNotFoundError:
            pass
        except OSError as error:
            remark_once(f"{path}: cannot be read: {error.strerror}; nothing is allowed")
        except LoopError as error:
            remark_once(f"{error.message}; allow each target anew: loop trust")
        return {}


def untrusted_error(project: Project) -> LoopError:
    """The error for an untrusted target when no person can be asked."""
    reason = "they have not been allowed yet"
    if str(project.target) in Grants.read():
        reason = "what they run has changed since it was allowed"
    name, words, origin = str(project.manifest), [str(project.target)], read_origin(project.target)
    if origin and origin.format is None:  # Else the task alone would not tell its format.
        name, words = origin.task, [origin.task, *origin.answers.values()]
    hint = f"look at them, then `{shlex.join(['loop', 'trust', *words])}`"
    return Untrusted(f"{name}: these definitions run commands and code, and {reason}", hint)


def what_runs(project: Project) -> Iterator[str]:
    """One line per command or piece of code that definitions can run. Raises DefinitionError."""
    target = read_file(project.manifest, Target).value
    first_line = project.manifest.read_text().partition("\n")[0]
    if first_line.startswith(MADE_MARK):  # It holds a hash of the task's files, which are programs.
        yield first_line.removeprefix("# ")
    for name, variant in target.variants.items():
        lines = []  # What it compiles, imports or runs.
        if isinstance(variant, PythonVariant):
            lines.append(f"imports Python {variant.module}:{variant.function}")
        elif isinstance(variant, CAbiVariant):
            for recipe, suffix in ((variant.build, ""), (variant.emulation, ": its emulation")):
                if recipe is not None:
                    words = [recipe.compiler, *recipe.flags, *variant.sources]
                    lines.append(f"{' '.join(words)}, then loads the result{suffix}")
            for snippet in variant.must_not_compile:
                words = [variant.build.compiler, *snippet.flags, snippet.source]
                lines.append(f"{' '.join(words)}, which has to fail")
        else:
            lines.append(" ".join(variant.run))
        yield from (f"variant {name}: {line}" for line in lines)
    fields = ("reference", "plain", "baseline", "generator", "checker")
    functions = {name: getattr(target, name) for name in fields}
    functions["constructors' arguments"] = target.modules.arguments if target.modules else None
    for word, function in functions.items():
        if function is not None:
            yield f"{word}: Python {function.python}"
    yield from (f"property: Python {name}" for name in target.properties)
    yield from (f"fault: Python {function.python}" for function in target.faults.values())
    for name, component in target.components.items():
        called = (component.reference, component.plain, component.inputs, component.form)
        python = ", ".join(function.python for function in called if function)
        flags_text = f", built with {' '.join(component.flags)}" if component.flags else ""
        for compiled in component.variants:
            symbol = component.entry.replace("{of}", compiled)
            yield f"component {name}: calls {symbol} of {compiled}{flags_text}; Python {python}"
    if folder := project.definitions_folder("patterns"):
        paths = sorted(folder.glob("*.yaml"))
        yield from _command_lines(read_file(path, Pattern).value for path in paths)
    if folder := project.definitions_folder("templates"):
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            yield f"template {path.relative_to(folder)}: content {content_hash(path.read_bytes())}"


def _command_lines(patterns: Iterable[Pattern]) -> Iterator[str]:
    """One line per shell command in the steps of these patterns."""
    for pattern in patterns:
        for step in pattern.steps:
            if (command := step.arguments.get("run")) is not None:
                environment = step.arguments.get("environment", {})
                settings = "".join(f"{key}={value} " for key, value in environment.items())
                yield f"pattern {pattern.name}, step {step.id}: {settings}{command}"


HOSTS_FILE = "hosts.yaml"
SENDER_VARIABLE = "LOOP_HOSTED"  # Environment variable with the sender's `Sender` as JSON.


class Sender(Model):
    """What the sending machine says of a command that it sent here."""

    name: str
    """The sender's name for this machine."""
    target: str | None = None
    """The target's folder on the sending machine. Sessions record it. None: the bundled target."""
    usd_per_hour: Price | None = None
    """Price of this machine; None: the user stated none."""
    as_of: datetime.date
    """Day of the price."""
    trusted: tuple[str, ...] = ()
    """Hashes of the definitions that the user allowed on the sending machine."""


def read_sender() -> Sender | None:
    """What the sender says; None for a command typed here. Raises UsageError if unreadable."""
    text = os.environ.get(SENDER_VARIABLE)
    if not text:
        return None
    try:
        return Sender.model_validate_json(text)
    except ValidationError as error:
        hint = f"unset {SENDER_VARIABLE}"
        raise UsageError(f"{SENDER_VARIABLE} cannot be read", hint) from error
