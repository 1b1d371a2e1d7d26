"""A small catalogue, and a parser of its pages."""

import html.parser
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from loop.base.places import shipped
from loop.model.index import Environment, FailureSeen, PatternRun, SessionRow, StepRun
from loop.model.money import Charge, Saving, Unmeasured
from loop.model.plan import Plan, Step
from loop.model.target import Target
from loop.site.catalog import Contents, pages
from tests.makers import NOON, make_pattern

TEMPLATES = shipped("templates") / "site"
HOSTILE = (
    "</script></title><img src=x onerror=alert(1)>\"' {{ 7*7 }} {% raw %} &amp; \x1b[31mred\x07 \u202eback "
    "[a](http://evil.example) ]]>"
)
BLOCKS = {"p", "li", "td", "th", "tr", "h1", "h2", "h3", "pre", "summary"}
VOID = {"meta", "link", "input", "br", "img", "hr", "line", "circle", "rect", "path"}


def make_row(name: str = "2026-11-21-120000-quick", **fields: Any) -> SessionRow:
    """A session that measured `cpu`, was charged, saved something and failed in a step."""
    base: dict[str, Any] = {
        "id": name,
        "started": NOON,
        "target": "scaling",
        "plan": "quick",
        "device": "cpu",
        "status": "passed",
        "grade": "B",
        "seconds": 12.0,
        "usd": 0.12,
        "variants": ("ours",),
        "environment": Environment(processor="Some CPU"),
        "ratios": {"ours": 1.5},
        "runs": (PatternRun(pattern="build", status="passed", seconds=2.0, started=NOON, whole=True),),
        "steps": (StepRun(pattern="build", step="verify", status="passed", seconds=2.0),),
        "charges": (Charge(resource="engineer", rate="engineer", seconds=12.0, usd=0.12),),
        "unmeasured": (Unmeasured(resource="ai", reason="nothing is known"),),
    }
    return SessionRow.model_validate({**base, **fields})


def make_target(**fields: Any) -> Target:
    """A target with one compiled variant, one in Python and one program."""
    base: dict[str, Any] = {
        "format": 2,
        "name": "scaling",
        "function": "scale",
        "signature": {"inputs": {"x": "N M"}, "outputs": {"output": "N M"}},
        "reference": {"python": "functions:scale"},
        "baseline": {"python": "functions:scale"},
        "tolerance": {"float32": {"atol": 1e-6, "rtol": 1e-6}},
        "dtypes": {"cpu": "float32", "cuda": "float32"},
        "workloads": {"small": [{"N": 3, "M": 5}]},
        "variants": {
            "ours": {"kind": "c_abi", "device": "cpu", "sources": ["scale.c"], "entry": "scale"},
            "theirs": {"kind": "python", "device": "any", "module": "functions", "function": "scale"},
            "external": {"kind": "command", "device": "cuda", "run": ["./bench"]},
        },
    }
    return Target.model_validate({**base, **fields})


def make_plan(name: str = "quick", patterns: Sequence[str] = ("build",), **fields: Any) -> Plan:
    base = {"format": 1, "name": name, "title": "Try", "patterns": patterns, "workloads": ("small",)}
    return Plan.model_validate({**base, "budget": {"minutes": 1.0}, **fields})


def make_contents(*rows: SessionRow, **fields: Any) -> Contents:
    """The catalogue of one pattern, one plan and these sessions."""
    base: dict[str, Any] = {
        "target": make_target(),
        "patterns": {"build": make_pattern("build")},
        "plans": {"quick": make_plan()},
        "rows": rows,
        "version": "0.2.0",
        "date": "2026-11-21 12:00 UTC",
    }
    return Contents(**{**base, **fields})


