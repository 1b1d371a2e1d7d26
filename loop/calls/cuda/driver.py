"""The CUDA driver through ctypes: a device, its memory, streams and events.

Without torch, for a fast start. Everything uses the device's primary context, as a CUDA runtime
linked into a variant does. So variants can use our memory and streams.
"""

import ctypes
import functools
from typing import Any, Literal
from uuid import UUID

from loop.calls.call import POISON, Refused
from loop.calls.memory import OWN_VALUES, Guard, Memory, draw_guard

FAULTS = frozenset({214, 220, 226, 700, 702, 709, 710, *range(714, 720), 721, 810, 911, 999})
"""CUresults after which the process cannot use the device (cuda.h: it must be relaunched)."""
ELSEWHERE = "`compute-sanitizer` names the line"
HINTS = {
    2: "end what else uses the GPU (nvidia-smi shows it), or take smaller workloads",
    46: "the GPU is taken, or takes one process at a time: `nvidia-smi -c DEFAULT` allows several",
    **dict.fromkeys((100, 101), "see `nvidia-smi`, and what CUDA_VISIBLE_DEVICES leaves of it"),
    200: "what was compiled is damaged: `loop clean --cache`, then the same command again",
    209: "the code is for another GPU: write -arch={arch} among the flags",
    222: "nvcc is newer than the driver, which cannot compile its PTX: compile with -arch={arch}",
    700: f"a kernel read or wrote memory that it was not given; {ELSEWHERE}",
    701: "a block exceeds the GPU's registers, threads or shared memory: `loop kernels resources`",
    710: "an assertion in a kernel failed",
    716: f"a kernel read or wrote at an address that its type is not aligned to; {ELSEWHERE}",
    719: f"a kernel crashed; {ELSEWHERE}",
    720: "a cooperative launch needs all of its blocks resident at once: launch fewer",
    802: "NVIDIA's fabric manager does not run yet: `systemctl start nvidia-fabricmanager`",
    803: "libcuda does not fit the kernel module: reboot after an update, or see LD_LIBRARY_PATH",
    804: "CUDA's compatibility package does not serve this GPU: take it out of LD_LIBRARY_PATH",
    900: "while a graph is captured a call may not wait for the GPU",
    999: "see `dmesg` for what the driver says, and `nvidia-smi` whether the GPU still answers",
}  # CUresult to advice for the user.
HANDLE, ADDRESS, SIZE = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t
FLAGS, ENUM, OUT = ctypes.c_uint, ctypes.c_int, ctypes.POINTER
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (FLAGS,),
    "cuDriverGetVersion": (OUT(ctypes.c_int),),
    **dict.fromkeys(("cuGetErrorName", "cuGetErrorString"), (ENUM, OUT(ctypes.c_char_p))),
    "cuDeviceGetCount": (OUT(ctypes.c_int),),
    "cuDeviceGet": (OUT(ctypes.c_int), ctypes.c_int),
    "cuDeviceGetName": (ctypes.c_char_p, ctypes.c_int, ctypes.c_int),
    "cuDeviceGetUuid_v2": (HANDLE, ctypes.c_int),
    "cuDeviceGetAttribute": (OUT(ctypes.c_int), ENUM, ctypes.c_int),
    "cuDeviceTotalMem_v2": (OUT(SIZE), ctypes.c_int),
    "cuDevicePrimaryCtxRetain": (OUT(HANDLE), ctypes.c_int),
    "cuCtxSetCurrent": (HANDLE,),
    "cuCtxSynchronize": (),
    "cuCtxResetPersistingL2Cache": (),
    "cuMemGetInfo_v2": (OUT(SIZE), OUT(SIZE)),
    "cuMemAlloc_v2": (OUT(ADDRESS), SIZE),
    "cuMemFree_v2": (ADDRESS,),
    "cuMemcpyHtoDAsync_v2": (ADDRESS, HANDLE, SIZE, HANDLE),
    "cuMemcpyDtoHAsync_v2": (HANDLE, ADDRESS, SIZE, HANDLE),
    "cuMemcpyDtoDAsync_v2": (ADDRESS, ADDRESS, SIZE, HANDLE),
    "cuMemsetD8Async": (ADDRESS, ctypes.c_ubyte, SIZE, HANDLE),
    "cuMemHostAlloc": (OUT(HANDLE), SIZE, FLAGS),
    "cuMemFreeHost": (HANDLE,),
    "cuMemHostGetDevicePointer_v2": (OUT(ADDRESS), HANDLE, FLAGS),
    **dict.fromkeys(("cuStreamCreate", "cuEventCreate"), (OUT(HANDLE), FLAGS)),
    **dict.fromkeys(("cuStreamDestroy_v2", "cuEventDestroy_v2", "cuStreamSynchronize"), (HANDLE,)),
    "cuStreamWaitValue32_v2": (HANDLE, ADDRESS, ctypes.c_uint32, FLAGS),
    "cuStreamBeginCapture_v2": (HANDLE, ENUM),
    "cuStreamEndCapture": (HANDLE, OUT(HANDLE)),
    "cuEventRecord": (HANDLE, HANDLE),
    "cuEventElapsedTime_v2": (OUT(ctypes.c_float), HANDLE, HANDLE),
    "cuModuleLoadData": (OUT(HANDLE), ctypes.c_char_p),
    "cuModuleGetFunction": (OUT(HANDLE), HANDLE, ctypes.c_char_p),
    "cuLaunchKernel": (HANDLE, *[FLAGS] * 7, HANDLE, HANDLE, HANDLE),
    "cuGraphInstantiateWithFlags": (OUT(HANDLE), HANDLE, ctypes.c_uint64),
    **dict.fromkeys(("cuGraphUpload", "cuGraphLaunch"), (HANDLE, HANDLE)),
    **dict.fromkeys(("cuGraphDestroy", "cuGraphExecDestroy"), (HANDLE,)),
    "cuGraphGetNodes": (HANDLE, OUT(HANDLE), OUT(SIZE)),
}  # Function name to argument types, for every driver function in use; each returns a CUresult.
OLDER = {"cuEventElapsedTime_v2": "cuEventElapsedTime"}  # Names in drivers before CUDA 12.8.
LIBRARY = "libcuda.so.1"
RED_ZONE = 4096  # Minimum bytes of the guard zone on either side of a buffer.
ALIGNMENT = 256
NAME_BYTES = 256
CHUNK_BYTES = 4 << 20  # Bytes that are read from the device at once.
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: not ordered with the legacy default stream.
CLOCK_KHZ, MULTIPROCESSORS, MEMORY_CLOCK_KHZ, BUS_BITS = 13, 16, 36, 37
L2_BYTES, MAJOR, MINOR = 38, 75, 76  # Values of CUdevice_attribute.
LIMITS = {"shared_static": 8, "threads_per_sm": 39, "shared_per_sm": 81, "registers_per_sm": 82}
LIMITS |= {"shared_per_block": 97, "blocks_per_sm": 106}
"""Values of CUdevice_attribute for the resources that blocks share on one multiprocessor."""
STUB_LIBRARY, NO_DEVICE_FOUND = 34, 100  # CUresults that mean: no GPU to run on.
Lack = Literal["", "driver", "device"]
"""What is missing on this machine: `driver`, `device`, or empty for another reason."""


