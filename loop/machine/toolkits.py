"""Does what a CUDA toolkit compiles run under this driver, and does the toolkit know the GPU? Pure."""

import re
from collections.abc import Sequence

Release = tuple[int, int]
"""A CUDA release, as in (12, 4)."""

OLDEST_DRIVER = {11: "R450", 12: "R525", 13: "R580"}
"""CUDA major release to the oldest driver branch that runs its code, whatever the minor release: code for the GPU
itself, that is; PTX that the driver compiles needs the very release
(docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html, table 1)."""
KNOWN_FROM: dict[str, Release] = {
    "sm_75": (10, 0),
    "sm_80": (11, 0),
    "sm_86": (11, 1),
    "sm_87": (11, 4),
    "sm_88": (13, 0),
    "sm_89": (11, 8),
    "sm_90": (12, 0),  # As sm_90a, which has all of Hopper's instructions.
    "sm_100": (12, 8),
    "sm_101": (12, 8),
    "sm_103": (12, 9),
    "sm_110": (13, 0),
    "sm_120": (12, 8),
    "sm_121": (12, 9),
}
"""GPU to the first toolkit that compiles for it (release notes of the toolkits)."""
DROPPED_IN: dict[str, Release] = {
    **dict.fromkeys(("sm_35", "sm_37"), (12, 0)),
    **dict.fromkeys(("sm_50", "sm_52", "sm_53", "sm_60", "sm_61", "sm_62", "sm_70", "sm_72", "sm_101"), (13, 0)),
}
"""GPU to the first toolkit that does not any more."""
WHERE = "https://developer.nvidia.com/cuda-toolkit-archive"


def release_of(text: str) -> Release:
    """`13.0` as numbers."""
    major, _, minor = text.partition(".")
    return int(major), int(re.match(r"\d*", minor)[0] or 0)  # type: ignore[index]


def too_new(what: str, toolkit: str, cuda: Release | None, driver: str | None) -> str:
    """Why code from this CUDA release cannot run under this driver; empty when it can, or nobody knows.

    `cuda`: the newest release whose code the driver runs, by its own word; without that its version tells.
    """
    major = release_of(toolkit)[0]
    if cuda is not None:
        conflict = major > cuda[0]
    else:
        number = re.match(r"\d+", driver or "")  # The branch: 535 of `535.129.03`.
        conflict = number is not None and int(number[0]) < int(OLDEST_DRIVER.get(major, "R0")[1:])
    if not conflict:
        return ""
    branch = OLDEST_DRIVER.get(major)
    needed = f"driver {branch} or newer" if branch else "a newer driver"
    runs = f", which runs code up to CUDA {cuda[0]}.{cuda[1]}" if cuda else ""
    return f"{what} {toolkit} needs {needed}, this machine has {driver or 'an older one'}{runs}"


def older_toolkit(toolkit: str, cuda: Release | None) -> str:
    """What mends `too_new`."""
    branch = OLDEST_DRIVER.get(release_of(toolkit)[0])
    newer = f"install driver {branch} or newer" if branch else "install a newer driver"
    if cuda is None:
        return f"{newer}, or use an older CUDA toolkit"
    return f"{newer}, or use a CUDA {cuda[0]} toolkit: name its nvcc in target.yaml, or put it first on the PATH"


def unknown_gpu(toolkit: str, architecture: str) -> str:
    """Why this toolkit cannot compile for a GPU; empty when it can, or nobody knows."""
    release = release_of(toolkit)
    first, dropped = KNOWN_FROM.get(architecture), DROPPED_IN.get(architecture)
    if first is not None and release < first:
        return f"nvcc {toolkit} does not know {architecture}: CUDA {_text(first)} is the first that does"
    if dropped is not None and release >= dropped:
        return f"nvcc {toolkit} compiles for {architecture} no more: CUDA {_text(dropped)} dropped it"
    return ""


def fitting_toolkit(architecture: str, cuda: Release | None) -> str:
    """Which toolkits compile for a GPU and run under its driver, as what to install."""
    first, dropped = KNOWN_FROM.get(architecture), DROPPED_IN.get(architecture)
    bounds = [f"CUDA {_text(first)} or newer"] if first else []
    ends = [end for end in (dropped, (cuda[0] + 1, 0) if cuda else None) if end]
    bounds += [f"older than {_text(min(ends))}"] if ends else []
    expected = ", ".join(bounds)
    return f"install the CUDA toolkit{f' ({expected})' if expected else ''}: {WHERE}"


def _text(release: Release) -> str:
    return f"{release[0]}.{release[1]}"


def builds_for(flags: Sequence[str], architecture: str) -> bool:
    """Whether a compiler's flags ask for code of that GPU: by name, or of whichever is there."""
    text = " ".join(flags)
    return bool(re.search(rf"\b{architecture}[af]?\b|-(?:arch|-gpu-architecture)[= ]native\b", text))
