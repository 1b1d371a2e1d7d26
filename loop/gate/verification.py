"""Turn the checks of a verification, on the device or emulated, into its step's output."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from loop.base.errors import WorkFailed
from loop.builds.build import BuildFailed
from loop.gate.model import ShareOutput
from loop.gate.verify import MOST_HUNG, in_order
from loop.model.measurement import Check, VariantChecks
from loop.model.output import VerifyOutput
from loop.model.target import Workload
from loop.model.verdict import NoSpeedVerdict
from loop.model.workloads import reason_unsupported
from loop.workers.bench import UNJUDGED_HINT, Side

VERBS = {"refused": "refuses a call", "crashed": "crashes", "hung": "hangs"}
"""Status of the first failed check to the verb of the message; any other status: "is incorrect"."""


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
    """The output of a verification, from the checks of all variants and of the control.

    `meant`: names of all selected variants; `failures`: those that do not compile; `missing`: sentences on
    what was not exercised; `untaken`: variant to sentences on the workloads that it does not take;
    `command`: formats a `loop` command line for this target.
    """
    trusted = bool(control.checks) and not control.first_failure
    right = tuple(checks.variant for checks in sides if checks.is_right and trusted)
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
    """A message on what failed (empty without a failure), and a hint on what to do next."""
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
    """A verdict for each workload with a failed check; tampering comes before other failures."""
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
    """Merge the checks of several jobs: those of each variant, and those of the control.

    The order is that of a single job. Raises WorkFailed where no share could judge anything.
    """
    every: dict[str, VariantChecks] = {}
    for parts in zip(*(share.sides for share in shares), strict=True):
        side = in_order(parts, workloads)
        if (before := every.get(side.variant)) is not None:  # The same variant with another number of threads.
            side = before.model_copy(update={"checks": (*before.checks, *side.checks)})
        every[side.variant] = side
    checks = [check for side in every.values() for check in side.checks]
    if len(shares) > 1 and checks and all(check.status == "not judged" for check in checks):
        raise WorkFailed(checks[0].message, hint=UNJUDGED_HINT)
    return tuple(every.values()), in_order([share.control for share in shares], workloads)


def hung_out(checks: VariantChecks) -> Iterator[str]:
    """One line if a variant's checks ended early because too many calls hung; else none."""
    hung = checks.count("hung")
    if hung >= MOST_HUNG:
        yield f"{checks.variant} on the workloads after its call number {hung} that hung"


def untaken_workloads(side: Side, workloads: Iterable[Workload]) -> tuple[str, ...]:
    """Sentences on the workloads that a side does not take: by element type, or by `takes`."""
    types, sizes = dict[str, str](), dict[str, str]()
    for workload in workloads:
        if workload.dtype not in side.dtypes:
            types[workload.name] = workload.dtype
        elif why := reason_unsupported(side, workload):
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
