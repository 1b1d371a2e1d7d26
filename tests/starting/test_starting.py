"""`loop init` writes a target that can be judged at once, of a function, a file or a program."""

import json
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from loop.base.errors import UsageError
from loop.builds.resources import requests_report
from loop.cli import app
from loop.library import targets
from loop.library.definitions import find_project
from loop.machine.machine import machine
from loop.model.target import CAbiVariant, Target
from loop.starting.model import TensorSpec
from loop.starting.source import read_kernel, sources_to_edit, write_entry

OPS = """
import os
from dataclasses import dataclass
import torch
from helping import twice

def softmax(x, dim=-1):
    return torch.softmax(x, dim)

def add(x, y):
    return x + twice(y) / 2

def rows(x, weight):
    return x.sum(-1) + weight.sum(-1)

def scale(x):
    return twice(x)

def pairs(x):
    return x.reshape(x.shape[0] * x.shape[1] // 2, 2).sum(-1), x.sum()

def segments(x, offsets):
    return torch.stack([x[begin:end].sum(0) for begin, end in zip(offsets[:-1], offsets[1:])])

def normalised(x):
    deviation = (x.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()
    return (x - x.mean(-1, keepdim=True)) / deviation + x / x.abs().amax(-1, keepdim=True).clamp(min=1e-12)

def grouped(x):
    return x.reshape(len(x), 8, -1).mean(-1)

def distances(x):
    return (x[:, None] - x[None]).abs().sum(1)

def repeated(x, bounds):
    return x[: bounds[-1]] + torch.repeat_interleave(bounds[1:], bounds[1:] - bounds[:-1])[: bounds[-1]] * 0

def powered(x, weights: int = 2, half: bool = False):
    return (x * 0.5 if half else x) ** weights

def digits(keys, shift=8):
    return torch.bincount(keys >> shift & 255, minlength=256)

def both(x):
    return twice(x), x.sum(-1)

WEIGHT = torch.rand(4)

def drawn(x):
    return x * WEIGHT

def crashing(x):
    return os.abort() if len(x) > 60_000 else x * 2

def nothing(x):
    return None

def parts(x, n: int):
    return torch.chunk(x, n)

leaky = torch.ops.aten.leaky_relu.default

@dataclass
class Config:
    theta: float = 3.0

def turned(q, positions, config: Config):
    return torch.cos(positions[:, None] * config.theta) * q

def looked_up(table, ids):
    return table[ids]

class Block(torch.nn.Module):
    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.norm, self.heads = torch.nn.LayerNorm(dim), heads

    def forward(self, x):
        parts = self.norm(x).view(len(x), self.heads, x.shape[1] // self.heads)
        return parts.softmax(-1).flatten(1)
"""
SCALE = """
#include "loop_kernel.h"
#include "factor.h"
LOOP_EXPORT const char *loop_error(int error) { return "x must be contiguous float32"; }
LOOP_EXPORT int scale(const LoopTensor *inputs, LoopTensor *outputs, const double *attributes, void *stream) {
  const LoopTensor *x = &inputs[0];
  if (x->dtype != LOOP_FLOAT32 || x->strides[1] != 1 || (x->sizes[1] && x->strides[0] != x->sizes[1])) return 1;
  const float *from = (const float *)x->data;
  float *to = (float *)outputs[0].data;
  for (int64_t i = 0; i < x->sizes[0] * x->sizes[1]; i++) to[i] = FACTOR * from[i];
  return 0;
}
"""
PLAIN = """
static float twice(float x) { return 2 * x; }
void scale(const float *__restrict__ x,
           float* y, int n) {
  for (int i = 0; i < n; i++) y[i] = twice(x[i]);
}
"""
ALIASES = "typedef float real;\nusing count_t = std::int64_t;\n"
COUNTED = "x0, y0, loop_elements(&loop_in[0], LOOP_FLOAT32)"
N = "loop_size(&loop_in[0], 0)"
FUNCTION = ("--from", "ops:softmax", "--like", "x=64,100")
SEVERAL = ("--from", "ops:both", "--like", "x=64,100")
MODULE = ("--from", "ops:Block", "--like", "x=weights,D")
SOURCE = ("--from", "scale.c", "--reference", "ops:scale", "--like", "x=N,M")
BARE = ("--from", "plain.cpp", *SOURCE[2:4], "--like", "x=weights,M")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with functions and kernels."""
    texts = {"ops.py": OPS, "helping.py": "def twice(x):\n    return 2 * x\n"}
    texts |= {"scale.c": SCALE, "factor.h": "#define FACTOR 2.0f\n", "plain.cpp": PLAIN}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def loop(*words: str, code: int = 0) -> str:
    """Output of a command that has to end with this exit code."""
    result = CliRunner().invoke(app, list(words))
    exit_code = getattr(result.exception, "exit_code", result.exit_code)
    assert code == exit_code, f"{result.output} {result.exception!r}"
    return result.output + " ".join(str(getattr(result.exception, field, "")) for field in ("message", "hint"))


def init_target(*words: str, folder: str = "mine") -> Target:
    """The target that is written, checked as any."""
    loop("init", folder, *words)
    return targets.read_target(find_project(Path(folder), Path.cwd())).value


def entry(source: str, *likes: str, **constants: Any) -> str:
    """The entry that a plain function gets, where what is right gives one output like the first input.
    `constants`: what `--set` says."""
    pairs = (like.split("=") for like in likes)
    specs = [TensorSpec(name=name, dims=tuple(dims.split(","))) for name, dims in pairs]
    inputs = [spec for spec in specs if spec.name != "output"]
    outputs = [spec for spec in specs if spec.name == "output"]
    outputs = outputs or [TensorSpec(name="output", dims=inputs[0].dims)]
    function = read_kernel(Path(source), "").plain
    assert function is not None
    text, _ = write_entry(function, inputs, outputs, (), constants, {})
    return text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "workload"),
    [({}, ""), ({"INDEX": "short"}, "N5 M65541"), ({"ONE_PASS": "1"}, "shifted"), ({"LEAST": "0"}, "zeros")],
)
def test_proposed_workloads_show_common_mistakes(change: dict[str, str], workload: str) -> None:
    """An index of 16 bits, a variance in one pass, a division by zero; a right kernel passes all of them."""
    macros = "".join(f"#define {name} {text}\n" for name, text in change.items())
    Path("rows.c").write_text(macros + Path(__file__).with_name("rows.c").read_text())
    init_target("--from", "rows.c", "--reference", "ops:normalised", "--like", "x=N,M")
    loop("trust", "mine")
    output = loop("kernels", "verify", "--target", "mine", code=bool(change))
    failed = re.findall(r"mine: wrong: .* on (N.*?);", output)
    assert bool(change) == any(workload in name for name in failed)


def test_long_sizes_stay_small_in_time_and_memory() -> None:
    """A size whose square is computed is only beyond 8 bits. Of a CUDA kernel only the rows are long; ends of
    odd columns show."""
    assert [{"N": 65_541, "M": 5}, {"N": 5, "M": 65_541}] == list(
        init_target("--from", "ops:scale", "--like", "x=N,M").workloads["long"]
    )
    square = init_target("--from", "ops:distances", "--like", "x=N", folder="square").workloads
    assert [{"N": 320}] == list(square["long"])
    Path("scale.cu").write_text(SCALE)
    words = ("--from", "scale.cu", *SOURCE[2:])
    assert [{"N": 32_773, "M": 5}, {"N": 5, "M": 1013}] == list(
        init_target(*words, folder="cuda").workloads["long"]
    )


def test_whole_numbers_are_also_drawn_from_the_whole_type() -> None:
    """Small numbers alone would pass a kernel that cuts keys to 16 bits, or counts with 16 bits."""
    workloads = init_target("--from", "ops:digits", "--like", "keys=N:int32").workloads
    kinds = {kind: [name for name, set_ in workloads.items() if kind in str(set_)] for kind in ("wide", "alike")}
    assert {"wide": ["edges", "long"], "alike": ["edges", "long"]} == kinds
    assert {"N": 65, "shift": 9, "drawn": "wide"} in workloads["edges"]
    space = runpy.run_path("mine/inputs.py")
    shapes = {"N": 999, "shift": 8, "seed": 1, "dtype": torch.float32}
    wide, alike, few = (space["make"](**shapes, drawn=drawn)[0] for drawn in ("wide", "alike", "few"))
    assert ((-(2**31), 2**31 - 2), 1) == (tuple(map(int, wide.aminmax())), len(alike.unique()))
    assert {"N": 65, "drawn": "few"} in workloads["edges"]
    assert [-1, 0, 1] == few.unique().tolist()


def test_zeros_are_left_out_where_the_order_of_equal_values_decides() -> None:
    """Another order of them is as right."""
    assert "zeros" in init_target("--from", "ops:softmax", "--like", "x=N,M").values
    assert "zeros" not in init_target("--from", "torch:argsort", "--like", "input=N,M", folder="order").values


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [FUNCTION, SEVERAL, MODULE, SOURCE, BARE], ids=["function", "two outputs", "module", "file", "plain"]
)
def test_the_first_verdict_needs_no_edit(words: tuple[str, ...]) -> None:
    """The target is written, trusted and verified as right."""
    loop("init", "mine", *words)
    loop("trust", "mine")
    output = loop("run", "session", "quick", "--target", "mine", "--device", "cpu")
    assert "mine right" in output


def test_init_reads_dimensions_and_imports_of_a_function() -> None:
    """Numbers become dimensions, others are checked too, and what the function imports comes along."""
    target = init_target(*FUNCTION)
    assert ({"x": "N M"}, "reference:softmax") == (target.signature.inputs, target.reference.python)
    assert ({"N": 64, "M": 100},) == target.workloads["quick"]
    assert {"N": 3, "M": 17} in target.workloads["edges"]
    assert {"helping.py", "ops.py"} <= {path.name for path in Path("mine").iterdir()}


@pytest.mark.parametrize(
    ("parameters", "like", "call"),
    [
        ("const float* x, float* y, int n", "x=N,M", COUNTED),
        ("const real* x, real* y, count_t n", "x=N,M", COUNTED),
        ("const float* a, float* c, int n", "a=N,N", f"x0, y0, {N}"),
        ("const float* a, float* c, int weights", "a=weights,M", f"x0, y0, {N}"),
        ("float *y, const float *x, int m, const int64_t n", "x=N,M", f"y0, x0, loop_size(&loop_in[0], 1), {N}"),
        ("const float *b, const float *a, float *c", "a=4 b=4", "(const float *)loop_data(&loop_in[1]), x0, y0"),
        ("const float *x, float *sum, int count", "x=N output=1", COUNTED),
        ("const float x[], // what\n float *y /* to */, const std::size_t n", "x=N", f"x0, y0, {N}"),
        (
            "const float *x, const float *w, float *y, int W, int w_",
            "x=W w=w_",
            f"x0, (const float *)loop_data(&loop_in[1]), y0, {N}, loop_size(&loop_in[1], 0)",
        ),
        ("float *p, const float *q, float *r", "a=4 b=4", "x0, (const float *)loop_data(&loop_in[1]), y0"),
        ("float *x, float *y, float *scratch, int n", "x=n", f"x0, y0, (float *)loop_scratch, {N}"),
    ],
)
def test_a_plain_function_gets_an_entry(parameters: str, like: str, call: str) -> None:
    """Tensors by name or in order, sizes by name; a single other number is the count of elements."""
    Path("f.cpp").write_text(
        f"#include <cstdint>\n#define restrict __restrict\n{ALIASES}void f({parameters}) {{\n}}\n"
    )
    text = entry("f.cpp", *like.split()).replace("(const float *)loop_data(&loop_in[0])", "x0")
    text = text.replace("(float *)loop_data(&loop_in[0])", "x0").replace("(float *)loop_data(&loop_out[0])", "y0")
    assert f"f({call});" in text


def test_a_number_may_be_a_formula_of_sizes() -> None:
    """A stride or a padded width is one: as text in the call it would be a pointer."""
    Path("f.c").write_text("void f(const float *x, float *y, int n, int stride) {\n}\n")
    rows, columns = "loop_size(&loop_in[0], 0)", "loop_size(&loop_in[0], 1)"
    assert f", {rows}, ({rows}*{columns}+1));" in entry("f.c", "x=n,M", stride="n*M+1")
    for value in ("n*K", "n;M", "x[0]"):
        with pytest.raises(UsageError, match="expected a number, or a formula of n, M"):
            entry("f.c", "x=n,M", stride=value)


def test_every_unclear_number_is_named_and_a_counted_one_is_noted() -> None:
    """One error lists all unclear numbers; a guessed count is noted."""
    Path("f.c").write_text("void f(const float *x, float *y, int n, int ld, int batch) {\n}\n")
    with pytest.raises(UsageError, match="`int ld`, `int batch` of f are not clear") as raised:
        entry("f.c", "x=n,M")
    assert "--set ld=VALUE --set batch=VALUE: a number, or a formula such as n*M" in str(raised.value.hint)
    output = loop("init", "mine", *BARE)
    assert "guessed: n = the number of elements of x; --set n=VALUE changes it" in output


def test_a_letter_of_loop_is_never_the_name_of_a_parameter() -> None:
    """A size given by number has no name of the user's, so the kernel's `m` may be another size."""
    Path("scale.c").write_text("void scale(const float *x, float *y, int m, int N) {\n}\n")
    words = ("init", "mine", "--from", "scale.c", "--reference", "ops:scale", "--like", "x=8,100")
    output = loop(*words, code=2)
    assert "`int m`, `int N` of scale are not clear" in output
    assert "sizes called K (8) or L (100)" in output
    assert "--like x=M,N where it is a size" in output
    output = loop(*words, "--set", "m=8", code=2)
    assert "`int N` of scale is not clear" in output
    assert "--like" not in output  # `x=N,100` would be wrong.
    loop(*words, "--set", "m=8", "--set", "N=K*L")
    target = init_target("--from", "ops:parts", "--like", "x=8,100", folder="parts")
    assert {"x": "M K"} == target.signature.inputs  # The function has a parameter `n`.


def test_sizes_are_proposed_in_the_order_of_the_kernels_parameters() -> None:
    """`int H, int W` of a matrix are its rows and columns; the other way round every answer would be wrong."""
    Path("f.c").write_text("void f(const float *x, float *y, int H, int W) {\n}\n")
    with pytest.raises(UsageError) as raised:
        entry("f.c", "x=N,M")
    assert "--like x=H,W where it is a size" in str(raised.value.hint)


def test_a_header_in_a_subfolder_may_include_one_above_it() -> None:
    """The build gets `-I.`, as the user's own build would."""
    Path("parts").mkdir()
    Path("parts/one.h").write_text('#include "factor.h"\n')
    Path("plain.cpp").write_text(f'#include "parts/one.h"\n{PLAIN}')
    variant = init_target(*BARE).variants["mine"]
    assert isinstance(variant, CAbiVariant)
    assert "-I." in variant.build.flags


