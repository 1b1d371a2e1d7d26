"""`loop init` on thirty functions, modules and C++ files: which of them can be verified without an edit?

`make bench-coverage` prints `rows`. 27 are right, and have to be judged so without an edit. 3 cannot be
judged, and `loop init` has to say why.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.rig import Rig

SOURCES = Path(__file__).parent / "coverage_init_sources"
LIMIT_S = 300


@dataclass(frozen=True)
class Example:
    """One source for `loop init`."""

    name: str
    words: str
    """Arguments of the command, after the folder."""
    judged: bool = True
    """Whether it can be verified at once; else `loop init` says what is missing."""
    says: str = ""
    """A part of the message about one that cannot be judged."""


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


def rows(rig: Rig) -> Iterator[dict[str, Any]]:
    """A row for each example: its name, `judged`, `told` or `failed`, seconds, and the last line of output."""
    folder = rig.folder / "init"
    folder.mkdir()
    for source in SOURCES.iterdir():
        (folder / source.name.removesuffix(".txt")).write_text(source.read_text())
    for example in EXAMPLES:
        target = "t-" + "".join(c if c.isalnum() else "-" for c in example.name.lower())
        run = rig.run("init", target, *example.words.split(), cwd=folder, limit_s=LIMIT_S)
        seconds, outcome = run.seconds, "failed"
        if not example.judged:
            outcome = "told" if run.code == 2 and example.says in run.text else "failed"
        elif run.code == 0:
            rig.run("trust", target, cwd=folder)
            run = rig.run("kernels", "verify", "--target", target, cwd=folder, limit_s=LIMIT_S)
            outcome = "judged" if run.code == 0 and " of " in run.text else "failed"
            seconds += run.seconds
        last = (run.text.strip() or "nothing was said").splitlines()[-1]
        yield {"name": example.name, "outcome": outcome, "seconds": seconds, "last": last}
