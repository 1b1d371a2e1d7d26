"""A definition as YAML text that reads back as the same definition: for drafts, which a person is to edit."""

import re
from typing import Any

import yaml

from loop.base.documents.yaml_text import FORBIDDEN
from loop.model.base import Model

PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9 _.,/<>+-]{0,120}")
"""Text that is written without quotes; everything else gets them."""
NOT_TEXT = ("true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf")
WIDTH = 110


class _Dumper(yaml.SafeDumper):
    """No aliases; text of several lines as a block."""

    def ignore_aliases(self, data: Any) -> bool:
        """Always: loop's own reader refuses them."""
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    value = FORBIDDEN.sub("?", value)
    if "\n" in value:
        style: str | None = "|"
    else:
        plain = PLAIN.fullmatch(value) and value.lower() not in NOT_TEXT and value == value.strip()
        style = None if plain else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def to_yaml(value: Model, comment: str) -> str:
    """A definition as YAML, below a comment; what has its default is left out."""
    fields = {"format": 1, **value.model_dump(mode="json", by_alias=True, exclude_defaults=True)}
    body = yaml.dump(fields, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=WIDTH)
    return f"# {comment}\n{body}"