@pytest.mark.parametrize(
    "text",
    [
        "/*\nvoid old(const float *x, float *y, int n) {\n*/ // void older(int n) {\nvoid f(ALL) {}",
        "template <int B>\nvoid inner(const float *x, float *y, int n) {}\nvoid f(ALL) {}",
        'extern "C" {\n  void f(ALL) { if (n) { } }\n}',
        '#define OPEN(n) \\\n  { {\nconst char *brace = "{";\nnamespace a {\nvoid b(int n) {}\n}\nvoid f(ALL) {}',
    ],
    ids=["comments", "template", "extern", "other braces"],
)
def test_only_a_function_that_any_code_may_call_counts(text: str) -> None:
    """Functions in comments, templates and namespaces do not count, because no entry can call them."""
    Path("f.cpp").write_text(text.replace("ALL", "const float *x, float *y, int n"))
    assert "\n  f((const float *)loop_data(&loop_in[0])" in entry("f.cpp", "x=N")


@pytest.mark.parametrize(("words", "name"), [(FUNCTION, "mine.py"), (SOURCE, "scale.c"), (BARE, "plain.cpp")])
def test_the_file_to_edit_is_named(words: tuple[str, ...], name: str) -> None:
    """The copy of the kernel, also where an entry is compiled that includes it."""
    assert f"mine/{name}" == json.loads(loop("init", "mine", *words, "--json"))["edit"]
    variant = targets.read_target(find_project(Path("mine"), Path.cwd())).value.variants["mine"]
    sources = variant.sources if isinstance(variant, CAbiVariant) else (name,)
    assert [f"mine/{name}"] == sources_to_edit(sources, Path("mine"))
    assert ["mine/gone.c"] == sources_to_edit(["gone.c"], Path("mine"))


