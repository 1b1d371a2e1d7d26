"""A variant's shared library in this process: built, or found in the cache, then loaded."""

import ctypes
from dataclasses import dataclass
from pathlib import Path

from loop.base.errors import WorkFailed
from loop.base.places import cache_folder, include_folder
from loop.base.processes import finish
from loop.builds.build import BuildFailed, build
from loop.calls.call import LibraryTerms, Refused
from loop.calls.library import Compiled
from loop.model.measurement import Build
from loop.model.target import CAbiVariant

BUILD_LIMIT_S = 1800.0
"""nvcc takes minutes for a variant with many instances on a slow machine; then it is in the cache."""


@dataclass(frozen=True)
class KernelLibrary:
    """A loaded variant; it stays loaded as long as the process."""

    loaded: Compiled

    @property
    def entry_address(self) -> int:
        """Where the entry is."""
        return ctypes.cast(self.loaded.entry, ctypes.c_void_p).value or 0

    @property
    def explain_address(self) -> int:
        """Where `loop_error` is."""
        return ctypes.cast(self.loaded.explain, ctypes.c_void_p).value or 0

    @property
    def lend_address(self) -> int:
        """Where it takes memory of the program's from (`loop_lend`); 0 where it takes none."""
        lend = getattr(self.loaded.library, "loop_lend", None)
        return ctypes.cast(lend, ctypes.c_void_p).value or 0 if lend else 0


def open_library(name: str, variant: CAbiVariant, folder: Path) -> KernelLibrary:
    """Build a variant whose sources are in `folder`, or find it in the cache, and load it.

    Raises LoopError with the first error's place when it does not compile, or with the loader's words.
    """
    return loaded(name, variant, built(name, variant, folder))


def loaded(name: str, variant: CAbiVariant, ready: Build) -> KernelLibrary:
    """Load a build of a variant; raises LoopError with the loader's words."""
    try:
        library = Compiled(LibraryTerms(variant.device, variant.entry, ready.library, ready.build_id))
    except Refused as refused:
        raise WorkFailed(f"{name}: {refused}") from refused
    return KernelLibrary(library)


def built(name: str, variant: CAbiVariant, folder: Path) -> Build:
    """The build of a variant, from the cache where it is there. Raises LoopError when it does not compile."""
    cache, include = cache_folder() / "builds", include_folder()
    try:
        result = finish(build(name, variant, folder, cache=cache, include=include, limit_s=BUILD_LIMIT_S))
    except BuildFailed as failed:
        raise WorkFailed(f"{name}: {failed.message}", hint=failed.hint) from failed
    assert isinstance(result, Build)
    return result