class NoDevice(Refused):
    """There is no GPU or no driver. The variant is not to blame."""

    def __init__(self, message: str, lack: Lack = "") -> None:
        super().__init__(message)
        self.lack = lack


class Driver:
    """The driver's functions, called by name."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Look up all functions in SIGNATURES. Raises Refused if the driver lacks one."""
        self._functions = {}
        for name, argument_types in SIGNATURES.items():
            function = getattr(library, name, None) or getattr(library, OLDER.get(name, name), None)
            if function is None:
                raise Refused(f"the NVIDIA driver is too old: no {name}; R525 and newer have it")
            function.argtypes, function.restype = argument_types, ctypes.c_int
            self._functions[name] = function

    def attempt(self, name: str, *arguments: Any) -> int:
        """Call a driver function and return its CUresult; 0 is success."""
        return int(self._functions[name](*arguments))

    def call(self, name: str, *arguments: Any) -> None:
        """Call a driver function. Raises Refused with its name and the driver's message."""
        if code := self.attempt(name, *arguments):
            raise Refused(f"{name}: {self.explain(code)}")

    def get(self, name: str, result_type: Any, *arguments: Any) -> int:
        """Result of a function that writes it, as ctypes' `result_type`, to its first argument."""
        result = result_type()
        self.call(name, ctypes.byref(result), *arguments)
        return int(result.value or 0)

    def explain(self, code: int) -> str:
        """Name and meaning of a CUresult in the driver's words, and our advice in HINTS."""
        texts = []
        for function in ("cuGetErrorName", "cuGetErrorString"):
            pointer = ctypes.c_char_p()
            self.attempt(function, code, ctypes.byref(pointer))
            texts.append((pointer.value or b"").decode(errors="replace"))
        name, text = texts
        message = f"{name or 'unknown error'} ({code}): {text}" if text else f"unknown error {code}"
        return f"{message}; {HINTS[code]}" if code in HINTS else message


