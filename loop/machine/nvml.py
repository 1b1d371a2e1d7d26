"""Sensors of a GPU through NVML: its clock, why it is throttled, and other users."""

import ctypes
import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from loop.model.measurement import DeviceReading

LIBRARY = "libnvidia-ml.so.1"
SM_CLOCK = 1
"""Value of nvmlClockType_t for the SM clock."""
HIDDEN = ("", "-1")
MOST_PROCESSES = 256
NOT_TOLD = 2**64 - 1
"""Value that NVML returns for an unknown number."""
PROCESSES = tuple(f"nvmlDeviceGetComputeRunningProcesses_v{version}" for version in (3, 2))
"""One function under its names in new and in older drivers."""
THROTTLE = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "heat, held by the driver",
    0x40: "heat, held by the hardware",
    0x80: "power brake",
    0x100: "display clock",
    0x200: "board limit",
    0x400: "reliability limit",
}
"""Bits of nvmlClocksEventReason in words. 1 (idle) and 2 (clocks set by a user) do not throttle."""
REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
"""One function under its names in new and in older drivers."""


class MemoryInfo(ctypes.Structure):
    """`nvmlMemory_t`, in bytes."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Utilisation(ctypes.Structure):
    """`nvmlUtilization_t`, in per cent of the last sample period, at most a second."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class ProcessInfo(ctypes.Structure):
    """`nvmlProcessInfo_t`."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


@dataclass(frozen=True)
class User:
    """A process with a context on a GPU, so it can launch kernels at any time."""

    pid: int
    memory_bytes: int | None


class Sensors:
    """The sensors of one GPU. A value that the driver does not report is None."""

    def __init__(self, library: ctypes.CDLL, device: ctypes.c_void_p) -> None:
        self._library, self._device = library, device
        self.max_sm_clock_mhz = self._number("nvmlDeviceGetMaxClockInfo", ctypes.c_uint, SM_CLOCK)

    def read(self) -> DeviceReading:
        """Clock in MHz and throttle reasons now."""
        reasons = (self._number(function, ctypes.c_ulonglong) for function in REASONS)
        return DeviceReading(
            sm_clock_mhz=self._number("nvmlDeviceGetClockInfo", ctypes.c_uint, SM_CLOCK),
            throttle=in_words(next((bits for bits in reasons if bits is not None), 0)),
        )

    def memory(self) -> tuple[int, int] | None:
        """Free and used device memory in bytes; None if unknown."""
        memory = self._ask("nvmlDeviceGetMemoryInfo", MemoryInfo)
        return None if memory is None else (int(memory.free), int(memory.used))

    def busy_percent(self) -> int | None:
        """Percentage of the last moments (at most 1 s) in which a kernel ran; None if unknown."""
        utilisation = self._ask("nvmlDeviceGetUtilizationRates", Utilisation)
        return None if utilisation is None else int(utilisation.gpu)

    def users(self) -> tuple[User, ...] | None:
        """All processes with a context on the GPU, including our own; None if unknown."""
        call = next((call for name in PROCESSES if (call := getattr(self._library, name, None))), None)
        if call is None:
            return None
        count, processes = ctypes.c_uint(MOST_PROCESSES), (ProcessInfo * MOST_PROCESSES)()
        call.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint), ctypes.POINTER(ProcessInfo)]
        if call(self._device, ctypes.byref(count), processes) != 0:
            return None
        return tuple(
            User(process.pid, None if process.used == NOT_TOLD else process.used)
            for process in processes[: count.value]
        )

    def _number(self, function: str, kind: Any, *which: int) -> int | None:
        answer = self._ask(function, kind, *which)
        return None if answer is None else int(answer.value)

    def _ask(self, function: str, kind: Any, *which: int) -> Any:
        """The value that an NVML function writes to its last argument, as `kind`; else None."""
        call = getattr(self._library, function, None)
        if call is None:
            return None
        call.argtypes = [ctypes.c_void_p, *(ctypes.c_int for _ in which), ctypes.POINTER(kind)]
        answer = kind()
        return answer if call(self._device, *which, ctypes.byref(answer)) == 0 else None


def in_words(reasons: int) -> tuple[str, ...]:
    """Names of the throttle bits in `reasons`; an unknown bit by its value."""
    bits = (1 << place for place in range(2, 64))
    return tuple(THROTTLE.get(bit, f"reason {bit:#x}") for bit in bits if reasons & bit)


def open_sensors(
    device: int | str = 0, environ: Mapping[str, str] = os.environ, library: str = LIBRARY
) -> Sensors | None:
    """Sensors of a GPU, by CUDA index or UUID; None without a driver or GPU.

    CUDA_VISIBLE_DEVICES translates an index, which is reliable only if all GPUs are of one model.
    """
    try:
        nvml = ctypes.CDLL(library)
    except OSError:
        return None
    name = device if isinstance(device, str) else visible_name(device, environ.get("CUDA_VISIBLE_DEVICES"))
    if name is None or nvml.nvmlInit_v2() != 0:
        return None
    handle = ctypes.c_void_p()
    if isinstance(name, int):
        ok = nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(name), ctypes.byref(handle)) == 0
    else:
        # CUDA's UUID of a MIG part begins with GPU, NVML's with MIG.
        uuids = (name, name.replace("GPU-", "MIG-", 1))
        call = nvml.nvmlDeviceGetHandleByUUID
        ok = any(call(ctypes.c_char_p(uuid.encode()), ctypes.byref(handle)) == 0 for uuid in uuids)
    if not ok:
        nvml.nvmlShutdown()
        return None
    return Sensors(nvml, handle)


def visible_name(index: int, visible: str | None) -> int | str | None:
    """System-wide index or UUID of a CUDA program's GPU `index`; None if the GPU is hidden."""
    if visible is None:
        return index
    names = [name.strip() for name in visible.split(",")]
    name = names[index] if index < len(names) else ""
    if name in HIDDEN:
        return None
    return int(name) if name.isdecimal() else name


