"""What a terminal shows, as SVG: colours of its own, light and dark, and text that can be read and searched."""

import re
from collections.abc import Sequence
from html import escape

COLUMNS = 100
WIDTH, HEIGHT, PADDING, BAR = 8.4, 19.0, 16.0, 30.0
"""Of a letter, of a line, of the rim, and of the bar with the command, in units of 14 to the letter."""
KINDS = {"31": "bad", "32": "good", "33": "wait"}
COLOUR = re.compile(r"\x1b\[(\d*)m")
STYLE = """
.t{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}
.paper{fill:#fff;stroke:#d1d9e0}.ink{fill:#1f2328}.soft{fill:#59636e}.good{fill:#1a7f37}.bad{fill:#b34700}
.wait{fill:#7d4e00}
@media (prefers-color-scheme:dark){.paper{fill:#0d1117;stroke:#3d444d}.ink{fill:#f0f6fc}.soft{fill:#9198a1}
.good{fill:#3fb950}.bad{fill:#ff9b50}.wait{fill:#e3b341}}
"""


def settled(text: str) -> list[str]:
    """Lines as they stand when everything was printed: what a carriage return went over is gone."""
    lines = []
    for line in text.replace("\r\n", "\n").split("\n"):
        last = line.split("\r")[-1].replace("\x1b[K", "")
        lines.append(re.sub(r"\x1b\[[0-9;?]*[A-Za-ln-z]", "", last))
    return lines[:-1] if lines and not lines[-1].strip() else lines


def folded(lines: Sequence[str], columns: int = COLUMNS) -> list[str]:
    """Lines as a terminal breaks them."""
    found = []
    for line in lines:
        while len(COLOUR.sub("", line)) > columns and "\x1b" not in line:
            found.append(line[:columns])
            line = line[columns:]
        found.append(line)
    return found


def picture(command: str, text: str, *, about: str) -> str:
    """The terminal with a command and what it printed. `about`: for those who cannot see it."""
    lines = folded(settled(text))
    height = BAR + PADDING + HEIGHT * len(lines) + PADDING
    width = COLUMNS * WIDTH + 2 * PADDING
    rows = [_row(line, BAR + PADDING + HEIGHT * (place + 0.75)) for place, line in enumerate(lines)]
    typed = f'$ <tspan class="ink">{escape(command)}</tspan>'
    head = f'<text class="t soft" x="{PADDING:g}" y="{BAR - 6:g}">{typed}</text>'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" '
            f'aria-label="{escape(about)}">',
            f"<title>{escape(about)}</title><style>{STYLE}</style>",
            f'<rect class="paper" x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1:g}" rx="8"/>',
            head,
            *rows,
            "</svg>\n",
        ]
    )


def _row(line: str, y: float) -> str:
    """One line: pieces of one colour each."""
    pieces, kind, place = [], "ink", 0
    for part in re.split(r"(\x1b\[\d*m)", line):
        found = COLOUR.fullmatch(part)
        if found:
            kind = KINDS.get(found[1], "ink")
        elif part:
            x = PADDING + WIDTH * place
            wide = f' textLength="{WIDTH * len(part):g}" lengthAdjust="spacingAndGlyphs"' if part.strip() else ""
            pieces.append(f'<tspan class="{kind}" x="{x:g}"{wide}>{escape(part)}</tspan>')
            place += len(part)
    return f'<text class="t" y="{y:g}" xml:space="preserve">{"".join(pieces)}</text>'


def shown(svg: str) -> list[str]:
    """The lines that a picture shows: what a check of its structure compares."""
    from xml.etree import ElementTree

    texts = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(one.itertext()) for one in texts]
