"""Which negative controls a target has: made from its signature, so that every target gets them.

A control is an honest variant with a mistake put in (`loop.mistakes` makes it). The gate has to reject
it, for the reason that stands here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from loop.calls.call import attribute_number
from loop.mistakes.wrong_results import WrongResult, wrong_results
from loop.model.causes import Cause
from loop.model.signature import OUTPUT, Signature
from loop.model.target import Target, Workload

EVERYWHERE = ("c_abi", "python")
Causes = tuple[Cause, ...]
WRONG: Causes = ("elements", "loose tolerance", "NaN", "plain error")
MISSING: Causes = (*WRONG, "launched nothing", "not written")
CHANGED: Causes = ("changed input",)

Applies = Callable[[Workload], bool]


def always(workload: Workload) -> bool:
    """On every workload."""
    return True


@dataclass(frozen=True)
class Control:
    """One way to be wrong, and what it has to be found by."""

    name: str
    make: str
    """The mistake's name in the worker."""
    expected: Causes = WRONG
    """What the gate may find, where either is right."""
    theme: Literal["value", "cheat", "honest"] = "value"
    """A wrong result; a result that is right only while it is looked at; or no mistake, which has to pass."""
    kinds: Sequence[str] = EVERYWHERE
    """Kinds of variant that can make it."""
    applies: Applies = always
    """Workloads on which it can show."""
    shortens: Sequence[str] = ()
    """Dimensions of which it leaves the last eighth out: a variant may not take what is left."""
    varies: bool = False
    """Whether its outputs differ from run to run: no mistake in a variant whose bits may vary."""
    terms: Mapping[str, Any] = field(default_factory=dict)
    """What else the worker has to know."""

    def left(self, workload: Workload) -> Workload:
        """The workload that a variant sees."""
        sizes = {name: size - max(1, size // 8) for name, size in workload.sizes.items() if name in self.shortens}
        return workload.model_copy(update={"sizes": {**workload.sizes, **sizes}})

    def mistake(self, target: Target, dtype: str) -> dict[str, Any]:
        """The mistake as a worker gets it."""
        tolerance = target.tolerance.get(dtype)  # type: ignore[call-overload]
        return {
            "name": self.name,
            "make": self.make,
            "tolerance": tolerance.model_dump(include={"atol", "rtol"})
            if tolerance
            else {"atol": 0.0, "rtol": 0.0},
            "attributes": list(target.signature.attributes),
            **({"is_class": True} if target.modules else {}),
            **self.terms,
        }


GROSS = "zeros"
"""Where this mistake passes the tolerance is wider than every output."""
MAY_BE_WITHIN = (
    *("ignore", "swap", "cut", "round_inputs", "set_attribute", "wrong_number"),
    *("one_off", "growing"),
)
"""Mistakes that the target's inputs may not tell: their error depends on the function. Or it is a multiple of the
stated tolerance, and what rounding costs this function is more."""


WAY = Control("honest, by way of a control", "none", expected=(), theme="honest")
"""Goes through the controls' arrays and has to pass: what rejects the others is their mistake, not the way."""
EXACT = Control("honest, in float64", "exact", expected=(), theme="honest")
"""Rounds otherwise than the reference in its own type, and has to pass as well."""


def controls(signature: Signature) -> tuple[Control, ...]:
    """All controls that a target allows; several of a kind, of which one that can show is tried."""
    return (
        *_attributes(signature),
        *_wrong_results(signature),
        *_remembering(),
        *_effects(signature),
        *_of_python(signature),
    )


UNKNOWN = ("cut",)
"""Mistakes that need to know which dimensions of the inputs are the same."""


def of_structure(inputs: Sequence[Sequence[int]], output: Sequence[int]) -> Iterator[tuple[Control, bool]]:
    """Controls of a function of any structure, by the shapes of the floating-point tensors among its inputs and of
    the first among its outputs, in a Python variant. With each: whether it can show on these shapes.
    """
    sizes: dict[str, int] = {}
    texts = {}
    for name, shape in [*((f"input{n}", shape) for n, shape in enumerate(inputs)), (OUTPUT, output)]:
        axes = [f"axis{axis}" if name == OUTPUT else f"{name}_{axis}" for axis in range(len(shape))]
        sizes |= dict(zip(axes, shape, strict=True))
        texts[name] = " ".join(axes)
    signature = Signature.model_construct(inputs=texts, outputs={OUTPUT: texts.pop(OUTPUT)}, attributes={})
    workload = Workload(name="shapes", sizes=sizes, dtype="float32")
    for control in controls(signature):
        if "python" in control.kinds and control.make not in UNKNOWN:
            # What is not computed may show as any wrong value: of another output.
            known = replace(control, expected=WRONG) if control.expected == ("NaN",) else control
            yield known, control.applies(workload)


REASONS: dict[str, Causes] = {"leave_tail": ("NaN",), "one_nan": ("NaN",), "nothing": ("NaN",)}
"""What a wrong result has to be found by, where that is not any wrong element."""


def _wrong_results(signature: Signature) -> Iterator[Control]:
    """Wrong results that are controls, and writes outside an output."""
    for mistake in wrong_results(signature.inputs, signature.output):
        if mistake.control:
            expected = REASONS.get(mistake.make, WRONG)
            shortens = mistake.sized if mistake.make in UNKNOWN else ()
            applies = partial(_shows, mistake)
            yield Control(
                mistake.control, mistake.make, expected, applies=applies, shortens=shortens, terms=mistake.terms
            )
    yield Control("writes beyond the end", "beyond", ("outside",), kinds=("c_abi",))
    yield Control("writes before the beginning", "before", ("outside",), kinds=("c_abi",))


def _shows(mistake: WrongResult, workload: Workload) -> bool:
    return mistake.shows(workload.sizes)


def _same_shape(dimensions: str, other: str) -> Applies:
    pairs = list(zip(dimensions.split(), other.split(), strict=True))
    return lambda workload: all(workload.sizes[a] == workload.sizes[b] for a, b in pairs)


def _attributes(signature: Signature) -> Iterator[Control]:
    """Of each attribute one control: a wrong number, or the initial value whatever the call asks for."""
    for name, attribute in signature.attributes.items():
        if attribute.kind == "number":
            yield Control(f"wrong {name}", "wrong_number", terms={"attribute": name})
            continue
        as_double = attribute_number(attribute.choices, attribute.initial)
        terms = {"attribute": name, "to": attribute.initial, "number": as_double}
        yield Control(f"drops {name}", "set_attribute", applies=_sets(name, attribute.initial), terms=terms)


def _sets(name: str, initial: object) -> Applies:
    return lambda workload: workload.attributes[name] != initial


def _remembering() -> Iterator[Control]:
    only: dict[str, Any] = {"theme": "cheat"}
    yield Control("stale output", "stale", **only)
    yield Control("skips every other call", "skip_every_other", ("NaN",), **only)
    yield Control("cached by address", "by_address", **only)
    yield Control("keeps a copy of its inputs", "keeps_inputs", **only)


def _effects(signature: Signature) -> Iterator[Control]:
    for place, (name, dimensions) in enumerate(signature.inputs.items()):
        terms = {"input": place}
        yield Control(f"writes to {name}", "write_input", CHANGED, "cheat", terms=terms)
        yield Control(f"uses {name} as workspace", "use_input", CHANGED, "cheat", terms=terms)
        if len(dimensions.split()) == len(signature.output.split()):
            alike = _same_shape(dimensions, signature.output)
            yield Control(f"answers in {name}", "answer_in_input", CHANGED, "cheat", applies=alike, terms=terms)
    yield Control("not deterministic", "vary", ("two outputs",), "cheat", varies=True)


def _of_python(signature: Signature) -> Iterator[Control]:
    only: dict[str, Any] = {"theme": "cheat", "kinds": ("python",)}
    yield Control("gives a promise", "give_promise", ("wrong result",), **only)
    yield Control("gives another type", "other_type", ("wrong result",), **only)
    yield Control("keeps its result", "keep_result", **only)
    yield Control("leaves every other result unwritten", "leave_unwritten", MISSING, **only)
    for place, (name, dimensions) in enumerate(signature.inputs.items()):
        if len(dimensions.split()) == len(signature.output.split()):
            alike = _same_shape(dimensions, signature.output)
            yield Control(f"gives {name} back", "give_input", applies=alike, terms={"input": place}, **only)
