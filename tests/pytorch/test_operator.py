"""Getting an operator: any target's compiled variant, if it is trusted."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from loop.base.errors import LoopError
from loop.pytorch import Operator, c_dispatch, operator
from loop.pytorch.c_dispatch import Unavailable
from tests.conftest import ROOT
from tests.pytorch.operators import BUNDLED, allow, worst
from tests.targets import compiled, external, write_target

MIXED = r"""
#include "loop_kernel.h"

// out [M, N] in double: (sign * factor * w[m] * x[n, m]) + shift, at any strides.
LOOP_EXPORT int mixed(const LoopTensor *inputs, LoopTensor *outputs, const double *attributes, void *stream) {
  const LoopTensor &x = inputs[0], &w = inputs[1];
  if (stream) return 7;
  double *out = static_cast<double *>(outputs[0].data);
  for (int64_t m = 0; m < x.sizes[1]; m++)
    for (int64_t n = 0; n < x.sizes[0]; n++) {
      const int64_t place = n * x.strides[0] + m * x.strides[1];
      const bool wide = x.dtype == LOOP_FLOAT64;
      const double value = wide ? static_cast<double *>(x.data)[place] : static_cast<float *>(x.data)[place];
      const double scaled = attributes[1] * static_cast<float *>(w.data)[m * w.strides[0]] * value;
      *out++ = (attributes[0] == 1 ? -scaled : scaled) + attributes[2];
    }
  return 0;
}
LOOP_EXPORT const char *loop_error(int) { return "there is a stream"; }
"""
SIGNATURE: dict[str, Any] = {
    "inputs": {"x": "N M", "w": "M"},
    "outputs": {"output": "M N"},
    "types": {"w": "float32", "output": "float64"},
    "attributes": {
        "negate": {"kind": "flag", "default": True},
        "factor": {"kind": "number", "default": 3.0},
        "shift": {"kind": "choice", "choices": ["none", "one"]},
    },
}


def make_target(folder: Path, name: str, **fields: Any) -> Path:
    """A target of that name with a variant `right`, allowed."""
    variants = {"right": compiled(), "program": external("2"), "broken": compiled(sources=["broken.cpp"])}
    folder.mkdir(parents=True)
    (folder / "broken.cpp").write_text("not C++\n")
    write_target(folder, variants, name=name, **fields)
    return allow(folder)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Operator:
    """Types of their own, a transposed output, defaults."""
    folder = tmp_path_factory.mktemp("mixed")
    (folder / "mixed.cpp").write_text(MIXED)
    variant = compiled("mixed", sources=["mixed.cpp"], dtypes=["float32", "float64"])
    write_target(folder, {"mixed": variant}, name="mixed-types", signature=SIGNATURE, workloads={"some": []})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOOP_CACHE", str(build_cache))
        patch.setenv("LOOP_STATE", str(folder / "state"))
        return operator("mixed", allow(folder))


def test_the_bundled_target_is_the_default() -> None:
    """It is the default in a folder without a manifest, as for commands; an operator is made once."""
    op = operator("cpu")
    assert op is operator("cpu", BUNDLED)
    assert op is operator("cpu", str(BUNDLED / "target.yaml"), device="cpu")
    assert torch.ops.loop_attention.cpu.default is op.op
    assert (
        "loop_attention::cpu(Tensor q, Tensor k, Tensor v, bool causal, int alignment, float scale) -> Tensor"
        == (str(op.op._schema))
    )


def test_another_device_is_not_passed_over() -> None:
    """A cached operator is checked like a new one, also for its architecture."""
    op = operator("cpu")
    with pytest.raises(LoopError, match="variant cpu does not run on cuda") as caught:
        operator("cpu", device="cuda")
    assert ["device='cpu'"] == caught.value.__notes__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(op, "architecture", "sm_89")
        with pytest.raises(LoopError, match="was built for sm_89 in this process, and cpu is cpu"):
            operator("cpu", device="cpu")


def test_the_folder_one_stands_in_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator of ./target.yaml doubles a matrix."""
    monkeypatch.chdir(make_target(tmp_path / "own", "standing-here"))
    op = operator("right")
    assert "loop_standing_here::right" == op.contract.title
    x = torch.arange(6.0).reshape(2, 3)
    assert torch.equal(2 * x, op(x))
    with pytest.raises(RuntimeError, match="loop_standing_here::right: error 4: inputs must be contiguous"):
        op(x.T)


