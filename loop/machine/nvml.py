"""Sensors of a GPU through NVML: its clock, why it is throttled, and other users."""

import ctypes
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

from loop.model.measurement import DeviceReading

LIBRARY = "libnvidia-ml.so.1"
SM_CLOCK = 1  # Value of nvmlClockType_t for the SM clock.
MOST_PROCESSES = 256
UNKNOWN_BYTES = 2**64 - 1  # Value that NVML returns for an unknown number.
PROCESS_FUNCTIONS = tuple(f"nvmlDeviceGetComputeRunningProcesses_v{version}" for version in (3, 2))
"""One function under its names in new and in older drivers."""
THROTTLE_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "heat, held by the driver",
    0x40: "heat, held by the hardware",
    0x80: "power brake",
    0x100: "display clock",
    0x200: "board limit",
    0x400: "reliability limit",
}  # Bits of nvmlClocksEventReason in words. 1 (idle) and 2 (clocks set by a user) do not throttle.
THROTTLE_FUNCTIONS = tuple(f"nvmlDeviceGetCurrentClocks{s}Reasons" for s in ("Event", "Throttle"))
"""One function under its names in new and in older drivers."""
BUSY_PERCENT = 5  # Percentage of busy time above which others are reported; a desktop stays below.
UNEXPLAINED_BYTES = 2 * 2**30  # More unexplained memory has another user: drivers take 0.5 GiB.


class MemoryInfo(ctypes.Structure):
    """`nvmlMemory_t`, in bytes."""

    _fields_ = tuple((name, ctypes.c_ulonglong) for name in ("total", "free", "used"))


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
        """`library`: NVML, initialised. `device`: its handle of the GPU."""
        self._library, self._device = library, device
        max_clock_mhz = self._query("nvmlDeviceGetMaxClockInfo", ctypes.c_uint, SM_CLOCK)
        self.max_sm_clock_mhz: int | None = max_clock_mhz

    def read(self) -> DeviceReading:
        """Clock in MHz (None if unknown) and throttle reasons (empty also if unknown) now."""
        answers = (self._query(name, ctypes.c_ulonglong) for name in THROTTLE_FUNCTIONS)
        reasons = next((bits for bits in answers if bits is not None), 0)
        bits = (1 << position for position in range(2, 64))
        names = (THROTTLE_REASONS.get(bit, f"reason {bit:#x}") for bit in bits if reasons & bit)
        clock_mhz = self._query("nvmlDeviceGetClockInfo", ctypes.c_uint, SM_CLOCK)
        return DeviceReading(sm_clock_mhz=clock_mhz, throttle=tuple(names))

    def memory(self) -> tuple[int, int] | None:
        """Free and used device memory in bytes; None if unknown."""
        memory = self._query("nvmlDeviceGetMemoryInfo", MemoryInfo)
        return None if memory is None else (int(memory.free), int(memory.used))

    def busy_percent(self) -> int | None:
        """Percentage of the last moments (at most 1 s) in which a kernel ran; None if unknown."""
        utilisation = self._query("nvmlDeviceGetUtilizationRates", Utilisation)
        return None if utilisation is None else int(utilisation.gpu)

    def users(self) -> tuple[User, ...] | None:
        """All processes with a context on the GPU, including our own; None if unknown."""
        functions = [getattr(self._library, name, None) for name in PROCESS_FUNCTIONS]
        function = next(filter(None, functions), None)
        if function is None:
            return None
        count, processes = ctypes.c_uint(MOST_PROCESSES), (ProcessInfo * MOST_PROCESSES)()
        pointers = ctypes.POINTER(ctypes.c_uint), ctypes.POINTER(ProcessInfo)
        function.argtypes = [ctypes.c_void_p, *pointers]
        if function(self._device, ctypes.byref(count), processes) != 0:
            return None
        users = [(process.pid, process.used) for process in processes[: count.value]]
        return tuple(User(pid, None if used == UNKNOWN_BYTES else used) for pid, used in users)

    def _query(self, name: str, answer_type: Any, *arguments: int) -> Any:
        """What an NVML function wrote to its last parameter, as `answer_type` (a ctypes type), a
        number as an int; None if it is missing or fails. `arguments`: integers before it."""
        function = getattr(self._library, name, None)
        if function is None:
            return None
        numbers = [ctypes.c_int] * len(arguments)
        function.argtypes = [ctypes.c_void_p, *numbers, ctypes.POINTER(answer_type)]
        answer = answer_type()
        if function(self._device, *arguments, ctypes.byref(answer)) != 0:
            return None
        return getattr(answer, "value", answer)  # A structure has no value.


def open_sensors(uuid: str, library: str = LIBRARY) -> Sensors | None:
    """Sensors of the GPU with this UUID, as CUDA shows it; None without a driver or such a GPU."""
    try:
        nvml = ctypes.CDLL(library)
    except OSError:
        return None
    if nvml.nvmlInit_v2() != 0:
        return None
    handle = ctypes.c_void_p()
    for name in (uuid, uuid.replace("GPU-", "MIG-", 1)):  # CUDA calls a MIG part GPU, too.
        text = ctypes.c_char_p(name.encode())
        if nvml.nvmlDeviceGetHandleByUUID(text, ctypes.byref(handle)) == 0:
            return Sensors(nvml, handle)
    nvml.nvmlShutdown()
    return None


def warn_of_others(
    gpu: str, others: Sequence[User] = (), unknown_bytes: int = 0, busy_percent: int | None = None
) -> str:
    """Warning that others may disturb a measurement on this GPU, or empty. `others`: users of it.
    `unknown_bytes`: held by no visible process. `busy_percent`: while our kernels rest."""
    sentences = []
    if others:
        total_bytes = sum(user.memory_bytes or 0 for user in others)
        is_known = all(user.memory_bytes is not None for user in others)
        amount = f"{total_bytes / 2**20:.0f} MiB" if is_known else "memory"
        users = f"another process (pid {others[0].pid}) holds {amount} of it"
        if len(others) > 1:
            users = f"{len(others)} other processes hold {amount} of it (pid {others[0].pid} first)"
        sentences.append(users)
    elif unknown_bytes > UNEXPLAINED_BYTES:
        amount = f"{unknown_bytes / 2**20:.0f} MiB of it are taken"
        sentences.append(f"{amount}, by nobody who can be seen from here")
    if busy_percent is not None and busy_percent > BUSY_PERCENT:
        share = f"{busy_percent} % of the time before anything was timed"
        sentences.append(f"somebody computes on it, {share}")
    hint = "end it, or take another GPU: CUDA_VISIBLE_DEVICES names it"
    warning = f"{gpu} is not ours alone: {'; '.join(sentences)}: numbers will be noisy; {hint}"
    return warning if sentences else ""


def other_users(users: Sequence[User], own_pids: Set[int], all_pids: Set[int]) -> tuple[User, ...]:
    """The users of a GPU that are not our processes. `all_pids`: those visible in this container.
    Of the invisible, the ones with least memory count as ours: one for each that `users` lacks."""
    missing_count = len(own_pids - {user.pid for user in users})
    visible_others = [user for user in users if user.pid in all_pids - own_pids]
    by_memory = sorted(users, key=lambda user: user.memory_bytes or 0)
    invisible = [user for user in by_memory if user.pid not in all_pids]
    return (*visible_others, *invisible[missing_count:])