def test_a_module_gets_its_weights_at_random_and_more_than_one_head() -> None:
    """An ignored bias and ignored heads show; the width comes from the input."""
    target = init_target(*MODULE)
    assert target.generator is not None
    assert 4 == target.signature.attributes["heads"].default
    assert "weights" in Path("mine/mine.py").read_text()
    space: dict[str, Any] = {}
    sys.path.insert(0, "mine")
    try:
        exec(Path("mine/inputs.py").read_text(), space)
        weights, x = space["make"](weights=3, D=8, heads=4, drawn="negative", seed=1, dtype=torch.float32)
    finally:
        sys.path.remove("mine")
        for name in ("ops", "reference", "helping"):
            sys.modules.pop(name, None)
    assert {"norm.weight", "norm.bias"} == weights.keys()
    assert float(weights["norm.bias"].std()) > 0
    assert bool((x < 0).all())


def test_fields_of_a_dataclass_are_attributes_and_positions_whole_numbers() -> None:
    """Neither is dropped: a workload has another value of the field."""
    target = init_target("--from", "ops:turned", "--like", "q=S,D", "--like", "positions=S")
    assert {"positions": "int64"} == target.signature.types
    assert {3.0, 4.5} == {sizes.get("theta", 3.0) for sizes in target.workloads["edges"]}


