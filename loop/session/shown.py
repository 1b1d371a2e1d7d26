"""Prints the results of commands without a session, such as `loop kernels verify`."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from loop.model.measurement import SpeedVerdict
from loop.model.output import DebugOutput, MeasureOutput, SanitizeOutput, VerifyOutput, outputs_of
from loop.model.record import Finished
from loop.profile.launch_limits import ResourcesOutput
from loop.profile.resource_actions import kernel_rows, summary_lines
from loop.proving.prove import GateOutput
from loop.report.findings import speed_sections
from loop.report.markdown import shortened
from loop.report.screen import Screen
from loop.report.sections import print_sections
from loop.timing.against_baseline import call_lines

MOST_FAILURES = 6  # Most failed checks of a variant that are printed.
LONGEST_REASON = 56  # Characters of a negative control's reason; `--json` has the whole reason.


def show_findings(finished: Sequence[Finished], options: Sequence[str], screen: Screen) -> None:
    """Print the steps' results to stdout. `options`: they repeat a check on the same inputs."""
    # Type of an output to the function that prints its table and yields further lines.
    printers: dict[type[Any], Callable[..., Iterator[str]]] = {
        DebugOutput: _explanation_lines,
        VerifyOutput: partial(_check_lines, options=options),
        SanitizeOutput: _sanitizer_lines,
        MeasureOutput: partial(_timing_lines, finished=finished, options=options),
        GateOutput: _mutation_lines,
        ResourcesOutput: _resource_lines,
    }
    for kind, print_table in printers.items():
        for output in outputs_of(finished, kind):
            for line in print_table(output, screen):
                screen.data(line)


def _explanation_lines(output: DebugOutput, screen: Screen) -> Iterator[str]:
    """Yield why each wrong variant is wrong."""
    for explanation in output.explanations:
        if explanation.lines:
            yield f"Why {explanation.variant} is wrong:"
            yield from (f"  {label}: {text}" for label, text in explanation.lines)


def _check_lines(output: VerifyOutput, screen: Screen, options: Sequence[str]) -> Iterator[str]:
    """Print a row for each variant; yield its first failures, and the command that repeats them.
    The largest error is that on normal values, if there are any."""
    rows = []
    for checks in output.variants:
        # Errors on larger values are larger: leave those checks out, unless there are no others.
        normal = [check for check in checks.checks if check.workload.values == "normal"]
        errors = [check.max_error or 0.0 for check in normal or checks.checks]
        name = checks.variant + (" (emulated)" if checks.emulated else "")
        right = f"{checks.count('right')} of {len(checks.checks)}"
        rows.append((name, right, f"{max(errors, default=0.0):.1e}", checks.tally_of_others))
    column_count = 4 if any(row[-1] for row in rows) else 3
    heads = ("variant", "right", "largest error", "not right")
    screen.table(heads[:column_count], [row[:column_count] for row in rows])
    for checks in output.variants:
        yield from (f"{checks.variant}: {line}" for line in checks.failure_lines[:MOST_FAILURES])
        if len(checks.failure_lines) > MOST_FAILURES:
            hidden_count = len(checks.failure_lines) - MOST_FAILURES
            yield f"{checks.variant}: and {hidden_count} more; all of them with --json"
        if not checks.is_right:  # An emulated failure may depend on the thread schedule's seed.
            fault = checks.first_failure.fault if checks.first_failure else None
            words = ["loop", "kernels", "verify", checks.variant, *options]
            command = shlex.join([*words, "--seed", str(output.seed)])
            same_text = "values"
            if fault is not None and fault.seed is not None:
                same_text = "values and schedule"
                command = f"LOOP_EMULATOR_SEED={fault.seed} {command}"
            yield f"the same {same_text} again: {command}"
    yield ""
    yield from (f"not exercised: {text}" for text in output.not_exercised)


def _sanitizer_lines(output: SanitizeOutput, screen: Screen) -> Iterator[str]:
    """Print each sanitizer's status for each variant; yield the findings, and what was not run."""
    tools = tuple(dict.fromkeys(run.tool for run in output.runs))
    status = {(run.variant, run.tool): run.status for run in output.runs}
    if names := dict.fromkeys(run.variant for run in output.runs):
        rows = [(name, *(status.get((name, tool), "not run") for tool in tools)) for name in names]
        screen.table(("variant", *tools), rows)
    yield from (f"{run.tool}: {run.summary_text}" for run in output.runs if run.status == "found")
    yield from (f"not exercised: {text}" for text in output.not_exercised)
    yield from [output.hint] if output.hint else []


def _timing_lines(
    output: MeasureOutput, screen: Screen, finished: Sequence[Finished], options: Sequence[str]
) -> Iterator[str]:
    """Print a table of each variant's ratios; yield how each was called, and why one has none."""
    print_sections(speed_sections(output.verdicts, finished, "the baseline"), screen)
    yield from call_lines(output)
    for verdict in output.verdicts:
        if not isinstance(verdict, SpeedVerdict):
            yield f"{verdict.variant} is {verdict.verdict} on {verdict.workload}: {verdict.reason}"
    names = dict.fromkeys(v.variant for v in output.verdicts if v.verdict == "inconclusive")
    if names:
        rounds = max(timing.rounds for timing in output.measurements)
        command = shlex.join(["loop", "kernels", "measure", *names, *options])
        yield f"next: {command} --rounds {min(100, 3 * rounds)}"  # The option's maximum is 100.


def _mutation_lines(output: GateOutput, screen: Screen) -> Iterator[str]:
    """Yield whether the gate rejected (killed) each control, a variant with an injected bug or
    cheat. `honest`: without one. `alike`: no input tells it from a right variant."""
    for base in dict.fromkeys(control.base for control in output.controls):
        yield f"{base}:"
        for control in (control for control in output.controls if control.base == base):
            passed_word = "passed" if control.kind == "honest" else "alike"
            is_accepted = control.full_name in output.survivors
            outcome = "rejected" if control.killed else "ACCEPTED" if is_accepted else passed_word
            reason = shortened(control.reason, LONGEST_REASON)
            yield f"  {outcome:<8} {control.name:<42} {reason}".rstrip()
    if inapplicable := dict.fromkeys(line.partition(":")[0] for line in output.not_applicable):
        yield f"not applicable: {', '.join(inapplicable)}"
    if output.indistinguishable:
        yield f"not told by any input of the target: {', '.join(output.indistinguishable)}"
    yield from (f"rejected for a reason not its own: {line}" for line in output.wrong_reasons)
    score = f"the gate rejected {output.killed} of {output.total} injected bugs and cheats"
    yield from [score] if output.total else []
    yield from (f"not exercised: {text}" for text in output.not_exercised)


def _resource_lines(output: ResourcesOutput, screen: Screen) -> Iterator[str]:
    """Print registers, spills, shared memory, occupancy per kernel; yield a summary."""
    if rows := kernel_rows(output):
        screen.table(("kernel", "regs", "spill", "shared", "blocks/SM"), rows, folded_column=0)
    yield from summary_lines(output)
    yield from (f"not exercised: {text}" for text in output.not_exercised)
