"""Every test writes to a folder of its own: caches, state and sessions. No test may write into the checkout."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loop.calls.own_modules import FOLDERS
from loop.machine.machine import detect_gpus
from loop.workers.bench import Bench
from tests.targets import ENTRIES, compiled, external, importable, open_bench, write_target

ROOT = Path(__file__).resolve().parent.parent
WATCHED = ("loop", "patterns", "kernels", "sessions", "templates", "tests")
IGNORED = ("__pycache__", "schema")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the longest tests unless `make soak` runs, and tests that need a missing GPU or compiler."""
    missing = {} if os.environ.get("LOOP_SOAK") else {"soak": "long: LOOP_SOAK=1, or `make soak`"}
    missing |= {} if shutil.which("nvcc") else {"nvcc": "no nvcc on the PATH"}
    missing |= {} if detect_gpus().first else {"cuda": detect_gpus().unusable_reason}
    for item in items:
        for name in {*missing} & {marker.name for marker in item.iter_markers()}:
            item.add_marker(pytest.mark.skip(reason=missing[name]))


@pytest.fixture(scope="session")
def build_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache of builds for the whole run and all its processes, so that each kernel is compiled once."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, build_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `loop` write to the test's own folder only, and start the test there."""
    monkeypatch.setenv("LOOP_CACHE", str(build_cache))
    monkeypatch.setenv("LOOP_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("LOOP_SESSIONS", str(tmp_path / "sessions"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("LOOP_WATCH_PREEMPTION", "off")
    for name in (
        "XDG_CACHE_HOME",
        "XDG_STATE_HOME",
        "XDG_CONFIG_HOME",
        "LOOP_THREADS",
        "LOOP_CHILD",
        "FORCE_COLOR",
    ):
        monkeypatch.delenv(name, raising=False)
    FOLDERS.clear()  # Modules of another test's target are not found.
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture(scope="session", autouse=True)
def untouched_checkout() -> Iterator[None]:
    """Fail the run when a test wrote into the checkout."""
    files = _files()
    yield
    if os.environ.get("LOOP_GOLDEN") == "write":  # This run stores reports again on purpose.
        return
    assert files == _files(), "a test wrote into the checkout"


def _files() -> dict[str, float]:
    paths = (path for name in WATCHED for path in (ROOT / name).rglob("*"))
    return {str(p): p.stat().st_mtime for p in paths if p.is_file() and not set(p.parts) & set(IGNORED)}


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Bench]:
    """A bench for the tiny target with all its variants."""
    folder = tmp_path_factory.mktemp("tiny")
    variants = {name: compiled(name) for name in ENTRIES}
    variants["careless"] = compiled("fickle", deterministic=False)
    variants["no_entry"] = compiled("nowhere")
    variants |= {
        name: importable(name) for name in ("double", "wrong_shape", "raises", "gives_back", "wavers", "races")
    }
    variants["lost"] = importable("double", module="no_such_module")
    variants |= {"program": external("2"), "program_wrong": external("3"), "program_fails": external()}
    values = {"hole": {"x": {"nan_along": "N"}}}
    with open_bench(folder, write_target(folder, variants, values=values), build_cache) as opened:
        yield opened
