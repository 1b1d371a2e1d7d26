"""`recipe.sh`: the commands that do again what a session judged, and the numbers that have to come out."""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from loop.base.documents import content_hash, write_atomic
from loop.base.errors import LoopError
from loop.base.places import Project, include_folder, shipped
from loop.library import targets
from loop.library.definitions import read_file
from loop.model.output import MeasureOutput, outputs_of
from loop.model.record import Finished, SessionHead, latest_attempts
from loop.model.target import Target
from loop.profile.model import ResourcesOutput
from loop.replay.expectations import JudgedLibrary, compiled, expectations
from loop.report.templates import jinja
from loop.repository import changes, root_of

NAME = "recipe.sh"
TEMPLATE = "recipe.sh.j2"
ROUNDS = 3
"""Rounds at least: a session that was short of time has fewer."""
JUDGING = ("loop", "kernels", "patterns")
"""Folders of loop's own checkout that take part in judging its bundled target."""


@dataclass(frozen=True)
class TargetPlace:
    """Where the target is: below a checkout, or in a folder that git does not know."""

    target: Path
    top: Path | None
    """Root of the checkout; None where there is none."""

    @property
    def inside(self) -> str:
        """The target's folder from there, as the script writes it."""
        if self.top is None or self.top == self.target:
            return '"$checkout"'
        return f'"$checkout"/{shlex.quote(self.target.relative_to(self.top).as_posix())}'

    def word(self, text: str) -> str:
        """One word of a command for the shell, with the folders of this machine as variables."""
        names = {str(include_folder()): "include", str(self.target): "target"}
        names |= {str(self.top): "checkout"} if self.top else {}
        return word(text, names)


def recipe(project: Project, head: SessionHead, finished: Sequence[Finished], cache: Path) -> str:
    """The script. `cache`: the folder of builds, which knows the line of each."""
    top = root_of(project.target) if head.revision.commit else None
    place = TargetPlace(project.target.resolve(), top)
    libraries = compiled(finished, cache)
    expected = expectations(finished, head.machine, libraries)
    whole = targets.ground(project) == head.ground
    view = {
        "head": head,
        "bundled": project.bundled and place.top is not None,
        "judging": JUDGING,
        "inside": place.inside,
        "sums": tuple(_sums(project)) if whole else (),
        "whole": whole,
        "edited": _edited(project, place, head) if whole else (),
        "machine": tuple(_machine(head)),
        "compilers": tuple(dict.fromkeys(library.compiler for library in libraries if library.compiler)),
        "libraries": [(library, _line(library, place)) for library in libraries],
        "asks": tuple(_asks(head, finished, read_file(project.manifest, Target).value)),
        "expected": [expectation.model_dump_json() for expectation in expected],
    }
    env = jinja(shipped("templates"), autoescape=False)
    env.filters |= {"sh": lambda text: shlex.quote(str(text)), "said": said}
    return env.get_template(TEMPLATE).render(view)


def said(text: object) -> str:
    """Text for a comment: one line, nothing that a terminal acts on."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))


def word(text: str, folders: Mapping[str, str]) -> str:
    """One word for the shell; `folders`: path to the variable that stands for it, wherever the word has it."""
    every = "|".join(re.escape(path) for path in sorted(folders, key=len, reverse=True))
    parts = re.split(rf"({every})(?=/|$)", text)
    quoted = [f'"${folders[part]}"' if part in folders else shlex.quote(part) for part in parts if part]
    return "".join(quoted) or "''"


def _sums(project: Project) -> Iterator[str]:
    """The target's files as `sha256sum` lists them; it marks a name that it writes with backslashes."""
    for path in targets.ground_files(project):
        name = path.relative_to(project.target).as_posix()
        safe = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        yield f"{chr(92) if safe != name else ''}{content_hash(path.read_bytes())}  {safe}"


def _edited(project: Project, place: TargetPlace, head: SessionHead) -> tuple[str, ...] | None:
    """Files that were judged and are in no commit, links out of the checkout among them; None where git fails."""
    changed = changes(project.target, head.revision.commit) if head.revision.commit else None
    if changed is None or place.top is None:
        return None
    judged = {_below(place.top, project, path): path.resolve() for path in targets.ground_files(project)}
    edited = [name for name, path in judged.items() if name in changed or not path.is_relative_to(place.top)]
    inside = tuple(f"{name}/" for name in JUDGING) if project.bundled else ()
    return (*edited, *(name for name in head.revision.changed if name.startswith(inside) and name not in judged))


