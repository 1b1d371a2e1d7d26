"""Actions that audit the session's own journal, and run a command of the user's."""

from pydantic import Field

from loop.base.errors import ExitCode, LoopError
from loop.base.processes import run
from loop.model.base import Model
from loop.model.output import CommandOutput, Output
from loop.model.plan import Positive, Text
from loop.steps.context import Context, Result, RunningAction


class AuditOutput(Output):
    """What `session.audit` found."""

    actions = ("session.audit",)

    longest_silence_s: float = 0.0
    """Longest time in seconds without a message on the screen."""
    over_budget: tuple[str, ...] = ()
    """Steps that exceeded their time budget."""


class Cadence(Model):
    """Arguments of `session.audit`."""

    silence_s: Positive = 60.0
    """Longest time in seconds without a message on the screen."""


def audit(context: Context, arguments: Cadence) -> RunningAction[AuditOutput]:
    """Check the session's own journal: no long silence on the screen, no step over its budget."""
    yield from ()
    steps = [record for record in context.finished if record.status in ("passed", "failed")]
    silence_s = max((step.longest_silence_s for step in steps), default=0.0)
    late = tuple(step.label for step in steps if step.is_over_budget)
    message = f"longest silence {silence_s:.1f} s, {len(late)} of {len(steps)} steps over budget"
    return Result(
        AuditOutput(
            ok=bool(steps) and silence_s <= arguments.silence_s,
            message=message if steps else "no step has ended yet: nothing to audit",
            longest_silence_s=silence_s,
            over_budget=late,
        )
    )


class ShellCommand(Model):
    """A shell command. It can read LOOP_SESSION, LOOP_DEVICE, LOOP_VARIANTS and LOOP_TARGET."""

    run: Text
    """A shell command line, run in the target's folder. Values are in its environment variables."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Further environment variables."""


def run_command(context: Context, arguments: ShellCommand) -> RunningAction[CommandOutput]:
    """Run a shell command; the step passes if it exits with 0. LoopError at its time limit."""
    variables = {
        "LOOP_SESSION": context.task.session,
        "LOOP_DEVICE": context.bench.device,
        "LOOP_VARIANTS": " ".join(context.task.variants),
        "LOOP_TARGET": str(context.task.folder),
    }
    first_line = arguments.run.splitlines()[0][:60]
    process = yield from run(
        ["/bin/sh", "-c", arguments.run],
        cwd=context.task.folder,
        env={**variables, **arguments.environment},
        limit_s=context.kill_after_s,
        note=first_line,
    )
    if process.timed_out:
        raise LoopError(f"{process.ending}: {first_line}", exit_code=ExitCode.OVER_BUDGET)
    output = (process.output + process.errors).strip()
    last_line = output.splitlines()[-1][:200] if output else "no output"
    return Result(
        CommandOutput(
            ok=process.succeeded,
            message=last_line if process.succeeded else f"{process.ending}: {last_line}",
            code=process.code,
            seconds=process.seconds,
            output=output[-4000:],  # Its end, where an error stands, is enough for the journal.
        )
    )
