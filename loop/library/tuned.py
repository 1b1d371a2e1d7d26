"""The best values of a device, written into a manifest: loop edits YAML here alone, in a worktree of its own.

Comments, order and everything else stay as they are.
"""

from typing import Any

import yaml

from loop.base.errors import UsageError
from loop.model.tuning import Values, literal


def with_best(manifest: str, name: str, device: str, values: Values) -> str:
    """The text of a manifest in which `tuning.NAME.best.DEVICE` has these values.

    Raises LoopError where the manifest does not have that tuning, or is written so that they cannot be put in.
    """
    best = _at(yaml.compose(manifest), ("tuning", name, "best"))
    if not isinstance(best, yaml.MappingNode):
        raise UsageError(f"the manifest has no tuning.{name}.best")
    text = f"{{{', '.join(f'{field}: {literal(value)}' for field, value in values.items())}}}"
    old = _at(best, (device,))
    if old is not None:
        edited = manifest[: old.start_mark.index] + text + manifest[_end(old) :]
    else:
        edited = _added(manifest, best, f"{device}: {text}")
    return _checked(edited, manifest, ("tuning", name, "best", device), values)


def _at(node: yaml.Node | None, path: tuple[str, ...]) -> yaml.Node | None:
    """The node below another; None where there is none."""
    for key in path:
        if not isinstance(node, yaml.MappingNode):
            return None
        node = next((value for name, value in node.value if name.value == key), None)
    return node


def _end(node: yaml.Node) -> int:
    """Where a node's text ends. The parser's own mark lies behind the comments that follow a block."""
    if isinstance(node, yaml.MappingNode) and not node.flow_style and node.value:
        return _end(node.value[-1][1])
    return int(node.end_mark.index)


def _added(manifest: str, best: yaml.MappingNode, entry: str) -> str:
    """One more entry at the end of a mapping, written as the mapping is."""
    end, column = _end(best), best.start_mark.column
    if best.flow_style:
        place, comma = _behind_last(manifest, best)
        return f"{manifest[:place]}{comma}{entry}{manifest[place:]}"
    end = manifest.find("\n", end)
    end = len(manifest) if end < 0 else end
    return f"{manifest[:end]}\n{' ' * column}{entry}{manifest[end:]}"


def _behind_last(manifest: str, mapping: yaml.MappingNode) -> tuple[int, str]:
    """Where the last token before a flow mapping's closing brace ends; what belongs between it and an entry."""
    begin = mapping.start_mark.index
    *_, last, _brace, _end = yaml.scan(manifest[begin : mapping.end_mark.index])
    between = {yaml.FlowEntryToken: " ", yaml.FlowMappingStartToken: ""}
    return begin + last.end_mark.index, between.get(type(last), ", ")


def _checked(text: str, manifest: str, path: tuple[str, ...], values: Values) -> str:
    """The text, read again. Raises LoopError unless it says the same as before, but for these values."""
    document = yaml.safe_load(manifest)
    *parents, last = path
    node: dict[str, Any] = document
    for key in parents:
        node = node[key]
    node[last] = dict(values)
    try:
        read = yaml.safe_load(text)
    except yaml.YAMLError:
        read = None
    if read != document:
        place = ".".join(path)
        by_hand = ", ".join(f"{name}: {literal(value)}" for name, value in values.items())
        hint = f"write them in by hand: {{{by_hand}}}"
        raise UsageError(f"the manifest is written so that {place} could not be put in without harm", hint=hint)
    return text
