"""`loop catalog build` through the door."""

import base64
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
    made = make_project(tmp_path / "project")
    add_commands(made, "try", ["echo <b>hi"])
    make_session(tmp_path / "sessions", "2026-11-21-120000-try", Opened(pid=1), make_finished())
    return made


def build(project: Path, out: Path) -> dict[str, object]:
    """Build, and what `--json` says of it."""
    return site.build_site(out, project, Screen(is_quiet=True)).model_dump()


def pages(out: Path) -> dict[str, str]:
    """Its HTML."""
    return {str(path.relative_to(out)): path.read_text() for path in out.rglob("*.html")}


def test_a_project_becomes_a_site(project: Path, tmp_path: Path) -> None:
    """Its own definitions beside the bundled ones, its sessions, its kernels; all links lead to files."""
    told = build(project, tmp_path / "site")
    assert (1, 1, 1) == (told["schema_version"], told["sessions"], told["variants"])
    found = pages(tmp_path / "site")
    for path in ("patterns/try.html", "patterns/baseline-first.html", "plans/try.html", "kernels/ours.html"):
        assert path in found
    for path, page in read(found).items():
        missing = [link for link in page.links if not (tmp_path / "site" / target_of(path, link)).is_file()]
        assert {"data:,", "#main"} >= {link for link in missing if target_of(path, link) != path}
    assert told["files"] == sum(path.is_file() for path in (tmp_path / "site").rglob("*"))


HOSTILE_REPORT = """# Title <script>alert(1)</script>

![What it shows](figures/a.svg)

[out](http://evil.example) and [file](changes/1.patch) \x1b[31mred

```text
a log with [x](y) and
![z](figures/a.svg)
```

<img src=x onerror=alert(1)>
"""


def test_reports_come_along(project: Path, tmp_path: Path) -> None:
    """As pages of text and images only; no link leads out, and an image loads and runs nothing."""
    root, hostile = tmp_path / "sessions", "<svg><script>alert(2)</script><a href='http://evil.example'/></svg>"
    for name in ("a", "b", "c"):
        make_session(root, name, Opened(pid=1))
        (root / name / "report.md").write_text(HOSTILE_REPORT)
    (root / "b" / "figures").mkdir()
    (root / "b" / "figures" / "a.svg").write_text(hostile)
    (root / "c" / "report.md").unlink()
    (tmp_path / "secret").write_text("secret")
    (root / "c" / "report.md").symlink_to(tmp_path / "secret")
    build(project, tmp_path / "site")
    there = tmp_path / "site" / "sessions"
    assert {"a.report.html", "b.report.html"} == {path.name for path in there.iterdir() if "report" in path.name}
    assert 'href="a.report.html"' in (there / "a.html").read_text()
    plain, drawn = (read({"a.html": (there / f"{name}.report.html").read_text()})["a.html"] for name in "ab")
    assert "Figure: What it shows" in plain.text
    assert "out and file" in plain.text
    assert "\x1b" not in plain.text
    assert "a log with [x](y) and\n![z](figures/a.svg)" in plain.text
    assert ["a.html"] == [link for link in plain.links if not link.startswith("#")]
    assert ([], 0, 1) == (plain.handlers, plain.tags.count("img"), drawn.tags.count("img"))
    (source,) = [link for link in drawn.links if link.startswith("data:image/svg+xml;base64,")]
    assert hostile == base64.b64decode(source.partition(",")[2]).decode()
    assert "img-src data:" in (there / "b.report.html").read_text()


def test_ctrl_c_while_it_builds(project: Path, tmp_path: Path) -> None:
    """Whenever it comes: exit 130 or a whole site, and nothing beside it."""
    (tmp_path / "outer").mkdir()
    command = [*LOOP, "catalog", "build", "--out", str(tmp_path / "outer" / "site"), "--target", str(project)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        deadline = time.monotonic() + STARTS_WITHIN_S
        while not os.listdir(tmp_path / "outer") and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=STARTS_WITHIN_S)
    left = os.listdir(tmp_path / "outer")
    assert (process.returncode, left) in ((130, []), (130, ["site"]), (0, ["site"]))
    if left:
        assert (tmp_path / "outer" / "site" / "catalogue.json").is_file()