def test_outputs_are_as_many_on_all_sizes_and_an_operator_takes_options_by_name() -> None:
    """One row in four parts is one part: no workload has it."""
    loop("init", "parts", "--from", "ops:parts", "--like", "x=N,M", "--set", "n=4")
    edges = targets.read_target(find_project(Path("parts"), Path.cwd())).value.workloads["edges"]
    assert {4} == {len(torch.ones(sizes["N"]).chunk(4)) for sizes in edges}
    target = init_target("--from", "ops:leaky", "--like", "self=N,M", "--set", "negative_slope=0.2")
    assert 0.2 == target.signature.attributes["negative_slope"].default


@pytest.mark.parametrize(("x", "y", "error"), [("float64", "float64", 1e-9), ("float64", "float32", 1e-4)])
def test_a_kernel_in_double_may_lose_no_more_than_double_does(x: str, y: str, error: float) -> None:
    """A sum in float32 is a mistake there, but not where an input has no more digits."""
    target = init_target("--from", "torch:add", "--like", f"input=N:{x}", "--like", f"other=N:{y}")
    assert (error, 1e-4) == (target.tolerance["float64"].atol, target.tolerance["float32"].atol)


def test_what_needs_values_above_zero_gets_them() -> None:
    """A logarithm of normals is mostly NaN, so mistakes would not show."""
    target = init_target("--from", "torch:log", "--like", "input=N,M")
    assert {"input"} == target.values["positive"].keys()
    assert {"positive"} == {sizes["values"] for sizes in target.workloads["quick"]}


