"""Which files an edit may change, the edit as a patch, and changes of this and earlier sessions."""

import contextlib
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from loop.base.documents import content_hash, write_atomic
from loop.base.errors import LoopError, UsageError, WorkFailed
from loop.base.places import MANIFEST
from loop.base.processes import Waiting
from loop.builds import build
from loop.formats.model import ANSWERS
from loop.gate.model import BuildOutput
from loop.library.definitions import read_file
from loop.library.trust import read_origin
from loop.model.campaign import Proposal
from loop.model.change import ON_CHANGE, DecisionOutput, JudgedOutput, TriedChange, as_target_step
from loop.model.output import Output, outputs_by_run
from loop.model.record import Finished, KnownGood, SessionHead
from loop.model.target import CAbiVariant, PythonVariant, Target
from loop.optimize.model import Brief, BriefOutput
from loop.repository.worktree import Worktree, find_worktree, repository_of
from loop.steps.context import Context, Workshop
from loop.store.sessions import earlier_sessions


def may_edit_variant(target: Target, folder: Path, name: str) -> bool:
    """Whether a variant has files that may be edited. Python files that judge it do not count."""
    variant = target.variants[name]
    if isinstance(variant, PythonVariant):
        return bool(editable_files(build.find_used_files([variant.module], folder), target, folder))
    return isinstance(variant, CAbiVariant)


def editable_files(files: Iterable[str], target: Target, folder: Path) -> list[str]:
    """Those of a variant's `files` that do not judge it; in another format's task, only answers."""
    modules = [name.partition(":")[0] for name in target.python_functions if ":" in name]
    sources = {*files} - {MANIFEST, *build.find_used_files(modules, folder)}
    is_task = read_origin(folder) is not None
    return sorted(file for file in sources if not is_task or Path(file).parts[0] == ANSWERS)


def find_editable_files(context: Context, name: str) -> Waiting[dict[str, tuple[str, ...]]]:
    """A variant's editable files, each with other variants that use it and that this session does
    not judge: a change of such a file would go unjudged for them."""
    bench, folder = context.bench, context.task.folder
    try:
        own_variant = build.buildable_variants(bench, [name])[name]
        scan = yield from build.scan_sources(own_variant, folder, bench.include)
    except build.BuildFailed as failed:
        raise WorkFailed(failed.message, failed.hint) from failed
    own_files = editable_files(scan.files, bench.target, bench.folder)
    users_by_file: dict[str, tuple[str, ...]] = dict.fromkeys(own_files, ())
    for other, variant in bench.target.variants.items():
        if other in context.task.variants or not isinstance(variant, build.Buildable):
            continue
        if isinstance(variant, PythonVariant):
            files = build.find_used_files([variant.module], folder)
        else:
            files = variant.sources  # If neither compiler is here.
            recipes = [bench.target.emulated_variant(other)] if variant.emulation else []
            for recipe in (*recipes, bench.target.compiled_variant(other, bench.architecture)):
                with contextlib.suppress(build.BuildFailed):
                    scan = yield from build.scan_sources(recipe, folder, bench.include)
                    files = scan.files
        for file in files:
            if file in users_by_file:
                users_by_file[file] += (other,)
    return users_by_file


MAX_FILE_BYTES = 16 << 20  # Largest file that is accepted.


def may_change(name: str, files: Sequence[str], existing: Collection[str]) -> bool:
    """Whether an edit may change a file: one of `files`, or a new one of their folders and
    suffixes. `existing`: files of the incumbent; others of these may not change. A new Python file
    could hide a package of the judge's, so it needs a name like `rms_*.py` next to `rms.py`."""
    if name in files:
        return True
    path, paths = Path(name), [Path(file) for file in files]
    if name in existing or path.suffix not in {editable.suffix for editable in paths}:
        return False
    neighbours = [editable for editable in paths if editable.parent == path.parent]
    if path.suffix != ".py":
        return bool(neighbours)
    return any(path.stem.startswith(f"{near.stem}_") for near in neighbours if near.suffix == ".py")


