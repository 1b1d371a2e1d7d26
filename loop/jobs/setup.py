"""`loop` on another machine: a wheel of the package that runs here, in an environment of its own there.

The environment sees the packages of the interpreter that `python:` names, and installs none into it. So torch is
that of the machine where it has one, and is downloaded where it has none.
"""

import base64
import hashlib
import importlib.metadata
import io
import shlex
import time
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from loop import __version__
from loop.base.errors import UsageError, WorkFailed
from loop.base.places import PACKAGE, shipped
from loop.jobs.remote import Connection

NAME = "kernel_loop"
HOME = ".loop"
"""Everything of ours there, below the user's home."""
PYTHON = f"{HOME}/venv/bin/python"
DIGEST = f"{HOME}/venv/loop-digest"
MADE_BY = f"{HOME}/venv/made-by"
"""For which interpreter the environment was made."""
DATA = ("patterns", "kernels", "templates", "sessions/plans", "sessions/history", "sessions/rates.yaml")
"""What ships beside the package, as the project's own build has it."""
KERNELS, HEADERS = "loop/_data/kernels/", "loop/_data/kernels/include/"
LEFT_OUT = ("__pycache__", "_data")
EPOCH = (1980, 1, 1, 0, 0, 0)
INSTALL_S = 3600.0
SKEW_S = 60.0
"""Clocks that differ by more are named."""
OLDEST_PYTHON = (3, 11)
FREE_GB = {"with torch there": 1.0, "without": 12.0}
"""Room that an installation needs."""


def contents() -> dict[str, bytes]:
    """Every file of the package, by its path in a wheel."""
    files = {f"loop/{name}": data for name, data in _below(PACKAGE)}
    for name in DATA:
        place = shipped(name)
        inside = {f"/{rest}": data for rest, data in _below(place)} if place.is_dir() else {"": place.read_bytes()}
        files |= {f"loop/_data/{name}{rest}": data for rest, data in inside.items()}
    return dict(sorted(files.items()))


def _below(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in folder.rglob("*"):
        place = path.relative_to(folder)
        if path.is_file() and not set(place.parts) & set(LEFT_OUT):
            yield place.as_posix(), path.read_bytes()


def digest(files: Mapping[str, bytes]) -> str:
    """Hash of the package, by which two machines know that they run the same `loop`; its kernels are sent."""
    whole = hashlib.sha256()
    for name, data in files.items():
        if name.startswith(HEADERS) or not name.startswith(KERNELS):
            whole.update(f"{name}\0{len(data)}\0".encode() + data)
    return whole.hexdigest()[:32]


def wheel(files: Mapping[str, bytes]) -> tuple[str, bytes]:
    """Name and content of a wheel of these files; the same files make the same wheel."""
    info = f"{NAME}-{__version__}.dist-info"
    requires = "".join(f"Requires-Dist: {requirement}\n" for requirement in _requirements())
    about = (
        f"Metadata-Version: 2.1\nName: kernel-loop\nVersion: {__version__}\nRequires-Python: >=3.11\n{requires}"
    )
    tags = "Wheel-Version: 1.0\nGenerator: loop\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    whole = {
        **files,
        f"{info}/METADATA": about.encode(),
        f"{info}/WHEEL": tags.encode(),
        f"{info}/entry_points.txt": b"[console_scripts]\nloop = loop.cli:main\n",
    }
    hashes = {name: base64.urlsafe_b64encode(hashlib.sha256(data).digest()) for name, data in whole.items()}
    lines = [f"{name},sha256={hashes[name].rstrip(b'=').decode()},{len(data)}" for name, data in whole.items()]
    record = "\n".join([*lines, f"{info}/RECORD,,\n"])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**whole, f"{info}/RECORD": record.encode()}.items():
            archive.writestr(zipfile.ZipInfo(name, EPOCH), data, zipfile.ZIP_DEFLATED)
    return f"{NAME}-{__version__}-py3-none-any.whl", out.getvalue()


