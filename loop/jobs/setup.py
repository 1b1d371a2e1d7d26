"""`loop` on another machine: a copy of the package that runs here, in an environment of its own there.

The environment sees the packages of the interpreter that `python:` names, and installs none into it. So torch is
that of the machine where it has one, and is downloaded where it has none.
"""

import hashlib
import importlib.metadata
import shlex
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from loop.base.errors import UsageError, WorkFailed
from loop.base.places import PACKAGE, shipped
from loop.jobs.remote import Connection, filled

HOME = ".loop"
"""Everything of ours there, below the user's home."""
PYTHON = f"{HOME}/venv/bin/python"
DIGEST = f"{HOME}/venv/loop-digest"
MADE_BY = f"{HOME}/venv/made-by"
"""For which interpreter the environment was made."""
DATA = ("patterns", "kernels", "templates", "sessions/plans", "sessions/history", "sessions/rates.yaml")
"""What ships beside the package, as the project's own build has it."""
INSTALL_S = 3600.0
SKEW_S = 60.0
"""Clocks that differ by more are named."""
OLDEST_PYTHON = (3, 11)
FREE_GB = {"with torch there": 1.0, "without": 12.0}
"""Room that an installation needs."""


def package() -> dict[str, Path]:
    """Every file of `loop` and of its data, by its path below the folder in which `loop` lies."""
    roots = [PACKAGE, *(shipped(name) for name in DATA)]
    paths = [path for root in roots for path in ([root] if root.is_file() else root.rglob("*"))]
    own = [path for path in sorted(paths) if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(PACKAGE.parent).as_posix(): path for path in own}


def digest(files: Mapping[str, Path]) -> str:
    """Hash of the package, by which two machines know that they run the same `loop`.

    Kernels do not count, but for their headers: a checkout is sent with each command.
    """
    whole = hashlib.sha256()
    for place, path in sorted((place.removeprefix("loop/_data/"), path) for place, path in files.items()):
        if place.startswith("kernels/include/") or not place.startswith("kernels/"):
            data = path.read_bytes()
            whole.update(f"{place}\0{len(data)}\0".encode() + data)
    return whole.hexdigest()[:32]


@dataclass(frozen=True)
class HostFacts:
    """What a machine says of itself; empty for what is not there."""

    facts: Mapping[str, str]
    asked_at: float
    """Seconds since 1970 here, in the middle of the question."""

    def __getitem__(self, name: str) -> str:
        return self.facts.get(name, "")

    @property
    def version(self) -> tuple[int, ...]:
        """Of its Python."""
        parts = self["python"].split(".")[:2]
        return tuple(int(part) for part in parts if part.isdigit())

    @property
    def skew_s(self) -> float:
        """How far its clock is ahead of this one."""
        return float(self["now"] or self.asked_at) - self.asked_at

    @property
    def free_gb(self) -> float:
        """Room for its user."""
        return int(self["free_kb"] or 0) / 1e6


def python(there: Connection) -> str:
    """The interpreter that the file names, as a word for a shell; `~` is the home there."""
    path = there.listed.host.python
    return f'"$HOME"/{shlex.quote(path[2:])}' if path.startswith("~/") else shlex.quote(path)


ASK = """
say() { printf '%s=%s\\n' "$1" "$(printf %s "$2" | head -n 1 | head -c 200)"; }
say now "$(date +%s)"
say free_kb "$(df -Pk "$HOME" | awk 'NR == 2 {print $4}')"
say python "$(@PYTHON@ -c 'import platform; print(platform.python_version())' 2>/dev/null)"
say venv "$(@PYTHON@ -c 'import ensurepip, venv; print("yes")' 2>/dev/null)"
torch() { "$1" -c 'import importlib.metadata as m; print(m.version("torch"))' 2>/dev/null; }
say torch "$(torch @PYTHON@ || { [ "$(cat @MADEBY@ 2>/dev/null)" = @PYTHON@ ] && torch @OURS@; })"
say gcc "$(g++ --version 2>/dev/null)"
say nvcc "$( (nvcc --version || /usr/local/cuda/bin/nvcc --version) 2>/dev/null | tail -n 1)"
say gpus "$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | paste -sd ';')"
say driver "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null)"
say rsync "$(rsync --version 2>/dev/null)"
say setsid "$(command -v setsid)"
"""


def ask(there: Connection) -> HostFacts:
    """What the machine has. Raises as `Connection.run`."""
    begun = time.time()
    script = filled(ASK, OURS=PYTHON, MADEBY=MADE_BY, PYTHON=python(there))
    lines = there.run(script, limit_s=120).decode(errors="replace").splitlines()
    facts = dict(line.partition("=")[::2] for line in lines if "=" in line)
    return HostFacts(facts, (begun + time.time()) / 2)


