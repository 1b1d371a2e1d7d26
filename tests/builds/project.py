"""A project of one source and one header, for tests of builds."""

from pathlib import Path
from typing import Any

import pytest

from loop.builds.build import BuildFailed
from loop.model.measurement import Build
from loop.model.target import BuildRecipe, CAbiVariant
from tests.targets import FLAGS, build_one, compiled

TINY = {
    "scale.cpp": '#include "loop_kernel.h"\n#include "scale.h"\nLOOP_EXPORT int right() { return SCALE; }\n',
    "scale.h": "#define SCALE 2\n",
}


def make_variant(**fields: Any) -> CAbiVariant:
    """A compiled variant, its compiler and flags given by name."""
    recipe = {name: fields.pop(name) for name in ("compiler", "flags") if name in fields}
    base = compiled("right", build=BuildRecipe.model_validate({"flags": tuple(FLAGS), **recipe}))
    return CAbiVariant.model_validate({**base, "sources": ("scale.cpp",), **fields})


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def built(folder: Path, cache: Path, **fields: Any) -> Build:
    return build_one(folder, make_variant(**fields), cache)


def failure(folder: Path, cache: Path, **fields: Any) -> BuildFailed:
    """How a build of the project fails."""
    with pytest.raises(BuildFailed) as caught:
        built(folder, cache, **fields)
    return caught.value


def entries(cache: Path) -> list[str]:
    """Builds in a cache, unfinished work included."""
    return sorted(path.name for path in cache.glob("*/*"))
