"""`loop catalog build|serve` through the door: real folders, real sockets, real signals."""

import contextlib
import http.client
import io
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loop.base.errors import LoopError, Stopped
from loop.base.interrupts import flagged
from loop.base.screen import Screen
from loop.model.record import Opened
from loop.profile.model import ResourcesOutput
from loop.site import command as site
from loop.site import folder, serving
from tests.makers import make_finished, make_kernel, make_library
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
    text = io.StringIO()
    assert 0 == site.build_site(out, project, Screen(text, io.StringIO()), as_json=True)
    told: dict[str, object] = json.loads(text.getvalue())
    return told


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
    """As pages that show text only; a link out of the session's folder is not followed."""
    root = tmp_path / "sessions"
    for name in ("a", "c"):
        make_session(root, name, Opened(pid=1))
    (root / "a" / "report.md").write_text(HOSTILE_REPORT)
    (tmp_path / "secret").write_text("secret")
    (root / "c" / "report.md").symlink_to(tmp_path / "secret")
    build(project, tmp_path / "site")
    there = tmp_path / "site" / "sessions"
    assert ["a.report.html"] == [path.name for path in there.iterdir() if "report" in path.name]
    assert 'href="a.report.html"' in (there / "a.html").read_text()
    page = read({"a.html": (there / "a.report.html").read_text()})["a.html"]
    assert "Figure: What it shows" in page.text
    assert "out and file" in page.text
    assert "\x1b" not in page.text
    assert "a log with [x](y) and\n![z](figures/a.svg)" in page.text
    assert ["a.html"] == [link for link in page.links if not link.startswith("#")]
    assert ([], 0) == (page.handlers, page.tags.count("img"))


def test_sessions_of_other_formats_are_named(project: Path, tmp_path: Path) -> None:
    """They have no page, and nothing breaks."""
    for name, text in (("old", '{"format": 0}'), ("torn", "{"), ("<b>odd", "[]")):
        (tmp_path / "sessions" / name).mkdir()
        (tmp_path / "sessions" / name / "session.json").write_text(text)
    assert 3 == build(project, tmp_path / "site")["damaged"]
    text = (tmp_path / "site" / "sessions" / "index.html").read_text()
    assert "of format 0, by an older loop" in text
    assert "&lt;b&gt;odd" in text


def test_what_the_compiler_said_is_found(project: Path, tmp_path: Path) -> None:
    """Of the last session that asked, for each variant by itself."""
    add_commands(project, "other", ["true"], number=101)
    for name, registers in (("s1", 40), ("s2", 44)):
        library = make_library(make_kernel(registers=registers, spill_stores=4), variants=("ours",))
        output = ResourcesOutput(
            ok=True, message="", device="sm_89", device_name="NVIDIA L4", libraries=(library,)
        )
        step = make_finished("resources", pattern="static-assertions", action="kernel.resources", output=output)
        make_session(tmp_path / "sessions", name, Opened(pid=1), step)
    build(project, tmp_path / "site")
    text = (tmp_path / "site" / "kernels" / "ours.html").read_text()
    assert "NVIDIA L4" in text
    assert ">44<" in text
    assert ">40<" not in text


def test_a_folder_of_the_users_is_refused(project: Path, tmp_path: Path) -> None:
    """With exit 2 and the next command, before anything is read."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a").touch()
    with pytest.raises(LoopError, match="not a catalogue"):
        build(project, tmp_path / "mine")


def asked(
    server: serving.Server, path: str, host: str | None = None, method: str = "GET"
) -> tuple[int, bytes, str]:
    """Status, body and type of one answer. The path is sent as it is."""
    connection = http.client.HTTPConnection(serving.ADDRESS, server.server_port, timeout=20)
    with contextlib.closing(connection):
        connection.putrequest(method, path, skip_host=True)
        if host != "":
            connection.putheader("Host", host or f"{serving.ADDRESS}:{server.server_port}")
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.getheader("Content-Type", "")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[serving.Server]:
    """A small site, with something dear beside it."""
    folder.write(tmp_path / "site", [("index.html", "home"), ("sub/a.html", "a"), ("style.css", "b{}")], {})
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "site" / "out").symlink_to(tmp_path / "secret.txt")
    with serving.Server(tmp_path / "site", 0) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_pages_are_served(server: serving.Server) -> None:
    """With their type; a folder's page is its index."""
    assert (200, b"home", "text/html; charset=utf-8") == asked(server, "/")
    assert (200, b"a", "text/html; charset=utf-8") == asked(server, "/sub/a.html?x=1#y")
    assert (200, "text/css; charset=utf-8") == asked(server, "/style.css")[::2]
    assert (200, b"") == asked(server, "/", method="HEAD")[:2]
    assert 200 == asked(server, "/", host=f"localhost:{server.server_port}")[0]


