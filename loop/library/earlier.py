"""Upgrades definitions of earlier releases. No other file knows old formats."""

from collections.abc import Mapping
from typing import Any

from loop.model.base import Model
from loop.model.signature import OUTPUT
from loop.model.target import Target


def upgrade(model: type[Model], data: Any) -> Any:
    """Upgrade plain YAML data for `model` to the current format; return other data unchanged.
    A manifest of format 1 has one `output` per signature; it becomes an entry of `outputs`."""
    if model is not Target or not isinstance(data, Mapping) or data.get("format") != 1:
        return data
    upgraded = {**_move_output(data), "format": 2}
    if isinstance(components := data.get("components"), Mapping):
        upgraded["components"] = {name: _move_output(part) for name, part in components.items()}
    return upgraded


def _move_output(data: Any) -> Any:
    """A target or component whose signature has its `output` moved into `outputs`."""
    signature = data.get("signature") if isinstance(data, Mapping) else None
    if not isinstance(signature, Mapping) or "output" not in signature:
        return data
    other_fields = {name: value for name, value in signature.items() if name != "output"}
    return {**data, "signature": {**other_fields, "outputs": {OUTPUT: signature["output"]}}}
