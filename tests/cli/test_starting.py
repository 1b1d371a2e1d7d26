"""`loop init` writes a target that can be judged at once, of a function, a file or a program."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loop.base.places import project
from loop.cli import app
from loop.formats.translated import as_target
from loop.library import targets, trust
from loop.model.target import CAbiVariant, CommandVariant, Target
from tests.formats import tasks

OPS = """
import torch
from helping import twice

def softmax(x, dim=-1):
    return torch.softmax(x, dim)

def add(x, y):
    return x + twice(y) / 2

def scale(x):
    return twice(x)

def both(x):
    return twice(x), x.sum(-1)
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
PROGRAM = """
import array, sys
values = array.array("f", open(sys.argv[1], "rb").read())
array.array("f", [2 * one for one in values]).tofile(open(sys.argv[2], "wb"))
"""
COMMAND = f"{sys.executable} program.py {{x}} {{output}}"
FUNCTION = ("--from", "ops:softmax", "--like", "x=64,100")
SEVERAL = ("--from", "ops:both", "--like", "x=64,100")
SOURCE = ("--from", "scale.c", "--reference", "ops:scale", "--like", "x=N,M")
BARE = ("--from", "plain.cpp", *SOURCE[2:])
WORDS = ("--command", COMMAND, "--reference", "ops:scale", "--like", "x=N,M")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a function, a kernel and a program."""
    texts = {"ops.py": OPS, "helping.py": "def twice(x):\n    return 2 * x\n", "program.py": PROGRAM}
    texts |= {"scale.c": SCALE, "factor.h": "#define FACTOR 2.0f\n", "plain.cpp": PLAIN}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def loop(*words: str, code: int = 0) -> str:
    """What a command says; it has to end with that exit code."""
    done = CliRunner().invoke(app, list(words))
    found = getattr(done.exception, "exit_code", done.exit_code)
    assert code == found, f"{done.output} {done.exception!r}"
    return done.output + " ".join(str(getattr(done.exception, one, "")) for one in ("message", "hint"))


def made(*words: str) -> Target:
    """The target that is written, checked as any."""
    loop("init", "mine", *words)
    return targets.target(project(Path("mine"), Path.cwd())).value


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [FUNCTION, SEVERAL, SOURCE, BARE, WORDS], ids=["function", "two outputs", "file", "plain", "program"]
)
def test_the_first_verdict_needs_no_edit(words: tuple[str, ...]) -> None:
    """Made, allowed, right."""
    loop("init", "mine", *words)
    loop("trust", "mine")
    said = loop("run", "session", "quick", "--target", "mine", "--device", "cpu")
    assert "mine right" in said


def test_a_function() -> None:
    """Numbers become dimensions, and what the function imports comes along."""
    target = made(*FUNCTION)
    assert ({"x": "N M"}, "reference:softmax") == (target.signature.inputs, target.reference.python)
    assert ({"N": 64, "M": 100},) == target.workloads["quick"]
    assert {"helping.py", "ops.py"} <= {path.name for path in Path("mine").iterdir()}


def test_sizes_that_are_free_are_checked_at_odd_ones_too() -> None:
    """A loop that ends at the last whole tile is right at 128."""
    assert ({"N": 3, "M": 17},) == made(*SOURCE).workloads["edges"]


def test_sizes_that_are_given_stay_as_they_are() -> None:
    """A function may take no others."""
    assert {"quick"} == made(*FUNCTION).workloads.keys()


def test_a_file() -> None:
    """Its entry is the exported function; its header comes along."""
    variant = made(*SOURCE).variants["mine"]
    assert isinstance(variant, CAbiVariant)
    assert ("scale", ("scale.c",), "cpu") == (variant.entry, variant.sources, variant.device)
    assert Path("mine/factor.h").is_file()


@pytest.mark.parametrize(
    ("parameters", "like", "call"),
    [
        (
            "const float* x, float* y, int n",
            "x=N,M",
            "inputs[0].data, (float *)outputs[0].data, loop_elements(&inputs[0])",
        ),
        ("const float* a, float* c, int n", "a=N,N", "outputs[0].data, inputs[0].sizes[1])"),
        ("float *y, const float *x, int m, const int64_t n", "x=N,M", "inputs[0].sizes[1], inputs[0].sizes[0])"),
        ("const float *b, const float *a, float *c", "a=4 b=4", "inputs[1].data, (const float *)inputs[0].data,"),
        ("const float *x, float *sum, int count", "x=N output=1", "loop_elements(&inputs[0])"),
        ("float const *const restrict x, float y[], unsigned int n", "x=N,M", "loop_elements(&inputs[0])"),
        ("const float x[], // what\n float *y /* to */, const std::size_t n", "x=N", "inputs[0].sizes[0])"),
    ],
)
def test_a_plain_function_gets_an_entry(parameters: str, like: str, call: str) -> None:
    """Tensors by name or in order, sizes by name; a single other number is the count of elements."""
    Path("f.c").write_text(f"void f({parameters}) {{\n}}\n")
    made("--from", "f.c", *(word for one in like.split() for word in ("--like", one)))
    assert call in Path("mine/mine.c").read_text()


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
    """Not one in a comment, a template or a namespace: no entry could call it as it stands."""
    Path("f.cpp").write_text(text.replace("ALL", "const float *x, float *y, int n"))
    made("--from", "f.cpp", "--like", "x=N")
    assert "\n  f((const float *)inputs[0].data, (float *)outputs[0].data" in Path("mine/mine.cpp").read_text()


def test_a_cuda_file() -> None:
    """It runs on a GPU, and is built by nvcc."""
    Path("scale.c").rename("scale.cu")
    variant = made("--from", "scale.cu", *SOURCE[2:]).variants["mine"]
    assert isinstance(variant, CAbiVariant)
    assert ("cuda", "nvcc") == (variant.device, variant.build.compiler)


def test_a_program() -> None:
    """It runs in the target's folder, so its files are named by their whole paths."""
    variant = made(*WORDS).variants["mine"]
    assert isinstance(variant, CommandVariant)
    assert (sys.executable, str(Path("program.py").absolute()), "{x}", "{output}") == variant.run


