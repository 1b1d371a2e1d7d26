"""What single steps of the bench found, as tables and lines on the screen."""

import math
from collections.abc import Callable, Sequence

from loop.base.ratios import plain_ratio, times
from loop.base.screen import Screen
from loop.model.debugging import ExplainOutput
from loop.model.dtypes import ITEM_SIZES
from loop.model.measurement import ControlResult, VariantChecks
from loop.model.output import MeasureOutput, VerifyOutput, outputs_of
from loop.model.record import Finished
from loop.model.sanitizing import SanitizeOutput
from loop.profile.model import ChooseOutput, ResourcesOutput
from loop.profile.resources_section import kernel_rows, summary_lines
from loop.proving.model import GateOutput
from loop.timing.section import how_called

MOST_FAILURES = 6
"""Failed checks of a variant that are told on the screen."""
COLUMNS = 110
"""Width of a line on a control; its whole reason is in the JSON."""


Again = Callable[[str, int], str]
"""Makes the command that verifies a variant on the values of a seed."""


def show_findings(finished: Sequence[Finished], again: Again, screen: Screen) -> None:
    """Tables of checks and timings, to stdout."""
    for explained in outputs_of(finished, ExplainOutput):
        for one in explained.explanations:
            screen.data(f"Why {one.variant} is wrong:")
            for label, text in one.lines:
                screen.data(f"  {label}: {text}")
    for checked in outputs_of(finished, VerifyOutput):
        _show_checks(checked, again, screen)
        for text in checked.not_exercised:
            screen.data(f"not exercised: {text}")
    for sanitized in outputs_of(finished, SanitizeOutput):
        _show_sanitized(sanitized, screen)
    for measured in outputs_of(finished, MeasureOutput):
        _show_timings(measured, screen)
    for proved in outputs_of(finished, GateOutput):
        _show_gate(proved, screen)
    for chosen in outputs_of(finished, ChooseOutput):
        _show_choices(chosen, screen)
    for held in outputs_of(finished, ResourcesOutput):
        _show_resources(held, screen)


def _show_checks(output: VerifyOutput, again: Again, screen: Screen) -> None:
    rows = []
    for checks in output.variants:
        right = checks.count("right")
        plain = [check for check in checks.checks if check.workload.values == "normal"] or checks.checks
        largest = max((check.max_error or 0.0 for check in plain), default=0.0)
        rows.append(
            (
                checks.variant + (" (emulated)" if checks.emulated else ""),
                f"{right} of {len(checks.checks)}",
                f"{largest:.1e}",
                checks.tally_of_others,
            )
        )
    columns = 4 if any(row[-1] for row in rows) else 3
    heads = ("variant", "right", "largest error", "not right")
    screen.table(heads[:columns], [row[:columns] for row in rows])
    for checks in output.variants:
        for line in checks.failures[:MOST_FAILURES]:
            screen.data(f"{checks.variant}: {line}")
        if len(checks.failures) > MOST_FAILURES:
            screen.data(
                f"{checks.variant}: and {len(checks.failures) - MOST_FAILURES} more; all of them with --json"
            )
        if not checks.right:
            screen.data(_again(checks, again(checks.variant, output.seed)))
    screen.data("")


def _again(checks: VariantChecks, command: str) -> str:
    """The command with which the first failure comes again, by the emulator's schedule too where it named one."""
    fault = checks.first_failure.fault if checks.first_failure else None
    drawn = fault is not None and fault.seed is not None
    schedule = f"LOOP_EMULATOR_SEED={fault.seed} " if fault and drawn else ""
    what = "values and schedule" if drawn else "values"
    return f"the same {what} again: {schedule}{command}"


def _show_timings(output: MeasureOutput, screen: Screen) -> None:
    words = {(verdict.variant, verdict.workload): verdict.verdict for verdict in output.verdicts}
    rows = [
        (
            one.variant,
            one.workload.name,
            f"{one.reference_us:.1f}",
            f"{one.candidate_us:.1f}",
            times(one.ratio),
            "-".join(map(plain_ratio, one.interval)),
            words.get((one.variant, one.workload.name), "")
            + ("" if one.timed_by == "loop" else " (its own clock)"),
        )
        for one in output.measurements
    ]
    heads = ("variant", "workload", "library us", "ours us", "ratio", "99 %", "verdict")
    if rows:
        screen.table(heads, rows, wrap=1)
    for line in how_called(output):
        screen.data(line)


def _show_choices(output: ChooseOutput, screen: Screen) -> None:
    for variant, calls in output.calls.items():
        for told in calls:
            launched = (f"{one.kernel}, {one.blocks} x {math.prod(one.block)} threads" for one in told.launches)
            screen.data(f"{variant} on {told.workload.name}: {'; '.join(launched) or told.why}")
            if told.remarks:
                screen.data(f"  for {output.device} it estimates {', '.join(told.remarks)}")


def _show_gate(output: GateOutput, screen: Screen) -> None:
    for base in dict.fromkeys(one.base for one in output.controls):
        screen.data(f"{base}:")
        groups: dict[tuple[str, str], list[ControlResult]] = {}
        for one in output.controls:
            if one.base == base:
                groups.setdefault((_without_type(one.name), _fate(one)), []).append(one)
        for (name, word), same in groups.items():
            times = f" ({len(same)} types)" if len(same) > 1 else ""
            screen.data(f"  {word:<8} {name + times:<42} {same[0].reason}".rstrip()[:COLUMNS])
    left_out = dict.fromkeys(_without_type(line.partition(":")[0]) for line in output.not_applicable)
    if left_out:
        screen.data(f"not applicable: {', '.join(left_out)}")
    if output.indistinguishable:
        names = ", ".join(dict.fromkeys(map(_without_type, output.indistinguishable)))
        screen.data(f"not distinguishable on any inputs tried: {names}")
    for line in output.told_by_others:
        screen.data(f"told by inputs that the target does not have: {line}")
    for line in output.wrong_reasons:
        screen.data(f"rejected for another reason than its own: {line}")
    screen.data(f"killed {output.killed} of {output.total}")


def _fate(one: ControlResult) -> str:
    """What became of a control, in a word."""
    if one.killed:
        return "killed"
    return "SURVIVED" if one.survived else "passed" if one.kind == "honest" else "alike"


def _without_type(name: str) -> str:
    """`zeros` for `zeros, float16`."""
    head, _, last = name.rpartition(", ")
    return head if last in ITEM_SIZES else name


def _show_resources(output: ResourcesOutput, screen: Screen) -> None:
    heads = ("kernel", "regs", "spill", "shared", "blocks/SM", "MMA")
    rows = [(row.name, *row.figures) for row in kernel_rows(output)]
    if rows:
        screen.table(heads, rows, wrap=0)
    for line in (*summary_lines(output), *(f"not exercised: {text}" for text in output.not_exercised)):
        screen.data(line)


def _show_sanitized(output: SanitizeOutput, screen: Screen) -> None:
    tools = tuple(dict.fromkeys(one.tool for one in output.runs))
    status = {(one.variant, one.tool): one.status for one in output.runs}
    names = dict.fromkeys(one.variant for one in output.runs)
    if names:
        rows = [(name, *(status.get((name, tool), "not run") for tool in tools)) for name in names]
        screen.table(("variant", *tools), rows)
    for one in (one for one in output.runs if one.status == "found"):
        screen.data(f"{one.tool}: {one.told}")
    for text in output.not_exercised:
        screen.data(f"not exercised: {text}")
    if output.hint:
        screen.data(output.hint)