def test_an_index_reaches_the_last_row_and_no_further() -> None:
    """Its bound and its order are tried. No size of offsets is their bound: a slice beyond an end is empty."""
    init_target("--from", "ops:looked_up", "--like", "table=V,D", "--like", "ids=B")
    assert "_whole((B,), 0, V, " in Path("mine/inputs.py").read_text()
    init_target("--from", "ops:segments", "--like", "x=T,D", "--like", "offsets=S", folder="ragged")
    assert "_sorted((S,), T, " in Path("ragged/inputs.py").read_text()
    init_target("--from", "ops:repeated", "--like", "x=T", "--like", "bounds=S:int64<T", folder="order")
    assert "_sorted((S,), T, " in Path("order/inputs.py").read_text()


def test_the_only_number_of_a_kernel_with_offsets_counts_what_they_divide() -> None:
    """There is one offset more than parts, so the number of offsets would be one too many."""
    Path("parts.c").write_text("void parts(const float *x, const long *offsets, float *sums, int count) {}")
    likes = ["--like", "x=T,D", "--like", "offsets=S"]
    output = loop("init", "mine", "--from", "parts.c", "--reference", "ops:segments", *likes)
    assert "guessed: count = the number of elements of offsets less 1; --set count=VALUE changes it" in output
    assert "loop_elements(&loop_in[1], LOOP_INT64) - 1);" in Path("mine/mine.c").read_text()


