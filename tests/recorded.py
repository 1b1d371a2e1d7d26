"""Logs of NVIDIA's tools, shortened; recorded on an H200 unless a comment says otherwise."""

from pathlib import Path

from loop.profile.profile import CONFLICT_COUNTER, STALL_COUNTER, WAVEFRONT_COUNTER

FOLDER = Path(__file__).parent / "timing" / "recorded"
"""Of compute-sanitizer: `memcheck` and `racecheck` of mutated kernels; the others have
the form of its manual."""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"


def sanitizer_log(name: str) -> str:
    return (FOLDER / f"{name}.txt").read_text()


HEAD = ",".join(
    f'"{title}"'
    for title in (
        *("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size"),
        *("Grid Size", "Device", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value"),
    )
)
KERNEL = "void small_kernel<__half, SmallShape<64, 16, 4>, 0>(Problem)"
COUNTERS = {
    "gpu__time_duration.sum": ("ns", "3,520"),
    "launch__registers_per_thread": ("register/thread", "105"),
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "0.27"),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "0.23"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "6.21"),
    CONFLICT_COUNTER: ("", "1,024"),
    WAVEFRONT_COUNTER: ("", "3,340"),
}
"""As recorded on an H200."""
WAITED = {
    "barrier": "0.11",
    "branch_resolving": "0.21",
    "dispatch_stall": "0.03",
    "drain": "0.04",
    "gmma": "0",
    "imc_miss": "0.39",
    "lg_throttle": "0",
    "long_scoreboard": "1.69",
    "math_pipe_throttle": "0.00",
    "membar": "0",
    "mio_throttle": "0.05",
    "misc": "0.00",
    "no_instruction": "0.94",
    "not_selected": "0",
    "selected": "1",
    "short_scoreboard": "1.09",
    "sleeping": "0",
    "tex_throttle": "0",
    "wait": "1.46",
}
"""Likewise, of the same kernel."""
STALLS = {STALL_COUNTER.format(reason): ("inst", value) for reason, value in WAITED.items()}


def row(name: str, unit: str, value: str, kernel: str = KERNEL, number: int = 0) -> str:
    """One line of a log of `ncu --csv`."""
    launch = f'"{number}","649","python3.12","127.0.0.1","{kernel}","1","14","(128, 1, 1)","(4, 1, 1)","0","9.0"'
    return f'{launch},"Command line profiler metrics","{name}","{unit}","{value}"'


def log_of(*launches: dict[str, tuple[str, str]], kernel: str = KERNEL) -> str:
    """A log of these launches, with the lines that `ncu` prints around them."""
    rows = [row(name, *value, kernel, n) for n, launch in enumerate(launches) for name, value in launch.items()]
    talk = "==PROF== Connected to process 649 (/usr/bin/python3.12)\n==PROF== Disconnected from process 649"
    return "\n".join([talk, HEAD, *rows]) + "\n"