ABOVE = ["/../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "//../secret.txt", "/sub/../../secret.txt"]


@pytest.mark.parametrize("path", [*ABOVE, "/out", "/sub/", "/gone.html", "/%00", "/" + "a" * 5000, "/%ff%fe"])
def test_nothing_else_is(server: serving.Server, path: str) -> None:
    """Not what is above the folder, not through a link, no lists."""
    status, body, _ = asked(server, path)
    assert 404 == status
    assert b"secret" not in body.replace(path.encode(), b"")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "127.0.0.1", ""])
def test_another_hosts_name_is_refused(server: serving.Server, host: str) -> None:
    """A page elsewhere may point its own name at this machine."""
    status, body, _ = asked(server, "/", host=host)
    assert 421 == status
    assert b"home" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_is_taken(server: serving.Server, method: str) -> None:
    """Only reading."""
    assert 501 == asked(server, "/", method=method)[0]


def test_only_this_machine_is_answered(server: serving.Server) -> None:
    """It listens on the loopback."""
    assert "127.0.0.1" == server.server_address[0]


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    """An error with the command that takes another."""
    with contextlib.closing(socket.create_server((serving.ADDRESS, 0))) as other:
        port = other.getsockname()[1]
        with pytest.raises(LoopError, match=f"port {port} .* in use") as told:
            serving.Server(tmp_path, port)
    assert "--port 0" in (told.value.hint or "")


def test_a_folder_that_is_no_catalogue_is_not_served(project: Path, tmp_path: Path) -> None:
    """It may be anybody's home."""
    with pytest.raises(LoopError, match="there is no catalogue") as told:
        site.serve_site(tmp_path, 0, project, Screen(io.StringIO(), io.StringIO()))
    assert "loop catalog build --out" in (told.value.hint or "")


@contextlib.contextmanager
def killed_in_the_end(process: subprocess.Popen[str]) -> Iterator[None]:
    """A test that fails must not wait for it."""
    try:
        yield
    finally:
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.slow
def test_it_serves_until_it_is_told_to_end(project: Path, tmp_path: Path, number: signal.Signals) -> None:
    """The first line is where; then Ctrl-C, exit 0, and what was made for it is gone."""
    (tmp_path / "scratch").mkdir()
    env = {**os.environ, "TMPDIR": str(tmp_path / "scratch")}
    command = [*LOOP, "catalog", "serve", "--port", "0", "--target", str(project)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=env) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        port = int(url.rstrip("/").rpartition(":")[2])
        with contextlib.closing(
            http.client.HTTPConnection(serving.ADDRESS, port, timeout=STARTS_WITHIN_S)
        ) as asking:
            asking.request("GET", "/sessions/2026-11-21-120000-try.html")
            assert 200 == asking.getresponse().status
        process.send_signal(number)
        with killed_in_the_end(process):
            _, err = process.communicate(timeout=STARTS_WITHIN_S)
    assert (0, True) == (process.returncode, "ended" in err)
    assert "Traceback" not in err
    assert [] == os.listdir(tmp_path / "scratch")


def test_ctrl_c_while_a_page_is_asked_for(tmp_path: Path) -> None:
    """What a server does with errors of its pages is not done with this one."""

    class Interrupted(serving.Server):
        def process_request(self, request: Any, client_address: Any) -> None:
            signal.raise_signal(signal.SIGINT)
            self.shutdown_request(request)

    with Interrupted(tmp_path, 0) as server:
        server.socket.settimeout(STARTS_WITHIN_S)
        with socket.create_connection((serving.ADDRESS, server.server_port)), pytest.raises(Stopped), flagged():
            server.serve_forever(poll_interval=0.01)


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