def refuse_unfit(there: Connection, facts: HostFacts) -> None:
    """Raise UsageError for the first thing without which nothing can run there."""
    host, ssh = there.listed, f"ssh {shlex.join(there.words)}"
    apt, python, name = f"{ssh} 'sudo apt-get install -y {{}}'", host.host.python, host.name
    oldest, named = ".".join(map(str, OLDEST_PYTHON)), f"python: in {host.path}"
    needed = FREE_GB["with torch there" if facts["torch"] else "without"]
    old = f"`{python}` of {name} is Python {facts['python']}; loop needs {oldest} or newer"
    full = f"{name} has {facts.free_gb:.1f} GB free in its home; an installation needs {needed:g}"
    for is_wrong, why, hint in (
        (not facts.version, f"{name} has no `{python}`", f"name its interpreter: {named}"),
        (facts.version < OLDEST_PYTHON, old, f"name a newer one: {named}"),
        (not facts["rsync"], f"{name} has no rsync", apt.format("rsync")),
        (not facts["setsid"], f"{name} has no setsid", apt.format("util-linux")),
        (not facts["venv"], f"`{python}` of {name} makes no environments", apt.format("python3-venv")),
        (facts.free_gb < needed, full, f"free some: {ssh} 'du -xh --max-depth=1 | sort -h'"),
    ):
        if is_wrong:
            raise UsageError(why, hint=hint)


def lacks(there: Connection, facts: HostFacts) -> Iterator[str]:
    """What is missing or odd there, with what mends it; `loop` runs all the same."""
    if not facts["gcc"]:
        apt = f"ssh {shlex.join(there.words)} 'sudo apt-get install -y g++'"
        yield f"no compiler: kernels in C and C++ cannot be built; {apt}"
    if facts["gpus"] and not facts["nvcc"]:
        yield "no nvcc: CUDA kernels cannot be built; install the CUDA toolkit there"
    if there.listed.host.gpus is not None and not facts["gpus"]:
        yield "no NVIDIA driver answers: nvidia-smi names no GPU; install the driver there"
    if not facts["torch"]:
        yield f"no torch for `{there.listed.host.python}`: it is downloaded into loop's own environment"
    if abs(facts.skew_s) > SKEW_S:
        ahead = "ahead" if facts.skew_s > 0 else "behind"
        yield f"its clock is {abs(facts.skew_s) / 60:.0f} min {ahead}: dates of sessions are off by that"


INSTALL = """
set -e
cd @HOME@
fail() { tail -n 3 pip.log >&2; exit 1; }
[ -x venv/bin/python ] && [ "$(cat venv/made-by 2>/dev/null)" = @PYTHON@ ] || {
  rm -rf venv
  @PYTHON@ -m venv venv >pip.log 2>&1 || fail
  @PYTHON@ - <<'END' >venv/base.pth
import site, sysconfig
own = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
for folder in dict.fromkeys([*site.getsitepackages(), *own]):
    print(f"import site; site.addsitedir({folder!r})")
END
  printf %s @PYTHON@ >venv/made-by
}
rm -f venv/loop-digest
rm -rf package && mv package.new package
site=$(venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
printf '%s\\n' "$PWD/package" >"$site/0-loop.pth"
[ ! -e venv/base.pth ] || mv venv/base.pth "$site/loop-base.pth"
venv/bin/python -m pip --disable-pip-version-check --no-input install @INDEX@ @NEEDS@ >pip.log 2>&1 || fail
venv/bin/python -c 'import loop.cli'
printf %s @DIGEST@ >venv/loop-digest
rm -f pip.log
"""


def install(there: Connection, facts: HostFacts) -> None:
    """Copy the package that runs here into an environment of ours there. Raises as `Connection.run`."""
    try:
        every = importlib.metadata.requires("kernel-loop") or []
    except importlib.metadata.PackageNotFoundError as error:
        why = "this loop was never installed, so nobody says what it needs"
        raise UsageError(why, "pip install -e .") from error
    files = package()
    there.run(
        f"cd {HOME} 2>/dev/null || mkdir -m 700 {HOME} && cd {HOME} && mkdir -p jobs trees package package.new"
    )
    there.send(PACKAGE.parent, files, f"{HOME}/package.new", beside="../package")
    processor = not facts["gpus"] and not facts["torch"]
    index = "--extra-index-url https://download.pytorch.org/whl/cpu" if processor else ""
    needs = shlex.join(requirement for requirement in every if "extra ==" not in requirement)
    script = filled(INSTALL, HOME=HOME, INDEX=index, NEEDS=needs, DIGEST=digest(files), PYTHON=python(there))
    try:
        there.run(script, limit_s=INSTALL_S)
    except WorkFailed as error:
        again = f"mend that, then: loop hosts setup {there.name}"
        raise WorkFailed(f"loop cannot be installed: {error.message}", hint=again) from error