def test_a_size_that_is_never_beyond_16_bits_is_named() -> None:
    """Groups may divide long sizes, too; a call whose work grows with the square is left out."""
    grouped = init_target("--from", "ops:grouped", "--like", "x=N,C")
    assert 65_600 in {entry["C"] for entry in grouped.workloads["long"]}
    output = loop("init", "square", "--from", "ops:distances", "--like", "x=N,D")
    assert "guessed: N below 65,541: longer ones take too long, or do not run" in output
    assert "long" not in init_target("--from", "ops:crashing", "--like", "x=N", folder="crash").workloads


def test_sizes_that_are_timed_or_equal_or_do_not_run_are_named() -> None:
    """Whoever reads the notes knows what to change in target.yaml."""
    output = loop("init", "mine", "--from", "ops:grouped", "--like", "x=N,C")
    timed = next(iter(init_target("--from", "ops:grouped", "--like", "x=N,C", folder="again").workloads["quick"]))
    assert f"timed with N {timed['N']}, C {timed['C']}; others go under `quick` in target.yaml" in output
    assert re.search(r"only some sizes of C run: (\d+, )*64, 128, but not 1, 2, 3", output)
    output = loop("init", "sum", "--from", "ops:add", "--like", "x=8,9", "--like", "y=8,9")
    assert "equal numbers are one size: 8 of x, y is N, 9 of x, y is M" in output


def test_what_cannot_change_together_changes_alone() -> None:
    """A filter's sizes too, and attributes once more together, at other sizes."""
    edges = init_target("--from", "ops:pairs", "--like", "x=N,M").workloads["edges"]
    assert all({1, 3} <= {edge[dim] for edge in edges} for dim in "NM")
    target = init_target("--from", "torch:matmul", "--like", "input=M,N", "--like", "other=N,R", folder="product")
    assert {1, 3, 7} <= {edge["R"] for edge in target.workloads["edges"]}
    target = init_target("--from", "ops:powered", "--like", "x=N,M", folder="powered")
    *edges, last = map(dict, target.workloads["edges"])
    assert {"N": 65, "M": 257, "weights": 3, "half": True} == last
    assert {2, 3, 11} == {edge.get("weights", 2) for edge in edges}
    assert {"N": 128, "M": 64} in edges


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "expected --from with a function or a file"),
        (("--from", "ops"), "expected module:function"),
        (("--from", "not_there:f", "--like", "x=N"), "no module `not_there`"),
        (("--from", "ops:sofmax", "--like", "x=N"), "did you mean 'softmax'"),
        (("--from", "ops:softmax"), "loop init mine --from ops:softmax --like x=N,M"),
        (("--from", "ops:softmax", "--like", "z=N"), "has no parameter `z`: x, dim"),
        (("--from", "ops:add", "--like", "x=N"), "`y` of ops:add has no shape"),
        (("--from", "ops:add", "--like", "x=N:floa", "--like", "y=N"), "no type 'floa'"),
        (("--from", "ops:softmax", "--like", "x=seed,M"), "`seed` is a word that loop or Python needs and a size"),
        (("--from", "ops:drawn", "--like", "x=N,4"), "also where it is imported"),
        (("--from", "ops:nothing", "--like", "x=N"), "changes no input name a function that gives tensors"),
        (("--from", "factor.cu", "--like", "x=N"), "factor.cu: no such file"),
        (("--from", "two.c", "--like", "x=N"), "got f, g name one of them: --from two.c:f"),
        (("--from", "odd.cpp", "--like", "x=N"), "odd.cpp:2: `std::vector<float> &x` of f is no pointer"),
        (("--from", "scale.c", "--like", "x=N"), "no function says what is right"),
        (("--from", "inside.c", *SOURCE[2:]), "let the reference change it, too, as `c += a @ b` does"),
        (("--from", "size.c", *SOURCE[2:]), "`int rows` of f is not clear"),
        (
            ("--from", "size.c", *SOURCE[2:4], "--like", "x=rows,M", "--set", "rows=M*2"),
            "--set rows=M*2: rows is a size of --like",
        ),
        (("--from", "struct.c", *SOURCE[2:]), "take what `Sizes` holds as parameters, or write an entry"),
        (
            ("--from", "size.c", *SOURCE[2:4], "--like", "x=6,7"),
            "--like x=ROWS,M where it is a size, --set rows=VALUE --set m=VALUE: a number, or",
        ),
    ],
)
def test_a_mistake_is_named(words: tuple[str, ...], message: str) -> None:
    """No file is written."""
    Path("two.c").write_text("void f(const float *x, float *y) {}\nvoid g(const float *x, float *y) {}\n")
    Path("odd.cpp").write_text("#include <vector>\nvoid f(std::vector<float> &x) {}")
    Path("inside.c").write_text("void f(float *x, int n) {}")
    Path("struct.c").write_text("void f(const float *x, float *y, struct Sizes s) {}")
    Path("size.c").write_text("void f(const float *x, float *y, int rows, int m) {}")
    assert message in loop("init", "mine", *words, code=2)
    assert not Path("mine").exists()


