"""Writes the best tuning values of a device into a manifest, in a worktree. `loop` edits YAML only here.

Everything outside `best` is unchanged, including comments and order.
"""

import yaml

from loop.base.errors import UsageError
from loop.model.target import Values, literal_text


def with_best(manifest: str, name: str, device: str, values: Values) -> str:
    """The manifest's text with `tuning.NAME.best.DEVICE` set to `values`.

    Raises UsageError if that tuning is missing, or if the edit would change anything else.
    """
    node, data = yaml.compose(manifest), yaml.safe_load(manifest)
    for key in ("tuning", name, "best"):
        inner = node.value if isinstance(node, yaml.MappingNode) else []
        node = next((value for field, value in inner if field.value == key), None)
    if not isinstance(node, yaml.MappingNode):
        raise UsageError(f"the manifest has no tuning.{name}.best")
    best = data["tuning"][name]["best"]
    best[device] = dict(values)
    entries = (f"{key}: {_flow(chosen)}" for key, chosen in best.items())
    between = ",\n" + " " * (node.start_mark.column + 1)
    text = f"{{{between.join(entries)}}}"
    edited = manifest[: node.start_mark.index] + text + manifest[_end(node) :]
    try:
        whole = yaml.safe_load(edited) == data
    except yaml.YAMLError:
        whole = False
    if not whole:
        place = f"tuning.{name}.best.{device}"
        hint = f"write them in by hand: {_flow(values)}"
        raise UsageError(f"the manifest is written so that {place} could not be put in without harm", hint=hint)
    return edited


def _flow(values: Values) -> str:
    return f"{{{', '.join(f'{field}: {literal_text(value)}' for field, value in values.items())}}}"


def _end(node: yaml.Node) -> int:
    """Index after a node's text. For a block, the parser's own end mark includes later comments."""
    if isinstance(node, yaml.MappingNode) and not node.flow_style and node.value:
        return _end(node.value[-1][1])
    return int(node.end_mark.index)
