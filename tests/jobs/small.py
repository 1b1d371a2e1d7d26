"""Jobs whose command is small, and starts a hundred times as quickly as `loop`."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from loop.jobs import executor
from loop.jobs import folder as jobs
from loop.jobs.folder import Job, JobFolder

Make = Callable[..., JobFolder]
STANDS_IN = """
import ctypes, json, os, signal, sys, time
from pathlib import Path
what, out = sys.argv[1], Path(os.environ["LOOP_SESSIONS"])
gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "")
(out / "made.txt").write_text(what)
print(json.dumps({"said": what, "source": Path("a.txt").read_text(), "gpu": gpu}), flush=True)
if what == "die" or what.startswith("dies-on") and gpu in what: os.kill(os.getpid(), signal.SIGKILL)
if what.startswith("nap"): time.sleep(0.1)
if what == "sleep": ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # As `loop` does.
if what == "sleep" or what.startswith("once") and not Path("go").exists(): time.sleep(60)
if what == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(60)
sys.exit(1 if what == "fail" else 2 if what == "wrong" else 0)
"""
"""A small program in loop's place that starts a hundred times as quickly."""


def maker(folder: Path) -> tuple[Make, tuple[str, ...]]:
    """A function that makes jobs of one word in a folder, and the program that runs them in loop's place."""
    source, command = folder / "source", folder / "loop.py"
    source.mkdir()
    (source / "a.txt").write_text("a")
    command.write_text(STANDS_IN)
    files = jobs.content_hashes(source)

    def made(word: str, **settings: object) -> JobFolder:
        fields = {"id": word.replace(" ", "-"), "words": (word,), "files": files, **settings}
        return jobs.create_job(Job.model_validate(fields), source, [source / "a.txt"])

    return made, (sys.executable, "-S", "-P", str(command))


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes jobs of one word whose command is small."""
    make_job, command = maker(tmp_path)
    monkeypatch.setattr(executor, "COMMAND_DYING_WITH_PARENT", command)
    return make_job
