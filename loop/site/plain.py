"""Text of any origin as a page may show it, or a file may be named by it."""

import re

from loop.base.documents import content_hash
from loop.report.plain import plain

SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
TAKEN = ("index",)
"""Pages of a section that no thing of it may have."""


def stem(name: str) -> str:
    """What the page of `name` is called, without its ending; a hash where the name is no plain file name."""
    if SAFE.fullmatch(name) and name.lower() not in TAKEN:
        return name
    return f"x-{content_hash(name.encode(errors='surrogatepass'))[:16]}"


def page(section: str, name: str) -> str:
    """Its page, from the top of the site."""
    return f"{section}/{stem(name)}.html"


LONGEST = 20_000
"""Characters of one text that a page shows."""


def clean(text: str, longest: int = LONGEST) -> str:
    """`text` without terminal escapes and what cannot be shown, and not endless; line ends and tabs stay."""
    text = text[: 2 * longest]
    if not text.isprintable():
        text = "\n".join(line if line.isprintable() else plain(line) for line in text.split("\n"))
    return text if len(text) <= longest else f"{text[:longest]} ... (cut)"
