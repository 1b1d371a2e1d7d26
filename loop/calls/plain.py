"""Plain data with named fields, made without the standard library's dataclasses.

Their import and each of them take a worker some milliseconds, of the few in which it starts.
"""

from typing import Any, Self, dataclass_transform


@dataclass_transform(frozen_default=True)
class Plain:
    """A value whose fields are those that its class annotates, in that order. Not to be changed."""

    def __init__(self, *values: Any, **named: Any) -> None:
        kind = type(self)
        given = {**dict(zip(kind.__annotations__, values, strict=False)), **named}
        fields = {name: given[name] if name in given else getattr(kind, name) for name in kind.__annotations__}
        if given.keys() - fields.keys() or len(values) > len(fields):
            raise TypeError(f"{kind.__name__} has no such fields: {given}")
        self.__dict__.update(fields)

    def but(self, **changes: Any) -> Self:
        """The same with changes."""
        return type(self)(**{**vars(self), **changes})

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"
