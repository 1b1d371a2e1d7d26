"""The commits between a good and a bad end, and a try of one of them.

A try tells its speed next to the good end, its correctness, or a command's exit code.

Two commits are the same program if their builds have one id. It covers all files that a build reads
and what the manifest says of it. A commit that was not built counts as a program of its own.
"""

import math
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from loop.base.documents import content_hash, hash_files, sums, to_json, write_atomic
from loop.base.errors import CannotStart, LoopError, UsageError, WorkFailed, remark_once
from loop.base.places import MANIFEST, state_folder
from loop.base.processes import Completed, Tick, Waiting, run
from loop.bisect.search import SearchEnd
from loop.builds import build
from loop.builds.build import Buildable, BuildFailed, find_used_files
from loop.gate.verify import Job, verify
from loop.library.definitions import read_file
from loop.machine.machine import machine
from loop.model.bisect import UNCOMMITTED, Candidate, Metric, Probe
from loop.model.measurement import Build, VariantChecks
from loop.model.target import CAbiVariant, PythonVariant, Target, Workload
from loop.model.workloads import count_operations
from loop.repository import worktree
from loop.repository.worktree import MissingSubmodule, Worktree, git, require_repository
from loop.timing import samples, schedule, verdicts
from loop.timing.samples import Limits
from loop.workers.bench import Bench, Side
from loop.workers.program import WorkerLost

BUILD_LIMIT_S = 600.0
MOST_NAMED_FILES = 4  # Most uncommitted files that a message names; it counts the others.


class Untestable(Exception):
    """A commit's kernel cannot be built or called: it is neither good nor bad. Says why."""


@dataclass(frozen=True)
class CommitLine:
    """The good end, and all later commits up to the bad end."""

    folder: Path  # The target's folder: contains the manifest and the kernel.
    top: Path  # The repository's top.
    good: Candidate
    candidates: tuple[Candidate, ...]  # Oldest first; the last is the bad end.
    other_good: tuple[str, ...] = ()  # Not on the line: their ancestors are not searched.

    @property
    def commits(self) -> tuple[Candidate, ...]:
        """The good end and every candidate: index 0 is the good end."""
        return (self.good, *self.candidates)


def read_commits(folder: Path, good: str, bad: str | None) -> CommitLine:
    """The commits from `good` to `bad`, along first parents. If `bad` is None: to `HEAD`, and to
    uncommitted changes, if any. Raises LoopError if there is nothing to search."""
    if not good:
        raise UsageError("no good revision to begin from", hint="loop bisect --good REV")
    top = require_repository(folder)
    good_commit = worktree.resolve_revision(top, good)
    bad_commit = worktree.resolve_revision(top, bad or "HEAD")
    uncommitted = worktree.changed_lines(folder, bad_commit) if bad is None else {}
    commits = list[Candidate]()
    if good_commit != bad_commit or not uncommitted:  # Raises if they are equal: nothing to search.
        commits = worktree.first_parent_commits(top, good, bad or "HEAD")
    if uncommitted:
        names = sorted(uncommitted)
        subject = f"uncommitted changes: {', '.join(names[:MOST_NAMED_FILES])}"
        if len(names) > MOST_NAMED_FILES:
            subject += f" and {len(names) - MOST_NAMED_FILES} more"
        commits.append(Candidate(commit=UNCOMMITTED, subject=subject, tree=UNCOMMITTED))
    return CommitLine(folder, top, worktree.read_commit(top, good_commit), tuple(commits))


def branches_of_merge(line: CommitLine, merge: Candidate, *, joined: bool) -> list[CommitLine]:
    """The branches that a merge joined to the line, from where each left the good commits; empty
    for no merge. One may be the main line, if the good end lies on a branch. `joined`: only the
    first branch, with the merge as its bad end, because a failure may need both sides."""
    before_merge = line.commits[line.commits.index(merge) - 1]
    good_commits = (before_merge.commit, *line.other_good)
    branches: list[CommitLine] = []
    for parent in merge.parents if merge.merge else ():
        if any(worktree.is_ancestor(line.top, parent, good) for good in good_commits):
            continue
        start = git(line.top, "merge-base", parent, *good_commits).split()[0]
        commits = worktree.first_parent_commits(line.top, start, parent)
        candidates = (*commits, merge) if joined else tuple(commits)
        good = worktree.read_commit(line.top, start)
        branches.append(CommitLine(line.folder, line.top, good, candidates, good_commits))
    return branches[:1] if joined else branches


