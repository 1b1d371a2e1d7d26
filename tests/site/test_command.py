"""`loop catalog build` through the door."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from loop.model.record import Opened
from loop.report.screen import Screen
from loop.site import catalog as site
from tests.makers import make_finished
from tests.projects import LOOP, add_commands, make_project
from tests.site.catalogues import read, target_of
from tests.store.folders import make_session

STARTS_WITHIN_S = 60.0


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A target with a pattern and a plan of its own, and a session that passed."""
    folder = make_project(tmp_path / "project")
    add_commands(folder, "try", ["echo <b>hi"])
    make_session(tmp_path / "sessions", "2026-11-21-120000-try", Opened(pid=1), make_finished())
    return folder


def build(project: Path, out: Path) -> dict[str, object]:
    """Build the site; return the reply of `--json`."""
    return site.build_site(out, project, Screen(is_quiet=True)).model_dump()


def pages(out: Path) -> dict[str, str]:
    """Its HTML."""
    return {str(path.relative_to(out)): path.read_text() for path in out.rglob("*.html")}


def test_a_project_becomes_a_site(project: Path, tmp_path: Path) -> None:
    """Its own definitions beside the bundled ones, its sessions, its kernels; all links lead to files."""
    reply = build(project, tmp_path / "site")
    assert (1, 1, 1) == (reply["schema_version"], reply["sessions"], reply["variants"])
    html = pages(tmp_path / "site")
    for path in ("patterns/try.html", "patterns/baseline-first.html", "plans/try.html", "kernels/ours.html"):
        assert path in html
    for path, page in read(html).items():
        missing = [link for link in page.links if not (tmp_path / "site" / target_of(path, link)).is_file()]
        assert {"data:,", "#main"} >= {link for link in missing if target_of(path, link) != path}
    assert reply["files"] == sum(path.is_file() for path in (tmp_path / "site").rglob("*"))


def test_ctrl_c_leaves_a_whole_site_or_none(project: Path, tmp_path: Path) -> None:
    """At any moment: exit 130 or a whole site, and no other file."""
    (tmp_path / "outer").mkdir()
    command = [*LOOP, "catalog", "build", "--out", str(tmp_path / "outer" / "site"), "--target", str(project)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        deadline = time.monotonic() + STARTS_WITHIN_S
        while not os.listdir(tmp_path / "outer") and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=STARTS_WITHIN_S)
    remaining = os.listdir(tmp_path / "outer")
    assert (process.returncode, remaining) in ((130, []), (130, ["site"]), (0, ["site"]))
    if remaining:
        assert (tmp_path / "outer" / "site" / "index.html").is_file()
