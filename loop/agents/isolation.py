"""Where `bwrap` works, a known program sees the system read-only, its folder, and its own configuration."""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from loop.agents.presets import Preset
from loop.base.places import PACKAGE, cache_folder, state_folder

PROGRAM = "bwrap"


@cache
def works() -> bool:
    """Whether namespaces may be made here."""
    if shutil.which(PROGRAM) is None:
        return False
    trial = [PROGRAM, "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--unshare-pid", "true"]
    try:
        completed = subprocess.run(trial, capture_output=True, check=False, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return False
    return completed.returncode == 0


def under(root: Path, locks: Path, notes: Path, preset: Preset) -> tuple[str, ...]:
    """The command line that a proposer runs under; empty where it is not isolated.

    Its home folder is empty but for the program's own configuration. `loop kernels check` needs builds, trust, the
    device's locks and loop itself. `notes`: where the brief is.
    """
    if not preset.own or not works():  # Where a command of the user's own keeps its files, nobody knows.
        return ()
    home = Path.home()
    words = [PROGRAM, "--die-with-parent", "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc"]
    words += ["--tmpfs", "/tmp", "--tmpfs", str(home)]
    # Folders of the home that hold programs on the PATH, with what they load.
    inside = [path for name in programs() if (path := Path(name)).is_relative_to(home)]
    for folder in (
        *dict.fromkeys(path.parent if path.name == "bin" else path for path in inside),
        cache_folder(),
        state_folder(),
        PACKAGE.parent,
        sys.prefix,
        sys.base_prefix,
        notes,
    ):
        words += ["--ro-bind-try", str(folder), str(folder)]
    for own in (*(home / name for name in preset.own), locks, root):
        words += ["--bind-try", str(own), str(own)]
    return tuple(words)


def programs() -> list[str]:
    """The PATH of a proposer: that of loop, and last the folder of loop's own program."""
    paths = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    return list(dict.fromkeys([*paths, str(Path(sys.executable).parent)]))
