"""What the gate holds a result against: float64, and the bounds that the bench's judge draws around it."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy
import torch
from torch import Tensor

from loop.base.places import project
from loop.calls.call import TensorFile
from loop.gate.emulating import too_much
from loop.library.targets import target
from loop.model.dtypes import Dtype
from loop.model.signature import Fill
from loop.model.target import Target
from loop.model.target import Workload as Shaped
from loop.model.workloads import expand, fills, shape
from loop.workers.asking import make_values
from loop.workers.attention import eager
from loop.workers.truth import errors, most_lost
from tests.mutants.workloads import Array, Workload, inputs, rounded, save, widened, workloads

TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
DTYPES: dict[str, Dtype] = {"float16": "float16", "bfloat16": "bfloat16"}
SETS = ("history", "edges", "values")
"""What the bundled plans check on."""
SEED = 1


def prepare(folder: Path, variants: Iterable[str], *, with_manifest: bool) -> None:
    """Write the workloads of variants, and those of the manifest, with inputs, reference and bounds."""
    torch.set_num_threads(1)
    for variant in variants:
        ours = workloads(variant)
        _write(folder / "ours" / variant, [(one, inputs(one, seed=n + 1)) for n, one in enumerate(ours)])
    if with_manifest:
        _write(folder / "manifest", list(of_manifest()))


def _write(folder: Path, calls: Sequence[tuple[Workload, Sequence[Array]]]) -> None:
    folder.mkdir(parents=True)
    tolerance = manifest().tolerance
    for number, (one, values) in enumerate(calls):
        bits = [rounded(x, one.dtype) for x in values]
        bounds = tolerance[DTYPES[one.dtype]]
        truth = judged(one, bits, bounds.atol, bounds.rtol)
        save(folder / f"{number:03}.npz", one, q=bits[0], k=bits[1], v=bits[2], **truth)


@functools.cache
def manifest() -> Target:
    """The bundled target."""
    return target(project(None, Path("/"))).value


def of_manifest() -> Iterator[tuple[Workload, Sequence[Array]]]:
    """What a session checks variants on under the emulator, values included."""
    bundled, laid_out = manifest(), set()
    for one in expand(bundled, SETS, "float16", seed=SEED):
        ours = _converted(one)
        if too_much(bundled, one):
            continue
        values = [_values(one, fill, n) for n, fill in enumerate(fills(bundled, one))]
        yield ours, values
        if one.dtype not in laid_out:
            laid_out.add(one.dtype)
            yield replace(ours, layout="strided"), values


def _converted(one: Shaped) -> Workload:
    sizes, attributes = one.sizes, one.attributes
    scale = attributes["scale"]
    return Workload(
        sizes["Sq"],
        sizes["Sk"],
        sizes["D"],
        sizes["B"],
        sizes["Hq"],
        bool(attributes["causal"]),
        attributes["alignment"] == "bottom_right",
        None if scale is None else float(scale),
        one.dtype,
        one.values,
        group=sizes["Hq"] // max(1, sizes["Hk"]),
    )


def _values(one: Shaped, fill: Fill, index: int) -> Array:
    names = manifest().signature.inputs
    text = list(names.values())[index]
    axis = text.split().index(fill.nan_along) if fill.nan_along else None
    stream = numpy.random.RandomState((one.seed * 64 + index) % 2**32)
    sizes = shape(text, one)
    return make_values(fill, stream, TensorFile("", "", sizes, one.dtype), axis).reshape(sizes)


def judged(one: Workload, bits: list[Array], atol: float, rtol: float) -> dict[str, Array]:
    """The reference, the allowed error of each element, and the most that all of them and their mean may err."""
    tensors = [torch.from_numpy(widened(x, one.dtype)) for x in bits]
    alignment = "bottom_right" if one.right else "top_left"
    attributes = {"causal": one.causal, "alignment": alignment, "scale": one.scale}
    reference: Tensor = eager(*tensors, **attributes)  # type: ignore[arg-type]
    plain = eager(*(x.to(TYPES[one.dtype]) for x in tensors), **attributes)  # type: ignore[arg-type]
    largest, mean = errors(plain, reference)
    allowed = (atol + rtol * reference.abs().nan_to_num(0.0, 0.0, 0.0)).clamp(min=2 * largest)
    most = most_lost(reference, largest, mean, one.dtype)
    return {
        "reference": reference.numpy(),
        "allowed": allowed.numpy(),
        "largest": numpy.array(most[0]),
        "mean": numpy.array(most[1]),
    }
