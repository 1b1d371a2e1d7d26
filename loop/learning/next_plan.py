"""Propose the next session: fix what is wrong, then measure what is not, then optimise.

Variant, workload, layout, threads, seed and device identify a check. A failure is unresolved until
the same check passes on changed sources. If the same sources pass, the variant is flaky, not right.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from loop.base.errors import LoopError, remark_once
from loop.gate.kernel import find_known_good, hardware_key
from loop.model.bisect import UNCOMMITTED
from loop.model.change import KeptChange
from loop.model.index import Judgement, SessionRow
from loop.model.record import RESUMABLE, SessionHead
from loop.profile.actions import SUFFICIENT_RATIO
from loop.report import format as say
from loop.store import sessions

ALL_RIGHT = "every variant was judged on all workloads, on these files, and every output was right"
MOST_REPEATS = 2  # Sessions on the same files before inconclusive measurements are left alone.
SLOW_PLANS = ("optimize", "tune", "bisect", "debug")
"""Plans that do more than verify; a failure in one is verified again with `baseline`."""
Sources = tuple[str, str]  # What a check was about: build id, and hash of files not compiled.


@dataclass(frozen=True)
class UnresolvedFailure:
    """A failed check of a variant that has not passed on changed sources since."""

    row: SessionRow  # The last session in which it failed.
    judgement: Judgement
    check: str
    passed_in: str = ""  # Session in which the same sources passed, so it is flaky; empty if none.


def unresolved_failures(
    rows: Sequence[SessionRow], files_hash: str, workloads_by_variant: Mapping[str, Collection[str]]
) -> dict[str, list[UnresolvedFailure]]:
    """Variant to its unresolved failures, latest first. `rows`: sessions of one target, oldest
    first. A failure on the current files (`files_hash`) stays, even if others passed since. One on
    a workload that is no more in `workloads_by_variant` ends when changed sources are right."""
    # Key of a check: its name, variant, threads, seed, whether it was emulated, and device.
    passes: dict[tuple[object, ...], list[tuple[Sources, int]]] = {}  # With the number of the row.
    flawless: dict[str, list[tuple[Sources, int]]] = {}  # Sessions in which a variant never failed.
    last_failures: dict[tuple[tuple[object, ...], Sources], tuple[int, Judgement, str]] = {}
    present_sources = set[tuple[str, Sources]]()
    for number, row in enumerate(rows):
        for judgement in () if row.recorded else row.judged:
            # `harness`: hash of the files that are not compiled; the build id stands for others.
            variant, sources = judgement.variant, (judgement.build, row.harness or row.ground)
            conditions = variant, judgement.threads, judgement.seed, judgement.emulated, row.device
            if row.ground == files_hash:
                present_sources.add((variant, sources))
            for check in judgement.right:
                passes.setdefault((check, *conditions), []).append((sources, number))
            if not judgement.wrong:
                flawless.setdefault(variant, []).append((sources, number))
            for check in judgement.wrong:
                last_failures[(check, *conditions), sources] = number, judgement, check
    unresolved: dict[str, list[UnresolvedFailure]] = {}
    latest_first = sorted(last_failures.items(), key=lambda failure: -failure[1][0])
    for (key, sources), (number, judgement, check) in latest_first:
        if (variant := judgement.variant) not in workloads_by_variant:
            continue
        passes_of_check = list(passes.get(key, ()))
        # A check's name begins with its workload, except `sanitizers`.
        if check != "sanitizers" and check.partition(", ")[0] not in workloads_by_variant[variant]:
            passes_of_check += flawless.get(variant, ())  # Nothing repeats a removed workload.
        is_resolved = any(later > number and other != sources for other, later in passes_of_check)
        if not is_resolved or (variant, sources) in present_sources:
            passed_same = [index for other, index in passes.get(key, ()) if other == sources]
            flaky_in = rows[passed_same[-1]].id if passed_same else ""
            failure = UnresolvedFailure(rows[number], judgement, check, flaky_in)
            unresolved.setdefault(variant, []).append(failure)
    return unresolved


def sessions_needed(root: Path) -> set[str]:
    """Ids of the earlier sessions that the next one reads, to send them to a host: the last session
    of each target and device, those of known-good builds, and those with an unresolved failure."""
    last_head_by_key: dict[str, SessionHead] = {}
    for folder in sessions.list_sessions(root):
        try:
            head = folder.head()
            last_head_by_key[repr(hardware_key(head))] = head
        except LoopError as error:
            remark_once(f"left out: {error.message}")
    session_ids = set[str]()
    for head in last_head_by_key.values():
        session_ids |= {head.id, *(good.session for good in find_known_good(root, head).values())}
    for target in {head.target for head in last_head_by_key.values()}:
        rows = sessions.rows(root, target=target)
        judgements = [judgement for row in rows for judgement in row.judged]
        wrong_checks = [check for judgement in judgements for check in judgement.wrong]
        workloads = {check.partition(", ")[0] for check in wrong_checks}
        # The target is not read here: no workload counts as removed, and no files as current.
        workloads_by_variant = {judgement.variant: workloads for judgement in judgements}
        for failures in unresolved_failures(rows, "", workloads_by_variant).values():
            session_ids |= {failure.row.id for failure in failures}
    return session_ids


@dataclass(frozen=True)
class TargetState:
    """The current state of the target."""

    files_hash: str  # Of sources, workloads, tolerances; equal in a session on the same files.
    compiled: Collection[str] = ()  # Variants that are compiled, so they can be optimised.
    tunable: Collection[str] = ()  # Compiled variants for which the target lists values to search.
    declared_workloads: Mapping[str, Mapping[str, Collection[str]]] = field(default_factory=dict)
    """Variant that this machine can run or emulate, to its workload sets, to their workloads."""
    workload_count: int = 0  # Workloads of the target, also those that a variant does not take.
    for_gpu: bool = True  # Whether some variant is for a GPU.
    only_emulated: bool = False  # Whether the main variants are emulated here, which is not timed.
    minor_variants: Collection[str] = ()  # Examples, baselines: not repeated when inconclusive.

    def failures_by_variant(self, rows: Sequence[SessionRow]) -> dict[str, list[UnresolvedFailure]]:
        """Variant to its checks that failed and have not passed since on changed sources."""
        declared = self.declared_workloads.items()
        workloads = {name: set().union(*sets.values()) for name, sets in declared}
        return unresolved_failures(rows, self.files_hash, workloads)

    def find_unjudged(self, rows: Sequence[SessionRow]) -> dict[str, tuple[str, ...]]:
        """Variant to its workload sets that all sessions on these files together did not fully
        check, and how many workloads that are: `edges (2 of 12 workloads not judged)`."""
        rows_on_files = [row for row in rows if row.ground == self.files_hash and not row.recorded]
        judgements = [judgement for row in rows_on_files for judgement in row.judged]
        unjudged: dict[str, tuple[str, ...]] = {}
        for variant, sets in self.declared_workloads.items():
            own = [judgement for judgement in judgements if judgement.variant == variant]
            checked = {check for judged in own for check in (*judged.right, *judged.wrong)}
            texts = []
            for name, workloads in sets.items():
                count, missing = len(workloads), len(set(workloads) - checked)
                part = "" if missing == count else f" ({missing} of {count} workloads not judged)"
                texts += [f"{name}{part}"] if missing else []
            if texts:
                unjudged[variant] = tuple(texts)
        return unjudged

    def describe_state(self, rows: Sequence[SessionRow]) -> tuple[str, ...]:
        """What is wrong or unjudged; else variants judged on too few workloads; else ALL_RIGHT."""
        sentences = [*map(wrong_sentence, self.failures_by_variant(rows).values())]
        if unjudged := self.find_unjudged(rows):
            sentences.append(unjudged_sentence(unjudged))
        few, total = list[str](), self.workload_count
        for variant, sets in self.declared_workloads.items():
            if 2 * (count := len(set().union(*sets.values()))) < total:
                few.append(f"{variant} was judged on {count} of {total} workloads alone: name more")
        return tuple(sentences or few or [ALL_RIGHT])


def wrong_sentence(failures: Sequence[UnresolvedFailure]) -> str:
    """`fast was wrong in s1 on B1 S65 and 3 more workloads (seed 7)`, for a variant's failures."""
    first, session, judgement = failures[0], failures[0].row, failures[0].judgement
    checks = [failure.check for failure in failures if failure.row.id == session.id]
    others = len({check.partition(", ")[0] for check in checks}) - 1
    others_text = f" and {say.count(others, 'more workload')}" if others else ""
    threads_text = f"{say.count(judgement.threads, 'thread')}, " if judgement.threads else ""
    conditions = f"{threads_text}seed {judgement.seed}{', emulated' if judgement.emulated else ''}"
    subject = f"{first.check}{others_text} ({conditions})"
    flaky = f"the same sources passed in {first.passed_in}: it is flaky, not right"
    reason = flaky if first.passed_in else "no other sources have passed that since"
    return f"{judgement.variant} was wrong in {session.id} on {subject}; {reason}"


