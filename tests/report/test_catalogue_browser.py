"""The catalogue in a real browser, where there is one: its script runs, and hostile text does nothing."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.report.catalogues import make_contents, make_hostile, make_row, site

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium or Chrome on the PATH"),
]


def opened(page: Path, tmp_path: Path) -> tuple[str, str]:
    """The page after its scripts have run, and what the browser's console said."""
    options = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--virtual-time-budget=3000",
    )
    home = f"--user-data-dir={tmp_path / 'browser'}"
    command = [str(BROWSER), *options, home, "--dump-dom", f"file://{page}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def write(tmp_path: Path, files: dict[str, str]) -> Path:
    """A site on disk."""
    for path, text in files.items():
        (tmp_path / "site" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / path).write_text(text)
    return tmp_path / "site"


def test_the_search_answers(tmp_path: Path) -> None:
    """From a file, without a server: what is typed is found and linked."""
    files = site(make_contents(make_row()))
    typing = "input.value='biuld';input.dispatchEvent(new Event('input'))"
    script = "<script defer src='type.js'></script></head>"
    top = write(tmp_path, {**files, "index.html": files["index.html"].replace("</head>", script)})
    (top / "type.js").write_text(f"const input=document.getElementById('q');{typing};")
    page, said = opened(top / "index.html", tmp_path)
    assert "" == said
    assert re.search(r'<ol id="hits-list"><li><a href="patterns/build.html">', page)
    assert not re.search(r'<form class="search"[^>]*hidden', page)


def test_hostile_text_does_nothing(tmp_path: Path) -> None:
    """No dialog, no request, no element of its own, no word on the console."""
    files = site(make_hostile())
    top = write(tmp_path, files)
    for path in ("index.html", "patterns/build.html", "sessions/index.html"):
        page, said = opened(top / path, tmp_path)
        assert "" == said
        assert "<img" not in page
        assert 1 == page.count("<script")
