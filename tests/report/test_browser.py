"""The page in a real browser: no overflow, no message. Skipped without a browser."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from loop.base.places import shipped
from loop.report.html import render_page
from tests.report.test_html import hostile
from tests.session.golden_sessions import SESSIONS
from tests.session.test_golden import rendered

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WIDTHS = (400, 800, 1400)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files"),
    *("--enable-logging=stderr", "--virtual-time-budget=4000", "--window-size=1600,1000", "--dump-dom"),
)
HARNESS = """<!doctype html><body><script>
const told = [];
let left = {widths}.length;
for (const width of {widths}) {{
  const frame = document.createElement("iframe");
  frame.width = width; frame.height = 900; frame.src = "page.html";
  frame.onload = () => {{
    const inside = frame.contentDocument, root = inside.documentElement;
    const fits = root.scrollWidth <= root.clientWidth, image = !!inside.querySelector("img");
    const table = Array.from(inside.querySelectorAll("table")).find(one => one.tHead.rows[0].cells.length > 3);
    const button = table && table.querySelector("th:nth-child(4) button");
    if (button) button.click();
    const cells = button ? Array.from(table.tBodies[0].rows, row => parseFloat(row.cells[3].textContent)) : [];
    const sorted = cells.every((cell, place) => !place || isNaN(cell) || cells[place - 1] <= cell);
    told.push(`${{width}}:${{fits}}:${{sorted}}:${{image}}`);
    if (!--left) document.body.textContent = "told " + told.sort().join(" ") + " end";
  }};
  document.body.append(frame);
}}
</script>"""


@pytest.mark.skipif(BROWSER is None, reason="needs chromium: apt-get install chromium")
@pytest.mark.parametrize("name", ["gpu", "incorrect", "hostile"])
def test_a_page_fits_sorts_and_says_nothing_to_the_console(name: str, tmp_path: Path) -> None:
    """At three widths: no overflow, a column in its order after a click, no message, no request, no dialog."""
    page = hostile() if name == "hostile" else rendered(name)
    status = "failed" if name == "hostile" else SESSIONS[name]().record.status
    (tmp_path / "page.html").write_text(render_page(shipped("templates"), *page, status))
    (tmp_path / "harness.html").write_text(HARNESS.format(widths=list(WIDTHS)))
    command = [str(BROWSER), *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", f"file://{tmp_path}/harness.html"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    match = re.search(r"told (.*) end", done.stdout)
    assert match, done.stderr[-2000:]
    assert {f"{width}:true:true:false" for width in WIDTHS} == set(match[1].split())
    assert [] == re.findall(r".*CONSOLE.*", done.stderr)
