"""Proposes the next session: the most urgent idea that can run here, with its price and command."""

import functools
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from loop.base.errors import LoopError, UsageError
from loop.gate.kernel import is_too_large_to_emulate
from loop.learning import next_plan
from loop.learning.learnings import explain_location
from loop.learning.next_plan import Idea, TargetState
from loop.learning.prediction import predicted_cost_text, predicted_time_text, with_prediction
from loop.library import targets
from loop.library.rates import rates
from loop.model.base import Model, Printed
from loop.model.index import SessionRow
from loop.model.plan import Predicted
from loop.model.record import Line, SessionHead, SessionRecord
from loop.model.target import CAbiVariant
from loop.model.workloads import expand_sets, is_supported
from loop.optimize import candidate
from loop.optimize.session_changes import may_edit_variant
from loop.report.findings import show_command
from loop.report.markdown import one_line
from loop.report.screen import Screen
from loop.report.sections import Section, print_sections
from loop.repository.worktree import is_revertible
from loop.session.opening import SessionRequest, make_head, resolve_request
from loop.starting.source import sources_to_edit
from loop.steps.setting import Setting, choose_device, choose_emulated, choose_threads
from loop.store import journal, sessions
from loop.store.sessions import RECENT_SESSIONS

TIMING_PLANS = ("optimize", "tune")  # They cannot use a variant that is only emulated here.
MOST_IDEAS = 3  # Most further ideas that are printed.


class OtherIdea(Model):
    """An idea that was not proposed first."""

    objective: str
    plan: str
    why: tuple[str, ...]


class NextSession(Printed):
    """The proposed next session, as `loop plan next --json` prints it."""

    schema_version: int = 3
    objective: str
    """What the session is for."""
    plan: str
    variant: str | None
    """The variant to work on; None for all."""
    resume: str | None
    """Id of an interrupted session to resume; None for a new session."""
    chain: tuple[str, ...]
    """The patterns that the plan runs, in order; empty if the command runs no session."""
    expected: str
    """Expected time and cost, in words; empty if the command runs no session."""
    predicted: Predicted | None
    """Expected time and cost with their intervals; None if not known."""
    why: tuple[str, ...]
    """The reasons for the proposal, from the records of earlier sessions."""
    command: str
    wrong: tuple[str, ...]
    """A sentence for each wrong variant."""
    unjudged: str
    """Variants and workload sets that no session judged with the present files; empty: none."""
    others: tuple[OtherIdea, ...]
    """Other proposals, the most urgent first."""

    @property
    def sections(self) -> tuple[Section, Section]:
        """Variants that are wrong or not judged; then the proposed next session, further ideas."""
        problems = [*self.wrong, *([self.unjudged] if self.unjudged else [])]
        title = "Wrong" if self.wrong else "Not judged" if problems else "Outputs"
        correctness = Section(title, tuple(problems) or (next_plan.ALL_RIGHT,))
        lines = [f"why: {reason}" for reason in self.why]
        if self.chain:
            lines += [f"chain: {', '.join(self.chain)}", f"expected: {self.expected}"]
        lines.append(f"run it: {self.command}")
        ideas = self.others[:MOST_IDEAS]
        lines += [f"also: {idea.objective} (plan {idea.plan}): {idea.why[0]}" for idea in ideas]
        return correctness, Section(f"Next: {self.objective}", tuple(lines))

    def show(self, screen: Screen) -> None:
        """Print what is wrong, and the proposal."""
        print_sections(self.sections, screen)


