"""The gate's own score: variants made to err on purpose, through verification and timing like real candidates."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod
from time import monotonic

from loop.base.processes import Tick
from loop.gate.kernel import builds, unjudged_names
from loop.model.dtypes import Dtype
from loop.model.measurement import ControlResult
from loop.model.target import PythonVariant, Target, Workload
from loop.model.verdict import NoSpeedVerdict
from loop.model.workloads import accepts, expand, operations
from loop.proving import in_turn, prove
from loop.proving.model import GateOutput
from loop.proving.negative_controls import GROSS, Control
from loop.proving.prove import HONEST, Proof, erring, outcome
from loop.steps.context import Context, Result, Working
from loop.steps.taken_over import Lasting, rests_on, take_over
from loop.timing import doubts, verdicts
from loop.timing.doubts import every_doubt
from loop.timing.readiness import hold_device
from loop.timing.samples import Pair, Probed, Timings
from loop.timing.terms import Terms
from loop.workers.bench import Bench, Side

LARGEST = 1 << 25
"""Operations of the workload that is timed, at most."""
PROOF_SHARE = 0.5
"""Of the time after which the step is killed: controls that are not over then are named, and left."""
ROUNDS = 2
"""Fresh processes that controls are timed in."""


class ProofTerms(Lasting):
    """What the gate is tried on."""

    python: bool = False
    """Python variants too where there are compiled ones: importing torch for their cheats takes many seconds."""


@dataclass(frozen=True)
class Setup:
    """With what the controls of one variant are timed."""

    bench: Bench
    side: Side
    """The honest variant."""
    workload: Workload
    ends: float
    """When no more of them are timed, by the monotonic clock."""
    seed: int


def prove_gate(context: Context, arguments: ProofTerms) -> Working[GateOutput]:
    """Every control of the selected variants: each has to be rejected, and the honest variant has to pass."""
    bench = context.bench
    in_python = arguments.python or not bench.compiled(context.task.variants)
    sources = context.task.ground if in_python else ""  # A Python variant may compile files of its own.
    ground = rests_on(context, "kernel.prove_gate", sources)
    earlier = take_over(context, GateOutput, ground, arguments)
    if earlier is not None:
        return Result(earlier)
    bench.warm_up()
    made, failures = yield from builds(context)
    if failures:
        return Result(GateOutput(ok=False, message=f"no build: {failures[0].message}", hint=failures[0].hint))
    by_name = {one.variant: one for one in made}
    proof, begun, tried = Proof(), monotonic(), list[str]()
    compiled = [one.variant for one in made if one.compiled]
    for name in context.task.variants if arguments.python else compiled or context.task.variants:
        if tried and monotonic() - begun > context.budget_s:
            break
        tried.append(name)
        ends = begun + PROOF_SHARE * context.kill_after_s
        yield from _prove(context, bench.side(name, by_name.get(name)), proof, ends)
    output = _score(proof)
    missing = (*_missing(context, tried), *_untried(context, proof))
    if not output.total:
        missing = (*missing, f"the gate's controls: {'; '.join(output.not_applicable) or 'no variant'}")
    return Result(output.model_copy(update={"not_exercised": missing, "rests_on": ground}))


def _missing(context: Context, tried: Sequence[str]) -> Iterator[str]:
    """Variants whose controls were not tried, and the command that does."""
    for name in context.task.variants:
        if name not in tried:
            command = context.command("kernels", "prove-gate", name)
            yield f"the gate's controls of {name}: `{command}` tries them"


def _untried(context: Context, proof: Proof) -> Iterator[str]:
    """What is said of controls for which no time was left."""
    if proof.untried:
        some = ", ".join(proof.untried[:3]) + (", ..." if len(proof.untried) > 3 else "")
        command = context.command("kernels", "prove-gate")
        yield f"{len(proof.untried)} controls of the gate, for want of time ({some}): `{command}` has more"


def _prove(context: Context, side: Side, proof: Proof, ends: float) -> Generator[Tick, None, None]:
    """Verify the controls of one variant, time those that timing has to find, and add it all to `proof`."""
    target = context.bench.target
    dtype = prove.base_dtypes(context.bench, side)[0]
    workloads = _judged(context, dtype)
    why_none = _why_none(target, side, workloads)
    if why_none:
        proof.left_out.append(f"every control of {side.name}: {why_none}")
        return
    found = yield from prove.prove(context.bench, side, workloads, ends)
    proof.results += found.results
    proof.untried += [f"{side.name}: {name}" for name in found.untried]
    proof.left_out += [f"{side.name} {reason}" for reason in found.left_out]
    if any(one.kind == "honest" and one.base == side.name and one.killed for one in found.results):
        return  # A gate is proved on an honest variant.
    if not target.is_plain:
        proof.left_out.append(f"{side.name} controls that only timing finds: inputs are draws of a generator")
        if not found.timed:
            return
    largest = _largest(target, [one for one in workloads if one.dtype == dtype and accepts(side, one)])
    if largest is None:
        proof.left_out += [f"{side.name} {control.name}: no workload can be timed" for control in found.timed]
        return
    with ExitStack() as stack:
        yield from hold_device(context.bench, stack)
        setup = Setup(context.bench, side, largest, ends, context.task.seed)
        yield from _time(setup, found.timed, proof)


def _judged(context: Context, dtype: Dtype) -> list[Workload]:
    """All workloads of the target in a type, but for those that could not be judged."""
    target, left = context.bench.target, unjudged_names(context)
    every = expand(target, target.workloads, dtype, context.task.seed)
    return [one for one in every if one.name not in left]


def _why_none(target: Target, side: Side, workloads: Sequence[Workload]) -> str:
    """Why no control of a variant can be tried; empty where some can."""
    if side.kind == "command":
        return "it is a program of its own"
    if isinstance(variant := target.variants[side.name], PythonVariant) and variant.passing == "passed":
        return "its outputs are passed to it"
    if target.signature.updates:
        return "it changes its inputs in place"
    if not target.is_plain and not isinstance(variant, PythonVariant):
        return "controls of compiled variants are made for tensors one by one and one output"
    if not any(prod(one.sizes.values()) and accepts(side, one) for one in workloads):
        return "it takes no workload that is not empty"
    return ""


def _largest(target: Target, workloads: Iterable[Workload]) -> Workload | None:
    """The workload on which a cheat gains most, in the time there is."""
    sized = [(operations(target, one), one) for one in workloads if one.values == "normal"]
    return max((pair for pair in sized if 0 < pair[0] <= LARGEST), key=lambda pair: pair[0], default=(0, None))[1]


def _time(setup: Setup, chosen: Sequence[Control], proof: Proof) -> Generator[Tick, None, None]:
    """Time these controls and the honest variant, and apply the rules for real candidates to what was noticed.

    What does not come out as it should is timed once more, in more processes: the machine may have been disturbed.
    """
    if monotonic() >= setup.ends:
        proof.untried += [f"{setup.side.name}: {control.name}" for control in chosen]
        return
    results = yield from _outcomes(setup, [HONEST, *chosen], ROUNDS, proof)
    again = [control for control in (HONEST, *chosen) if _unexpected(control, results[control.name])]
    if again and monotonic() < setup.ends:
        results |= yield from _outcomes(setup, again, 2 * ROUNDS, proof)
    proof.results += [result for result in results.values() if result is not None]


def _unexpected(control: Control, result: ControlResult | None) -> bool:
    """Whether an honest candidate was rejected, or one that errs was not, or not for its own reason."""
    if result is None:
        return False
    return result.killed if control is HONEST else not result.right_reason


def _outcomes(
    setup: Setup, chosen: Sequence[Control], rounds: int, proof: Proof
) -> Generator[Tick, None, dict[str, ControlResult | None]]:
    """What came of each control, None where it is pointless here."""
    base = setup.side
    sides = [erring(setup.bench, base, control, setup.workload.dtype) for control in chosen]
    beside = [base] if base not in sides and any(control.remembers for control in chosen) else []
    timings, doubts = yield from _doubts(setup, [*beside, *sides], rounds)
    results: dict[str, ControlResult | None] = {}
    timed = {segment.side for segment in timings.segments}
    for control, one in zip(chosen, sides, strict=True):
        doubt = _reason(doubts, one, control)
        if not doubt and one.name not in timed:
            proof.untried += [] if control is HONEST else [f"{base.name}: {control.name}"]
            results[control.name] = None
            continue
        pointless = "" if doubt else _pointless(timings, control, one, base)
        if pointless:
            proof.left_out.append(f"{base.name} {control.name}: {pointless}")
        told = (doubt.workload, doubt.cause, doubt.reason) if doubt else ()
        results[control.name] = None if pointless else outcome(base, control, "measure", *told)
    return results


def _doubts(
    setup: Setup, sides: Sequence[Side], rounds: int
) -> Generator[Tick, None, tuple[Timings, list[NoSpeedVerdict]]]:
    """Timings of these sides, and why they cannot be trusted."""
    terms = Terms(rounds, setup.ends - monotonic(), setup.seed)
    timings, refused = yield from in_turn.measure(setup.bench, setup.side, sides, setup.workload, terms)
    place = setup.workload.name
    pairs = [Pair(one, one.name, one.name, "self") for one in sides]
    doubts = yield from every_doubt(setup.bench, timings, (), pairs)
    return timings, [
        *(verdicts.invalid(error.side, place, "self", error.cause, error.message) for error in refused),
        *doubts,
    ]


def _reason(found: Iterable[NoSpeedVerdict], one: Side, control: Control) -> NoSpeedVerdict | None:
    """Why a side is doubted: for the reason that was expected, if that is among several."""
    doubts = [doubt for doubt in found if doubt.variant == one.name]
    right = [doubt for doubt in doubts if doubt.cause in control.expected]
    return next(iter([*right, *doubts]), None)


def _pointless(timings: Timings, control: Control, one: Side, base: Side) -> str:
    """Why remembering is no cheat here: it gains too little over computing. Empty when it would pay."""
    if not control.remembers:
        return ""
    probes = timings.probes.items()
    again = [each.again_s for (name, _), found in probes if name == one.name for each in found]
    fresh = [each.fresh_s for (name, _), found in probes if name == base.name for each in found]
    if not again or not fresh:
        return "a call takes too long to be made on values that it has seen"
    again_s, fresh_s = min(again), min(fresh)
    if doubts.remembers([Probed(fresh_s, again_s)]):
        return ""
    return f"remembering takes {again_s * 1e6:.0f} us, computing {fresh_s * 1e6:.0f} us"


def _score(proof: Proof) -> GateOutput:
    killed, survived, rejected = _sorted(proof.results)
    total = len(killed) + len(survived)
    alike = tuple(_name(one) for one in proof.results if not one.distinguishable)
    message = f"killed {len(killed)} of {total}{_remark(survived, rejected, alike)}"
    if not total and not alike and not rejected:
        message = "no control can be made of these variants"
        message = "no control was tried, for want of time" if proof.untried else message
    return GateOutput(
        ok=not survived and not rejected,
        message=message,
        hint=_hint(survived, rejected, alike),
        controls=tuple(proof.results),
        killed=len(killed),
        total=total,
        survivors=tuple(map(_name, survived)),
        rejected=tuple(map(_with_reason, rejected)),
        wrong_reasons=tuple(_with_reason(one) for one in killed if not one.right_reason),
        not_applicable=tuple(proof.left_out),
        indistinguishable=alike,
    )


def _sorted(results: Sequence[ControlResult]) -> tuple[list[ControlResult], ...]:
    """Controls that were killed, controls that survived, and honest candidates that were rejected."""
    killed = [one for one in results if one.kind != "honest" and one.killed and one.distinguishable]
    survived = [one for one in results if one.survived]
    return killed, survived, [one for one in results if one.kind == "honest" and one.killed]


def _name(one: ControlResult) -> str:
    return f"{one.base}: {one.name}"


def _with_reason(one: ControlResult) -> str:
    return f"{_name(one)}: {one.reason}"


def _remark(survived: Sequence[ControlResult], rejected: Sequence[ControlResult], alike: Sequence[str]) -> str:
    """What is said beside the score."""
    if survived:
        return f"; survived: {', '.join(map(_name, survived))}"
    if rejected:
        return f"; an honest candidate was rejected: {_with_reason(rejected[0])}"
    return f"; not distinguishable here: {', '.join(alike)}" if alike else ""


def _hint(
    survived: Sequence[ControlResult], rejected: Sequence[ControlResult], alike: Sequence[str]
) -> str | None:
    """What to do next; None where all is well."""
    if any(control.name == GROSS for control in survived):
        return "the tolerance is wider than every output, so that zeros pass: narrow it"
    if survived:
        return "the gate does not see this mistake: narrow the tolerance, or add a workload on which it shows"
    if rejected:
        return "the gate is too strict for this target: look at tolerance, reference and plain"
    if alike:
        return f"no input of the target tells {', '.join(alike[:3])}: add a workload with other values or sizes"
    return None
