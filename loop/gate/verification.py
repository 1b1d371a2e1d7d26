"""Turn the checks of a verification, on the device or emulated, into its step's output."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from loop.base.errors import WorkFailed
from loop.builds.build import BuildFailed
from loop.gate.model import ShareOutput
from loop.gate.verify import MOST_HUNG, merge_checks
from loop.model.measurement import Check, VariantChecks
from loop.model.output import VerifyOutput
from loop.model.target import Workload
from loop.model.verdict import NoSpeedVerdict
from loop.model.workloads import explain_unsupported
from loop.steps.context import Context
from loop.workers.bench import UNJUDGED_HINT, Side

VERBS = {"refused": "refuses a call", "crashed": "crashes", "hung": "hangs"}
"""Status of the first failed check to the verb of the message; any other status: "is incorrect"."""


def verification_output(
    context: Context,
    sides: Sequence[VariantChecks],
    control: VariantChecks,
    selected: Sequence[str],
    *,
    failures: Sequence[BuildFailed],
    not_exercised: Sequence[str],
    untaken: Mapping[str, Sequence[str]],
) -> VerifyOutput:
    """The output of a verification, from the checks of all variants and of the control. `selected`: names
    of all selected variants; `failures`: those that do not compile; `not_exercised`: sentences on what was
    not exercised; `untaken`: variant to sentences on the workloads that it does not take."""
    is_trusted = bool(control.checks) and not control.first_failure
    right = tuple(checks.variant for checks in sides if checks.is_right and is_trusted)
    unjudged_by_workload: dict[str, str] = {}
    for checks in (*sides, control):
        for check in checks.checks:
            if check.status == "not judged":
                unjudged_by_workload[check.workload.name] = f"not judged: {check.message}"
    unjudged, left_out = list(unjudged_by_workload.values()), list(not_exercised)
    for variant, texts in untaken.items():
        left_out += [f"{variant} on {text}" for text in texts]
    declined, tallies, unchecked = list[str](), list[str](), list[str]()
    for checks in sides:
        layouts = dict.fromkeys(check.inputs for check in checks.checks if check.status == "unsupported")
        layouts.pop("contiguous", None)
        if layouts:
            declined.append(f"{checks.variant} on {', '.join(layouts)} inputs: not supported")
        is_all_right = checks.count("right") == len(checks.checks)
        tally = f"right in {len(checks.checks)} checks" if is_all_right else checks.tally
        tallies.append(f"{checks.variant} {tally}")
        unchecked += [] if checks.count("right") else [checks.variant]
    message, hint = _describe_failure(context, sides, control, failures)
    if not message and unchecked:
        reasons = [*untaken.get(unchecked[0], ()), *unjudged, *left_out, "there is no workload"]
        message = f"nothing was checked of {unchecked[0]}: {reasons[0]}"
        types_hint = f"`{context.command('kernels', 'list')}` shows the types of each"
        hint = f"{types_hint}: say dtype=... in --workloads, or name another set"
    verdicts = [verdict for checks in sides for verdict in _verdicts_on_failures(checks)]
    return VerifyOutput(
        ok=len(right) == len(selected) and is_trusted,
        message=message or ", ".join(tallies) or "no variant to verify",
        hint=hint,
        verdicts=tuple(verdicts) if is_trusted else (),
        not_exercised=(*unjudged, *left_out, *declined),
        variants=tuple(sides),
        control=control,
        seed=context.task.seed,
        right=right,
        wrong=tuple(checks.variant for checks in sides if checks.first_failure),
    )


def _describe_failure(
    context: Context, sides: Sequence[VariantChecks], control: VariantChecks, failures: Sequence[BuildFailed]
) -> tuple[str, str | None]:
    """A message on what failed (empty without a failure), and a hint on what to do next."""
    failed = [(checks, first) for checks in sides if (first := checks.first_failure)]
    if control.first_failure:
        doubt = "baseline, reference or tolerance is not to be trusted there"
        hint = "look at `reference`, `plain`, `baseline` and `tolerance` of target.yaml before any variant"
        if control.first_failure.status in VERBS:
            doubt = "the baseline computes nothing, so that nothing can be held against it"
            hint = "`loop doctor` looks at torch and the device; `baseline` of target.yaml names what is called"
        message = f"the control failed: {doubt}: {control.first_failure.message}"
        for checks, first in failed[:1]:
            message += f"; {checks.variant} as well: {first.message}"
        return message, hint
    if failed:
        (checks, first), others = failed[0], [other.variant for other, _ in failed[1:]]
        message = f"{checks.variant} {VERBS.get(first.status, 'is incorrect')}: {first.message}"
        message += f" ({checks.tally})" if len(checks.checks) > 1 else ""
        if others:
            message += f"; so {'is' if len(others) == 1 else 'are'} {', '.join(others)}"
        return message, f"mend {checks.variant}, then `{context.command('kernels', 'verify', checks.variant)}`"
    return (f"no build: {failures[0].message}", failures[0].hint) if failures else ("", None)


def _verdicts_on_failures(checks: VariantChecks) -> Iterator[NoSpeedVerdict]:
    """A verdict for each workload with a failed check; tampering comes before other failures."""
    first_by_workload: dict[str, Check] = {}
    for check in sorted(checks.checks, key=lambda check: check.status != "tampered"):
        if not check.passed:
            first_by_workload.setdefault(check.workload.name, check)
    for check in first_by_workload.values():
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
    """Merge the checks of several jobs: those of each variant, and those of the control. The order is that
    of a single job. Raises WorkFailed where no share could judge anything."""
    by_variant: dict[str, VariantChecks] = {}
    for parts in zip(*(share.sides for share in shares), strict=True):
        side = merge_checks(parts, workloads)
        if side.variant in by_variant:  # The same variant with another number of threads.
            earlier = by_variant[side.variant]
            side = earlier.model_copy(update={"checks": (*earlier.checks, *side.checks)})
        by_variant[side.variant] = side
    checks = [check for side in by_variant.values() for check in side.checks]
    if len(shares) > 1 and checks and all(check.status == "not judged" for check in checks):
        raise WorkFailed(checks[0].message, hint=UNJUDGED_HINT)
    return tuple(by_variant.values()), merge_checks([share.control for share in shares], workloads)


def explain_early_end(checks: VariantChecks) -> Iterator[str]:
    """One line if a variant's checks ended early because too many calls hung; else none."""
    hung = checks.count("hung")
    if hung >= MOST_HUNG:
        yield f"{checks.variant} on the workloads after its call number {hung} that hung"


def describe_untaken_workloads(side: Side, workloads: Iterable[Workload]) -> tuple[str, ...]:
    """Sentences on the workloads that a side does not take: by element type, or by `takes`."""
    dtype_by_name, reason_by_name = dict[str, str](), dict[str, str]()
    for workload in workloads:
        if workload.dtype not in side.dtypes:
            dtype_by_name[workload.name] = workload.dtype
        elif reason := explain_unsupported(side, workload):
            reason_by_name[workload.name] = reason
    texts = []
    for names in filter(None, (dtype_by_name, reason_by_name)):
        untaken = f"{len(names)} workloads" if len(names) > 1 else next(iter(names))
        values = ", ".join(dict.fromkeys(names.values()))
        if names is dtype_by_name:
            texts.append(f"{untaken} of type {values}: it takes {', '.join(side.dtypes)}")
        else:
            texts.append(f"{untaken}: not supported, {values} (`takes: {side.takes}`)")
    return tuple(texts)