def propose_next(
    setting: Setting,
    target_options: Sequence[str],
    ended_rows: Sequence[SessionRow] = (),
    device: str = "auto",
    host_options: Sequence[str] = (),
) -> NextSession:
    """The most urgent idea that can run here, and others. UsageError if none can. `ended_rows`:
    those not in the index yet. `target_options`, `host_options`: words for the proposed command."""
    ended_ids = {row.id for row in ended_rows}
    root = setting.project.sessions
    indexed_rows = sessions.rows(root, last=RECENT_SESSIONS, target=setting.target.name)
    rows = [*(row for row in indexed_rows if row.id not in ended_ids), *ended_rows]
    state = read_target_state(setting, device)
    all_ideas = []
    for idea in next_plan.propose_sessions(rows, state):
        # The plan of an earlier session may have been deleted since.
        is_deleted = idea.failed_check and idea.plan not in setting.plans
        all_ideas.append(replace(idea, plan="baseline") if is_deleted else idea)
    for idea in all_ideas:
        variants = (idea.variant,) if idea.variant is not None else ()
        plan, pattern = (idea.plan, None) if idea.plan in setting.plans else (None, idea.plan)
        request = SessionRequest(plan=plan, pattern=pattern, device=device, variants=variants)
        if (failed := idea.failed_check) is not None:  # It is repeated as it was.
            row, seed = failed.row, failed.judgement.seed
            request = replace(request, device=row.device, threads=row.threads, seed=seed)
        try:
            head = make_head(request, setting, resolve_request(request, setting))
            head = with_prediction(head, setting)
        except LoopError:  # Its plan or variant was removed, or needs another device.
            continue
        if idea.plan not in TIMING_PLANS or idea.variant not in head.emulated:
            break
    else:
        raise UsageError("no plan of this target can be run here", hint="loop plan list")
    forecast = predicted_time_text(head), predicted_cost_text(rates(setting.project), head)
    unjudged = state.find_unjudged(rows)
    ideas = [other for other in all_ideas[:-1] if other != idea]
    others = [OtherIdea(objective=o.objective, plan=o.plan, why=o.why) for o in ideas]
    return NextSession(
        objective=idea.objective,
        plan=idea.plan,
        variant=idea.variant,
        resume=idea.resume,
        why=idea.why,
        chain=() if idea.unjudged else head.plan.plan.patterns,
        expected="" if idea.unjudged else ", ".join(filter(None, forecast)),
        predicted=None if idea.unjudged else head.predicted,
        command=_shell_command(idea, setting, target_options, host_options),
        wrong=tuple(map(next_plan.wrong_sentence, state.failures_by_variant(rows).values())),
        unjudged=next_plan.unjudged_sentence(unjudged) if unjudged else "",
        others=tuple(others),
    )


def with_failing_seed(setting: Setting, head: SessionHead) -> tuple[SessionHead, str]:
    """The head with the seed at which one of its variants was last wrong on this device, if that is
    still open, and a sentence that says so; else the head unchanged, and an empty sentence."""
    rows = sessions.rows(setting.project.sessions, last=RECENT_SESSIONS, target=head.target)
    by_variant = read_target_state(setting, head.device).failures_by_variant(rows)
    names = (*head.variants, *head.emulated)
    failures = [failure for name in names for failure in by_variant.get(name, ())]
    here = [failure for failure in failures if failure.row.device == head.device]
    if not here:
        return head, ""
    last = max(here, key=lambda failure: rows.index(failure.row))
    variant, seed = last.judgement.variant, last.judgement.seed
    why = f"inputs as in {last.row.id}, in which {variant} was wrong: seed {seed}"
    return head.model_copy(update={"seed": seed}), why


def read_target_state(setting: Setting, device: str = "auto") -> TargetState:
    """The target's present state: its variants, and the workloads that this machine can judge by
    `device` (`auto`: chosen as for a session), without those too large for the emulator."""
    target = setting.target
    chosen_device = choose_device(device, target, ())
    mains = [name for name, variant in target.variants.items() if variant.role == "main"]
    emulated = choose_emulated((), target, chosen_device)
    declared: dict[str, dict[str, frozenset[str]]] = {}
    expand = functools.cache(lambda set_name, dtype: expand_sets(target, [set_name], dtype))
    for name in (*target.variants_on(chosen_device), *emulated):
        dtype, declared[name] = target.dtypes["cuda" if name in emulated else chosen_device], {}
        variant = target.variants[name]
        for set_name in target.workloads:
            workloads = [w for w in expand(set_name, dtype) if is_supported(variant, w)]
            if name in emulated:
                workloads = [w for w in workloads if not is_too_large_to_emulate(target, w)]
            if workloads:
                declared[name][set_name] = frozenset(workload.name for workload in workloads)
    folder = setting.project.target
    return TargetState(
        files_hash=targets.sources_hash(setting.project),
        compiled=[name for name in mains if may_edit_variant(target, folder, name)],
        tunable=[tuning.variant for tuning in target.tuning.values() if tuning.variant in mains],
        declared_workloads=declared,
        workload_count=len(expand_sets(target, target.workloads, target.dtypes[chosen_device])),
        only_emulated=bool(emulated) and not {*mains} & {*target.variants_on(chosen_device)},
        for_gpu=any(variant.device == "cuda" for variant in target.variants.values()),
        minor_variants=[name for name in target.variants if name not in mains],
    )


