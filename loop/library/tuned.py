"""Writes the best tuning values of a device into a manifest, in a worktree. `loop` edits YAML only here.

Everything outside `best` is unchanged, including comments and order.
"""

import yaml

from loop.base.errors import UsageError
from loop.model.target import Values, literal_text


def write_best(manifest: str, name: str, device: str, values: Values) -> str:
    """The manifest's text with `tuning.NAME.best.DEVICE` set to `values`.
    Raises UsageError if that tuning is missing, or if the edit would change anything else."""
    node, data = yaml.compose(manifest), yaml.safe_load(manifest)
    for key in ("tuning", name, "best"):
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        node = next((value for field, value in pairs if field.value == key), None)
    if not isinstance(node, yaml.MappingNode):
        raise UsageError(f"the manifest has no tuning.{name}.best")
    best_by_device = data["tuning"][name]["best"]
    best_by_device[device] = dict(values)
    entries = (f"{key}: {_flow_mapping(chosen)}" for key, chosen in best_by_device.items())
    separator = ",\n" + " " * (node.start_mark.column + 1)
    best_text = f"{{{separator.join(entries)}}}"
    edited_manifest = manifest[: node.start_mark.index] + best_text + manifest[_end_index(node) :]
    try:
        is_same_otherwise = yaml.safe_load(edited_manifest) == data
    except yaml.YAMLError:
        is_same_otherwise = False
    if not is_same_otherwise:
        place = f"tuning.{name}.best.{device}"
        hint = f"write them in by hand: {_flow_mapping(values)}"
        raise UsageError(f"the manifest is written so that {place} could not be put in without harm", hint=hint)
    return edited_manifest


def _flow_mapping(values: Values) -> str:
    """Values as a YAML mapping on one line: `{ROWS: 64, WARPS: 4}`."""
    pairs = [f"{field}: {literal_text(value)}" for field, value in values.items()]
    return f"{{{', '.join(pairs)}}}"


def _end_index(node: yaml.Node) -> int:
    """Index after a node's text. A block ends with its last value: the parser's mark is after comments."""
    if isinstance(node, yaml.MappingNode) and not node.flow_style and node.value:
        return _end_index(node.value[-1][1])
    return int(node.end_mark.index)
