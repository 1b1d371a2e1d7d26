"""The best values of a device, written into a manifest: loop edits YAML here alone, in a worktree of its own.

Comments, order and everything else stay as they are.
"""

import yaml

from loop.errors import LoopError
from loop.model.tuning import Values


def with_best(manifest: str, name: str, device: str, values: Values) -> str:
    """The text of a manifest in which `tuning.NAME.best.DEVICE` has these values.

    Raises LoopError where the manifest does not have that tuning.
    """
    best = _at(yaml.compose(manifest), ("tuning", name, "best"))
    if not isinstance(best, yaml.MappingNode):
        raise LoopError(f"the manifest has no tuning.{name}.best")
    text = f"{{{', '.join(f'{field}: {_scalar(value)}' for field, value in values.items())}}}"
    old = _at(best, (device,))
    if old is not None:
        return manifest[: old.start_mark.index] + text + manifest[_end(old) :]
    return _added(manifest, best, f"{device}: {text}")


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
        return f"{manifest[: end - 1]}, {entry}{manifest[end - 1 :]}"
    end = manifest.find("\n", end)
    end = len(manifest) if end < 0 else end
    return f"{manifest[:end]}\n{' ' * column}{entry}{manifest[end:]}"


def _scalar(value: bool | int) -> str:
    return str(value).lower()
