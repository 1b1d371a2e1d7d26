"""What the judge and workers are told of a target: in their messages' words."""

import random
from pathlib import Path

from loop.calls.call import Call, FunctionTerms
from loop.machine.machine import cores
from loop.model.dtypes import Device
from loop.model.functions import PythonFunction
from loop.model.target import Component, Target, Workload
from loop.model.workloads import fills
from loop.workers.messages import Begin, Expect, Shapes
from loop.workers.workload_call import DRAWS, finds_outputs, wanted_of, widen


def terms_of_judge(target: Target, part: Component | None, folder: Path) -> Begin:
    """A target, or the part of one, as the judge has to know it."""
    signature, modules, checker = target.signature, target.modules, target.checker
    return Begin(
        folder=str(folder),
        threads=cores(),
        reference=target.reference.python,
        plain=_name(target.plain),
        inputs=_name(part.inputs if part else None),
        form=_name(part.form if part else None),
        tolerance={dtype: one for dtype, one in target.tolerance.items()},  # noqa: C416 - str keys
        shapes=Shapes(
            inputs=dict(signature.inputs),
            output=signature.output if len(signature.outputs) == 1 else "",
            choices={name: tuple(one.choices) for name, one in signature.attributes.items()},
            outputs=dict(signature.outputs),
            types=dict(signature.types),
        ),
        updates=dict(signature.updates),
        faults=tuple((as_if, one.python) for as_if, one in target.faults.items()),
        generator=_name(target.generator),
        passes=target.generator.passes if target.generator else "positional",
        is_class=modules is not None,
        arguments=_name(modules.arguments if modules else None),
        checker=_name(checker),
        given=checker.given if checker else (),
        alone=checker is not None and checker.alone,
    )


def _name(function: PythonFunction | None) -> str | None:
    return function.python if function else None


def expectation(
    target: Target, workload: Workload, call: Call, secret: str, device: Device, *, wide: bool
) -> Expect:
    """What the judge is asked to make of a workload. Which values have a known answer follows from the secret."""
    found, secret = finds_outputs(target.signature), f"{secret} {workload.seed}"
    request = Expect(call, (), workload.seed, twice=False, found=found, parameters={})
    if target.generator is not None:
        draws = DRAWS if wide else 1
        draw, parameters = random.Random(secret).randrange(draws), wanted_of(workload)
        place: Device = (
            "cpu" if target.checker else device
        )  # A checker is given tensors as the generator made them.
        return request.but(parameters=parameters, draws=draws, draw=draw, device=place)
    filled = fills(target, workload)
    return request.but(values=filled, call=widen(call, filled, secret, device) if wide else call)


def function_terms(target: Target, name: str) -> FunctionTerms:
    """A function of the target, or a class of which one is made."""
    modules = target.modules
    if modules is None:
        return FunctionTerms(name)
    arguments = modules.arguments.python if modules.arguments else ""
    return FunctionTerms(name, is_class=True, arguments=arguments, is_free=modules.state == "free")
