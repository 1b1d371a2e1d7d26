"""What to do about a CUresult, and which of them end a context: all that the process calls later fails too."""

FAULTS = frozenset({214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911, 999})
"""After one of these nothing works in the process any more (cuda.h: it must be terminated and relaunched)."""
ELSEWHERE = "`compute-sanitizer` names the line"
HINTS = {
    2: "end what else uses the GPU (nvidia-smi shows it), or take smaller workloads",
    34: "this is the toolkit's stub of the driver: take its folder out of LD_LIBRARY_PATH",
    36: "the driver is older than what the code calls: install a newer one",
    46: "the GPU is taken, or set to one process at a time: `nvidia-smi -c DEFAULT` lets several use it",
    100: "see what `nvidia-smi` shows, and what CUDA_VISIBLE_DEVICES leaves of it",
    101: "see what `nvidia-smi` shows, and what CUDA_VISIBLE_DEVICES leaves of it",
    200: "what was compiled is damaged: `loop clean --cache`, then the same command again",
    209: "the code is for another GPU: write -arch={arch} among the flags",
    214: "the GPU's memory is faulty: `nvidia-smi -q -d ECC` counts its errors; a reset may help",
    218: "the driver does not understand this PTX: compile for the GPU itself, with -arch={arch}",
    222: "nvcc is newer than the driver, which cannot compile its PTX: compile with -arch={arch}",
    700: f"a kernel read or wrote memory that it was not given; {ELSEWHERE}",
    701: "a block asks for more registers, threads or shared memory than the GPU has: `loop kernels resources`",
    702: "a kernel ran longer than this system lets it: a GPU that also drives a screen",
    710: "an assertion in a kernel failed",
    714: f"a kernel's stack was overwritten; {ELSEWHERE}",
    715: f"a kernel came upon an instruction that is none; {ELSEWHERE}",
    716: f"a kernel read or wrote at an address that its type is not aligned to; {ELSEWHERE}",
    717: f"a kernel used an address of another memory, shared as global say; {ELSEWHERE}",
    718: f"a kernel jumped out of its code; {ELSEWHERE}",
    719: f"a kernel crashed; {ELSEWHERE}",
    720: "a cooperative launch needs all of its blocks resident at once: launch fewer",
    801: "this GPU, or a driver under virtualisation, has no such function",
    802: "NVIDIA's fabric manager does not run yet: `systemctl start nvidia-fabricmanager`",
    803: "libcuda is of another version than the kernel module: reboot after an update, or see LD_LIBRARY_PATH",
    804: "the compatibility package of CUDA does not serve this GPU: take it out of LD_LIBRARY_PATH",
    805: "the MPS server cannot be reached: `nvidia-cuda-mps-control` starts it",
    900: "while a graph is captured a call may not wait for the GPU",
    999: "see `dmesg` for what the driver says, and `nvidia-smi` whether the GPU still answers",
}
"""What mends it, by CUresult."""


def with_hint(message: str, code: int) -> str:
    """The driver's words on an error, and after them what to do, where that is known."""
    hint = HINTS.get(code)
    return f"{message}; {hint}" if hint else message
