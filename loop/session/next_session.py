"""Proposes the next session: the most urgent idea that can run here, with its price and its command."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from loop.base.errors import LoopError, UsageError
from loop.gate.emulating import is_too_large_to_emulate
from loop.learning.learnings import explain_location, one_line
from loop.learning.next_plan import Idea, TargetState, describe_benefit, propose_sessions, unjudged_sentence
from loop.learning.prediction import predicted_cost_text, predicted_time_text, with_prediction
from loop.library import targets
from loop.library.rates import rates
from loop.model.base import Model, Printed
from loop.model.index import SessionRow
from loop.model.plan import Predicted
from loop.model.record import Line, SessionHead, SessionRecord
from loop.model.target import CAbiVariant
from loop.model.workloads import expand_sets, is_supported, workload_weights
from loop.optimize import candidate
from loop.optimize.edits import may_edit_variant
from loop.repository import is_revertible
from loop.session.opening import SessionRequest, make_head, resolve_request
from loop.steps.setting import Setting, choose_device, choose_emulated, choose_threads
from loop.store import index, journal, past_changes
from loop.store.rows import session_row

BASELINE_IDEA = Idea("baseline", "", ())
TIMING_PLANS = ("optimize", "tune")
"""Plans that time a variant: they cannot use one that is only emulated here."""


class OtherIdea(Model):
    """An idea that was not proposed first."""

    objective: str
    """What the session is for."""
    plan: str
    """Name of the plan."""
    why: tuple[str, ...]
    """The reasons for it."""


class NextSession(Printed):
    """The proposed next session, as `loop plan next --json` prints it."""

    schema_version: int = 2
    """Number of this schema."""
    objective: str
    """What the session is for."""
    plan: str
    """Name of the plan."""
    variant: str | None
    """The variant to work on; None for all."""
    resume: str | None
    """Id of an interrupted session to resume; None for a new session."""
    chain: tuple[str, ...]
    """The patterns that the plan runs, in order."""
    expected: str
    """Expected time and cost, in words."""
    predicted: Predicted | None
    """Expected time and cost with their intervals; None if not known."""
    benefit: str
    """The expected benefit, in words."""
    why: tuple[str, ...]
    """The reasons for the proposal, from the records of earlier sessions."""
    command: str
    """The shell command that starts the session."""
    wrong: tuple[str, ...]
    """A sentence for each wrong variant."""
    unjudged: str
    """Variants and workload sets that no session judged with the present files; empty if all were."""
    others: tuple[OtherIdea, ...]
    """Other proposals, the most urgent first."""


def propose_next(
    setting: Setting,
    where: Sequence[str],
    ended: Sequence[SessionRow] = (),
    device: str = "auto",
    there: Sequence[str] = (),
) -> NextSession:
    """The most urgent idea that can run here, and the others. Raises UsageError if no plan can run.

    `where`: options that name the target in the command. `ended`: sessions that are not in the index
    yet. `there`: options that name another machine (`--on HOST`).
    """
    known = index.rows(setting.project.sessions, last=index.RECENT_SESSIONS, target=setting.target.name)
    rows = [*(row for row in known if row.id not in {row.id for row in ended}), *ended]
    now = read_target_state(setting, device)
    reverted = past_changes.reverted_changes(
        setting.project.sessions, _make_head_for(BASELINE_IDEA, setting, device)
    )
    lost = Counter(change.variant for change in reverted)
    mains = {name for name, variant in setting.target.variants.items() if variant.role == "main"}
    sure = [
        row.model_copy(update={"inconclusive": tuple(name for name in row.inconclusive if name in mains)})
        for row in rows
    ]
    every = []
    for idea in propose_sessions(sure, now, lost):  # Its plan may have been deleted since.
        gone = idea.failed_check and idea.plan not in setting.plans
        every.append(replace(idea, plan="baseline") if gone else idea)
    for idea in every:
        if idea.plan not in (*setting.plans, *setting.patterns) and not idea.resume:
            continue
        try:
            head = with_prediction(_make_head_for(idea, setting, device), setting)
        except LoopError:  # Its variant was removed, or runs on another device.
            continue
        if idea.plan not in TIMING_PLANS or idea.variant not in head.emulated:
            break
    else:
        raise UsageError("no plan of this target can be run here", hint="loop plan list")
    missing = now.find_unjudged(rows)
    return NextSession(
        objective=idea.objective,
        plan=idea.plan,
        variant=idea.variant,
        resume=idea.resume,
        chain=head.plan.plan.patterns,
        expected=", ".join(
            filter(None, (predicted_time_text(head), predicted_cost_text(rates(setting.project), head)))
        ),
        predicted=head.predicted,
        benefit=describe_benefit(idea, rows),
        why=idea.why,
        command=_shell_command(idea, setting, where, there),
        wrong=now.wrong_sentences(rows),
        unjudged=unjudged_sentence(missing) if missing else "",
        others=tuple(
            OtherIdea(objective=other.objective, plan=other.plan, why=other.why)
            for other in every
            if other not in (idea, every[-1])
        ),
    )


def with_failing_seed(setting: Setting, head: SessionHead) -> tuple[SessionHead, str]:
    """The head with the seed at which one of its variants last failed, and a sentence; else unchanged, ""."""
    rows = index.rows(setting.project.sessions, last=index.RECENT_SESSIONS, target=head.target)
    for failure in read_target_state(setting, head.device).failures(rows):
        variant, seed = failure.judgement.variant, failure.judgement.seed
        if variant in (*head.variants, *head.emulated) and failure.row.device == head.device:
            why = f"inputs as in {failure.row.id}, in which {variant} was wrong: seed {seed}"
            return head.model_copy(update={"seed": seed}), why
    return head, ""


def read_target_state(setting: Setting, device: str = "auto") -> TargetState:
    """The target's present state: its variants, and the workloads that this machine can judge."""
    target = setting.target
    chosen = choose_device(device, target, ())
    mains = [name for name, variant in target.variants.items() if variant.role == "main"]
    emulated = choose_emulated((), target, chosen)
    declared: dict[str, dict[str, frozenset[str]]] = {}
    for name in (*target.variants_on(chosen), *emulated):
        dtype = target.dtypes["cuda" if name in emulated else chosen]
        declared[name] = {}
        for workloads in target.workloads:
            takes = (w for w in expand_sets(target, [workloads], dtype) if is_supported(target.variants[name], w))
            names = frozenset(
                w.name for w in takes if not (name in emulated and is_too_large_to_emulate(target, w))
            )
            if names:
                declared[name][workloads] = names
    return TargetState(
        ground=targets.sources_hash(setting.project),
        compiled=[name for name in mains if may_edit_variant(target, setting.project.target, name)],
        tunable=[tuning.variant for tuning in target.tuning.values() if tuning.variant in mains],
        weights=workload_weights(target, target.dtypes[chosen]),
        declared=declared,
        for_gpu=any(variant.device == "cuda" for variant in target.variants.values()),
    )


