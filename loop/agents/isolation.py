"""Where `bwrap` works, a proposer sees the system read-only, its folder, and its own configuration."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from loop.agents.presets import Preset
from loop.base.places import cache_folder, state_folder

PROGRAM = "bwrap"


@cache
def works() -> bool:
    """Whether namespaces may be made here."""
    if shutil.which(PROGRAM) is None:
        return False
    trial = [PROGRAM, "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--unshare-pid", "true"]
    return subprocess.run(trial, capture_output=True, check=False, timeout=10).returncode == 0


def under(root: Path, cache: Path, preset: Preset) -> tuple[str, ...]:
    """The command line that a proposer runs under; empty where it is not isolated.

    Its home folder is empty but for the program's own configuration. `loop kernels check` needs builds and trust.
    """
    if not works():
        return ()
    home = Path.home()
    words = [PROGRAM, "--die-with-parent", "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc"]
    words += ["--tmpfs", "/tmp", "--tmpfs", str(home)]
    for seen in _programs(home):
        words += ["--ro-bind-try", seen, seen]
    for seen in (str(cache_folder()), str(state_folder())):
        words += ["--ro-bind-try", seen, seen]
    for own in (*(str(home / name) for name in preset.own), str(cache), str(root)):
        words += ["--bind-try", own, own]
    return tuple(words)


def _programs(home: Path) -> list[str]:
    """Folders of the home that hold programs on the PATH, with what they load."""
    paths = [Path(one) for one in os.environ.get("PATH", "").split(os.pathsep) if one]
    inside = [one for one in paths if one.is_relative_to(home)]
    return list(dict.fromkeys(str(one.parent if one.name == "bin" else one) for one in inside))
