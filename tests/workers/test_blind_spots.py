"""A judge of small targets: weaknesses of inputs, and references that it refuses."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from loop.calls.call import Refused
from loop.formats.table import write_as_target
from loop.library import targets
from loop.library.definitions import find_project, read_file
from loop.model.measurement import Weaknesses
from loop.model.target import Attribute, Target
from loop.model.workloads import expand_sets
from loop.workers import judge, suspects, target_functions
from loop.workers.judge_messages import Compare, FindBlindSpots, Finding, PrepareAnswer, PreparedAnswer, SetTarget
from loop.workers.suspects import _change_input, alternative_values
from loop.workers.workload_call import make_answer_request, make_call
from tests.formats import tasks
from tests.tasks import write_task

CODE = """
import torch

def make(N, seed, **attributes):
    return [torch.rand(N), torch.arange(N), torch.ones(N), torch.randn(N)]

def make_wide(N, seed, **attributes):
    return [torch.randn(N), torch.arange(N) << 20, torch.randn(N), torch.randn(N)]

def make_offsets(N, seed):
    return [torch.randn(N), torch.randint(1, 9, (N,)).cumsum(0) - 1]

def make_from_zero(N, seed):
    x, ends = make_offsets(N, seed)
    return [x.round(), ends - ends[0]]