def unjudged_sentence(sets_by_variant: Mapping[str, Sequence[str]]) -> str:
    """`not judged on these files: fast on quick and edges; slow on values`."""
    texts = (f"{name} on {say.listed_words(sets)}" for name, sets in sets_by_variant.items())
    return f"not judged on these files: {'; '.join(texts)}"


@dataclass(frozen=True)
class Idea:
    """A proposal for the next session."""

    plan: str
    objective: str
    why: tuple[str, ...]  # Evidence in the records.
    variant: str | None = None  # Variant that the proposal is about; None for all.
    resume: str | None = None
    kept_change: KeptChange | None = None
    blamed_commits: tuple[str, ...] = ()  # The commit to revert or fix first, or several to read.
    failed_check: UnresolvedFailure | None = None  # To repeat, with its seed, threads and device.
    unjudged: tuple[str, ...] = ()  # Variants to verify on all workloads, instead of a session.


def propose_sessions(rows: Sequence[SessionRow], state: TargetState) -> tuple[Idea, ...]:
    """Proposals, most urgent first; the last always applies. `rows`: of a target, oldest first."""
    local_rows = [row for row in rows if not row.recorded]  # `recorded`: before loop, only figures.
    ended_rows = [row for row in local_rows if row.status is not None]
    measured_rows = [row for row in ended_rows if row.ratios]
    last_row = ended_rows[-1] if ended_rows else None
    proposals: list[Idea] = []
    if last_row and last_row.status in RESUMABLE:
        why = f"{last_row.id} is {last_row.status}: {last_row.reason}"
        objective = "Go on with the session that stopped"
        proposals.append(Idea(last_row.plan, objective, (why,), resume=last_row.id))
    is_unbuilt = False
    if last_row and last_row.ground == state.files_hash:
        for edit in last_row.kept:
            why = f"{edit.variant} is {say.gain_text(edit)}, by {last_row.id}"
            objective = f"Take over the kept change of {edit.variant}, then verify it"
            proposals.append(Idea("quick", objective, (why,), kept_change=edit))
        lasting = [failure.action for failure in last_row.failures if not failure.cured_by]
        is_unbuilt = "kernel.build" in lasting
    errors = _ideas_after_error(last_row) if last_row else []
    faults = [*_ideas_for_wrong(local_rows, state), *_ideas_for_regressed(ended_rows, state)]
    # What these files do not compile to cannot be verified again.
    proposals += [*errors, *faults] if is_unbuilt else [*faults, *errors]
    is_measured = any(state.files_hash in (row.left, row.ground) for row in measured_rows)
    is_measured |= state.only_emulated  # Nothing more can be measured.
    if not measured_rows and not state.only_emulated:
        why = "no session has measured speed"
        proposals.append(Idea("baseline", "Build, verify and measure against the library", (why,)))
    elif not is_measured:
        why = f"the target's files changed since {measured_rows[-1].id}, the last that measured"
        proposals.append(Idea("baseline", "Verify and measure what has changed", (why,)))
    answer = last_row.otherwise if last_row and last_row.missed else ""
    if last_row and answer and answer not in {run.pattern for run in last_row.runs}:
        why = f"{last_row.id} missed its objective: {last_row.missed}"
        proposals.append(Idea(answer, "Do what the plan names as the answer to a miss", (why,)))
    proposals += _ideas_for_slow(ended_rows, state)
    # Sets that no session checked on these files, unless `baseline` tried.
    untried = dict[str, tuple[str, ...]]()
    for name, sets in state.find_unjudged(local_rows).items():
        if is_measured and not _has_ended("baseline", name, local_rows, state.files_hash):
            untried[name] = sets
    if untried:
        variant = next(iter(untried)) if len(untried) == 1 else None
        why = unjudged_sentence(untried)
        proposals.append(Idea("baseline", "Verify the other workloads, too", (why,), variant))
    return (*proposals, _fallback_idea(local_rows, state))


