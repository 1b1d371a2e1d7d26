"""Which names a model knows at some place: read from its annotations, for hints and descriptions."""

import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from loop.base.documents.complaints import Place

if TYPE_CHECKING:
    from pydantic import BaseModel


def names_at(model: "type[BaseModel]", data: Any, place: Place) -> list[str]:
    """Field names, as files write them, of the mapping at `place` in the data."""
    choices: list[Any] = [model]
    for step in place:
        choices = [inner for choice in _fitting(choices, data) for inner in _inside(choice, step)]
        data = _item(data, step)
    names = [name for choice in _fitting(choices, data) if _is_model(choice) for name in written_names(choice)]
    return list(dict.fromkeys(names))


def written_names(model: "type[BaseModel]") -> dict[str, Any]:
    """Annotations of a model's fields, by the names that files use for them."""
    return {info.alias or name: info.annotation for name, info in model.model_fields.items()}


def models_in(annotation: Any) -> "list[type[BaseModel]]":
    """All models inside an annotation such as `tuple[Step, ...]` or `A | B`."""
    if _is_model(annotation):
        return [annotation]
    return [model for inner in get_args(annotation) for model in models_in(inner)]


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and hasattr(annotation, "model_fields")


def _alternatives(annotation: Any) -> Iterator[Any]:
    """The types that a value of this annotation can have."""
    if get_origin(annotation) is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for inner in get_args(annotation):
            yield from _alternatives(inner)
    else:
        yield annotation


def _inside(annotation: Any, step: str | int) -> list[Any]:
    """The types of what lies one step further in."""
    if _is_model(annotation):
        known = written_names(annotation)
        return list(_alternatives(known[str(step)])) if step in known else []
    inner = get_args(annotation)
    if not inner or get_origin(annotation) is Literal:
        return []
    fixed = get_origin(annotation) is tuple and Ellipsis not in inner
    chosen = inner[step] if fixed and isinstance(step, int) and step < len(inner) else inner[-1]
    return list(_alternatives(inner[0] if chosen is Ellipsis else chosen))


def _fitting(choices: list[Any], data: Any) -> list[Any]:
    """Without the models that the data's own tag, such as `kind: python`, rules out."""
    return [choice for choice in choices if not (_is_model(choice) and _ruled_out(choice, data))]


def _ruled_out(model: "type[BaseModel]", data: Any) -> bool:
    if not isinstance(data, dict):
        return False
    tags = {name: get_args(a) for name, a in written_names(model).items() if get_origin(a) is Literal}
    return any(name in data and data[name] not in allowed for name, allowed in tags.items())


def _item(data: Any, step: str | int) -> Any:
    try:
        return data[step]
    except (KeyError, IndexError, TypeError):
        return None
