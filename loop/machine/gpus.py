"""The GPUs of this machine as a CUDA program sees them. A process of its own asks the driver.

nvidia-smi numbers all GPUs by slot and ignores CUDA_VISIBLE_DEVICES. A CUDA program numbers only
the visible GPUs, fastest first. `loop` uses the first of those, so it has to ask the driver.
"""

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from subprocess import DEVNULL, PIPE
from typing import Any

from loop.base.processes import child_environment, output_of, python_path
from loop.calls.cuda.driver import Lack
from loop.model.profile import DeviceFacts

QUERY_LIMIT_S = 60  # Time limit in seconds. Without its persistence daemon a driver initialises every GPU first.
VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Gpu:
    """One GPU."""

    name: str
    uuid: str  # UUID as `nvidia-smi -L` shows it.
    capability: str
    memory_bytes: int
    facts: DeviceFacts

    @property
    def architecture(self) -> str:
        """Compiler's name of the architecture: `sm_89`."""
        return f"sm_{self.capability.replace('.', '')}"


@dataclass(frozen=True)
class Gpus:
    """The GPUs of this machine, and which of them a CUDA program may use."""

    usable: tuple[Gpu, ...] = ()  # Usable GPUs in CUDA's order; everything runs on the first.
    cuda: tuple[int, int] | None = None
    """The newest CUDA release that the driver supports; None if the driver does not start."""
    driver: str | None = None
    smi_names: tuple[str, ...] = ()  # Names of all GPUs that nvidia-smi lists.
    unusable_reason: str = ""  # Why a CUDA program can use no GPU; empty if it can.
    missing_part: Lack = ""  # What is missing if no GPU is usable: the driver, or a device.

    @property
    def first(self) -> Gpu | None:
        """The GPU that everything runs on; None if there is none."""
        return self.usable[0] if self.usable else None

    @property
    def first_gpu_text(self) -> str:
        """Name of the first GPU, and how it was chosen among several; empty if there is none."""
        if self.first is None:
            return ""
        count = max(len(self.usable), len(self.smi_names))
        if count == 1:
            return self.first.name
        setting = f", {VISIBLE_VARIABLE}={os.environ[VISIBLE_VARIABLE]}" if VISIBLE_VARIABLE in os.environ else ""
        return f"{self.first.name} (the first that CUDA shows of {count}{setting}: {self.first.uuid})"


@functools.cache
def detect_gpus() -> Gpus:
    """The GPUs of this machine, cached. Asks nvidia-smi and the driver, for at most a minute each."""
    smi = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    lines = (output_of(smi, limit_s=QUERY_LIMIT_S) or "").splitlines()
    smi_rows = [line.split(", ") for line in lines if line.count(", ") == 1]  # Name and driver.
    # A driver may hang or crash, so a process of its own asks it. It may have started before nvidia-smi.
    answer: dict[str, Any] = {"cuda": None, "gpus": [], "why": "the process that asks the NVIDIA driver died"}
    try:
        with start_driver_query() as process:
            try:
                text, _ = process.communicate(timeout=QUERY_LIMIT_S)
            finally:
                process.kill()
        answer = json.loads(text.splitlines()[-1])  # Of `gpus_seen.query_driver`.
    except subprocess.TimeoutExpired:
        answer["why"] = f"the NVIDIA driver did not answer within {QUERY_LIMIT_S} s"
    except (OSError, ValueError, IndexError):
        pass
    usable, release = [], answer["cuda"]
    for fields in answer["gpus"]:
        known_fields = {name: fields[name] for name in DeviceFacts.model_fields if name in fields}
        facts = DeviceFacts.model_validate(known_fields)
        capability = ".".join(map(str, fields["capability"]))
        usable.append(Gpu(fields["name"], fields["uuid"], capability, fields["memory_bytes"], facts))
    return Gpus(
        usable=tuple(usable),
        cuda=(release[0], release[1]) if release else None,
        driver=smi_rows[0][1].strip() if smi_rows else None,
        smi_names=tuple(row[0] for row in smi_rows),
        unusable_reason="" if usable else answer["why"] or "the driver shows no GPU",
        missing_part=answer.get("lack", ""),
    )


@functools.cache
def start_driver_query() -> "subprocess.Popen[str]":
    """The process that asks the driver, started by the first call; `detect_gpus` reads its answer later."""
    command = [sys.executable, "-P", "-m", "loop.machine.gpus_seen"]
    environment = {**child_environment(), "PYTHONPATH": python_path()}
    return subprocess.Popen(command, env=environment, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, text=True)


def explain_no_gpu(gpus: Gpus) -> tuple[str, str]:
    """Why nothing can run on a GPU here, and a hint. Call it only if `gpus.usable` is empty."""
    names = ", ".join(gpus.smi_names)
    if names and VISIBLE_VARIABLE in os.environ and gpus.missing_part == "device":
        message = f"no GPU: {VISIBLE_VARIABLE}={os.environ[VISIBLE_VARIABLE]!r} hides what is there ({names})"
        return message, f"unset {VISIBLE_VARIABLE}, or set it to 0"
    hint = "see what `nvidia-smi` says"
    if gpus.missing_part == "driver":
        hint = "install the NVIDIA driver"
        if names:
            hint = (
                "nvidia-smi works and libcuda.so.1 is missing: in a container, set NVIDIA_DRIVER_CAPABILITIES=all"
            )
    there = f" that a program can use: {names} is there, but" if names else ":"
    return f"no GPU{there} {gpus.unusable_reason}", hint


GENERIC_GPU_WORD = re.compile(r"NVIDIA|TESLA|GEFORCE|GPU|SXM\d?|HBM\d\w?")
"""Words of a GPU name that do not identify the model. `PCIe`, `NVL`, `MIG`, `Ti`, `Laptop` do."""
MEMORY_SIZE_WORD = re.compile(r"\d+GI?B")


def is_same_gpu_model(name: str, driver_name: str) -> bool:
    """Whether two names mean the same GPU model: `H100` and `NVIDIA H100 80GB HBM3`, not `H100 PCIe`. Memory
    sizes are compared only if both names contain one."""
    sizes, models = [], []
    for text in (name, driver_name):
        words = set(re.split(r"[\s-]+", text.upper().strip()))
        sizes.append({word for word in words if MEMORY_SIZE_WORD.fullmatch(word)})
        models.append({word for word in words - sizes[-1] if not GENERIC_GPU_WORD.fullmatch(word)})
    return models[0] == models[1] and (sizes[0] == sizes[1] or not all(sizes))


def facts_of_present_gpu(
    manifest_facts: Mapping[str, DeviceFacts], capability: str | None, name: str, driver_facts: DeviceFacts | None
) -> DeviceFacts | None:
    """Facts of this machine's GPU: the manifest's if name and number of SMs agree with the driver's, else
    `driver_facts`. `manifest_facts`: by architecture (`sm_89`). `capability`: `8.9`. `name`: the driver's."""
    datasheet = manifest_facts.get(f"sm_{capability.replace('.', '')}") if capability else None
    if datasheet is None or not is_same_gpu_model(datasheet.name, name):
        return driver_facts
    is_other_size = driver_facts is not None and driver_facts.sms != datasheet.sms
    return driver_facts if is_other_size else datasheet