def _ideas_for_wrong(rows: Sequence[SessionRow], state: TargetState) -> Iterator[Idea]:
    """For each wrong variant: edit it, revert the blamed commit, or bisect for that commit. The
    session repeats the failed check, until the check passes on changed files."""
    wrong_builds = sessions.wrong_builds(rows)
    for variant, failures in state.failures_by_variant(rows).items():
        failed_row, why = failures[0].row, (wrong_sentence(failures),)
        right_rows = [row for row in rows if variant in row.right and row.commit]
        right_rows = [row for row in right_rows if not row.has_judged_build(variant, wrong_builds)]
        last_right = right_rows[-1] if right_rows else None
        can_search = failed_row.commit is not None and not _has_bisected(failed_row)
        plan = "baseline" if failed_row.plan in SLOW_PLANS else failed_row.plan
        if failed_row.ground != state.files_hash:
            objective = f"Files have changed since {variant} was wrong: run again what failed"
            yield Idea(plan, objective, why, variant, failed_check=failures[0])
        elif variant in failed_row.blamed:
            idea = _idea_after_search(variant, failed_row, "wrong")
            yield replace(idea, why=(*idea.why, *why), failed_check=failures[0])
        elif last_right and can_search and failed_row.commit != last_right.commit:
            evidence = f"{last_right.id} found it right at commit {str(last_right.commit)[:12]}"
            objective = f"Find the commit that made {variant} wrong"
            yield Idea("bisect", objective, (*why, evidence), variant)
        else:
            objective = f"Mend {variant}, then run again what failed"
            yield Idea(plan, objective, why, variant, failed_check=failures[0])


