"""Small kernels written against loop_device.cuh, built for the emulator by the real compiler, called by ctypes."""

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from numpy.typing import NDArray

from loop.base.places import include_folder
from loop.base.processes import run_to_end
from loop.builds.build import build
from loop.model.target import BuildRecipe, CAbiVariant

KERNELS = Path(__file__).parent / "kernels"
FLAGS = ("-x", "c++", "-std=c++17", "-O1", "-g1", "-DLOOP_EMULATE", "-pthread")
STRICT = ("-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas")
Array = NDArray[Any]


def compiled(source: Path, cache: Path, *flags: str) -> Path:
    """The library of one source file, from the cache or by g++."""
    recipe = BuildRecipe(compiler="g++", flags=(*FLAGS, *STRICT, *flags))
    fields = {"kind": "c_abi", "title": "fixtures", "device": "cpu", "dtypes": ("float32",), "entry": "none"}
    variant = CAbiVariant.model_validate({**fields, "sources": (source.name,), "build": recipe})
    folder = {"cache": cache / "builds", "include": include_folder(), "limit_s": 300.0}
    return Path(run_to_end(build(source.name, variant, source.parent, **folder)).library)


class Fixtures:
    """A library of kernels; a call returns the launch's fault, "" if there was none."""

    def __init__(self, path: Path) -> None:
        self.path, self.library = path, ctypes.CDLL(str(path))

    def fault(self, name: str, *arguments: Any) -> str:
        """Launch a kernel; arrays are passed by their address."""
        function = getattr(self.library, name)
        function.restype = ctypes.c_char_p
        text = function(*(_as_c(argument) for argument in arguments))
        assert isinstance(text, bytes)
        return text.decode()

    def fill(self, name: str, *arguments: Any) -> None:
        """Call a function of the host that fills an array."""
        getattr(self.library, name)(*(_as_c(argument) for argument in arguments))


def _as_c(argument: Any) -> Any:
    if isinstance(argument, int):
        return ctypes.c_long(argument)
    return ctypes.c_void_p(argument.ctypes.data) if hasattr(argument, "ctypes") else argument


def aligned(values: Array) -> Array:
    """The same values, in a row, at a multiple of 16 bytes."""
    raw = numpy.empty(values.nbytes + 16, numpy.uint8)
    begin = -raw.ctypes.data % 16
    raw[begin : begin + values.nbytes] = numpy.frombuffer(values.tobytes(), numpy.uint8)
    return raw[begin : begin + values.nbytes].view(values.dtype)


def each_seed(monkeypatch: pytest.MonkeyPatch, count: int = 40) -> Iterator[int]:
    """Seeds of the schedule, each in force while it is looked at."""
    for seed in range(count):
        monkeypatch.setenv("LOOP_EMULATOR_SEED", str(seed))
        yield seed


def line_of(source: str, mark: str) -> str:
    """Where a fixture's source has a comment, as a fault names the place: `races.cu:21`."""
    lines = (KERNELS / source).read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if line.endswith(f"// {mark}")]
    return f"{source}:{number}"


def places(fault: str) -> set[str]:
    """The places in a source that a fault names."""
    return set(re.findall(r"\w+\.cuh?:\d+", fault))


def threads(fault: str) -> list[int]:
    """The threads that a fault names, in order."""
    return [int(number) for number in re.findall(r"thread (\d+)", fault)]


def seed_of(fault: str) -> str:
    """The seed at the end of a fault."""
    match = re.search(r"\(seed (\d+)\)$", fault)
    assert match is not None, fault
    return match[1]