def _requirements() -> list[str]:
    """What the package needs, as its own installation says."""
    try:
        every = importlib.metadata.requires("kernel-loop") or []
    except importlib.metadata.PackageNotFoundError as error:
        raise UsageError(
            "this loop was never installed, so nobody says what it needs", "pip install -e ."
        ) from error
    return [requirement for requirement in every if "extra ==" not in requirement]


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
say python "$(PYTHON -c 'import platform; print(platform.python_version())' 2>/dev/null)"
say venv "$(PYTHON -c 'import ensurepip, venv; print("yes")' 2>/dev/null)"
torch() { "$1" -c 'import importlib.metadata as m; print(m.version("torch"))' 2>/dev/null; }
say torch "$(torch PYTHON || { [ "$(cat MADE_BY 2>/dev/null)" = PYTHON ] && torch OURS; })"
say gcc "$(g++ --version 2>/dev/null)"
say nvcc "$( (nvcc --version || /usr/local/cuda/bin/nvcc --version) 2>/dev/null | tail -n 1)"
say gpus "$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | paste -sd ';')"
say driver "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null)"
say rsync "$(rsync --version 2>/dev/null)"
say setsid "$(command -v setsid)"
say digest "$(cat DIGEST 2>/dev/null)"
"""


def _filled(script: str, words: Mapping[str, str]) -> str:
    for word, value in words.items():
        script = script.replace(word, value)
    return script


def ask(there: Connection) -> HostFacts:
    """What the machine has. Raises as `Connection.run`."""
    begun = time.time()
    words = {"OURS": PYTHON, "MADE_BY": MADE_BY, "DIGEST": DIGEST, "PYTHON": python(there)}
    lines = there.run(_filled(ASK, words), limit_s=120).decode(errors="replace").splitlines()
    facts = dict(line.partition("=")[::2] for line in lines if "=" in line)
    return HostFacts(facts, (begun + time.time()) / 2)


def refuse_unfit(there: Connection, facts: HostFacts) -> None:
    """Raise UsageError for the first thing without which nothing can run there."""
    host = there.listed
    apt = f"ssh {shlex.join(there.words)} 'sudo apt-get install -y {{}}'"
    oldest = ".".join(map(str, OLDEST_PYTHON))
    python = host.host.python
    if not facts.version:
        raise UsageError(f"{host.name} has no `{python}`", hint=f"name its interpreter: python: in {host.path}")
    if facts.version < OLDEST_PYTHON:
        why = f"`{python}` of {host.name} is Python {facts['python']}; loop needs {oldest} or newer"
        raise UsageError(why, hint=f"name a newer one: python: in {host.path}")
    for name, package in (("rsync", "rsync"), ("setsid", "util-linux")):
        if not facts[name]:
            raise UsageError(f"{host.name} has no {name}", hint=apt.format(package))
    if not facts["venv"]:
        raise UsageError(f"`{python}` of {host.name} makes no environments", hint=apt.format("python3-venv"))
    needed = FREE_GB["with torch there" if facts["torch"] else "without"]
    if facts.free_gb < needed:
        why = f"{host.name} has {facts.free_gb:.1f} GB free in its home; an installation needs {needed:g}"
        raise UsageError(why, hint=f"free some: ssh {shlex.join(there.words)} 'du -xh --max-depth=1 | sort -h'")


def lacks(there: Connection, facts: HostFacts) -> Iterator[str]:
    """What is missing or odd there, with what mends it; `loop` runs all the same."""
    apt = f"ssh {shlex.join(there.words)} 'sudo apt-get install -y"
    if not facts["gcc"]:
        yield f"no compiler: kernels in C and C++ cannot be built; {apt} g++'"
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
cd HOME_OF_OURS
fail() { tail -n 3 pip.log >&2; exit 1; }
[ -x venv/bin/python ] && [ "$(cat venv/made-by 2>/dev/null)" = PYTHON ] || {
  rm -rf venv
  PYTHON -m venv venv >pip.log 2>&1 || fail
  PYTHON - <<'END' >venv/base.pth
import site, sysconfig
own = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
for folder in dict.fromkeys([*site.getsitepackages(), *own]):
    print(f"import site; site.addsitedir({folder!r})")
END
  mv venv/base.pth "$(venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"/loop-base.pth
  printf %s PYTHON >venv/made-by
}
rm -f venv/loop-digest
pip="venv/bin/python -m pip --disable-pip-version-check --no-input install"
$pip --no-deps --force-reinstall WHEEL >pip.log 2>&1 || fail
$pip INDEX WHEEL >pip.log 2>&1 || fail
venv/bin/python -c 'import loop.cli'
printf %s DIGEST >venv/loop-digest
rm -f WHEEL pip.log
"""


def install(there: Connection, facts: HostFacts) -> None:
    """Put the package that runs here into an environment of ours there. Raises as `Connection.run`."""
    import tempfile

    files = contents()
    name, data = wheel(files)
    there.run(f"mkdir -p -m 700 {HOME}/jobs {HOME}/trees")
    with tempfile.TemporaryDirectory(prefix="loop-wheel-") as folder:
        (Path(folder) / name).write_bytes(data)
        there.send(Path(folder), [name], HOME)
    processor = not facts["gpus"] and not facts["torch"]
    index = "--extra-index-url https://download.pytorch.org/whl/cpu" if processor else ""
    words = {"HOME_OF_OURS": HOME, "WHEEL": name, "INDEX": index, "DIGEST": digest(files), "PYTHON": python(there)}
    try:
        there.run(_filled(INSTALL, words), limit_s=INSTALL_S)
    except WorkFailed as error:
        again = f"mend that, then: loop hosts setup {there.name}"
        raise WorkFailed(f"loop cannot be installed: {error.message}", hint=again) from error