@functools.cache
def load_driver(library: str = LIBRARY) -> Driver:
    """Load and start the driver, once. NoDevice: no driver or GPU. Refused: too old, or fails."""
    try:
        driver = Driver(ctypes.CDLL(library))
    except OSError as error:
        message = f"no NVIDIA driver here: {library} cannot be loaded ({error})"
        raise NoDevice(message, "driver") from error
    code = driver.attempt("cuInit", 0)
    if code in (STUB_LIBRARY, NO_DEVICE_FOUND):
        message = f"no NVIDIA GPU here: cuInit says {driver.explain(code)}"
        raise NoDevice(message, "device" if code == NO_DEVICE_FOUND else "")
    if code:
        raise Refused(f"the NVIDIA driver does not start: cuInit says {driver.explain(code)}")
    return driver


def read_gpu_facts(driver: Driver, device: int) -> dict[str, Any]:
    """Properties of a GPU. `device`: its handle from `cuDeviceGet`; no context is needed. `uuid` is
    in the format of nvidia-smi. `clock_hz` is the highest SM clock. `bytes_per_s` is the memory
    bandwidth (two transfers a cycle), 0 for a MIG slice, whose share no driver reports."""
    name_buffer, uuid_bytes = ctypes.create_string_buffer(NAME_BYTES), (ctypes.c_ubyte * 16)()
    driver.call("cuDeviceGetName", name_buffer, NAME_BYTES, device)
    driver.call("cuDeviceGetUuid_v2", uuid_bytes, device)
    name = name_buffer.value.decode(errors="replace")

    def attribute(number: int) -> int:
        return driver.get("cuDeviceGetAttribute", ctypes.c_int, number, device)

    bus_bits = 0 if "MIG" in name.split() else attribute(BUS_BITS)
    return {
        "name": name,
        "uuid": f"GPU-{UUID(bytes=bytes(uuid_bytes))}",
        "capability": (attribute(MAJOR), attribute(MINOR)),
        "memory_bytes": driver.get("cuDeviceTotalMem_v2", SIZE, device),
        "sms": attribute(MULTIPROCESSORS),
        "clock_hz": 1e3 * attribute(CLOCK_KHZ),
        "bytes_per_s": 2e3 * attribute(MEMORY_CLOCK_KHZ) * bus_bits / 8,
        "l2_bytes": attribute(L2_BYTES),
        **{field: attribute(number) for field, number in LIMITS.items()},
    }


class Owned:
    """A driver object that is released with the last reference to it."""

    def __init__(self, driver: Driver, handle: int, release_function: str) -> None:
        """`release_function`: name of the driver function that takes the handle and frees it."""
        self.driver, self.handle, self._release_function = driver, handle, release_function

    def __del__(self) -> None:
        """Release the object. Errors are ignored: after a crash the driver refuses every call."""
        if getattr(self, "handle", 0):  # The driver may not have made it.
            self.driver.attempt(self._release_function, self.handle)


class Stream(Owned):
    """A CUDA stream: a new one, not ordered with the legacy default stream, or that stream."""

    def __init__(self, driver: Driver, *, is_default: bool = False) -> None:
        handle = 0 if is_default else driver.get("cuStreamCreate", HANDLE, NON_BLOCKING)
        super().__init__(driver, handle, "cuStreamDestroy_v2")

    def synchronise(self) -> None:
        """Wait until the stream is idle. Raises Refused if a kernel crashed."""
        self.driver.call("cuStreamSynchronize", self.handle)