def make_hostile() -> Contents:
    """A catalogue with hostile text in every field."""
    step = {"id": "verify", "title": HOSTILE, "action": HOSTILE, "when": HOSTILE, "gate": HOSTILE, "budget_s": 1.0}
    pattern = make_pattern(
        "build",
        title=HOSTILE,
        problem=HOSTILE,
        use_when=(HOSTILE,),
        evidence=({"session": HOSTILE, "note": HOSTILE},),
        next=({"when": HOSTILE, "pattern": "gone"},),
    )
    hostile = Step.model_validate({**step, "mend": HOSTILE, "with": {HOSTILE: [HOSTILE]}, "on_fail": "continue"})
    pattern = pattern.model_copy(update={"steps": (hostile,)})
    failure = FailureSeen(
        text=HOSTILE, subject=HOSTILE, pattern=HOSTILE, step=HOSTILE, message=HOSTILE + "\nline two"
    )
    saving = Saving(pattern=HOSTILE, source=HOSTILE, minutes=1, usd=1)
    row = make_row(
        HOSTILE,
        target=HOSTILE,
        plan=HOSTILE,
        grade=HOSTILE,
        reason=HOSTILE,
        commit=HOSTILE,
        variants=(HOSTILE,),
        emulated=(HOSTILE,),
        environment=Environment(processor=HOSTILE),
        ratios={HOSTILE: 1.2, "ours": 0.5},
        inconclusive=(HOSTILE,),
        incorrect=(f"{HOSTILE}2",),
        runs=(PatternRun(pattern=HOSTILE, status="failed", seconds=1, started=NOON, whole=True),),
        steps=(StepRun(pattern=HOSTILE, step=HOSTILE, status="failed", seconds=1),),
        charges=(Charge(resource="ai", rate=HOSTILE, seconds=0, usd=1),),
        unmeasured=(Unmeasured(resource="ai", reason=HOSTILE),),
        savings=(saving,),
        failures=(failure,),
        notes=(HOSTILE,),
    )
    target = make_target()
    mine = target.variants["ours"].model_copy(update={"title": HOSTILE, "sources": (HOSTILE,)})
    return make_contents(
        row,
        make_row("../../etc/passwd"),
        make_row("index"),
        target=target.model_copy(update={"variants": {**target.variants, "ours": mine}, "properties": (HOSTILE,)}),
        patterns={"build": pattern},
        plans={"quick": make_plan(title=HOSTILE, checks=(HOSTILE,), parameters={HOSTILE: HOSTILE})},
        date=HOSTILE,
        version=HOSTILE,
    )


class Page(html.parser.HTMLParser):
    """A parsed page: elements, text, links, and unclosed elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.wrong: list[str] = []
        self.pieces: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        self.wrong += self._open
        self.tags = [tag for tag, _ in self.elements]
        pairs = [item for _, attributes in self.elements for item in attributes.items()]
        self.links = [str(value) for name, value in pairs if name in ("href", "src")]
        self.ids = [value for name, value in pairs if name == "id" and value]
        self.handlers = [name for name, _ in pairs if name.startswith("on")]
        self.headings = [int(tag[1]) for tag in self.tags if tag in ("h1", "h2", "h3", "h4")]
        self.text = "".join(self.pieces)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Add an element; block elements separate words."""
        self.elements.append((tag, dict(attrs)))
        self.pieces += [" "] if tag in BLOCKS else []
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Add an element without content."""
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """Close the last open element, or note a mismatch."""
        if tag not in VOID and (not self._open or self._open.pop() != tag):
            self.wrong.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)


def site(contents: Contents) -> dict[str, str]:
    """Every file of its site."""
    return dict(pages(TEMPLATES, contents))


def read(files: Mapping[str, str]) -> dict[str, Page]:
    """Every page of it."""
    return {path: Page(text) for path, text in files.items() if path.endswith(".html")}


def target_of(page: str, link: str) -> str:
    """The file that a link of a page leads to, from the top of the site."""
    parts = urllib.parse.urlsplit(urllib.parse.urljoin(f"http://site/{page}", link))
    return urllib.parse.unquote(parts.path).lstrip("/") or "index.html"
