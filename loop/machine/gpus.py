"""The GPUs of this machine as a CUDA program sees them: asked of the driver, in a process of its own.

nvidia-smi numbers all GPUs by their slots and knows nothing of CUDA_VISIBLE_DEVICES; a CUDA program numbers those
that it may see, fastest first. What runs here runs on the first of those, so the driver is asked.
"""

import functools
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from loop.base.processes import environment, python_path
from loop.calls.cuda.driver import Lack
from loop.model.profile import DeviceFacts

ASK_LIMIT_S = 60
"""Without its persistence daemon a driver sets up every GPU anew, one after the other."""
SMI = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
VISIBLE = "CUDA_VISIBLE_DEVICES"
ASKED: list["subprocess.Popen[str]"] = []
"""The process that asks the driver, while nobody has waited for its answer."""


@dataclass(frozen=True)
class Gpu:
    """One GPU."""

    name: str
    uuid: str
    """As nvidia-smi -L shows it."""
    capability: str
    memory_bytes: int
    facts: DeviceFacts

    @property
    def architecture(self) -> str:
        """As compilers call it: `sm_89`."""
        return f"sm_{self.capability.replace('.', '')}"


@dataclass(frozen=True)
class Gpus:
    """What there is, and what of it a CUDA program may use."""

    usable: tuple[Gpu, ...] = ()
    """In the order in which a CUDA program numbers them; everything here runs on the first."""
    cuda: tuple[int, int] | None = None
    """The newest CUDA release whose code the driver runs; None where it does not start."""
    driver: str | None = None
    shown: tuple[str, ...] = ()
    """Names of all that nvidia-smi shows."""
    why: str = ""
    """Why a CUDA program can use none; empty where it can."""
    lack: Lack = ""
    """What is missing then."""

    @property
    def first(self) -> Gpu | None:
        """The one that everything runs on; None without any."""
        return self.usable[0] if self.usable else None

    @property
    def chosen(self) -> str:
        """The first in words, and how it was chosen among several: empty without any."""
        if self.first is None:
            return ""
        several = max(len(self.usable), len(self.shown))
        if several == 1:
            return self.first.name
        by = f", {VISIBLE}={os.environ[VISIBLE]}" if VISIBLE in os.environ else ""
        return f"{self.first.name} (the first that CUDA shows of {several}{by}: {self.first.uuid})"


@functools.cache
def gpus() -> Gpus:
    """The GPUs of this machine, asked once."""
    rows, answer = _shown_by_smi(), _look()
    usable, release = [], answer["cuda"]
    for fields in answer["gpus"]:
        known = {name: fields[name] for name in DeviceFacts.model_fields if name in fields}
        capability = ".".join(map(str, fields["capability"]))
        facts = DeviceFacts.model_validate(known)
        usable.append(Gpu(fields["name"], fields["uuid"], capability, fields["memory_bytes"], facts))
    return Gpus(
        usable=tuple(usable),
        cuda=(release[0], release[1]) if release else None,
        driver=rows[0][1] if rows else None,
        shown=tuple(row[0] for row in rows),
        why="" if usable else answer["why"] or "the driver shows no GPU",
        lack=answer.get("lack", ""),
    )


def ask_early() -> None:
    """Have the driver asked while something else is done; `gpus` waits for the answer."""
    if not ASKED:
        ASKED.append(
            subprocess.Popen(
                [sys.executable, "-P", "-m", "loop.machine.gpus_seen"],
                env={**environment(), "PYTHONPATH": python_path()},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        )


def _look() -> dict[str, Any]:
    """What the driver says to a process with the environment of our workers."""
    nothing: dict[str, Any] = {"cuda": None, "gpus": []}
    try:
        ask_early()
        with ASKED.pop() as process:
            try:
                printed, _ = process.communicate(timeout=ASK_LIMIT_S)
            finally:
                process.kill()
        return json.loads(printed.splitlines()[-1])  # type: ignore[no-any-return]
    except subprocess.TimeoutExpired:
        return {**nothing, "why": f"the NVIDIA driver did not answer within {ASK_LIMIT_S} s"}
    except (OSError, ValueError, IndexError):
        return {**nothing, "why": "the process that asks the NVIDIA driver died"}


def _shown_by_smi() -> list[list[str]]:
    """Name and driver version of each GPU; empty without nvidia-smi."""
    if shutil.which(SMI[0]) is None:
        return []
    try:
        completed = subprocess.run(SMI, capture_output=True, text=True, timeout=ASK_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in completed.stdout.splitlines()]
    return [row for row in rows if len(row) == 2] if completed.returncode == 0 else []


def no_gpu(gpus: Gpus) -> tuple[str, str]:
    """Why nothing can run on a GPU here, and what would help."""
    if gpus.lack == "driver" and not gpus.shown:
        return f"no GPU: {gpus.why}", "install the NVIDIA driver"
    if gpus.shown and VISIBLE in os.environ and gpus.lack == "device":
        hidden = f"{VISIBLE}={os.environ[VISIBLE]!r} hides what is there"
        return f"no GPU: {hidden} ({', '.join(gpus.shown)})", f"unset {VISIBLE}, or set it to 0"
    there = f" that a program can use: {', '.join(gpus.shown)} is there, but" if gpus.shown else ":"
    hint = "see what `nvidia-smi` says"
    if gpus.lack == "driver":
        hint = "nvidia-smi works and libcuda.so.1 is missing: in a container, set NVIDIA_DRIVER_CAPABILITIES=all"
    return f"no GPU{there} {gpus.why}", hint