def test_a_folder_that_is_not_empty_stays_unchanged() -> None:
    """The folder stays unchanged; the next command names a new one."""
    Path("mine").mkdir()
    Path("mine/notes").write_text("")
    assert "loop init mine/target --from ops:softmax" in loop("init", "mine", *FUNCTION, code=2)


def test_equal_sizes_are_one_dimension() -> None:
    """Inputs are in the order of the function's parameters; a tensor may have a name that is no size."""
    target = init_target("--from", "ops:rows", "--like", "weight=8,N", "--like", "x=8,9")
    assert ["x", "weight"] == list(target.signature.inputs)
    assert {"x": "M K", "weight": "M N"} == target.signature.inputs


def test_sizes_that_are_given_to_a_kernel_stay_as_they_are() -> None:
    """It may take no others; a function is tried with them."""
    target = init_target("--from", "scale.c", "--reference", "ops:scale", "--like", "x=64,100")
    assert {(64, 100)} == {(sizes["N"], sizes["M"]) for several in target.workloads.values() for sizes in several}


@pytest.mark.parametrize(("header", "is_emulated"), [("loop_device.cuh", True), ("cuda_runtime.h", False)])
def test_a_cuda_file_asks_for_its_report_and_is_emulated_where_it_can_be(
    tmp_path: Path, header: str, is_emulated: bool
) -> None:
    """Only kernels written for the emulator's header can be emulated."""
    exported = SCALE.replace('#include "factor.h"', f'#include "{header}"')
    (tmp_path / "scale.cu").write_text(exported)
    output = loop("init", "mine", "--from", "scale.cu", *SOURCE[2:])
    can_run = is_emulated or bool(machine().gpus)
    on_host = "" if can_run else "--on HOST "
    assert f"next: loop run session quick {on_host}--target mine\n" in output
    assert can_run == ("next: loop kernels verify --target mine\n" in output)
    assert (not can_run and machine().nvcc is not None) == ("next: loop kernels resources --gpu sm_89" in output)
    variant = targets.read_target(find_project(Path("mine"), tmp_path)).value.variants["mine"]
    assert isinstance(variant, CAbiVariant)
    assert requests_report(variant.build.flags)
    assert is_emulated == (variant.emulation is not None)
    assert not is_emulated or "-DLOOP_EMULATE" in variant.emulation.flags