def _below(top: Path, project: Project, path: Path) -> str:
    """A file of the target as git names it: a link by its own name."""
    return os.path.relpath(project.target.resolve() / path.relative_to(project.target), top)


def _machine(head: SessionHead) -> Iterator[str]:
    machine = head.machine
    yield f"{machine.processor}, {machine.cores} cores, {machine.system}"
    yield from (f"{gpu}, driver {machine.driver}" for gpu in machine.gpus)
    yield f"Python {machine.python}, torch {machine.torch}"


def _line(library: JudgedLibrary, place: TargetPlace) -> str:
    """Its compiler's line: flags, sources, and the result in the recipe's own folder; empty where unknown."""
    words = list(library.command)
    if "-o" in words:
        del words[words.index("-o") : words.index("-o") + 2]
    return " ".join(place.word(word) for word in words)


@dataclass(frozen=True)
class Ask:
    """One command of loop's, and what it is for."""

    name: str
    title: str
    words: str


def _asks(head: SessionHead, finished: Sequence[Finished], target: Target) -> Iterator[Ask]:
    """Verify, time and read resources as the session did."""
    names, plan = (*head.variants, *head.emulated), head.plan.plan
    where = [*("--target", "$target"), *("--device", head.device)]
    seeded = [*where, "--seed", str(head.seed)]
    ended = latest_attempts(finished)
    if any(step.action in ("kernel.build", "kernel.verify") for step in ended) and head.variants:
        words = ["verify", *head.variants, *_sets(dict.fromkeys((*plan.workloads, *target.workloads))), *seeded]
        yield _ask("verify", _took("hold against float64", ended, "kernel.verify"), words)
    if any(step.action in ("kernel.build", "kernel.emulate") for step in ended) and head.emulated:
        sets = [name for name in (*plan.workloads, *plan.checks) if name in target.workloads]
        words = ["verify", *head.emulated, *_sets(dict.fromkeys(sets)), *seeded]
        yield _ask("emulate", _took("hold against float64 under the emulator", ended, "kernel.emulate"), words)
    measured = [output for output in outputs_of(finished, MeasureOutput) if output.measurements]
    if measured:
        how = ["--rounds", str(max(ROUNDS, measured[-1].rounds)), *(["--cold"] if _cold(head, ended) else [])]
        words = ["measure", *head.variants, *_sets(plan.workloads), *how, "--threads", "$threads", *seeded]
        yield _ask("measure", _took("time against the baseline", ended, "kernel.measure"), words)
    read = [output for output in outputs_of(finished, ResourcesOutput) if output.libraries]
    for gpu in dict.fromkeys(output.device for output in read):
        words = ["resources", *names, "--gpu", gpu, *_sets(plan.workloads), "--target", "$target"]
        yield _ask(f"resources-{gpu}", _took("read what kernels take", ended, "kernel.resources"), words)


def _ask(name: str, title: str, words: Iterable[str]) -> Ask:
    return Ask(name, title, " ".join(f'"{word}"' if word.startswith("$") else shlex.quote(word) for word in words))


def _sets(names: Iterable[str]) -> list[str]:
    return [text for name in names for text in ("--workloads", name)]


def _took(title: str, ended: Sequence[Finished], *actions: str) -> str:
    seconds = sum(step.seconds for step in ended if step.action in actions)
    return f"{title}; the session took {seconds:.0f} s"


def _cold(head: SessionHead, ended: Sequence[Finished]) -> bool:
    """Whether caches were emptied before timed calls."""
    last = [(step.pattern, step.step) for step in ended if step.action == "kernel.measure"][-1:]
    steps = ((planned.pattern.name, step) for planned in head.plan.patterns for step in planned.pattern.steps)
    return any(step.arguments.get("cold") is True for name, step in steps if (name, step.id) in last)


def write(project: Project, head: SessionHead, folder: Path, finished: Sequence[Finished], cache: Path) -> str:
    """Write a session's recipe into its folder; why it could not be done, empty as a rule."""
    try:
        write_atomic(folder / NAME, recipe(project, head, finished, cache))
    except (LoopError, OSError, ValueError) as error:
        return f"{folder / NAME} could not be written: {error}"
    return ""