def test_definitions_that_were_not_allowed_do_not_run(tmp_path: Path) -> None:
    """The error has the message and remedy of a command."""
    folder = make_target(tmp_path / "foreign", "foreign")
    text = (folder / "target.yaml").read_text()
    (folder / "target.yaml").write_text(text.replace("-O0", "-O1"))
    with pytest.raises(LoopError, match="has changed since it was allowed") as caught:
        operator("right", folder)
    assert [f"look at them, then `loop trust {folder}`"] == caught.value.__notes__


@pytest.mark.parametrize(
    ("name", "device", "words", "note"),
    [
        ("rigth", None, "target strict has no variant 'rigth'", "did you mean 'right'?"),
        ("program", None, "variant program is of kind command", "there are right, broken"),
        ("right", "cuda:1", "variant right does not run on cuda", "device='cpu'"),
        ("broken", None, "broken: broken.cpp:1:1: ", "mend the line"),
    ],
)
def test_what_cannot_be_is_said(name: str, device: str | None, words: str, note: str, tmp_path: Path) -> None:
    """The error has a remedy as a note under the traceback."""
    folder = make_target(tmp_path / "strict", "strict")
    with pytest.raises(LoopError) as caught:
        operator(name, folder, device)
    assert words in str(caught.value)
    assert note in caught.value.__notes__[0]


def test_a_gpu_that_pytorch_does_not_see(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused before compiling."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(LoopError, match="variant auto runs on a GPU, and PyTorch sees none"):
        operator("auto", BUNDLED)


def test_two_targets_of_one_name_do_not_mix(tmp_path: Path) -> None:
    """The second is refused."""
    operator("right", make_target(tmp_path / "first", "namesake"))
    with pytest.raises(LoopError, match=r"torch\.ops\.loop_namesake is that of the target in .*first already"):
        operator("right", make_target(tmp_path / "second", "namesake"))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"outputs": {"output": "N M K"}}, "K is a dimension of the output and of no input"),
        ({"inputs": {"x": "A B C D E F G H I"}, "outputs": {"output": "A"}}, "x has more than 8 dimensions"),
    ],
)
def test_a_signature_that_no_operator_can_have(fields: dict[str, Any], words: str, tmp_path: Path) -> None:
    """It is refused before anything is compiled."""
    signature = {"inputs": {"x": "N M"}, "outputs": {"output": "N M"}, **fields}
    folder = make_target(tmp_path / "odd", "odd", signature=signature, workloads={"some": []})
    with pytest.raises(LoopError, match=words):
        operator("right", folder)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_types_transposition_and_defaults_are_kept(mixed: Operator, dtype: torch.dtype) -> None:
    """Tensors with types of their own, an output that is laid out otherwise, attributes with defaults."""
    op = mixed
    x, w = torch.randn(4, 3, dtype=dtype)[:, ::2], torch.randn(4)[::2]
    product = (w * x.double()).T
    assert torch.allclose(-3 * product, op(x, w))
    assert torch.allclose(0.5 * product + 1, op(x, w, shift="one", negate=False, factor=0.5))
    assert (torch.float64, (2, 4)) == (op(x, w).dtype, op(x, w).shape)
    assert {"SUCCESS"} == set(torch.library.opcheck(op.op, (x, w, True, 2.0, 1)).values())
    with pytest.raises(RuntimeError, match="w: expected float32, got float64"):
        op(x, w.double())
    with pytest.raises(RuntimeError, match="x: expected float32 or float64, got float16"):
        op(x.half(), w)


@pytest.mark.parametrize(
    ("place", "name", "value", "words"),
    [
        (c_dispatch, "BRIDGE", "no-such-compiler", "no-such-compiler: no such compiler on the PATH"),
        (c_dispatch, "FUNCTIONS", {"dim": "aoti_torch_no_such"}, "has no aoti_torch_no_such"),
        (c_dispatch, "bridge_works", lambda: False, "is unknown"),
    ],
)
def test_what_an_operator_lacks_is_said(
    place: Any, name: str, value: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler, a function of PyTorch's, or the interface it was written for."""
    if name == "BRIDGE":
        recipe = c_dispatch.BRIDGE.build.model_copy(update={"compiler": value})
        value = c_dispatch.BRIDGE.model_copy(update={"build": recipe})
    monkeypatch.setattr(place, name, value)
    monkeypatch.setattr(c_dispatch, "TEST_NAMESPACE", f"loop_trial_{name.lower()}")
    with pytest.raises(Unavailable, match=words):
        c_dispatch.load_bridge.__wrapped__()


README = ROOT / "kernels" / "attention" / "README.md"


def test_the_example_computes_attention() -> None:
    """The example runs as it is printed."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    inputs = [names[name].double() for name in "qkv"]
    assert 1e-5 > worst(names["output"], scaled_dot_product_attention(*inputs, is_causal=True))
