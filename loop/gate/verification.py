"""What a verification came to, whether it ran on the device or under the emulator: the output of its step."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from loop.base.errors import WorkFailed
from loop.builds.build import BuildFailed
from loop.gate.model import ShareOutput
from loop.gate.verify import MOST_HUNG, in_order
from loop.model.measurement import Check, VariantChecks
from loop.model.output import VerifyOutput
from loop.model.target import Workload
from loop.model.verdict import NoSpeedVerdict
from loop.model.workloads import unsupported
from loop.workers.bench import UNJUDGED_HINT, Side

VERBS = {"refused": "refuses a call", "crashed": "crashes", "hung": "hangs"}
"""What is said of a variant by the first check that failed; the others make it incorrect."""


def verification_output(
    sides: Sequence[VariantChecks],
    control: VariantChecks,
    meant: Sequence[str],
    *,
    seed: int,
    command: Callable[..., str],
    failures: Sequence[BuildFailed] = (),
    missing: Sequence[str] = (),
    untaken: Mapping[str, Sequence[str]] | None = None,
) -> VerifyOutput:
    """The output of a verification: the checks of all variants, and of the control.

    `meant`: names of the variants that were to be verified; `failures`: those that do not compile; `missing`: what
    was not exercised, besides layouts that were declined; `untaken`: variant to the workloads that it does not
    take, and why; `command`: makes a command of loop on this target.
    """
    trusted = bool(control.checks) and not control.first_failure
    right = tuple(checks.variant for checks in sides if checks.right and trusted)
    every = [check for each in (*sides, control) for check in each.checks]
    first = {check.workload.name: check.message for check in every if check.status == "not judged"}
    unjudged = [f"not judged: {message}" for message in first.values()]
    left_out = [*missing, *(f"{name} on {text}" for name, texts in (untaken or {}).items() for text in texts)]
    declined, counts, idle = list[str](), list[str](), list[str]()
    for checks in sides:
        layouts = dict.fromkeys(check.inputs for check in checks.checks if check.status == "unsupported")
        if other := ", ".join(layout for layout in layouts if layout != "contiguous"):
            declined.append(f"{checks.variant} on {other} inputs: not supported")
        whole = checks.count("right") == len(checks.checks)
        tally = f"right in {len(checks.checks)} checks" if whole else checks.tally
        counts.append(f"{checks.variant} {tally}")
        idle += [] if checks.count("right") else [checks.variant]
    message, hint = _failure(sides, control, failures, command)
    if not message and idle:
        reasons = [*(untaken or {}).get(idle[0], ()), *unjudged, *left_out, "there is no workload"]
        message = f"nothing was checked of {idle[0]}: {reasons[0]}"
        types = f"`{command('kernels', 'list')}` shows the types of each"
        hint = f"{types}: say dtype=... in --workloads, or name another set"
    return VerifyOutput(
        ok=len(right) == len(meant) and trusted,
        message=message or ", ".join(counts) or "no variant to verify",
        hint=hint,
        verdicts=tuple(verdict for checks in sides if trusted for verdict in _incorrect(checks)),
        not_exercised=(*unjudged, *left_out, *declined),
        variants=tuple(sides),
        control=control,
        seed=seed,
        right=right,
        wrong=tuple(checks.variant for checks in sides if checks.first_failure),
    )


def _failure(
    sides: Sequence[VariantChecks],
    control: VariantChecks,
    failures: Sequence[BuildFailed],
    command: Callable[..., str],
) -> tuple[str, str | None]:
    """What failed, in one line, the most telling thing first, and what to do next; empty where nothing did."""
    wrong = [(checks, first) for checks in sides if (first := checks.first_failure)]
    if control.first_failure:
        also = f"; {wrong[0][0].variant} as well: {wrong[0][1].message}" if wrong else ""
        doubt = "baseline, reference or tolerance is not to be trusted there"
        hint = "look at `reference`, `plain`, `baseline` and `tolerance` of target.yaml before any variant"
        if control.first_failure.status in VERBS:
            doubt = "the baseline computes nothing, so that nothing can be held against it"
            hint = "`loop doctor` looks at torch and the device; `baseline` of target.yaml names what is called"
        return f"the control failed: {doubt}: {control.first_failure.message}{also}", hint
    if wrong:
        (checks, first), others = wrong[0], [other.variant for other, _ in wrong[1:]]
        counted = f" ({checks.tally})" if len(checks.checks) > 1 else ""
        too = f"; so {'is' if len(others) == 1 else 'are'} {', '.join(others)}" if others else ""
        message = f"{checks.variant} {VERBS.get(first.status, 'is incorrect')}: {first.message}{counted}{too}"
        return message, f"mend {checks.variant}, then `{command('kernels', 'verify', checks.variant)}`"
    return (f"no build: {failures[0].message}", failures[0].hint) if failures else ("", None)


def _incorrect(checks: VariantChecks) -> Iterator[NoSpeedVerdict]:
    """A verdict for every workload on which a variant was wrong, crashed, hung, refused or tampered.

    Of several failed checks the first speaks, as in the step's own message; one that was tampered with before it.
    """
    first: dict[str, Check] = {}
    for check in sorted(checks.checks, key=lambda check: check.status != "tampered"):
        if not check.passed:
            first.setdefault(check.workload.name, check)
    for check in first.values():
        yield NoSpeedVerdict(
            variant=checks.variant,
            workload=check.workload.name,
            against="baseline",
            verdict="invalid" if check.status == "tampered" else "incorrect",
            cause=check.cause,
            reason=check.message,
        )


def merge_shares(
    shares: Sequence[ShareOutput], workloads: Sequence[Workload]
) -> tuple[tuple[VariantChecks, ...], VariantChecks]:
    """The checks of each variant and of the control, in the order in which one job would give them.

    Raises WorkFailed where no share could judge anything.
    """
    every: dict[str, VariantChecks] = {}
    for parts in zip(*(share.sides for share in shares), strict=True):
        side = in_order(parts, workloads)
        if (before := every.get(side.variant)) is not None:  # The same variant on another number of threads.
            side = before.model_copy(update={"checks": (*before.checks, *side.checks)})
        every[side.variant] = side
    checks = [check for side in every.values() for check in side.checks]
    if len(shares) > 1 and checks and all(check.status == "not judged" for check in checks):
        raise WorkFailed(checks[0].message, hint=UNJUDGED_HINT)
    return tuple(every.values()), in_order([share.control for share in shares], workloads)


def hung_out(checks: VariantChecks) -> Iterator[str]:
    """A line on a variant whose checks ended because too many calls hung."""
    hung = checks.count("hung")
    if hung >= MOST_HUNG:
        yield f"{checks.variant} on the workloads after its call number {hung} that hung"


def untaken_workloads(side: Side, workloads: Iterable[Workload]) -> tuple[str, ...]:
    """Workloads that a side does not take and why: their type, or its `takes` condition."""
    types, sizes = dict[str, str](), dict[str, str]()
    for workload in workloads:
        if workload.dtype not in side.dtypes:
            types[workload.name] = workload.dtype
        elif why := unsupported(side, workload):
            sizes[workload.name] = why
    texts = []
    for left, reason in (
        (types, f"it takes {', '.join(side.dtypes)}"),
        (sizes, f"not supported, {', '.join(dict.fromkeys(sizes.values()))} (`takes: {side.takes}`)"),
    ):
        if left:
            many = f"{len(left)} workloads" if len(left) > 1 else next(iter(left))
            of_type = f" of type {', '.join(dict.fromkeys(types.values()))}" if left is types else ""
            texts.append(f"{many}{of_type}: {reason}")
    return tuple(texts)
