"""What the gate holds a result against: float64, and the bounds that the bench's judge draws around it."""

from pathlib import Path

import numpy
import torch
from torch import Tensor

from loop.bench.child.attention import eager
from loop.bench.child.judge import MAX_FLOOR, MAX_SLACK, MEAN_FLOOR, MEAN_SLACK, errors
from loop.library.targets import target
from loop.places import project
from tests.mutants.workloads import Array, Workload, inputs, rounded, save, widened, workloads

TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def prepare(folder: Path, variant: str) -> None:
    """Write every workload of a variant, with inputs, reference and bounds."""
    torch.set_num_threads(1)
    (folder / variant).mkdir(parents=True, exist_ok=True)
    tolerance = target(project(None, Path("/"))).value.tolerance
    for number, one in enumerate(workloads(variant)):
        bits = [rounded(x, one.dtype) for x in inputs(one, seed=number + 1)]
        bounds = tolerance[one.dtype]  # type: ignore[index]
        truth = judged(one, bits, bounds.atol, bounds.rtol)
        save(folder / variant / f"{number:03}.npz", one, q=bits[0], k=bits[1], v=bits[2], **truth)


def judged(one: Workload, bits: list[Array], atol: float, rtol: float) -> dict[str, Array]:
    """The reference, the allowed error of each element, and the most that all of them and their mean may err."""
    tensors = [torch.from_numpy(widened(x, one.dtype)) for x in bits]
    alignment = "bottom_right" if one.right else "top_left"
    attributes = {"causal": one.causal, "alignment": alignment, "scale": one.scale}
    reference: Tensor = eager(*tensors, **attributes)  # type: ignore[arg-type]
    plain = eager(*(x.to(TYPES[one.dtype]) for x in tensors), **attributes)  # type: ignore[arg-type]
    largest, mean = errors(plain, reference)
    allowed = (atol + rtol * reference.abs().nan_to_num(0.0, 0.0, 0.0)).clamp(min=2 * largest)
    return {
        "reference": reference.numpy(),
        "allowed": allowed.numpy(),
        "largest": numpy.array(MAX_SLACK * largest + MAX_FLOOR),
        "mean": numpy.array(MEAN_SLACK * mean + MEAN_FLOOR),
    }