def check_out(tree: Worktree, candidate: Candidate) -> None:
    """Check out a candidate in a worktree. Raises Untestable if a submodule is missing."""
    try:
        tree.check_out(candidate.commit)
    except MissingSubmodule as missing:
        raise Untestable(f"{missing.message}: {missing.hint}") from missing


@dataclass
class Builder:
    """Builds one variant at any commit, and caches the builds."""

    bench: Bench  # Today's target, in the user's checkout.
    worktree: Worktree  # The worktree for commits.
    variant: str
    emulated: bool = False  # Whether to build for the emulator.
    build_by_tree: dict[str, Build | str] = field(default_factory=dict)
    """Tree hash of a candidate to its build, or to the reason for its failure."""

    def build(self, candidate: Candidate, *, compiles: bool = True) -> Waiting[Build]:
        """The build of a candidate; each tree is tried once. Raises Untestable if it does not
        build. Without `compiles` only from the cache: raises Untestable if it is not there."""
        if candidate.tree not in self.build_by_tree:
            try:
                self.build_by_tree[candidate.tree] = yield from self._compile(candidate, compiles)
            except Untestable as untestable:
                if not compiles:
                    raise
                self.build_by_tree[candidate.tree] = str(untestable)
        build_or_reason = self.build_by_tree[candidate.tree]
        if isinstance(build_or_reason, str):
            raise Untestable(build_or_reason)
        return build_or_reason

    def _compile(self, candidate: Candidate, compiles: bool) -> Waiting[Build]:
        """Build a candidate as `build`. Raises Untestable; WorkFailed without today's compiler."""
        bench, folder, warning = self.bench, self.bench.folder, ""
        if candidate.commit != UNCOMMITTED:
            check_out(self.worktree, candidate)
            folder, warning = self.worktree.target, self.worktree.describe_empty_submodules()
            warning = warning or self.worktree.describe_ignored_sources()
        name, variant = self.variant, self._variant_in(folder)
        places = {"cache": bench.cache, "include": bench.include}
        needs_compiler = None if compiles or isinstance(variant, PythonVariant) else variant
        if needs_compiler and not build.find_build(name, needs_compiler, folder, **places):
            raise Untestable("it was not built yet")
        try:
            return (yield from build.build(name, variant, folder, limit_s=BUILD_LIMIT_S, **places))
        except BuildFailed as failure:
            both = (variant, self._variant_in(bench.folder)) if failure.no_compiler else ()
            compilers = [each.build.compiler for each in both if isinstance(each, CAbiVariant)]
            # Another missing compiler than today's concerns this commit alone.
            if len(compilers) == 2 and compilers[0] == compilers[1]:
                raise WorkFailed(failure.message, failure.hint) from failure
            reason = "; ".join(filter(None, (failure.message, warning)))
            raise Untestable(f"does not build: {reason}") from failure

    def _variant_in(self, folder: Path) -> Buildable:
        """The variant as this folder's manifest defines it. Raises Untestable without one."""
        if not (folder / MANIFEST).is_file():
            raise Untestable(f"it has no {MANIFEST}")
        try:
            target = read_file(folder / MANIFEST, Target).value
        except LoopError as error:
            raise Untestable(f"unreadable {MANIFEST}: {error.message.splitlines()[0]}") from error
        variant, device = target.variants.get(self.variant), self.bench.device
        if self.emulated and self.variant in target.emulated_variants:
            return target.emulated_variant(self.variant)
        if not self.emulated and getattr(variant, "device", "") in (device, "any"):
            if isinstance(variant, PythonVariant):
                return variant
            if isinstance(variant, CAbiVariant):
                return target.compiled_variant(self.variant, self.bench.architecture)
        purpose = "the emulator" if self.emulated else device
        raise Untestable(f"it has no variant {self.variant} that is built for {purpose}")


