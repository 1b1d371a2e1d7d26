"""Text of any origin as a page may show it, and values as a script may hold them."""

import json
from typing import Any

from loop.base.documents.files import plain as as_json
from loop.report.plain import plain

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