def make_places(N, seed):
    return [torch.randn(N), torch.randint(0, N // 2, (N,))]

def gathered(x, places):
    return x[places]

def greatest(x, places):
    return x.max()[None] + 0 * places

def order(x, ends):
    return x.argsort(stable=True) + ends

def blind(x, pos, w, mask, *, window, mode):
    return x * pos * w + (pos < window), torch.zeros_like(x)

def seeing(x, pos, w, mask, *, window, mode):
    x = x - 0.5 * w if mode == "a" else x
    return x * pos * w + (pos < window) + mask, x + mask

def exponential(x, *, k):
    return torch.exp(k * x)

def shares(x, *, k):
    return torch.exp(k * x) / torch.exp(k * x).sum()

def nothing(x, *, k):
    return (x * 3.3 / 3.3 - x) if x.dtype == torch.float64 else torch.zeros_like(x)

def small(x, *, k):
    return x * k

def repeated(x, *, k):
    return x + sum(0 for _ in range(int(k)))

class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = torch.nn.LayerNorm(8), torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(self.norm(x))

def rows(N, seed):
    return [torch.randn(N, 8)]
"""
PLAIN: dict[str, Any] = {"inputs": {"x": "N"}, "outputs": {"y": "N"}, "attributes": {"k": {"kind": "number"}}}
SEVERAL: dict[str, Any] = {
    "inputs": {"x": "N", "pos": "N", "w": "N", "mask": "N"},
    "outputs": {"y": "N", "z": "N"},
    "types": {"pos": "int64"},
    "attributes": {"window": {"kind": "number", "default": 4}, "mode": {"kind": "choice", "choices": ["a", "b"]}},
}


class Judged:
    """A judge of a target that the code above has, and its only workload."""

    def __init__(self, folder: Path, name: str, signature: dict[str, Any], **fields: Any) -> None:
        (folder / "telling.py").write_text(CODE)
        function = {"python": str(folder / "telling.py") + f":{name}"}
        manifest = {
            "format": 2, "name": "telling", "function": "told", "signature": signature,
            "reference": function, "baseline": function, "dtypes": {"cpu": "float32"},
            "tolerance": {"float32": {"atol": 0.0, "rtol": 1e-5}}, "workloads": {"some": [{"N": 64}]},
            "variants": {"one": {"kind": "python", "device": "any", "module": "telling", "function": name}},
        }  # fmt: skip
        if "generator" in fields:
            fields["generator"] = {"python": str(folder / "telling.py") + f":{fields['generator']}"}
        (folder / "target.yaml").write_text(json.dumps({**manifest, **fields}))
        self.folder, self.target = folder, read_file(folder / "target.yaml", Target).value
        (self.workload,) = expand_sets(self.target, ["some"], "float32")
        self.judge = judge.Judge(SetTarget(self.target, None, str(folder), 1))

    def request(self, seed: int) -> PrepareAnswer:
        workload = self.workload.model_copy(update={"seed": seed})
        call = make_call(self.target, workload, str(self.folder), "judge")
        return make_answer_request(self.target, workload, call, "secret", "cpu", with_windows=False)

    def expect(self, seed: int = 2) -> PreparedAnswer:
        return self.judge.prepare_answer(self.request(seed))

    def looked(self) -> Weaknesses:
        """Weaknesses of the inputs, from two sets of values."""
        self.expect(2), self.expect(3)
        looked = self.judge.answers[FindBlindSpots](FindBlindSpots((self.request(8000), self.request(8001))))
        assert isinstance(looked, dict)
        return looked

    def compared(self, output: torch.Tensor) -> Finding:
        """The finding on an output of the first set of values."""
        (self.folder / "output.bin").write_bytes(output.numpy().tobytes())
        outputs = (str(self.folder / "output.bin"),)
        return self.judge.compare(Compare(self.request(2).call, outputs, tries_faults=True))

    @property
    def inputs(self) -> torch.Tensor:
        return self.judge.answer_by_key[self.request(2).call.key].inputs.tensors[0]


def test_a_fault_of_a_target_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """When the judge begins, not when something is wrong."""
    with pytest.raises(Refused, match=r"cannot import tests\.makers:lost: AttributeError"):
        Judged(tmp_path, "small", PLAIN, faults={"the rows were lost": {"python": "tests.makers:lost"}})


def test_what_inputs_cannot_show_is_told(tmp_path: Path) -> None:
    """Constant values, unread arguments and constant outputs are reported."""
    looked = Judged(tmp_path, "blind", SEVERAL, generator="make").looked()
    drawn = (looked["fixed"], looked["single_valued"], looked["nonnegative"], bool(looked["finite"]))
    assert (("pos", "w"), (), ("x",), True) == drawn
    assert (("mask",), ("mode",), ("z",)) == (looked["unread"], looked["ignored"], looked["unmoved"])
    assert ("pos",) == looked["narrow"]
    looked = Judged(tmp_path, "seeing", SEVERAL, generator="make_wide").looked()
    assert ((), (), (), ()) == (looked["unread"], looked["ignored"], looked["unmoved"], looked["narrow"])


@pytest.mark.parametrize(("maker", "told"), [("make_offsets", ((), ("x",))), ("make_from_zero", (("ends",), ()))])
def test_offsets_from_zero_and_values_without_ties_are_told(tmp_path: Path, maker: str, told: object) -> None:
    """A kernel may take the first offset for 0, or name another of equal values."""
    types = {"ends": "int64", "y": "int64"}
    signature = {"inputs": {"x": "N", "ends": "N"}, "outputs": {"y": "N"}, "types": types}
    looked = Judged(tmp_path, "order", signature, generator=maker).looked()
    assert (told, ("y",)) == ((looked["from_zero"], looked["untied"]), looked["whole_outputs"])


@pytest.mark.parametrize(("function", "halves"), [("gathered", ("x along N",)), ("greatest", ())])
def test_a_half_that_no_drawn_place_reaches_is_told(tmp_path: Path, function: str, halves: object) -> None:
    """A greatest value in the first half is no sign that the second is not read."""
    signature = {"inputs": {"x": "N", "places": "N"}, "outputs": {"y": "N"}, "types": {"places": "int64"}}
    looked = Judged(tmp_path, function, signature, generator="make_places").looked()
    assert halves == looked["unread_halves"]


def test_weights_that_a_constructor_leaves_alone_are_told(tmp_path: Path) -> None:
    signature = {"inputs": {"x": "..."}, "outputs": {"y": "..."}, "sizes": ["N"]}
    blind = Judged(tmp_path, "Module", signature, generator="rows", modules={}).looked()
    assert (("norm.weight", "norm.bias"), (), ()) == (blind["initial"], blind["unread"], blind["nonnegative"])


def test_a_huge_number_of_loops_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference may loop as often as an attribute says: a look at inputs ends, and a search for a cause."""
    monkeypatch.setattr(suspects, "CHANGED_CALL_LIMIT_S", 0.1)
    judged = Judged(tmp_path, "repeated", PLAIN, workloads={"some": [{"N": 64, "k": 1.0}]})
    assert (("k",), ()) == (judged.looked()["ignored"], judged.looked()["unread"])
    assert judged.compared(judged.inputs * 2).fits is not None


def test_where_the_reference_overflows_nothing_is_wrong(tmp_path: Path) -> None:
    """A variant that overflows in the same places is not judged. One that does not overflow is right, and one with
    an error elsewhere is wrong."""
    judged = Judged(tmp_path, "shares", PLAIN, workloads={"some": [{"N": 64, "k": 60.0}]})
    assert "" == judged.expect().unjudged_reason
    x = 60 * judged.inputs
    naive, stable = torch.exp(x) / torch.exp(x).sum(), torch.softmax(x.double(), -1).float()
    assert naive.isnan().any()
    assert "in float32 the reference gives NaN or infinity" in judged.compared(naive).unjudged_reason
    wrong = naive.nan_to_num(0.0)
    wrong[int(x.argmin())] = 2.0
    assert "" == judged.compared(wrong).unjudged_reason
    assert (True, 0) == (judged.compared(wrong).wrong > 0, judged.compared(stable).wrong)


def test_what_float64_itself_loses_is_allowed(tmp_path: Path) -> None:
    """An exact zero is right where the reference leaves 1e-16; 1e-7 is not."""
    judged = Judged(tmp_path, "nothing", PLAIN, workloads={"some": [{"N": 64, "k": 1.0}]})
    judged.expect()
    reference = judged.judge.answer_by_key[judged.request(2).call.key].truths[0].reference
    assert 0 < float(reference.abs().max()) < 1e-14
    zeros = torch.zeros(64)
    assert 0 == judged.compared(zeros).wrong
    zeros[5] = 1e-7
    assert 1 == judged.compared(zeros).wrong


@pytest.mark.parametrize(("k", "passes"), [(1e-9, False), (1.0, False), (0.0, True)])
def test_an_output_within_the_tolerance_of_zero_is_told(tmp_path: Path, k: float, passes: bool) -> None:
    """Where there is more than noise, less is allowed in place of that: zeros are wrong then."""
    tolerance = {"float32": {"atol": 1e-6, "rtol": 1e-5}}
    judged = Judged(tmp_path, "small", PLAIN, workloads={"some": [{"N": 64, "k": k}]}, tolerance=tolerance)
    assert passes is judged.expect().passes_zeros
    assert passes is (judged.compared(torch.zeros(64)).wrong == 0)
    assert 0 == judged.compared(judged.inputs * k).wrong


IN_PLACE = tasks.KERNELBENCH.replace("return torch.relu(x) * self.weight", "x.mul_(2)\n        return x + 1")


def expecting(target: Target, folder: Path, scratch: Path, **changes: Any) -> tuple[judge.Judge, PrepareAnswer]:
    """A judge of a target, and a request for the answer to its only workload."""
    (workload,) = expand_sets(target, [*target.workloads], "float32", 5)
    call = make_call(target, workload, str(scratch), "judge")
    request = make_answer_request(target, workload, call, "secret", "cpu", with_windows=False)
    return judge.Judge(SetTarget(target, None, str(folder), 1)), request.replace(
        checks_determinism=True, **changes
    )


def test_a_model_that_changes_its_input_judges_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the parameter of `forward`, the consequence and the remedy."""
    folder, _ = write_as_target(tasks.kernelbench(tmp_path, IN_PLACE))
    monkeypatch.syspath_prepend(str(folder))
    asked_judge, request = expecting(targets.read_target(find_project(folder, folder)).value, folder, tmp_path)
    with pytest.raises(Refused) as refused:
        asked_judge.prepare_answer(request)
    words = (
        "the reference itself changes its input `x`, so nothing is judged: let it change a copy (`x = x.clone()`)"
    )
    assert words in str(refused.value)
    assert str(refused.value).endswith("then run the same command again")


Limited = Callable[..., tuple[judge.Judge, PrepareAnswer, dict[str, Any]]]


@pytest.fixture
def limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Limited:
    """Makes a judge with a GPU of little memory, and counts calls of its reference by device.

    Tensors of the `meta` device stand for those of the GPU.
    """
    noted: dict[str, Any] = {"cpu": 0, "meta": 0}
    on = target_functions.Inputs.copy_to
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 40, 1 << 40))
    monkeypatch.setattr(
        target_functions.Inputs, "copy_to", lambda inputs, device: on(inputs, device.replace("cuda", "meta"))
    )

    def make(**changes: Any) -> tuple[judge.Judge, PrepareAnswer, dict[str, Any]]:
        judging, request = expecting(write_task(tmp_path, "backward"), tmp_path, tmp_path, **changes)
        right = judging.functions.reference

        def reference(gradient: torch.Tensor, x: torch.Tensor) -> Any:
            noted[gradient.device.type] += 1
            if gradient.is_meta or noted["cpu"] in noted.get("fails", ()):
                raise torch.OutOfMemoryError("CUDA out of memory")
            return right(gradient, x)

        judging.functions.reference = reference
        return judging, request, noted

    return make


def test_an_answer_that_does_not_fit_a_gpu_is_worked_out_on_the_cpu(limited: Limited) -> None:
    """Once the GPU lacked memory, it is not tried again."""
    judging, request, noted = limited(device="cuda")
    judging.prepare_answer(request)
    device = judging.answer_by_key[request.call.key].truths[0].reference.device.type
    assert (1, "cpu") == (noted["meta"], device)


def test_a_gpu_without_memory_is_no_wrong_output(limited: Limited, tmp_path: Path) -> None:
    """Rounding is examined on the CPU if the GPU lacks memory for it."""
    judging, request, noted = limited(device="cpu")
    call = judging.prepare_answer(request).call
    assert call is not None
    answer = judging.answer_by_key[call.key]
    tight = replace(answer.truths[0], allowed=torch.zeros_like(answer.truths[0].allowed))
    output = tmp_path / "output.bin"
    rounded = tight.reference.float().nextafter(torch.tensor(torch.inf))
    output.write_bytes(rounded.numpy().tobytes())
    for fails in (set(), {1}):
        judging.answer_by_key[call.key] = replace(answer, truths=[tight])
        noted |= {"cpu": 0, "fails": fails}
        assert 0 == judging.compare(Compare(call, (str(output),), False)).wrong


@pytest.mark.parametrize("value", [-2.0, float("inf"), float("nan")])
def test_an_input_that_no_change_alters_is_not_called_unread(value: float) -> None:
    """-2 * 1.25 + 0.5 is -2 again: such an input proves nothing about reading."""
    assert _change_input(torch.full((3,), value), torch.full((3,), value)) is None
    assert torch.equal(torch.full((3,), 1.75), _change_input(torch.ones(3), torch.ones(3)))


def test_an_attribute_that_is_a_size_has_no_alternative_that_fills_the_memory() -> None:
    """An attribute of 2**30 columns must fail at once instead of filling the memory."""
    attribute = Attribute(kind="number", default=128)
    values = [value for _, value in alternative_values(128, attribute) if isinstance(value, int)]
    with pytest.raises(RuntimeError):
        torch.empty(max(values), 5)