REFERENCE_SIDE, CANDIDATE_SIDE = "other", "tried"  # Names of two builds that are timed together.
Result = TypeVar("Result")
LogRatios = Mapping[str, Sequence[float]]
"""Workload to one log(time of a commit / time of the one next to it) a pair of processes."""
GATE_BLOCKS, GATE_LIMIT_S = 20, 120.0  # Blocks in which the gate times both ends; no later start.
MOST_FAILING_WORKLOADS = 4  # A search for a wrong result uses so many failing ones: the smallest.
PASSES, PASSES_S = 20, 30.0  # The bad end is right if it passes this often; within this time.
Observing = Waiting[tuple[float, ...]]  # Returns the observed values. Raises Untestable.


def map_ticks(working: Waiting[Result], replace_tick: Callable[[Tick], Tick]) -> Waiting[Result]:
    """Run `working` with each tick replaced; returns its result. `replace_tick` may raise."""
    try:
        while True:
            yield replace_tick(next(working))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        working.close()


END = b"end"  # Last line of saved probes: without it, the file was cut.


@dataclass(frozen=True)
class ProbeMemory:
    """The file of a search's saved probes: for each a line of JSON with a checksum; then `END`."""

    path: Path

    def probes(self) -> tuple[Probe, ...]:
        """The saved probes, in order. Leaves out damaged ones, with a remark; names a cut file."""
        probes = list[Probe]()
        lines = sums.read_regular(self.path).splitlines() if self.path.exists() else [END]
        if lines[-1:] != [END]:
            remark_once(f"{self.path}: damaged: its end is missing")
        for number, line in enumerate(lines, 1):
            body, _, is_intact = sums.split_checksum(line)
            if is_intact:
                probes.append(Probe.model_validate_json(body, strict=False, extra="ignore"))
            elif line != END:
                remark_once(f"{self.path}:{number}: damaged: its checksum does not match")
        return tuple(probes)

    def append(self, probe: Probe) -> None:
        """Save one more probe at once. Raises LoopError if the file cannot be written."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = self.path.read_bytes().splitlines() if self.path.exists() else []
        document = to_json({"format": 1, **dict(probe)}, indent=None)
        new_line = sums.with_checksum(document).strip().encode()
        lines = [*(line for line in lines if line != END), new_line, END]
        write_atomic(self.path, b"".join(line + b"\n" for line in lines))


class Prober:
    """Observes candidates: `KernelProbe` or `CommandProbe`."""

    metric: Metric
    builder: Builder | None = None  # Knows which candidates are one program; None for a command.
    workloads: Sequence[Workload] = ()  # Workloads that commits are judged on; empty for a command.
    checks_made: int = 0  # Checks so far, over all commits; 0 if not counted.
    warning: str = ""  # Added to the answer's reason; may be empty.
    wrong_commits: frozenset[str] = frozenset()  # Their kernels are wrong, so they have no speed.
    emptied: set[Path] | None = None  # Files deleted to measure anew; None: use what is saved.

    def open_memory(self, *question: str) -> ProbeMemory:
        """Probes saved on a `question` (of what, kernel, machine). `emptied`: deletes them once."""
        name = content_hash("\0".join(question))[:32]
        path = state_folder() / "bisects" / f"{name}.jsonl"
        if self.emptied is not None and path not in self.emptied:
            self.emptied.add(path)
            path.unlink(missing_ok=True)
        return ProbeMemory(path)

    @property
    def memory(self) -> ProbeMemory:
        """Saved probes of this search and of equal earlier ones; subclasses say which are equal."""
        raise NotImplementedError

    def observe(self, candidate: Candidate, count: int, against: Candidate) -> Observing:
        """`count` values: log(time / that of `against`), or 1 good, 0 bad. Raises Untestable."""
        raise NotImplementedError

    def ask_gate(self, line: CommitLine) -> Waiting[SearchEnd | None]:
        """Whether to search at all (None: yes). Reduces `workloads` to those that show the
        regression; saves observations. Raises Untestable if an end is wrong or does not build."""
        yield from ()
        return None


@dataclass(eq=False)
class KernelProbe(Prober):
    """One variant by today's gate: whether a commit's kernel is right (`correctness`), or how fast
    it is next to the good end's, in one pair of processes at a time (`latency`)."""

    metric: Metric
    builder: Builder = field()
    workloads: Sequence[Workload] = field()
    seed: int
    checks_by_build: dict[str, VariantChecks] = field(default_factory=dict)  # By build id.

    @property
    def memory(self) -> ProbeMemory:
        """Saved probes for these workloads."""
        return self._probe_memory(self.metric)

    def _probe_memory(self, question: str) -> ProbeMemory:
        """The saved probes for a question (the metric, or `gate`) about this kernel and machine."""
        bench = self.builder.bench
        device = machine().processor if bench.device == "cpu" else ", ".join(machine().gpus[:1])
        parts = [question, str(bench.folder), self.builder.variant, device, str(bench.threads)]
        if self.builder.emulated:
            parts.append("emulated")
        # Probes that were judged by other rules than today's do not count.
        modules = [function.partition(":")[0] for function in bench.target.python_functions]
        files = [bench.folder / name for name in find_used_files(modules, bench.folder)]
        parts.append(bench.target.model_dump_json(exclude={"variants", "workloads"}))
        parts.append(hash_files(files, bench.folder))
        return self.open_memory(*parts, *(workload.name for workload in self.workloads))

    def build_side(self, name: str, candidate: Candidate) -> Waiting[Side]:
        """Build a candidate, to verify or time it as `name`. Raises Untestable if that fails."""
        builder = self.builder
        build = yield from builder.build(candidate)
        side = builder.bench.make_side(builder.variant, build, emulated=builder.emulated)
        return replace(side, name=name)

    def verify_side(self, side: Side, seed: int, fail_fast: bool = True) -> Waiting[VariantChecks]:
        """Verify a side by today's gate. `seed`: added to the workloads' own, for other values."""
        seeded = [w.model_copy(update={"seed": w.seed + seed}) for w in self.workloads]
        job = Job(side, seeded, layouts=self.metric == "correctness", fail_fast=fail_fast)
        (checks,) = yield from verify(self.builder.bench, [job])
        self.checks_made += len(checks.checks)
        return checks

    def observe(self, candidate: Candidate, count: int, against: Candidate) -> Observing:
        """Latency: a log ratio for each pair of processes: the mean of all workloads, on new
        values. Correctness: 1 or 0 for each of `count` seeds that no saved probe of this commit
        used. Raises Untestable if a timed kernel is wrong, a worker lost, or no workload taken."""
        if self.metric == "latency":
            self.seed += 1
            limits = Limits(count, math.inf, self.seed)
            log_ratios = yield from self.time_pairs(candidate, against, limits)
            return tuple(map(fmean, zip(*log_ratios.values(), strict=False)))
        side, values = (yield from self.build_side(CANDIDATE_SIDE, candidate)), list[float]()
        used = sum(len(p.values) for p in self.memory.probes() if p.commit == candidate.commit)
        for seed in range(used, used + count):
            try:
                checks = yield from self.verify_side(side, seed)
            except WorkerLost as lost:
                raise Untestable(str(lost)) from lost
            if all(check.status in ("unsupported", "not judged") for check in checks.checks):
                names = ", ".join(workload.name for workload in self.workloads)
                raise Untestable(f"takes none of these workloads: {names}")
            values.append(0.0 if checks.first_failure else 1.0)
        return tuple(values)

    def ask_gate(self, line: CommitLine) -> Waiting[SearchEnd | None]:
        """Ask whether the bad end is slower or wrong today, on which workloads, and save what that
        observes. Latency: time both ends in blocks of process pairs, or reuse saved times; the
        search goes on from these, on the slower workloads. An uncommitted end is always timed."""
        if self.metric == "correctness":
            return (yield from self._verify_bad_end(line))
        memory, bad, good = self._probe_memory("gate"), line.commits[-1], line.good
        log_ratios: LogRatios = {
            probe.workload: probe.values
            for probe in memory.probes()
            if (probe.commit, probe.against) == (bad.commit, good.commit)
        }
        is_saved = all(log_ratios.get(workload.name) for workload in self.workloads)
        if bad.commit == UNCOMMITTED or not is_saved:
            limits = Limits(GATE_BLOCKS, GATE_LIMIT_S, self.seed)
            log_ratios = yield from self.time_pairs(bad, good, limits)
            for name, values in log_ratios.items():
                memory.append(_gate_probe(line, name, values, workload=name))
        chosen_names = choose_slower_workloads(log_ratios)
        self.workloads = [workload for workload in self.workloads if workload.name in chosen_names]
        if not self.memory.probes():
            values = [*map(fmean, zip(*(log_ratios[name] for name in chosen_names), strict=False))]
            why = f"both ends, on {len(chosen_names)} of {len(log_ratios)} workloads"
            self.memory.append(_gate_probe(line, why, values))
        return None

    def _verify_bad_end(self, line: CommitLine) -> Waiting[SearchEnd | None]:
        """Verify the bad end on fresh values until it fails, at most `PASSES` times or `PASSES_S`
        seconds. If it always passes: no regression, and a probe is saved. Else search (None): the
        smallest failing workloads; or all, if those fail only after others or it accepts none."""
        deadline, passes, all_workloads = time.monotonic() + PASSES_S, 0, self.workloads
        side = yield from self.build_side(CANDIDATE_SIDE, line.commits[-1])
        while passes == 0 or (passes < PASSES and time.monotonic() < deadline):
            # The first pass checks all workloads, to know all that fail.
            checks = yield from self.verify_side(side, passes, fail_fast=passes > 0)
            failed_checks = [check for check in checks.checks if not check.passed]
            failing = {check.workload.name: check.workload for check in failed_checks}
            if failing:
                size = partial(count_operations, self.builder.bench.target)
                self.workloads = sorted(failing.values(), key=size)[:MOST_FAILING_WORKLOADS]
                repeated = yield from self.verify_side(side, passes + 1)
                if repeated.first_failure is None:  # It fails only after calls of other workloads.
                    self.workloads = all_workloads
            if failing or not checks.is_right:  # Not right, no failure: it accepts no workload.
                return None
            passes += 1
        times = "once" if passes == 1 else f"{passes} times over"
        why = f"right on all {len(all_workloads)} workloads, {times}"
        self.memory.append(_gate_probe(line, why, (1.0,) * passes))
        bad_end = f"the bad end ({line.commits[-1].short_commit})"
        return SearchEnd("no_regression", f"not reproduced: {bad_end} is {why}")

    def time_pairs(self, commit: Candidate, other: Candidate, limits: Limits) -> Waiting[LogRatios]:
        """Time a commit in turns with another, once its build was verified. Returns by workload log
        ratios, above 0 if it is slower. Raises Untestable if it is wrong or cannot be timed."""
        side = yield from self.build_side(CANDIDATE_SIDE, commit)
        assert side.build_id is not None
        if side.build_id not in self.checks_by_build:
            self.checks_by_build[side.build_id] = yield from self.verify_side(side, 0)
        failure = self.checks_by_build[side.build_id].first_failure
        if failure is not None:
            self.wrong_commits |= {commit.commit}
            raise Untestable(f"incorrect, so it has no speed: {failure.message}")
        sides = [(yield from self.build_side(REFERENCE_SIDE, other)), side]
        try:
            bench, workloads = self.builder.bench, self.workloads
            timings = yield from schedule.measure(bench, sides, workloads, limits)
        except LoopError as error:
            raise Untestable(error.message) from error
        if timings.wrong_outputs:
            side_name, check = timings.wrong_outputs[0]
            raise Untestable(f"{side_name} gave a wrong answer while it was timed: {check.message}")
        names = [workload.name for workload in self.workloads]
        order = CANDIDATE_SIDE, REFERENCE_SIDE  # The inverse of the gate's: above 0 is slower.
        return {name: samples.log_ratios(timings.segments_of(name), *order) for name in names}


