"""Where each thing has its page. Names come from folders and files of users: a page is never outside the site."""

import re

from loop.base.documents import content_hash

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