def _make_head_for(idea: Idea, setting: Setting, device: str) -> SessionHead:
    """The head of a session that would run this idea. Raises LoopError if it cannot run."""
    known = idea.plan in setting.plans
    request = SessionRequest(plan=idea.plan if known else None, device=device)
    request = request if known else replace(request, pattern=idea.plan)
    if idea.variant is not None:
        request = replace(request, variants=(idea.variant,))
    if idea.failed_check is not None:
        row = idea.failed_check.row
        request = replace(request, device=row.device, threads=row.threads, seed=idea.failed_check.judgement.seed)
    return make_head(request, setting, resolve_request(request, setting))


def _shell_command(idea: Idea, setting: Setting, where: Sequence[str], there: Sequence[str]) -> str:
    """The shell command that runs an idea, after taking or reverting a commit if it says so."""
    if idea.resume:
        return shlex.join(["loop", "run", "session", "--resume", idea.resume, *where, *there])
    chosen = ["--variant", idea.variant] if idea.variant else []
    if idea.failed_check is not None:
        # Repeat exactly the failed checks; leave out options that are the default here.
        row = idea.failed_check.row
        chosen += ["--seed", str(idea.failed_check.judgement.seed)]
        if row.threads != choose_threads(None) and row.device == "cpu":
            chosen += ["--threads", str(row.threads)]
        usual = choose_device("auto", setting.target, (idea.variant,) if idea.variant else ())
        chosen += [] if row.device == usual or "--device" in where else ["--device", row.device]
    kind = "session" if idea.plan in setting.plans else "pattern"
    run = shlex.join(["loop", "run", kind, idea.plan, *chosen, *where, *(there if kind == "session" else ())])
    folder, before = setting.project.target, list[str]()
    if idea.kept_change:
        whole = Path(idea.kept_change.patch).parent / candidate.KEPT
        before = candidate.find_take_command(folder, idea.kept_change.branch, whole, idea.kept_change.variant)
    elif idea.blamed_commit and is_revertible(folder, idea.blamed_commit):  # Else reverting would conflict.
        before = ["git", "-C", str(folder), "revert", "--no-edit", idea.blamed_commit]
    return f"{shlex.join(before)} && {run}" if before else run


def proposal_text(setting: Setting, record: SessionRecord, lines: Sequence[Line]) -> str:
    """The proposal of a session that ends: a sentence, then a line with a command. `lines`: its journal."""
    head, finished = record.head, journal.finished_steps(lines)
    try:
        ended = session_row(head, record, lines)
        own = head.device == choose_device("auto", setting.target, ())
        where = head.target_options if own else [*head.target_options, "--device", head.device]
        proposed = propose_next(setting, where, [ended], "auto" if own else head.device, head.host_options)
    except LoopError as error:
        return f"{one_line(error.message)}\n{head.repeat_command()}"
    variant = setting.target.variants.get(proposed.variant or "")
    sources = variant.sources if isinstance(variant, CAbiVariant) else ()
    begin = explain_location(finished, proposed.variant, [str(setting.project.target / name) for name in sources])
    # The report already shows this session's findings. Name the first of the other reasons.
    why = [one_line(text).partition("; ")[0] for text in proposed.why if head.id not in text][:1]
    sentence = ". ".join(filter(None, [": ".join([proposed.objective, *why]), begin]))
    return f"{sentence}.\n{proposed.command}"