def choose_slower_workloads(log_ratios: LogRatios) -> tuple[str, ...]:
    """Workloads on which the gate finds the bad end slower; else the undecided ones; else all."""
    verdict_by_name = {}
    for name, values in log_ratios.items():
        speedups = [-value for value in values]  # What the gate judges.
        verdict_by_name[name] = verdicts.by_evidence(speedups, len(log_ratios)).verdict
    for verdict in ("slower", "inconclusive"):
        names = tuple(name for name in verdict_by_name if verdict_by_name[name] == verdict)
        if names:
            return names
    return tuple(log_ratios)


def _gate_probe(line: CommitLine, why: str, values: Sequence[float], workload: str = "") -> Probe:
    """The gate's observations as a probe of the bad end. `workload`: its name; empty: of all."""
    return Probe(
        commit=line.commits[-1].commit,
        against=line.good.commit,
        why=f"gate: {why}",
        workload=workload,
        status="measured",
        values=tuple(value for value in values if math.isfinite(value)),
    )


SKIP, NOT_RUN, NOT_FOUND = 125, 126, 127  # Exit codes: cannot judge; cannot start; not found.
COMMAND_LIMIT_S = 600.0  # Time limit of the command on a commit, unless the user sets one.


@dataclass
class CommandProbe(Prober):
    """Runs a command in a worktree at a commit; its exit code says good or bad. Skips a hang."""

    command: Sequence[str]
    worktree: Worktree
    limit_s: float
    metric = "correctness"

    @property
    def memory(self) -> ProbeMemory:
        """Saved probes for this command, repository and machine."""
        tree, limit = self.worktree, str(self.limit_s)
        place = (str(tree.repository), str(tree.target.relative_to(tree.root)), machine().name)
        return self.open_memory("exit", *place, limit, *self.command)

    @property
    def warning(self) -> str:  # type: ignore[override]
        """A sentence on the submodules that the worktree lacks; empty if it lacks none."""
        return self.worktree.describe_empty_submodules()

    def ask_gate(self, line: CommitLine) -> Waiting[SearchEnd | None]:
        """Run it on the good end first: a missing program would make all bad. Raises WorkFailed."""
        good = line.good
        if not self.memory.probes():
            completed = yield from self._run(good)
            command, place = shlex.join(self.command), f"at the good end, {good.short_commit}"
            by_hand = f"by hand: git worktree add TRY {good.short_commit}; cd TRY; {command}"
            if completed.code in (NOT_RUN, NOT_FOUND):
                reason = f"exit {completed.code}{_last_error_line(completed)}"
                why = f"the command cannot be run {place}: {reason}"
                raise WorkFailed(why, f"try it {by_hand}")
            if completed.timed_out:
                why = f"the command did not end {place}: killed after {self.limit_s:g} s"
                raise WorkFailed(why, f"--probe-limit-s SECONDS, if it takes longer; {by_hand}")
        return None

    def observe(self, candidate: Candidate, count: int, against: Candidate) -> Observing:
        """1 for exit code 0, else 0. Ignores `against`. Raises Untestable for `SKIP` or a hang."""
        values = list[float]()
        for _ in range(count):
            completed = yield from self._run(candidate)
            if completed.timed_out:
                advice = "`timeout S COMMAND` makes that bad"
                raise Untestable(f"the command hangs: killed after {self.limit_s:g} s ({advice})")
            if completed.code == SKIP:
                why = f"the command cannot judge it{_last_error_line(completed)}"
                raise Untestable(f"exit {SKIP}: {why}")
            values.append(float(completed.code == 0))
        return tuple(values)

    def _run(self, candidate: Candidate) -> Waiting[Completed]:
        """Run the command on a commit; as in a shell, a program that does not exist gives 127."""
        check_out(self.worktree, candidate)
        folder = self.worktree.target
        if not folder.is_dir():
            raise Untestable(f"it has no folder {folder.name}")
        note = f"running the command on {candidate.short_commit}"
        try:
            return (yield from run(self.command, cwd=folder, limit_s=self.limit_s, note=note))
        except CannotStart as error:
            code = NOT_FOUND if isinstance(error.__cause__, FileNotFoundError) else NOT_RUN
            return Completed(tuple(self.command), code, "", error.message, 0.0, timed_out=False)


def _last_error_line(completed: Completed) -> str:
    """The last line a command wrote to stderr, after `: `; empty if it wrote none."""
    lines = completed.errors.strip().splitlines()
    return f": {lines[-1]}" if lines else ""