def test_equal_sizes_are_one_dimension() -> None:
    """Inputs stand in the order of the function's parameters."""
    target = made("--from", "ops:add", "--like", "y=8,N", "--like", "x=8,9")
    assert ["x", "y"] == list(target.signature.inputs)
    assert {"x": "M K", "y": "M N"} == target.signature.inputs


def test_without_a_reference_the_next_step_is_to_write_it() -> None:
    """It is named first."""
    said = loop("init", "mine", "--command", "true", "--like", "x=N")
    assert "reference.py" in said
    assert "RuntimeError" in Path("mine/reference.py").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "either --from or --command"),
        (("--from", "ops"), "expected module:function"),
        (("--from", "not_there:f", "--like", "x=N"), "no module `not_there`"),
        (("--from", "ops:sofmax", "--like", "x=N"), "did you mean 'softmax'"),
        (("--from", "ops:softmax"), "loop init mine --from ops:softmax --like x=N,M"),
        (("--from", "ops:softmax", "--like", "z=N"), "has no parameter `z`: x, dim"),
        (("--from", "ops:add", "--like", "x=N"), "`y` of ops:add has no shape"),
        (("--from", "ops:softmax", "--like", "x=N,-3"), "by name or by number"),
        (("--from", "ops:softmax", "--like", "x"), "by name or by number"),
        (("--from", "factor.cu", "--like", "x=N"), "factor.cu: no such file"),
        (("--from", "empty.c", "--like", "x=N"), "expected one exported entry `LOOP_EXPORT int empty("),
        (("--from", "two.c", "--like", "x=N"), "got f, g call the file as one of them, such as f.c"),
        (("--from", "half.c", "--like", "x=N"), "`const half * x` of f is not clear; expected `const float *`"),
        (("--from", "size.c", "--like", "x=N,M"), "`int rows` of f is not clear"),
        (("--from", "launch.cu", "--like", "x=N"), "give it a parameter `cudaStream_t stream`"),
        (
            ("--from", "mute.c", "--like", "x=N"),
            "expected `LOOP_EXPORT const char *loop_error(int error)`, got none",
        ),
        (("--command", "'", "--like", "x=N"), "cannot be read"),
    ],
)
def test_a_mistake_is_named(words: tuple[str, ...], said: str) -> None:
    """Nothing is written."""
    Path("empty.c").write_text("int f(void) { return 0; }")
    Path("two.c").write_text("void f(const float *x, float *y) {}\nvoid g(const float *x, float *y) {}\n")
    Path("half.c").write_text("void f(const half *x, float *y) {}")
    Path("size.c").write_text("void f(const float *x, float *y, int rows, int m) {}")
    Path("launch.cu").write_text("void f(const float *x, float *y, int n) {}")
    Path("mute.c").write_text("LOOP_EXPORT int mute(const LoopTensor *inputs) { return 0; }")
    assert said in loop("init", "mine", *words, code=2)
    assert not Path("mine").exists()


def test_a_folder_that_is_not_empty() -> None:
    """It is left as it is; the next command names a new one."""
    Path("mine").mkdir()
    Path("mine/notes").write_text("")
    assert "loop init mine/target --from ops:softmax" in loop("init", "mine", *FUNCTION, code=2)


def test_a_task_of_another_format_is_allowed_by_its_path(here: Path) -> None:
    """With its answers, as it is run."""
    task, answer = tasks.kernelbench(here), here / "answer.py"
    answer.write_text(tasks.ANSWER)
    loop("trust", str(task), str(answer))
    assert trust.is_trusted(project(as_target(task, [str(answer)])[0], here))
    assert not trust.is_trusted(project(as_target(task)[0], here))