def brief_path(briefs_folder: Path, brief: Brief) -> Path:
    """Path of a brief's Markdown page; `<number>-brief.json` lies next to it."""
    return briefs_folder / f"{brief.number}-brief.md"


def save_edit(workshop: Workshop, brief: Brief, tree: Worktree) -> BriefOutput:
    """Save the worktree's edit as a patch next to the brief; returns it as the step's output."""
    lines_by_file, patch = tree.changed_lines(), tree.patch()
    lines, digest = sum(lines_by_file.values()), content_hash(patch)
    path = workshop.briefs_folder / f"{brief.number}-{digest[:8]}.patch"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, patch)
    names = ", ".join(lines_by_file)
    message = f"change {brief.number} to {brief.variant}: {names} ({lines} lines)"
    edit = {"files": tuple(lines_by_file), "lines": lines, "base": tree.head, "digest": digest}
    return BriefOutput(ok=True, message=message, brief=brief, edited=True, patch=str(path), **edit)


def take_edit(
    brief: Brief, tree: Worktree, candidate_tree: Worktree, patch: Path
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Write what a candidate changed of the incumbent in `tree` to `patch`; `tree` stays as it is.
    Returns changed files and refused ones: not allowed, or a file that is now a link, a folder or
    too large, which `candidate_tree` gets back. New files count in the brief's folders, and at the
    target's top: `torch.py` there would hide a package. New links are left where they are."""
    changed, refused = list[str](), list[str]()
    existing, suffixes = tree.committed_files(), {Path(file).suffix for file in brief.files}
    names = set(existing) if candidate_tree.target.is_dir() else set()
    for parent in {Path(), *(Path(file).parent for file in brief.files)}:
        folder = candidate_tree.target / parent
        if folder.is_dir() and not folder.is_symlink():
            files = (path.name for path in folder.iterdir() if path.suffix in suffixes)
            names.update(str(parent / file) for file in files)
    for name in sorted(names):
        content, incumbent_content = _read_file(candidate_tree, name), _read_file(tree, name)
        if content == incumbent_content:
            continue
        is_deleted = not os.path.lexists(candidate_tree.target / name)
        is_allowed = may_change(name, brief.files, existing)
        if is_allowed and (is_deleted or content is not None):
            changed.append(name)
            _write_file(tree, name, content)
        else:
            refused.append(f"{name} (now a link, a folder or too large)" if is_allowed else name)
            _write_file(candidate_tree, name, incumbent_content)
    if changed:
        write_atomic(patch, tree.patch())
    tree.revert()
    return tuple(changed), tuple(refused)


def _is_inside(tree: Worktree, path: Path) -> bool:
    """Whether a path stays inside the tree: no parent folder is a link, which may lead anywhere."""
    below = os.path.relpath(path.parent, tree.root)
    real_root = tree.root.parent.resolve() / tree.root.name
    return Path(below).parts[:1] != ("..",) and path.parent.resolve() == real_root / below


def _read_file(tree: Worktree, name: str) -> bytes | None:
    """A file's bytes; None if it is no readable, plain file in the tree, or too large."""
    path = tree.target / name
    try:
        is_plain = _is_inside(tree, path) and path.is_file() and not path.is_symlink()
        return path.read_bytes() if is_plain and path.stat().st_size <= MAX_FILE_BYTES else None
    except OSError:
        return None


def _write_file(tree: Worktree, name: str, content: bytes | None) -> None:
    """Put a plain file in place of what is there, or delete that (None). Only inside the tree."""
    path = tree.target / name
    if not _is_inside(tree, path):
        return
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)
    if content is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def apply_proposal(tree: Worktree, proposal: Proposal, judged_digests: set[str]) -> Proposal:
    """Apply a candidate's edit to the session's worktree. Its returned `ended` is `repeated` if it
    changes nothing new (`judged_digests`: of judged edits), or `conflict` with a kept change."""
    try:
        tree.apply(Path(proposal.patch))
    except LoopError:
        tree.revert()
        return proposal.model_copy(update={"ended": "conflict"})
    if not tree.changed_lines() or content_hash(tree.patch()) in judged_digests:
        tree.revert()
        return proposal.model_copy(update={"ended": "repeated"})
    return proposal