class Device:
    """One GPU. Its primary context becomes current in the calling thread."""

    def __init__(self) -> None:
        """The first GPU that CUDA shows. Raises NoDevice if there is none."""
        self.driver = load_driver()
        if not self.driver.get("cuDeviceGetCount", ctypes.c_int):
            raise NoDevice("no GPU 0 here: the driver shows 0 (CUDA_VISIBLE_DEVICES hides others)")
        device = self.driver.get("cuDeviceGet", ctypes.c_int, 0)
        context = self.driver.get("cuDevicePrimaryCtxRetain", HANDLE, device)
        self.driver.call("cuCtxSetCurrent", context)
        self.copy_stream = Stream(self.driver)
        """Stream for copies between host and device, independent of all other streams."""
        self.stream = Stream(self.driver)  # Stream on which compiled variants work.
        pinned = self.driver.get("cuMemHostAlloc", HANDLE, CHUNK_BYTES, 0)
        self._pinned = Owned(self.driver, pinned, "cuMemFreeHost")
        """Host memory that the GPU writes to directly; to other memory the driver copies slowly."""

    @property
    def free_bytes(self) -> int:
        return self.driver.get("cuMemGetInfo_v2", SIZE, ctypes.byref(SIZE()))

    def copy(self, function: str, destination: Any, source: Any, size: int) -> None:
        """Copy or fill `size` bytes by a driver function of that name, and wait for it."""
        if size:
            self.driver.call(function, destination, source, size, self.copy_stream.handle)
            self.copy_stream.synchronise()

    def write(self, address: int, data: bytes) -> None:
        """Copy bytes to a device address. Waits for no stream: synchronise that before."""
        self.copy("cuMemcpyHtoDAsync_v2", address, data, len(data))

    def read(self, address: int, size: int) -> bytes:
        """Copy bytes from a device address to the host."""
        parts = list[bytes]()
        for begin in range(0, size, CHUNK_BYTES):
            part_size = min(CHUNK_BYTES, size - begin)
            self.copy("cuMemcpyDtoHAsync_v2", self._pinned.handle, address + begin, part_size)
            parts.append(ctypes.string_at(self._pinned.handle, part_size))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def synchronise_all(self) -> None:
        """Wait for all streams of the context. Raises Refused if a kernel crashed."""
        self.driver.call("cuCtxSynchronize")


class DeviceMemory(Memory):
    """Device memory of one tensor between guard zones, or of its size only, uninitialised."""

    def __init__(
        self,
        device: Device,
        nbytes: int,
        shift_bytes: int = 0,
        dtype: str = "float32",
        zone_bytes: int = RED_ZONE,
    ) -> None:
        """`nbytes`: of the tensor. `shift_bytes`: misalignment. `zone_bytes`: minimum on either
        side; 0: no zones. Raises Refused if there is not enough memory."""
        before_bytes = zone_bytes + shift_bytes
        after_bytes = -(shift_bytes + nbytes) % ALIGNMENT + zone_bytes if zone_bytes else 0
        self.device, allocated = device, ADDRESS()
        total = max(before_bytes + nbytes + after_bytes, 1)
        if code := device.driver.attempt("cuMemAlloc_v2", ctypes.byref(allocated), total):
            message = f"cannot have {nbytes} bytes of device memory, {device.free_bytes} are free"
            raise Refused(f"{message}: cuMemAlloc_v2: {device.driver.explain(code)}")
        self._allocation = Owned(device.driver, allocated.value, "cuMemFree_v2")
        self.address = allocated.value + before_bytes
        super().__init__(nbytes, dtype, before_bytes, after_bytes)
        if zone_bytes:
            self.write_guard(draw_guard(OWN_VALUES))
            self.poison()

    def write(self, offset: int, data: bytes) -> None:
        self.device.write(self.address + offset, data)

    def read(self, offset: int, size: int) -> bytes:
        return self.device.read(self.address + offset, size)

    def poison(self, guard: Guard | None = None) -> None:
        """As in `Memory`; NaN is written on the device, without a transfer."""
        if guard is not None:
            super().poison(guard)
        else:
            self.device.copy("cuMemsetD8Async", self.address, POISON, self.nbytes)
