"""What a compiler says when it says no, and what to do about it."""

import re
from pathlib import Path

from loop.base.processes import Completed

PACKAGES = {"nvcc": "nvidia-cuda-toolkit", "g++": "g++", "gcc": "gcc", "clang": "clang", "clang++": "clang"}
DIAGNOSTIC = re.compile(
    r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:(?P<column>\d+):)?\s*(?:fatal )?error:?\s*(?P<text>.*)"
)
"""How g++, clang and nvcc's host pass report an error."""
NVCC_DIAGNOSTIC = re.compile(
    r"^(?P<file>[^\s(][^(]*)\((?P<line>\d+)\):\s*(?:catastrophic )?error:?\s*(?P<text>.*)"
)
REMEDIES = {
    "Failed to preprocess host compiler": "nvcc needs a host compiler: install g++ (`apt-get install g++`)",
    "Cannot find compiler 'g++'": "nvcc needs a host compiler: install g++ (`apt-get install g++`)",
    "unsupported GNU version": "nvcc refuses this g++: install an older one, and name it: `-ccbin g++-12`",
    "unrecognized command-line option": "the compiler does not know this flag: it may be too old, g++ 9 does",
    "unrecognized command line option": "the compiler does not know this flag: it may be too old, g++ 9 does",
    "Unsupported gpu architecture": "this nvcc does not know the GPU: take a toolkit that does",
    "is not defined for option 'gpu-architecture'": "this nvcc does not know the GPU: take a toolkit that does",
}
"""What a compiler says where no line is to be mended, and what is."""
LONGEST = 1000
"""Characters of a compiler's error that are told; its log has the rest."""


class BuildFailed(Exception):
    """The compiler said no: the first error with file and line, and the whole log."""

    def __init__(self, message: str, hint: str, log: str, *, no_compiler: bool = False) -> None:
        super().__init__(message)
        self.no_compiler = no_compiler
        """Whether there is nothing to compile with: a fault of the machine, not of the source."""
        self.message, self.hint, self.log = message, hint, log

    def of(self, variant: str) -> "BuildFailed":
        """The same failure, said of a variant."""
        return BuildFailed(f"{variant}: {self.message}", self.hint, self.log, no_compiler=self.no_compiler)


def how_to_install(compiler: str) -> str:
    """What to do about a compiler that is not there."""
    package = PACKAGES.get(Path(compiler).name)
    install = f"install it (Debian and Ubuntu: `apt-get install {package}`)" if package else "install it"
    return f"{install}, or name another compiler in target.yaml"


def failure(done: Completed, what: str) -> BuildFailed:
    """How a compiler failed. `what` it was asked to do with the sources: read, compile."""
    if done.timed_out:
        return BuildFailed(
            f"the compiler was {done.how}", "raise `limit_s` of the step, or simplify the source", done.errors
        )
    first = first_error(done.errors) or first_error(done.output)
    message = first or f"{done.command[0]} could not {what} the sources ({done.how})"
    if done.code < 0 or done.code == 127:
        message = f"{done.command[0]}: {done.how}"
    hints = [hint for words, hint in REMEDIES.items() if words in done.errors]
    hint = next(iter(hints), "mend the line named above, then run the same command again")
    return BuildFailed(message[:LONGEST], hint, done.errors)


def first_error(log: str) -> str | None:
    """The first error of a compiler's log as `file:line:col: text`."""
    for line in log.splitlines():
        match = DIAGNOSTIC.match(line) or NVCC_DIAGNOSTIC.match(line)
        if match:
            parts = match.groupdict()
            column = f":{parts['column']}" if parts.get("column") else ""
            return f"{parts['file']}:{parts['line']}{column}: {parts['text']}"
        linker = line.startswith(("/usr/bin/ld:", "ld:", "collect2:")) and ": in function" not in line
        if linker or line.startswith("nvcc fatal") or "undefined reference" in line:
            return line.strip()
    return next((line.strip() for line in log.splitlines() if "error:" in line), None)