INCUMBENT = "the incumbent"
Kind = TypeVar("Kind", bound=Output)


@dataclass(frozen=True)
class SessionChanges:
    """What a session's records say about its changes; each change is one run of a pattern."""

    finished: Sequence[Finished]

    @property
    def decisions(self) -> list[tuple[int, DecisionOutput]]:
        """Number of the pattern run, and decision, of each judged change."""
        return outputs_by_run(self.finished, DecisionOutput)

    @property
    def judged_changes(self) -> tuple[TriedChange, ...]:
        """The judged changes, in order."""
        return tuple(decision.tried for _, decision in self.decisions if decision.tried)

    @property
    def proposals(self) -> tuple[Proposal, ...]:
        """All proposals of a campaign by number, in their last state: edits can conflict."""
        latest: dict[int, Proposal] = {}
        for _, output in outputs_by_run(self.finished, BriefOutput):
            latest |= {proposal.number: proposal for proposal in output.proposals}
        return tuple(latest[number] for number in sorted(latest))

    @property
    def incumbents(self) -> dict[str, str]:
        """Variant to the build id to beat: the session's build, or that of the last kept change."""
        kept = [decision.incumbents for _, decision in self.decisions if decision.kept]
        if kept:
            return kept[-1]
        outputs = outputs_by_run(self.finished, BuildOutput)
        builds = outputs[-1][1].builds if outputs else ()
        return {build.variant: build.build_id for build in builds}

    def incumbent_outputs(self, kind: type[Kind]) -> list[Kind]:
        """Outputs of this kind on the original target and on kept changes, oldest first."""
        kept = list[Finished]()
        runs = {run for run, decision in self.decisions if decision.kept}
        for step in self.finished:
            if step.run in runs or not step.action.startswith(ON_CHANGE):
                kept.append(as_target_step(step))
        return [output for _, output in outputs_by_run(kept, kind)]


@dataclass(frozen=True)
class ChangeAtHand:
    """The current change: its finished steps, its brief with the edit, and its worktree."""

    records: Sequence[Finished]
    brief_output: BriefOutput
    tree: Worktree

    def judgement_by(self, action: str) -> JudgedOutput | None:
        """The gate's judgement of the change by this action; None if the action did not run."""
        records = [record for record in self.records if record.action == action]
        outputs = outputs_by_run(records, JudgedOutput)
        return outputs[0][1] if outputs else None

    def refuse_if_edited_since(self) -> None:
        """Raises WorkFailed if the worktree no longer matches the edit that is judged."""
        if content_hash(self.tree.patch()) != self.brief_output.digest:
            message = f"{self.tree.target} was edited while the change was judged"
            hint = f"resume to judge what is there now; the edit before: {self.brief_output.patch}"
            raise WorkFailed(message, hint)


def workshop_of(context: Context) -> Workshop:
    """Where the session may edit the target (a worktree, perhaps not made yet), and the folder of
    its briefs and patches. Raises UsageError outside a session."""
    if context.task.workshop is None:
        raise UsageError("a change needs a session to be kept in", "loop run session optimize")
    return context.task.workshop


def session_worktree(context: Context, workshop: Workshop) -> Worktree | None:
    """The session's worktree; None if it is gone, or incomplete after a kill (deleted)."""
    tree = find_worktree(context.task.folder, workshop.worktree)
    briefs = (page.read_text() for page in workshop.briefs_folder.glob("*-brief.json"))
    is_complete = any(str(workshop.worktree) in text for text in briefs)  # A brief comes last.
    if is_complete or (tree is not None and tree.owner is not None):
        return tree
    if workshop.worktree.exists():
        Worktree(workshop.worktree, workshop.worktree, repository_of(context.task.folder)).remove()
    return None


