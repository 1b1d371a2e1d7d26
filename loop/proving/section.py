"""How far the verdicts of a session can be trusted: controls, properties, timed outputs, and the known good."""

from collections.abc import Iterable, Iterator, Sequence

from loop.base.ratios import plain_ratio, times
from loop.gate.model import PropertiesOutput
from loop.model.measurement import NullControl, PositiveControl
from loop.model.output import MeasureOutput, outputs_of
from loop.model.record import Finished
from loop.model.sanitizing import SanitizeOutput
from loop.model.verdict import SpeedVerdict, Verdict
from loop.proving.model import GateOutput
from loop.report import format as say
from loop.report.markdown import Table, columns, filled
from loop.timing.model import CompareOutput


def trust(finished: Sequence[Finished]) -> tuple[str, ...]:
    """Each control that ran in a session with its outcome, in a sentence."""
    compared = outputs_of(finished, CompareOutput)
    return (
        *(_score(output) for output in outputs_of(finished, GateOutput) if output.total),
        *_properties(outputs_of(finished, PropertiesOutput)),
        *(line for output in outputs_of(finished, SanitizeOutput) for line in _sanitized(output)),
        *_timed([*outputs_of(finished, MeasureOutput), *compared]),
        *(_null(control) for output in compared for control in output.null_controls),
        *(_positive(control) for output in compared for control in output.positive_controls),
    )


def _score(output: GateOutput) -> str:
    bases = ", ".join(dict.fromkeys(control.base for control in output.controls))
    score = f"the gate: killed {output.killed} of {output.total} variants of {bases} made wrong or made to cheat"
    if output.survivors:
        score += f"; survived: {', '.join(output.survivors)}"
    if output.indistinguishable:
        score += f"; not told by any input of the target: {', '.join(output.indistinguishable)}"
    wrong = f"; {len(output.wrong_reasons)} of them for another reason than theirs" if output.wrong_reasons else ""
    earlier = f"; in {output.taken_from}, nothing that it rests on has changed" if output.taken_from else ""
    return f"{score}{wrong}{earlier}"


def _properties(outputs: Iterable[PropertiesOutput]) -> Iterator[str]:
    for output in outputs:
        tried = [check for check in output.checks if check.status != "inapplicable"]
        names = dict.fromkeys(check.property for check in tried)
        failed = [check for check in tried if check.status == "failed"]
        if failed:
            yield f"properties: {len(failed)} of {len(tried)} checks failed, first {failed[0].message}"
        elif tried:
            checks = say.count(len(tried), "check")
            yield f"properties that need no reference ({', '.join(names)}): all hold, in {checks}"


def _sanitized(output: SanitizeOutput) -> Iterator[str]:
    """What compute-sanitizer found; of variants without a finding, under what they are clean."""
    for run in output.runs:
        if run.status == "found":
            yield f"compute-sanitizer, {run.tool}: {run.told}"
    tools = [run.tool for run in output.runs if run.variant in output.clean[:1]]
    calls = {len(run.workloads) for run in output.runs if run.variant in output.clean}
    if output.clean:
        clean = f"{say.listed(output.clean)} clean, in {say.count(max(calls), 'small call')} each"
        yield f"compute-sanitizer {output.version} ({', '.join(tools)}): {clean}"


def _timed(outputs: Sequence[MeasureOutput | CompareOutput]) -> Iterator[str]:
    """How many timed outputs were judged, and what disturbed the timing."""
    judged = sum(output.outputs for output in outputs)
    if judged:
        drawn = "one a side, workload and round, drawn at random"
        yield f"timed calls: {judged} outputs, {drawn}, held against the reference"
    for text in dict.fromkeys(text for output in outputs for text in output.warnings):
        yield f"warning: {text}"


def _null(control: NullControl) -> str:
    noise = (
        ""
        if control.block_sd is None
        else f"; a block scatters by {say.significant(100 * control.block_sd, 2)} % here"
    )
    words = [f"same on {control.same}"] if control.same else []
    words += [f"inconclusive on {control.inconclusive}"] if control.inconclusive else []
    words += list(control.false)
    compared = say.count(control.comparisons, "workload")
    return f"null control, {control.variant} against itself: {', '.join(words)} of {compared}{noise}"


def _positive(control: PositiveControl) -> str:
    when = f"seen after {say.count(control.blocks, 'block')}" if control.seen else f"not seen: {control.reason}"
    what = f"{control.variant} made {control.slowdown:.0%} slower on {control.workload}"
    return f"positive control, {what}: {when}"


def against_known_good(verdicts: Iterable[Verdict]) -> Table | None:
    """The variants against their known good."""
    judged = [
        verdict for verdict in verdicts if isinstance(verdict, SpeedVerdict) and verdict.against == "known_good"
    ]
    heads = columns("Variant", "Workload", ">Ratio [99 % interval]", ">Evidence", "Verdict")
    rows = tuple(
        (
            verdict.variant,
            verdict.workload,
            f"{times(verdict.ratio, 3)} [{', '.join(plain_ratio(end, 3) for end in verdict.interval)}]",
            _evidence(verdict.e_value),
            verdict.verdict,
        )
        for verdict in judged
    )
    return filled(heads, rows)


def _evidence(e_value: float | None) -> str:
    """`1,234 : 1`; beyond a million nobody weighs the difference."""
    if e_value is None:
        return ""
    return f"{e_value:,.0f} : 1" if e_value < 1e6 else "over 1,000,000 : 1"
