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
    """Check the session's own journal: no long silence on the screen, and no step over its budget."""
    yield from ()
    steps = [record for record in context.finished if record.status in ("passed", "failed")]
    longest_silence_s = max((step.longest_silence_s for step in steps), default=0.0)
    overlong = tuple(step.label for step in steps if step.is_over_budget)
    message = f"longest silence {longest_silence_s:.1f} s, {len(overlong)} of {len(steps)} steps over their budget"
    return Result(
        AuditOutput(
            ok=bool(steps) and longest_silence_s <= arguments.silence_s,
            message=message if steps else "no step has ended yet: nothing to audit",
            longest_silence_s=longest_silence_s,
            over_budget=overlong,
        )
    )


class ShellCommand(Model):
    """A shell command. Its environment has LOOP_SESSION, LOOP_DEVICE, LOOP_VARIANTS and LOOP_TARGET."""

    run: Text
    """A shell command line, run in the target's folder. Read values from its environment variables."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Further environment variables."""


def run_command(context: Context, arguments: ShellCommand) -> RunningAction[CommandOutput]:
    """Run a shell command; the step passes if the command exits with 0. Raises LoopError at its time limit."""
    variables = {
        "LOOP_SESSION": context.task.session,
        "LOOP_DEVICE": context.bench.device,
        "LOOP_VARIANTS": " ".join(context.task.variants),
        "LOOP_TARGET": str(context.task.folder),
    }
    first_line = arguments.run.splitlines()[0][:60]
    process_result = yield from run(
        ["/bin/sh", "-c", arguments.run],
        cwd=context.task.folder,
        env={**variables, **arguments.environment},
        limit_s=context.kill_after_s,
        note=first_line,
    )
    if process_result.timed_out:
        raise LoopError(f"{process_result.ending}: {first_line}", exit_code=ExitCode.OVER_BUDGET)
    output = (process_result.output + process_result.errors).strip()
    last_line = output.splitlines()[-1] if output else "no output"
    return Result(
        CommandOutput(
            ok=process_result.succeeded,
            message=last_line[:200]
            if process_result.succeeded
            else f"{process_result.ending}: {last_line[:200]}",
            code=process_result.code,
            seconds=process_result.seconds,
            output=output[-4000:],  # Its end, where an error stands, is enough for the journal.
        )
    )
