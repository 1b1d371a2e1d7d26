"""Text of any origin as a page may show it, a script may hold it, or a file may be named by it."""

import json
import re
from typing import Any

from loop.base.documents import content_hash
from loop.base.documents.files import plain as as_json
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
BREAKS_OUT = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
"""What may not stand in a script as it is."""


def clean(text: str, longest: int = LONGEST) -> str:
    """`text` without terminal escapes and what cannot be shown, and not endless; line ends and tabs stay."""
    text = text[: 2 * longest]
    if not text.isprintable():
        text = "\n".join(line if line.isprintable() else plain(line) for line in text.split("\n"))
    return text if len(text) <= longest else f"{text[:longest]} ... (cut)"


def in_script(value: Any) -> str:
    """A value as JSON that may stand in a script: ASCII, and nothing that ends the script."""
    text = json.dumps(_cleaned(as_json(value)), separators=(",", ":"))
    for mark, escape in BREAKS_OUT.items():
        text = text.replace(mark, escape)
    return text


def _cleaned(value: Any) -> Any:
    if isinstance(value, dict):
        return {clean(key): _cleaned(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    return clean(value) if isinstance(value, str) else value