BUSY_PERCENT = 5
"""Percentage of busy time above which other users' kernels are reported; a desktop stays below."""
MUCH_BYTES = 2 * 2**30
"""Unexplained memory above which another user is assumed: drivers reserve half a GiB."""
REMEDY = "end it, or take another GPU: CUDA_VISIBLE_DEVICES names it"


@dataclass(frozen=True)
class OtherUse:
    """Other users of the GPU."""

    others: tuple[User, ...] = ()
    loose_bytes: int = 0
    """Used memory that no visible process holds."""
    busy_percent: int | None = None
    """Percentage of time in which kernels ran while ours did not; None if unknown."""

    def warning(self, gpu: str) -> str:
        """Warning that others may disturb a measurement on this GPU; empty if none is visible."""
        texts = []
        if self.others:
            memory_bytes = sum(user.memory_bytes or 0 for user in self.others)
            known = all(user.memory_bytes is not None for user in self.others)
            much = f"{memory_bytes / 2**20:.0f} MiB" if known else "memory"
            pid, count = self.others[0].pid, len(self.others)
            alone = f"another process (pid {pid}) holds {much} of it"
            texts.append(alone if count == 1 else f"{count} other processes hold {much} of it (pid {pid} first)")
        elif self.loose_bytes > MUCH_BYTES:
            loose = f"{self.loose_bytes / 2**20:.0f} MiB of it are taken"
            texts.append(f"{loose}, by nobody who can be seen from here")
        if self.busy_percent is not None and self.busy_percent > BUSY_PERCENT:
            share = f"{self.busy_percent} % of the time before anything was timed"
            texts.append(f"somebody computes on it, {share}")
        shared = f"{gpu} is not ours alone: {'; '.join(texts)}"
        return f"{shared}: numbers will be noisy; {REMEDY}" if texts else ""


def other_users(users: Sequence[User], own: Set[int], here: Set[int]) -> tuple[User, ...]:
    """The users that are not our processes (`own`). `here`: pids visible in this container.

    A pid outside `here` may be one of ours in another pid namespace. So the smallest of those count
    as ours, one for each of our processes that `users` lacks.
    """
    unseen = len(own - {user.pid for user in users})
    known = [user for user in users if user.pid in here - own]
    outside = sorted((user for user in users if user.pid not in here), key=lambda user: user.memory_bytes or 0)
    return (*known, *outside[unseen:])
