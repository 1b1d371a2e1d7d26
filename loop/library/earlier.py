"""Definitions of an earlier release, as today's release writes them: the only place that knows."""

from collections.abc import Mapping
from typing import Any

from loop.model.base import Model
from loop.model.signature import OUTPUT
from loop.model.target import Target


def upgrade(model: type[Model], data: Any) -> Any:
    """Plain data as a `model` of today; what is no such data, or newer, as it is.

    In a manifest of format 1 the `output` of a signature becomes one of its `outputs`, also in components.
    """
    if model is not Target or not isinstance(data, Mapping) or data.get("format") != 1:
        return data
    new = {**_signed(data), "format": 2}
    if isinstance(parts := data.get("components"), Mapping):
        new["components"] = {name: _signed(part) for name, part in parts.items()}
    return new


def _signed(data: Any) -> Any:
    """What has a signature, with its `output` among `outputs`."""
    signature = data.get("signature") if isinstance(data, Mapping) else None
    if not isinstance(signature, Mapping) or "output" not in signature:
        return data
    rest = {name: value for name, value in signature.items() if name != "output"}
    return {**data, "signature": {**rest, "outputs": {OUTPUT: signature["output"]}}}