def _ideas_for_regressed(rows: Sequence[SessionRow], state: TargetState) -> Iterator[Idea]:
    """For each variant slower than its known good in its latest measurement: search the commit,
    revert it, or measure again. Not for one slower on other files and no slower on these."""
    latest_row = {variant: row for row in rows for variant in (*row.ratios, *row.regressed)}
    present_rows = [row for row in rows if row.ground == state.files_hash]
    fast_now = {name for row in present_rows for name in {*row.ratios} - {*row.regressed}}
    for variant, row in latest_row.items():
        if variant not in row.regressed or (variant in fast_now and row.ground != state.files_hash):
            continue
        why = f"it was slower than its known good in {row.id}, and no later session shows otherwise"
        if variant in row.blamed:
            yield _idea_after_search(variant, row, "slower")
        elif not _has_bisected(row):
            yield Idea("bisect", f"Find the commit that made {variant} slower", (why,), variant)
        elif row.base is None:
            reason = "a search for the edit needs git: `git init`, and commit each edit"
            yield Idea("quick", f"Mend {variant}, then run it again", (reason, why), variant)
        else:
            reasons = (why, f"the search in {row.id} named no commit")
            objective = f"Measure {variant} again, and win back what it lost"
            yield Idea("baseline", objective, reasons, variant)


def _idea_after_search(variant: str, row: SessionRow, fault: str) -> Idea:
    """Proposal to revert or fix the commit that `row` blames. `fault`: `wrong` or `slower`."""
    names = ", ".join(row.blamed[variant])
    commits = tuple(text.partition(" ")[0] for text in row.blamed[variant])
    if commits == (UNCOMMITTED,):
        why = f"{row.id} found that they made {variant} {fault}"
        objective = "Mend or undo the uncommitted changes, then run it again"
        return Idea("quick", objective, (why,), variant)
    if len(commits) > 1:
        why = f"the search in {row.id} named no commit alone"
        objective = f"Read {names}, mend what made {variant} {fault}, then run it again"
        return Idea("quick", objective, (why,), variant, blamed_commits=commits)
    why = f"{row.id} named it as the commit that made {variant} {fault}"
    objective = f"Take back or mend {names}, then run it again"
    return Idea("quick", objective, (why,), variant, blamed_commits=commits)


def _has_bisected(row: SessionRow) -> bool:
    """True if the session completed a bisection."""
    statuses = {step.status for step in row.steps if step.pattern == "git-bisect"}
    return not statuses.isdisjoint(("passed", "failed"))


def _ideas_after_error(last_row: SessionRow) -> list[Idea]:
    """If the last session failed, but no variant was wrong or slower: mend the first failure."""
    is_of_variant = last_row.incorrect or last_row.regressed  # Other ideas are for these.
    if last_row.status != "failed" or not last_row.failures or is_of_variant:
        return []
    failure = last_row.failures[0]
    cure = [f"what usually cures it: {failure.hint}"] if failure.hint else []
    variants = (*last_row.variants, *last_row.emulated)
    objective = f"Mend what failed in {failure.pattern}/{failure.step}, then run it again"
    why = (f"it failed in {last_row.id}", failure.message, *cure)
    return [Idea(last_row.plan, objective, why, variants[0] if len(variants) == 1 else None)]


