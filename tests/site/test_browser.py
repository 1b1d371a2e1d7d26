"""The catalogue in a real browser, where there is one: its script runs, and hostile text does nothing."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.site.catalogues import make_contents, make_hostile, make_row, site

WIDTHS = (400, 800, 1400)
HARNESS = """<!doctype html><body><script>
const pages = %s, widths = %s, wide = [];
let left = pages.length * widths.length, seen = 0;
for (const page of pages) for (const width of widths) {
  const frame = document.createElement("iframe");
  frame.width = width; frame.height = 900; frame.src = page;
  frame.onload = () => {
    const root = frame.contentDocument.documentElement;
    seen++;
    if (root.scrollWidth > root.clientWidth) wide.push(page + "@" + width);
    frame.remove();
    if (!--left) document.body.textContent = "told " + seen + " wide:" + wide.join(",") + " end";
  };
  document.body.append(frame);
}
</script>"""
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="needs Chromium or Chrome on the PATH")]


def opened(page: Path, tmp_path: Path) -> tuple[str, str]:
    """The page after its scripts have run, and what the browser's console said."""
    options = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--virtual-time-budget=3000",
        "--allow-file-access-from-files",
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


@pytest.mark.parametrize("made", ["plain", "hostile"])
def test_pages_fit_their_window(made: str, tmp_path: Path) -> None:
    """At three widths no page is wider than its window, whatever stands in it."""
    rows = [make_row(), make_row("2026-11-22-120000-quick", ratios={"ours": 0.9})]
    files = site(make_hostile() if made == "hostile" else make_contents(*rows))
    top = write(tmp_path, files)
    pages = [path for path in files if path.endswith(".html")]
    (top / "harness.html").write_text(HARNESS % (json.dumps(pages), list(WIDTHS)))
    told, said = opened(top / "harness.html", tmp_path)
    assert "" == said
    found = re.search(r"told (\d+) wide:(.*?) end", told)
    assert found, told[-2000:]
    assert (str(len(pages) * len(WIDTHS)), "") == (found[1], found[2])


def test_hostile_text_does_nothing(tmp_path: Path) -> None:
    """No dialog, no request, no element of its own, no word on the console."""
    files = site(make_hostile())
    top = write(tmp_path, files)
    for path in ("index.html", "patterns/build.html", "sessions/index.html"):
        page, said = opened(top / path, tmp_path)
        assert "" == said
        assert "<img" not in page
        assert 1 == page.count("<script")
