"""`loop init` on thirty functions, modules and C++ files of different kinds: which are judged at once.

`rows` is what `make bench-coverage` prints: 27 are right and have to be judged so without an edit; 3 cannot be
judged, and `loop init` has to say why.
"""

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parent / "coverage_init_sources"
LIMIT_S = 300


@dataclass(frozen=True)
class Example:
    """One thing that `loop init` is given."""

    name: str
    words: str
    """Of the command, after the folder."""
    judged: bool = True
    """Whether it is judged at once, else told what is missing."""
    says: str = ""
    """What is said of one that cannot be judged."""


EXAMPLES = (
    Example("function with a default", "--from functions:softmax --like x=N,M"),
    Example("in place", "--from functions:scale_ --like x=N,M"),
    Example("two outputs", "--from functions:normalized --like x=N,M"),
    Example("dict of outputs", "--from functions:statistics --like x=B,S,D"),
    Example("NamedTuple", "--from functions:largest --like x=64,100"),
    Example("dataclass argument", "--from functions:rope --like q=B,S,H,D --like positions=B,S"),
    Example("object of attributes", "--from functions:gated --like x=N,D --like w=D,D"),
    Example("indices", "--from functions:looked_up --like table=V,D --like ids=B,S"),
    Example("typed indices", "--from functions:taken --like x=N,M --like where=N,K:int64<M"),
    Example("mask", "--from functions:masked --like scores=B,H,S,T --like mask=B,S,T"),
    Example("labels", "--from functions:loss --like logits=N,C --like labels=N"),
    Example("keyword only", "--from functions:clipped --like x=N,M"),
    Example("optional tensor", "--from functions:linear --like x=N,K --like weight=M,K --like bias=M"),
    Example("list of tensors", "--from functions:joined --like parts=N,M"),
    Example("decorated", "--from functions:decorated --like x=N,M --like y=N,M"),
    Example("convolution", "--from functions:filtered --like x=B,C,H,W --like w=O,C,R,S"),
    Example("int8 product", "--from functions:quantised --like a=M,K:int8 --like b=K,N:int8 --like scale=N"),
    Example("module", "--from modules:Block --like x=B,S,D"),
    Example("module with a mask", "--from modules:Attention --like x=B,S,D --like mask=B,S --set heads=4"),
    Example("embedding", "--from modules:Embedding --like ids=B,S"),
    Example("batch norm", "--from modules:Convolved --like x=B,C,H,W"),
    Example("method", "--from modules:Scaler.apply --like x=N,M"),
    Example("C++, w and W", "--from depthwise.cpp --reference functions:depthwise --like x=C,W --like w=C,K"),
    Example("C++, two outputs", "--from moments.cpp --reference functions:moments --like x=N,M"),
    Example("C++, template", "--from scaled.cpp --reference functions:scaled --like x=N,M --set factor=3.0"),
    Example("C++, int8 and scratch", "--from product.cpp --reference functions:product --like a=M,K --like b=K,N"),
    Example("C, double", "--from summed.c --reference functions:summed --like x=N,M"),
    Example("no gradient", "--from functions:gradient --like x=N,M", judged=False, says="torch.no_grad"),
    Example("random", "--from functions:dropped --like x=N,M", judged=False, says="two results"),
    Example(
        "C++, a class",
        "--from tensors.cpp --reference functions:scaled --like x=N,M",
        judged=False,
        says="at::Tensor",
    ),
)


def rows(folder: Path, loop: Path) -> list[dict[str, Any]]:
    """A row for each example: its name, `judged`, `told` or `failed`, seconds, and the last line that was said."""
    for source in SOURCES.iterdir():
        (folder / source.name.removesuffix(".txt")).write_text(source.read_text())
    return [_row(one, folder, loop) for one in EXAMPLES]


def _row(example: Example, folder: Path, loop: Path) -> dict[str, Any]:
    began, target = time.monotonic(), "t-" + "".join(c if c.isalnum() else "-" for c in example.name.lower())
    done = _run(folder, loop, "init", target, *example.words.split())
    if example.judged and done.returncode == 0:
        done = _run(folder, loop, "trust", target)
        done = _run(folder, loop, "kernels", "verify", "--target", target)
        outcome = "judged" if done.returncode == 0 and " of " in done.stdout else "failed"
    else:
        told = not example.judged and done.returncode == 2 and example.says in done.stderr
        outcome = "told" if told else "failed"
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    return {"name": example.name, "outcome": outcome, "seconds": time.monotonic() - began, "last": last}


def _run(folder: Path, loop: Path, *words: str) -> subprocess.CompletedProcess[str]:
    own = {name: str(folder / name.lower()) for name in ("LOOP_CACHE", "LOOP_STATE")}
    command = [str(loop), *words]
    environment = {**os.environ, **own}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
