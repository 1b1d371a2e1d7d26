"""Stale builds: whatever a build reads is changed, and the next command has to see it."""

import itertools
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from loop.base.places import include_folder
from loop.base.processes import environment, finish
from loop.builds import build, known_builds, reads
from loop.machine import machine
from loop.model.measurement import Build
from loop.model.target import BuildRecipe, CAbiVariant
from tests.faults import Case
from tests.faults.stale_table import WAYS
from tests.faults.stale_ways import MANNERS, Manner, Scene, Way

NAME = "stale builds: ways to change what a build reads"
MUST = "0 stale"
CALL = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).scale())"
NUMBERS = range(11, 99)
"""Answers of two digits, so that both contents have the same size."""


def cases(seed: int) -> Iterator[Case]:
    """Each way, with each manner of writing a file."""
    draw = random.Random(seed)
    for way, manner in itertools.product(WAYS, MANNERS):
        before, after = draw.sample(NUMBERS, 2)
        name = f"{way.name}, {manner.__name__}"
        yield name, lambda folder, drawn=(way, manner, before, after): _broken(folder, *drawn)


def _broken(folder: Path, way: Way, manner: Manner, before: int, after: int) -> str:
    place = folder / "project"
    place.mkdir()
    scene = Scene(place, before, after, manner)
    if way.source:
        scene.put("kernel.cpp", _filled(way.source, scene))
    way.prepare(scene)
    with _environment(way.environment, scene):
        first = _built(way, scene)
        problem = _is(first, before, "before the change") or _unchanged(way, scene, first)
    way.change(scene)
    with _environment({**way.environment, **way.later}, scene):
        second = _built(way, scene)
        return problem or _is_new(way, first, second, after)


def _filled(text: str, scene: Scene) -> str:
    """A text with what stands for something filled in."""
    words = {"{folder}": str(scene.folder), "{before}": str(scene.before), "{PATH}": os.environ["PATH"]}
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return text


@contextmanager
def _environment(variables: Mapping[str, str], scene: Scene) -> Iterator[None]:
    with patch.dict(os.environ, {name: _filled(value, scene) for name, value in variables.items()}):
        yield


def _built(way: Way, scene: Scene) -> Build:
    """The build as the next command gets it: nothing is known but what is on disk."""
    flags = tuple(_filled(flag, scene) for flag in ("-std=c++17", "-O0", *way.flags))
    recipe = BuildRecipe(compiler=_filled(way.compiler, scene), flags=flags)
    fields = {"kind": "c_abi", "device": "cpu", "sources": ("kernel.cpp",), "entry": "scale", "build": recipe}
    variant = CAbiVariant.model_validate(fields)
    cache = scene.folder.parent / "cache"
    forget()
    terms = {"cache": cache, "include": include_folder(), "limit_s": 120.0}
    made: Build = finish(build.build("kernel", variant, scene.folder, **terms))
    return made


def forget() -> None:
    """What a process knows, and the next one does not."""
    known_builds.OURS.clear()
    reads.content_of.cache_clear()
    machine.VERSIONS.clear()
    build.THIS_COMMAND = os.urandom(8).hex()


def _is(made: Build, expected: int, when: str) -> str:
    command = [sys.executable, "-c", CALL, made.library]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    said = done.stdout.strip() or done.stderr.strip()[-200:]
    return "" if said == str(expected) else f"{when} the kernel answers {said}, not {expected}"


def _unchanged(way: Way, scene: Scene, first: Build) -> str:
    """Where nothing changed a build is used again, or says why it is not."""
    again = _built(way, scene)
    if again.cached != way.kept:
        return f"without a change the build is {'used again' if again.cached else 'made again'}: {again.note}"
    if way.kept and again.build_id != first.build_id:
        return "without a change the build has another id"
    return "" if way.kept or again.note else "the build is made again, and nobody says why"


def _is_new(way: Way, first: Build, second: Build, after: int) -> str:
    if second.cached or second.build_id == first.build_id:
        return f"stale: {'used again' if second.cached else 'made again under the same id'} after the change"
    return _is(second, after, "after the change") if way.answers else ""
