"""Checks of the environment that need a process that imports torch."""

import contextlib
import subprocess
from pathlib import Path
from typing import Any

from loop.calls.call import Refused
from loop.workers.judge_messages import CheckEnvironment, EnvironmentFinding

MAX_MATMUL_ERROR = 1e-4
RUNTIMES = ("libgomp", "libiomp5", "libomp", "libcudart", "libstdc++", "libcublas")
"""Libraries that must not be loaded twice from different files in one process."""


def run_check(request: CheckEnvironment) -> EnvironmentFinding:
    """Run one environment check by name. A failed import is the check's finding."""
    checks = {"torch": check_torch, "numpy": check_numpy, "device": check_device, "libraries": check_libraries}
    try:
        return checks[request.check](request)
    except Refused as missing:
        return EnvironmentFinding(False, str(missing), {})


def _import_library(name: str, consequence: str) -> Any:
    """Import a library. Raises Refused with `without` (the consequence) and the reason."""
    try:
        return __import__(name)
    except Exception as error:
        last = ["", *str(error).strip().splitlines()][-1]
        raise Refused(f"{consequence}: {type(error).__name__}: {last}") from error


def check_torch(request: CheckEnvironment) -> EnvironmentFinding:
    """Report torch's version, CUDA build and thread count."""
    torch = _import_library("torch", "torch cannot be imported")
    torch.set_num_threads(request.threads)
    build = torch.version.cuda
    message = f"torch {torch.__version__}, {f'CUDA {build}' if build else 'CPU'} build"
    facts = {"version": torch.__version__, "cuda_build": build, "threads": torch.get_num_threads()}
    return EnvironmentFinding(True, message, facts)


def check_numpy(request: CheckEnvironment) -> EnvironmentFinding:
    """Report NumPy's version and whether torch and NumPy see each other's writes."""
    numpy = _import_library("numpy", "NumPy cannot be imported")
    message, facts, shared = f"NumPy {numpy.__version__}", {"version": numpy.__version__}, False
    try:
        torch = _import_library("torch", "no torch")
        array = numpy.zeros(4, dtype=numpy.float32)
        tensor = torch.from_numpy(array)
        array[1] = 2.0
        tensor[2] = 3.0
        shared = bool(tensor[1] == 2.0 and array[2] == 3.0 and tensor.numpy()[1] == 2.0)
    except Refused:
        return EnvironmentFinding(False, f"{message}, but no torch to agree with", facts)
    except Exception as error:
        message = f"{message} does not work with torch: {error}"
    return EnvironmentFinding(shared, message, {**facts, "shares_memory": shared})


def check_device(request: CheckEnvironment) -> EnvironmentFinding:
    """Compare a small matrix product on the device with float64 on the CPU."""
    torch, device = _import_library("torch", "no torch to try the device with"), request.device
    try:
        if device == "cuda":
            from loop.calls.torch_call import require_device

            require_device()
        generator = torch.Generator().manual_seed(9)
        left, right = (torch.randn(128, 128, generator=generator) for _ in range(2))
        exact = left.double() @ right.double()
        got = (left.to(device) @ right.to(device)).cpu().double()
        error = float((got - exact).abs().max() / exact.abs().max())
    except (Refused, RuntimeError) as problem:
        reason = (str(problem).strip().splitlines() or [""])[0]
        return EnvironmentFinding(False, f"torch computes nothing on it: {reason}", {"device": device})
    facts: dict[str, Any] = {"device": device, "matmul_error": error}
    if device == "cuda":
        major, minor = torch.cuda.get_device_capability()
        facts |= {"name": torch.cuda.get_device_name(), "capability": f"{major}.{minor}"}
    return EnvironmentFinding(error < MAX_MATMUL_ERROR, f"matrix product off by {error:.1e}", facts)


def check_libraries(request: CheckEnvironment) -> EnvironmentFinding:
    """Find libraries that the linker misses, and runtimes that are loaded twice."""
    torch, missing = _import_library("torch", "no torch to look at"), list[str]()
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    with contextlib.suppress(OSError):
        command = ["ldd", str(library)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
        missing = sorted({line.split()[0] for line in done.stdout.splitlines() if "not found" in line})
    duplicates = find_duplicate_runtimes(Path("/proc/self/maps"))
    faults = [*(f"{name} not found" for name in missing), *(f"{runtime} loaded" for runtime in duplicates)]
    message = "; ".join(faults) or "all libraries found, none twice"
    return EnvironmentFinding(not faults, message, {"missing": missing, "duplicates": duplicates})


def find_duplicate_runtimes(maps: Path) -> list[str]:
    """Runtimes that are mapped from several files, in the form `libgomp twice (a.so, b.so)`."""
    if not maps.is_file():
        return []
    paths = {line.split()[-1] for line in maps.read_text().splitlines() if ".so" in line}
    duplicates = []
    for runtime in RUNTIMES:
        copies = sorted(path for path in paths if Path(path).name.startswith((f"{runtime}.", f"{runtime}-")))
        if len({Path(path).resolve() for path in copies}) > 1:
            duplicates.append(f"{runtime} twice ({', '.join(copies)})")
    return duplicates
