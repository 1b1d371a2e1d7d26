"""The judge's program: `python -m loop.workers.judge_program`. No request makes it load candidates.
The first one imports torch, so a broken torch is a finding of the environment checks, also here."""

import contextlib
import ctypes
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loop.calls.call import Refused
from loop.calls.own_modules import search_folder
from loop.workers.judge_messages import CheckEnvironment, EnvironmentFinding, SetTarget
from loop.workers.messages import Request, serve

if TYPE_CHECKING:
    from loop.workers.judge import Judge

MALLOC_OPTIONS = {-1: 1 << 28, -2: 1 << 26, -3: 1 << 25}
"""mallopt(3) thresholds: M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD. malloc then keeps freed
memory, which reduces page faults when judging 64 million elements from 1.1 million to 8,400."""
MAX_MATMUL_ERROR = 1e-4  # Largest error of a float32 product, as a share of its largest element.
RUNTIMES = ("libgomp", "libiomp5", "libomp", "libcudart", "libstdc++", "libcublas")
"""Libraries that must not be loaded twice from different files in one process."""


def check_environment(request: CheckEnvironment) -> EnvironmentFinding:
    """Make one check of the environment: torch's version and threads; whether NumPy and torch share
    memory; the device; the libraries. A torch or NumPy that cannot be imported is a finding."""
    name = "numpy" if request.check == "numpy" else "torch"
    try:
        library = __import__(name)
    except Exception as error:
        last_line = ["", *str(error).strip().splitlines()][-1]
        message = f"{name} cannot be imported: {type(error).__name__}: {last_line}"
        return EnvironmentFinding(message, {}, is_ok=False)
    match request.check:
        case "torch":
            library.set_num_threads(request.threads)
            cuda, threads = library.version.cuda, library.get_num_threads()
            message = f"torch {library.__version__}, {f'CUDA {cuda}' if cuda else 'CPU'} build"
            fields = {"version": library.__version__, "cuda_build": cuda, "threads": threads}
            return EnvironmentFinding(message, fields, is_ok=True)
        case "numpy":
            message, shares_memory = f"NumPy {library.__version__}", False
            try:
                import torch

                array = library.zeros(1)
                tensor = torch.from_numpy(array).add_(1)
                shares_memory = bool(array[0] == 1 == tensor.numpy()[0])
            except Exception as error:
                message += f" does not work with torch: {error}"
            fields = {"version": library.__version__, "shares_memory": shares_memory}
            return EnvironmentFinding(message, fields, is_ok=shares_memory)
        case "device":
            return check_device(library, request.device)
        case _:
            return check_libraries()


def check_device(torch: Any, device: str) -> EnvironmentFinding:
    """Compare a small matrix product on the device with float64 on the CPU."""
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
        message = f"torch computes nothing on it: {reason}"
        return EnvironmentFinding(message, {"device": device}, is_ok=False)
    fields: dict[str, Any] = {"device": device, "matmul_error": error}
    if device == "cuda":
        major, minor = torch.cuda.get_device_capability()
        fields |= {"name": torch.cuda.get_device_name(), "capability": f"{major}.{minor}"}
    message = f"matrix product off by {error:.1e}"
    return EnvironmentFinding(message, fields, is_ok=error < MAX_MATMUL_ERROR)


def check_libraries() -> EnvironmentFinding:
    """Find runtimes that are loaded from several files with torch: `libgomp twice (a.so, b.so)`."""
    mapped_files = Path("/proc/self/maps")  # The system's list of this process's mapped files.
    lines = mapped_files.read_text().splitlines() if mapped_files.is_file() else []
    paths = {line.split()[-1] for line in lines if ".so" in line}
    duplicates = []
    for runtime in RUNTIMES:
        prefixes = (f"{runtime}.", f"{runtime}-")
        copies = sorted(path for path in paths if Path(path).name.startswith(prefixes))
        if len({Path(path).resolve() for path in copies}) > 1:  # Links to one file are no problem.
            duplicates.append(f"{runtime} twice ({', '.join(copies)})")
    loaded = "; ".join(f"{duplicate} loaded" for duplicate in duplicates)
    message = loaded or "all libraries found, none twice"
    return EnvironmentFinding(message, {"duplicates": duplicates}, is_ok=not duplicates)


def main() -> None:
    """Answer requests until no more come (see `serve`)."""
    for option, value in MALLOC_OPTIONS.items():
        ctypes.CDLL(None).mallopt(option, value)
    sys.dont_write_bytecode = True  # Write no .pyc files next to the target's own modules.
    judge: Judge

    def answer(request: Request[Any]) -> object:
        nonlocal judge
        if isinstance(request, CheckEnvironment):
            return check_environment(request)
        if not isinstance(request, SetTarget):
            reply = judge.answers[type(request)](request)
            import torch

            with contextlib.suppress(RuntimeError):  # A failed reference may break CUDA's context.
                torch.cuda.empty_cache()  # For the workers.
            return reply
        from loop.workers.judge import Judge

        search_folder(request.folder)
        judge = Judge(request)
        return None

    serve(answer)


if __name__ == "__main__":
    main()
