"""The judge alone, without its process: what it refuses to judge by, and where it works out an answer."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from loop.base.places import find_project
from loop.calls.call import Refused
from loop.formats.table import write_as_target
from loop.library import targets
from loop.model.target import Target
from loop.model.workloads import expand_sets
from loop.workers import judge, target_functions
from loop.workers.judge_messages import Compare, PrepareAnswer, SetTarget
from loop.workers.workload_call import make_answer_request, make_call
from tests.formats import tasks
from tests.tasks import write_task

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
    """The message names the parameter of `forward`, what follows, and how to mend it."""
    folder, _ = write_as_target(tasks.kernelbench(tmp_path, IN_PLACE))
    monkeypatch.syspath_prepend(str(folder))
    one, request = expecting(targets.read_target(find_project(folder, folder)).value, folder, tmp_path)
    with pytest.raises(Refused) as refused:
        one.prepare_answer(request)
    said = (
        "the reference itself changes its input `x`, so nothing is judged: let it change a copy (`x = x.clone()`)"
    )
    assert said in str(refused.value)
    assert str(refused.value).endswith("then run the same command again")


Limited = Callable[..., tuple[judge.Judge, PrepareAnswer, dict[str, Any]]]


@pytest.fixture
def limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Limited:
    """Makes a judge with a GPU of little memory; how many times its reference was called by device is noted.

    Tensors without memory stand for those of the GPU.
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
    """Where it was tried is not asked of the GPU again."""
    judging, request, noted = limited(device="cuda")
    judging.prepare_answer(request)
    device = judging.answer_by_key[request.call.key].truths[0].reference.device.type
    assert (1, "cpu") == (noted["meta"], device)


def test_a_gpu_without_memory_is_no_wrong_output(limited: Limited, tmp_path: Path) -> None:
    """What rounding explains is worked out again on the CPU, where a GPU has no room for that."""
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