def _ideas_for_slow(rows: Sequence[SessionRow], state: TargetState) -> Iterator[Idea]:
    """For each compiled variant slower than `SUFFICIENT_RATIO` x baseline, slowest first: a change,
    then a search of its tuning. A plan that ended on these files is not proposed for them again."""
    latest_row = dict[str, SessionRow]()
    for row in rows:
        # A missed objective is answered even if some of the workloads are inconclusive.
        undecided = {*row.inconclusive} - {*(row.speeds if row.missed else ())}
        names = [name for name in row.ratios if name in state.compiled and name not in undecided]
        latest_row |= dict.fromkeys(names, row)
    ratios = {name: row.ratios[name] for name, row in latest_row.items()}
    for variant in sorted(ratios, key=lambda name: ratios[name]):
        if ratios[variant] >= SUFFICIENT_RATIO:
            continue
        speed, session = say.plain_ratio(ratios[variant]), latest_row[variant].id
        why = f"{variant} ran at {speed} of the baseline's speed in {session}"
        if not _has_ended("optimize", variant, rows, state.files_hash):
            yield Idea("optimize", f"Make {variant} faster", (why,), variant)
        elif variant in state.tunable and not _has_ended("tune", variant, rows, state.files_hash):
            yield Idea("tune", f"Search {variant}'s tiles and warps", (why,), variant)


def _has_ended(plan: str, variant: str, rows: Sequence[SessionRow], files_hash: str) -> bool:
    """Whether a session of this plan ended on the files of this hash with this variant."""
    ended = [row for row in rows if row.status is not None and row.status not in RESUMABLE]
    same = [row for row in ended if (row.plan, row.ground) == (plan, files_hash)]
    return any(variant in (*row.variants, *row.emulated) for row in same)


def _fallback_idea(rows: Sequence[SessionRow], state: TargetState) -> Idea:
    """The last proposal, which always applies: repeat an inconclusive measurement, else widen the
    gate (`kernels`), else search values (`tune`), each once on these files; else verify what no
    session judged; else edit."""
    # `left`: hash of the files with the session's kept changes; `ground`: of those it began with.
    rows_on_files = [row for row in rows if (row.left or row.ground) == state.files_hash]
    measured_rows = [row for row in rows_on_files if row.ratios and not state.only_emulated]
    open_names = measured_rows[-1].inconclusive if measured_rows else ()
    open_names = tuple(name for name in open_names if name not in state.minor_variants)
    if open_names and len(measured_rows) < MOST_REPEATS:
        why = f"{', '.join(open_names)} could not be judged in {measured_rows[-1].id}"
        return Idea("baseline", "Measure again on a quieter machine", (why,))
    state_sentences = state.describe_state(rows)
    # Other ideas are for wrong and slower variants.
    good_rows = [row for row in rows_on_files if not row.incorrect and not row.regressed]
    latest_rows = {row.plan: row for row in good_rows}
    missed = [row for row in latest_rows.values() if row.missed and not state.only_emulated]
    if state.for_gpu and not missed and "kernels" not in {row.plan for row in rows_on_files}:
        reason = "nothing is left to make faster here"
        if state.only_emulated:
            reason = "what is emulated is not timed"
        return Idea("kernels", f"Widen the gate, for {reason}", state_sentences)
    timed_variants = {name for row in measured_rows for name in row.ratios}
    for name in sorted(timed_variants.intersection(state.tunable)):
        if not _has_ended("tune", name, rows, state.files_hash):
            why = "its values were not searched on these files; everything else was tried"
            return Idea("tune", f"Search {name}'s tiles and warps", (why,), name)
    if (unjudged := tuple(state.find_unjudged(rows))) and not missed:
        objective = "Sessions have nothing left to do here. Verify what they left out, then edit"
        why = "`kernels verify` is not recorded: this stays until the next session on other files"
        return Idea("quick", objective, (*state_sentences, why), unjudged=unjudged)
    if state.only_emulated:
        objective = "Nothing can be timed here: all variants are emulated. Verify the next edit"
        return Idea("quick", objective, state_sentences)
    if missed:
        row = missed[-1]
        objective = f"The objective is missed ({row.missed}). Edit a variant, then measure it"
        return Idea("quick", objective, (f"{row.id} missed its objective",))
    objective = "Nothing is left to do here. After the next edit, verify and measure it"
    return Idea("quick", objective, state_sentences)
