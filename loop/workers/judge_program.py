"""The judge's program: `python -m loop.workers.judge_program`. No request makes it load a candidate. The first
one imports torch, so a broken torch is a finding of the checks of the environment, which are here, too."""

import ctypes
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loop.calls.call import Refused
from loop.calls.own_modules import search_folder
from loop.workers.judge_messages import CheckEnvironment, EnvironmentFinding, SetTarget
from loop.workers.messages import Request, answer_request, serve

if TYPE_CHECKING:
    from loop.workers.judge import Judge

MALLOC_OPTIONS = {-1: 1 << 28, -2: 1 << 26, -3: 1 << 25}
"""mallopt(3) thresholds: M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD. malloc then keeps freed memory, which
reduces page faults when judging 64 million elements from 1.1 million to 8,400."""
MAX_MATMUL_ERROR = 1e-4
"""Largest error of a float32 matrix product of random normals, as a share of its largest element."""
RUNTIMES = ("libgomp", "libiomp5", "libomp", "libcudart", "libstdc++", "libcublas")
"""Libraries that must not be loaded twice from different files in one process."""


def _import_library(name: str, consequence: str) -> Any:
    """Import a library. Raises Refused with `consequence`, as in `no torch to look at`, and the reason."""
    try:
        return __import__(name)
    except Exception as error:
        last_line = ["", *str(error).strip().splitlines()][-1]
        raise Refused(f"{consequence}: {type(error).__name__}: {last_line}") from error


def check_torch(request: CheckEnvironment) -> EnvironmentFinding:
    """Report torch's version, CUDA build and thread count."""
    torch = _import_library("torch", "torch cannot be imported")
    torch.set_num_threads(request.threads)
    cuda_version = torch.version.cuda
    build = f"CUDA {cuda_version}" if cuda_version else "CPU"
    fields = {"version": torch.__version__, "cuda_build": cuda_version, "threads": torch.get_num_threads()}
    return EnvironmentFinding(f"torch {torch.__version__}, {build} build", fields, is_ok=True)


def check_numpy(request: CheckEnvironment) -> EnvironmentFinding:
    """Report NumPy's version and whether torch and NumPy see each other's writes."""
    numpy = _import_library("numpy", "NumPy cannot be imported")
    message, fields = f"NumPy {numpy.__version__}", {"version": numpy.__version__}
    shares_memory = False
    try:
        torch = _import_library("torch", "no torch")
        array = numpy.zeros(1)
        tensor = torch.from_numpy(array).add_(1)
        shares_memory = bool(array[0] == 1 == tensor.numpy()[0])
    except Refused:
        return EnvironmentFinding(f"{message}, but no torch to agree with", fields, is_ok=False)
    except Exception as error:
        message = f"{message} does not work with torch: {error}"
    return EnvironmentFinding(message, {**fields, "shares_memory": shares_memory}, is_ok=shares_memory)


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
        product = (left.to(device) @ right.to(device)).cpu().double()
        error = float((product - exact).abs().max() / exact.abs().max())
    except (Refused, RuntimeError) as problem:
        reason = (str(problem).strip().splitlines() or [""])[0]
        return EnvironmentFinding(f"torch computes nothing on it: {reason}", {"device": device}, is_ok=False)
    fields: dict[str, Any] = {"device": device, "matmul_error": error}
    if device == "cuda":
        major, minor = torch.cuda.get_device_capability()
        fields |= {"name": torch.cuda.get_device_name(), "capability": f"{major}.{minor}"}
    return EnvironmentFinding(f"matrix product off by {error:.1e}", fields, is_ok=error < MAX_MATMUL_ERROR)


def check_libraries(request: CheckEnvironment) -> EnvironmentFinding:
    """Find runtimes that are loaded from several files with torch: `libgomp twice (a.so, b.so)`."""
    _import_library("torch", "no torch to look at")
    mapped_files = Path("/proc/self/maps")  # The system's list of this process's mapped files.
    lines = mapped_files.read_text().splitlines() if mapped_files.is_file() else []
    paths = {line.split()[-1] for line in lines if ".so" in line}
    duplicates = []
    for runtime in RUNTIMES:
        prefixes = (f"{runtime}.", f"{runtime}-")
        copies = sorted(path for path in paths if Path(path).name.startswith(prefixes))
        if len({Path(path).resolve() for path in copies}) > 1:  # Links to one file are no problem.
            duplicates.append(f"{runtime} twice ({', '.join(copies)})")
    message = "; ".join(f"{duplicate} loaded" for duplicate in duplicates) or "all libraries found, none twice"
    return EnvironmentFinding(message, {"duplicates": duplicates}, is_ok=not duplicates)


def main() -> None:
    """Answer requests until no more come (see `serve`)."""
    for option, value in MALLOC_OPTIONS.items():
        ctypes.CDLL(None).mallopt(option, value)
    sys.dont_write_bytecode = True  # Write no .pyc files next to the target's own modules.
    judge: Judge
    checks = {"torch": check_torch, "numpy": check_numpy, "device": check_device, "libraries": check_libraries}

    def answer(request: Request[Any]) -> object:
        nonlocal judge
        if isinstance(request, CheckEnvironment):
            try:
                return checks[request.check](request)
            except Refused as refusal:  # A failed import is the check's finding.
                return EnvironmentFinding(str(refusal), {}, is_ok=False)
        if not isinstance(request, SetTarget):
            return judge.reply_to(request)
        from loop.workers.judge import Judge

        search_folder(request.folder)
        judge = Judge(request)
        return None

    serve(partial(answer_request, answer))


if __name__ == "__main__":
    main()
