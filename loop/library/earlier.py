"""Definitions of an earlier release, as today's release writes them: the only place that knows."""

from collections.abc import Callable, Mapping
from typing import Any

from loop.model.base import Model
from loop.model.signature import OUTPUT
from loop.model.target import Target


def target_of_format_1(data: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest of format 1 in format 2: the `output` of a signature is one of its `outputs`."""
    parts = data.get("components")
    new = {name: _signed(part) for name, part in parts.items()} if isinstance(parts, Mapping) else parts
    return {**_signed(data), "format": 2, **({} if parts is None else {"components": new})}


def _signed(data: Any) -> Any:
    """What has a signature, with its `output` among `outputs`."""
    signature = data.get("signature") if isinstance(data, Mapping) else None
    if not isinstance(signature, Mapping) or "output" not in signature:
        return data
    rest = {name: value for name, value in signature.items() if name != "output"}
    return {**data, "signature": {**rest, "outputs": {OUTPUT: signature["output"]}}}


UPGRADES: Mapping[tuple[type[Model], int], Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    (Target, 1): target_of_format_1
}
"""Model and format number to what brings plain data into the next format."""


def upgraded(model: type[Model], data: Any) -> Any:
    """Plain data as a `model` of today; what is no such data, or newer, as it is."""
    while isinstance(data, Mapping) and type(number := data.get("format")) is int and (model, number) in UPGRADES:
        data = UPGRADES[model, number](data)
    return data