def change_at_hand(context: Context) -> ChangeAtHand:
    """The current change. Raises LoopError if its worktree or its edit is missing."""
    briefs = outputs_by_run(context.finished, BriefOutput)
    run, brief = briefs[-1] if briefs else (0, None)
    if brief is None or not brief.edited:
        raise UsageError("there is no change to be judged", "a step `change.brief` comes before it")
    place = workshop_of(context).worktree
    tree = find_worktree(context.task.folder, place)
    if tree is None:
        raise WorkFailed(f"{place}: the worktree with the edit is gone", "run the session anew")
    return ChangeAtHand([record for record in context.finished if record.run == run], brief, tree)


@contextmanager
def edited_context(context: Context) -> Iterator[Context]:
    """The session's context with the edited target, the variants that the edit changes, and the
    incumbent as known-good build. A tuned change is timed on the workloads of its tuning."""
    change, bench, plan = change_at_hand(context), context.bench, context.task.plan
    folder = change.tree.target
    target = read_file(folder / MANIFEST, Target).value
    tuning = change.brief_output.brief.tuning if change.brief_output.brief else None
    if tuning is not None:
        target, set_name = with_tuning_set(target, tuning)
        sets = {"workloads": (set_name,), "checks": (*plan.workloads, *plan.checks)}
        plan = plan.model_copy(update=sets)
    known_good = {}
    for name, build_id in SessionChanges(context.finished).incumbents.items():
        known_good[name] = KnownGood(session=INCUMBENT, build_id=build_id, commit=None)
    build_judgement = change.judgement_by("change.build")
    variants = tuple(build.buildable_variants(bench, context.task.variants))
    if build_judgement:  # Until its build, it may change any.
        variants = build_judgement.touched
    task = replace(context.task, plan=plan, folder=folder, variants=variants, emulated=())
    finished = tuple(as_target_step(record) for record in change.records)
    past = replace(context.past, known_good=known_good)
    with bench.copy_for_folder(folder, target) as edited_bench:
        yield replace(context, bench=edited_bench, task=task, finished=finished, past=past)


def with_tuning_set(target: Target, name: str) -> tuple[Target, str]:
    """The target with a set of the workloads of its tuning search `name`; and that set's name."""
    set_name = f"tuning-{name}"
    sets = {**target.workloads, set_name: target.tuning[name].workloads}
    return target.model_copy(update={"workloads": sets}), set_name


def reverted_changes(root: Path, head: SessionHead) -> tuple[TriedChange, ...]:
    """Changes that earlier sessions with this toolchain reverted. A repeated patch appears once."""
    reverted: dict[str, TriedChange] = {}

    def comparable_key(head: SessionHead) -> tuple[object, ...]:
        """Target, device and toolchain: what lost under an equal key would lose again."""
        machine, is_gpu = head.machine, head.device == "cuda"
        parts = (machine.gpus[:1], machine.driver, machine.nvcc) if is_gpu else (machine.processor,)
        return head.target, head.target_folder, head.device, head.threads, machine.compiler, parts

    for folder, _, steps in earlier_sessions(root, head, comparable_key):
        digest_by_run = {run: brief.digest for run, brief in outputs_by_run(steps, BriefOutput)}
        for run, decision in outputs_by_run(steps, DecisionOutput):
            tried, digest = decision.tried, digest_by_run.get(run, "")
            if tried is not None and tried.outcome == "reverted":
                change = tried.model_copy(update={"session": folder.id, "digest": digest})
                reverted[digest or f"{folder.id} {tried.patch}"] = change
    return tuple(reverted.values())
