"""Which files an edit may change, and the edit as a patch that can be judged and rebased."""

import contextlib
import os
import shutil
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from loop.base.documents import content_hash, write_atomic
from loop.base.errors import LoopError, WorkFailed
from loop.base.places import MANIFEST
from loop.base.processes import Waiting
from loop.builds import build
from loop.formats.model import ANSWERS
from loop.library.trust import read_origin
from loop.model.campaign import Proposal
from loop.model.target import CAbiVariant, PythonVariant, Target
from loop.optimize.model import Brief, BriefOutput
from loop.repository.worktree import Worktree
from loop.steps.context import Context, Workshop


def may_edit_variant(target: Target, folder: Path, name: str) -> bool:
    """Whether a variant has files that may be edited. Python files that judge it do not count."""
    variant = target.variants[name]
    if isinstance(variant, PythonVariant):
        return bool(editable_files(build.find_used_files([variant.module], folder), target, folder))
    return isinstance(variant, CAbiVariant)


def editable_files(files: Iterable[str], target: Target, folder: Path) -> list[str]:
    """Those of a variant's `files` that do not judge it; in a task of another format, only the task's answers."""
    modules = [name.partition(":")[0] for name in target.python_functions if ":" in name]
    # What decides what is right and what the baseline is, and the manifest.
    sources = {*files} - {MANIFEST, *build.find_used_files(modules, folder)}
    return sorted(file for file in sources if read_origin(folder) is None or Path(file).parts[0] == ANSWERS)


def find_editable_files(context: Context, name: str) -> Waiting[dict[str, tuple[str, ...]]]:
    """A variant's editable files, each with the other variants that use it and are not judged in this session: a
    change of such a file would go unjudged for them."""
    bench, folder = context.bench, context.task.folder
    try:
        scan = yield from build.scan_sources(build.buildable_variants(bench, [name])[name], folder, bench.include)
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
            built_variants = [bench.target.emulated_variant(other)] if variant.emulation else []
            for built_variant in (*built_variants, bench.target.compiled_variant(other, bench.architecture)):
                with contextlib.suppress(build.BuildFailed):
                    files = (yield from build.scan_sources(built_variant, folder, bench.include)).files
        for file in files:
            if file in users_by_file:
                users_by_file[file] += (other,)
    return users_by_file


MAX_FILE_BYTES = 16 << 20  # Largest file that is accepted.


def may_change(name: str, files: Sequence[str], existing: Collection[str]) -> bool:
    """Whether an edit may change a file: one of `files`, or a new one of their folders and suffixes. `existing`:
    files of the incumbent; others of these may not change. A new Python file could hide a package that the judge
    imports, so it needs a name like `rms_*.py` next to `rms.py`."""
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
    """Path of a brief's Markdown page; its JSON is next to it."""
    return briefs_folder / f"{brief.number}-brief.md"


def save_edit(workshop: Workshop, brief: Brief, tree: Worktree) -> BriefOutput:
    """Save the worktree's edit as a patch next to the brief; returns it as the step's output."""
    lines_by_file, patch = tree.changed_lines(), tree.patch()
    lines, digest = sum(lines_by_file.values()), content_hash(patch)
    path = workshop.briefs_folder / f"{brief.number}-{digest[:8]}.patch"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, patch)
    return BriefOutput(
        ok=True,
        message=f"change {brief.number} to {brief.variant}: {', '.join(lines_by_file)} ({lines} lines)",
        brief=brief,
        edited=True,
        files=tuple(lines_by_file),
        lines=lines,
        base=tree.head,
        patch=str(path),
        digest=digest,
    )


def take_edit(
    brief: Brief, tree: Worktree, candidate_tree: Worktree, patch: Path
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Write what a candidate changed of the incumbent in `tree` to `patch`; `tree` is unchanged afterwards.
    Returns its files, and those that may not change, which are restored in `candidate_tree`. New files count with
    the brief's suffixes in its folders, and at the target's top: `torch.py` there would hide a package."""
    files, refused_files = list[str](), list[str]()
    existing, suffixes = tree.committed_files(), {Path(file).suffix for file in brief.files}
    names = set(existing) if candidate_tree.target.is_dir() else set()
    for parent in {Path(), *(Path(file).parent for file in brief.files)}:
        folder = candidate_tree.target / parent
        for path in folder.iterdir() if folder.is_dir() and not folder.is_symlink() else ():
            if path.suffix in suffixes and path.is_file() and not path.is_symlink():
                names.add(str(parent / path.name))
    for name in sorted(names):
        path, incumbent_content = candidate_tree.target / name, _read_plain_file(tree.target / name)
        is_inside = _is_inside(candidate_tree, path)
        # A link leads to a foreign file: do not read or restore it.
        content = _read_plain_file(path) if is_inside else None
        if content == incumbent_content:
            continue
        if may_change(name, brief.files, existing):
            files.append(name)
            if _is_inside(tree, tree.target / name):
                _replace_file(tree.target / name, content)
        else:
            refused_files.append(name)
            if is_inside:
                _replace_file(path, incumbent_content)
    write_atomic(patch, tree.patch())
    tree.revert()
    return tuple(files), tuple(refused_files)


def _is_inside(tree: Worktree, path: Path) -> bool:
    """Whether a path stays inside the tree: no parent folder is a symbolic link."""
    below = os.path.relpath(path.parent, tree.root)
    real_root = tree.root.parent.resolve() / tree.root.name
    return Path(below).parts[:1] != ("..",) and path.parent.resolve() == real_root / below


def _read_plain_file(path: Path) -> bytes | None:
    """A file's bytes; None if it is not a plain file of at most `MAX_FILE_BYTES`, or unreadable."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
            return None
        return path.read_bytes()
    except OSError:
        return None


def _replace_file(path: Path, content: bytes | None) -> None:
    """Write `content` in place of whatever is at `path`; None: delete it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)
    if content is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def apply_proposal(tree: Worktree, proposal: Proposal, judged_digests: set[str]) -> Proposal:
    """Apply a candidate's edit to the session's worktree. Returns the proposal; its `ended` is `repeated` if it
    changes nothing new (`judged_digests`: hashes of judged edits), or `conflict` with a change kept meanwhile."""
    try:
        tree.apply(Path(proposal.patch))
    except LoopError:
        tree.revert()
        return proposal.model_copy(update={"ended": "conflict"})
    if not tree.changed_lines() or content_hash(tree.patch()) in judged_digests:
        tree.revert()
        return proposal.model_copy(update={"ended": "repeated"})
    return proposal
