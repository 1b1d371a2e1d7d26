"""What of a target of format 2 does not fit together: inputs that nobody makes, values that nobody takes."""

from collections.abc import Iterator

from loop.base.documents import Complaint, complain
from loop.library.definitions import Read
from loop.model.dtypes import is_floating
from loop.model.signature import ANY
from loop.model.target import CAbiVariant, CommandVariant, Target


def task_complaints(read: Read[Target]) -> Iterator[Complaint]:
    """Everything that does not fit, at its line."""
    if read.value.generator is None:
        yield from _unmade(read)
    if not read.value.is_plain:
        yield from _unheld(read)
    yield from _own_types(read)
    yield from _not_callable(read)


def _unmade(read: Read[Target]) -> Iterator[Complaint]:
    """What only a generator can make, or is given to."""
    signature, document = read.value.signature, read.document
    if not signature.inputs:
        yield complain(document, ("signature", "inputs"), "inputs with their dimensions, or a `generator`", "none")
    for name, text in signature.inputs.items():
        if ANY in text.split():
            expected = f"dimensions of {name}, or a `generator` that makes it"
            yield complain(document, ("signature", "inputs", name), expected, repr(text))
    for name, dtype in signature.types.items():
        if name in signature.inputs and not is_floating(dtype):
            expected = f"a `generator`: nothing else fills an input of {dtype}"
            yield complain(document, ("signature", "types", name), expected, "none")
    for field in ("sizes", "parameters"):
        if getattr(signature, field):
            yield complain(document, ("signature", field), f"a `generator` that takes {field}", "none", key=True)


def _unheld(read: Read[Target]) -> Iterator[Complaint]:
    """What is told of a function of tensors, one by one, with one output."""
    for field in ("properties", "components"):
        if getattr(read.value, field):
            expected = "tensors one by one and one output, whose dimensions the signature tells"
            yield complain(read.document, (field,), expected, "a target of another kind", key=True)


def _own_types(read: Read[Target]) -> Iterator[Complaint]:
    """Texts that the function is given: a C kernel cannot take them."""
    for name, attribute in read.value.signature.attributes.items():
        if attribute.kind == "text":
            place = ("signature", "attributes", name, "kind")
            yield complain(read.document, place, "flag, choice or number", "text", "a text can be a parameter")


def _not_callable(read: Read[Target]) -> Iterator[Complaint]:
    """Variants that cannot be called with what the target's functions are given."""
    target = read.value
    if target.modules is None:
        return
    for name, variant in target.variants.items():
        if isinstance(variant, CAbiVariant | CommandVariant):
            expected = "a variant in Python: with `modules` functions are classes"
            yield complain(read.document, ("variants", name, "kind"), expected, variant.kind)