def _shell_command(
    idea: Idea, setting: Setting, target_options: Sequence[str], host_options: Sequence[str]
) -> str:
    """The shell command that runs an idea. It first takes over a kept change, or reverts the blamed
    commit, if the idea has one. If several commits are blamed, the command only shows them."""
    folder = setting.project.target
    if idea.resume:
        words = ["loop", "run", "session", "--resume", idea.resume]
        return shlex.join([*words, *target_options, *host_options])
    if idea.unjudged and not host_options:  # `kernels verify` works on this machine only.
        return shlex.join(["loop", "kernels", "verify", *idea.unjudged, *target_options])
    if len(idea.blamed_commits) > 1:
        return show_command(idea.blamed_commits, "-C", str(folder))
    options = ["--variant", idea.variant] if idea.variant else []
    if idea.failed_check is not None:  # Repeat its checks; leave out options that are the default.
        row = idea.failed_check.row
        options += ["--seed", str(idea.failed_check.judgement.seed)]
        if row.threads != choose_threads(None) and row.device == "cpu":
            options += ["--threads", str(row.threads)]
        chosen = choose_device("auto", setting.target, (idea.variant,) if idea.variant else ())
        if row.device != chosen and "--device" not in target_options:
            options += ["--device", row.device]
    words = ["loop", "run", "pattern", idea.plan, *options, *target_options]
    if idea.plan in setting.plans:
        words = ["loop", "run", "session", idea.plan, *options, *target_options, *host_options]
    run_command = shlex.join(words)
    if change := idea.kept_change:
        patch = Path(change.patch).parent / candidate.KEPT_PATCH
        words = candidate.find_takeover_command(folder, change.branch, patch, change.variant)
        return f"{shlex.join(words)} && {run_command}"
    if idea.blamed_commits and is_revertible(folder, *idea.blamed_commits):  # Without conflicts.
        words = ["git", "-C", str(folder), "revert", "--no-edit", *idea.blamed_commits]
        return f"{shlex.join(words)} && {run_command}"
    return run_command


def proposal_text(setting: Setting, record: SessionRecord, lines: Sequence[Line]) -> str:
    """The proposal of a session that ends: a sentence, then a line with a command."""
    head, finished = record.head, journal.finished_steps(lines)
    options, device = list(head.target_options), "auto"
    try:
        if head.device != choose_device("auto", setting.target, ()):
            options, device = [*options, "--device", head.device], head.device
        row = sessions.session_row(head, record, lines)
        proposed = propose_next(setting, options, [row], device, head.host_options)
    except LoopError as error:
        return f"{one_line(error.message).rstrip('.')}\n{head.repeat_command()}"
    variant = setting.target.variants.get(proposed.variant or "")
    sources = variant.sources if isinstance(variant, CAbiVariant) else ()
    files = sources_to_edit(sources, setting.project.target)
    location = explain_location(finished, proposed.variant, files)
    # The report already shows this session's findings. Name the first of the other reasons.
    objective = proposed.objective
    for reason in [text for text in proposed.why if head.id not in text][:1]:
        objective += f": {one_line(reason).partition('; ')[0].rstrip('.')}"
    sentence = ". ".join(filter(None, [objective, location]))
    return f"{sentence}.\n{proposed.command}"
