"""Variants out again: as an answer in another format, which reads and judges it as any."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from loop.base.errors import UsageError
from loop.base.places import project
from loop.cli import app
from loop.formats import table
from loop.formats.exporting import Portable
from loop.formats.translated import as_target
from loop.formats.written import WRITERS, traces
from loop.library import targets
from loop.model.output import MeasureOutput
from loop.model.record import Finished, Line
from loop.model.verdict import Verdict
from loop.model.workloads import expand
from loop.store import journal, sessions
from tests.formats import tasks
from tests.formats.test_translated import read
from tests.makers import (
    NOON,
    make_check,
    make_finished,
    make_measurement,
    make_no_speed,
    make_session_head,
    make_verify,
)

OPS = """from __future__ import annotations

import torch


def scale(x):
    return 2 * x


def wrong(x):
    return 2.5 * x


def into(x, y):
    y.copy_(2 * x)
"""
SOURCE = """#include "loop_kernel.h"
#include "factor.h"
LOOP_EXPORT int scale(const LoopTensor *inputs, LoopTensor *outputs, const double *, void *) {
  if (inputs[0].strides[1] != 1 || inputs[0].strides[0] != inputs[0].sizes[1]) return 4;
  const int64_t count = inputs[0].sizes[0] * inputs[0].sizes[1];
  for (int64_t i = 0; i < count; ++i) ((float *)outputs[0].data)[i] = FACTOR * ((const float *)inputs[0].data)[i];
  return 0;
}
"""
MANIFEST = """format: 2
name: scale
function: scale
signature: {inputs: {x: N M}, outputs: {y: N M}}
reference: {python: "ops:scale"}
baseline: {python: "ops:scale"}
tolerance: {float32: {atol: 1.0e-5, rtol: 1.0e-5}}
dtypes: {cpu: float32, cuda: float32}
workloads: {small: [{N: [3, 64], M: 33}]}
variants:
  eager: {kind: python, device: any, module: ops, function: scale}
  wrong: {kind: python, device: any, module: ops, function: wrong}
  into: {kind: python, device: any, module: ops, function: into, passing: passed}
  fast: {kind: c_abi, device: cpu, sources: [scale.cpp], entry: scale, build: {flags: [-O2, -DFACTOR=2.0f]}}
  program: {kind: command, device: cpu, run: [./program]}
"""
TASKS = {
    "kernelbench": ("1_scale.py", "{}.py"),
    "gpumode": ("", "submission.py"),
    "flashinfer-trace": ("definitions/scale/scale.json", "solutions/loop/scale/scale/{}.json"),
    "sol-execbench": ("", "solution_{}.json"),
}
"""Where the task and the answer are among the files that are written."""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The folder of a target of one's own."""
    folder = tmp_path / "own"
    folder.mkdir()
    files = {"ops.py": OPS, "scale.cpp": SOURCE, "factor.h": "/* FACTOR comes from outside. */\n"}
    for name, text in {**files, "target.yaml": MANIFEST}.items():
        (folder / name).write_text(text)
    return folder


def portable(folder: Path, variant: str = "eager") -> Portable:
    """A variant, as it is written in other formats."""
    target = targets.target(project(folder, folder)).value
    return Portable(target, folder, variant, expand(target, ["small"], "float32"), "native")


def export(folder: Path, variant: str, form: str, *more: str) -> Path:
    """The folder that `loop kernels export` wrote to."""
    output = folder.parent / f"{form}-{variant}"
    words = ["kernels", "export", variant, "--as", form, "--output", str(output), "--target", str(folder), *more]
    done = CliRunner().invoke(app, [*words, "--json"])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert json.loads(done.stdout)
    return output


@pytest.mark.parametrize("form", WRITERS)
def test_what_is_written_is_a_task_with_an_answer(form: str, own: Path) -> None:
    """It is recognised as the format, and the answer as one to it; its shapes are the target's."""
    output = export(own, "eager", form)
    task, answer = (output / one.format("eager") for one in TASKS[form])
    if form == "gpumode":  # Its judging programs are those of a checkout.
        (output.parent / "eval.py").write_text(tasks.EVALUATOR)
        (output.parent / "utils.py").write_text(
            "def make_match_reference(reference, **limits):\n    return None\n"
        )
    loaded = table.load(task)
    assert form == loaded.format
    assert [(3, 33)] == [one.shape for one in (loaded.cases[0].inputs or ())] or form == "gpumode"
    folder, names = as_target(task, [str(answer)])
    assert list(names) == list(read(folder).variants)


def test_a_compiled_variant_keeps_its_macros(own: Path) -> None:
    """They stand before the source in a translation unit; every file that it includes goes along."""
    files, units = portable(own, "fast").sources()
    assert ["binding.cpp", "unit_0.cpp"] == units
    assert '#define FACTOR 2.0f\n#include "scale.cpp.inc"\n' == files["unit_0.cpp"]
    assert {"scale.cpp.inc", "factor.h", "loop_kernel.h"} < set(files)
    assert ["-O2"] == portable(own, "fast").flags


@pytest.mark.parametrize("variant", ["eager", "into"])
def test_an_answer_in_python_returns_its_outputs(variant: str, own: Path) -> None:
    """Also where the variant has them passed to it, and whatever its file begins with."""
    defined: dict[str, Any] = {}
    exec(portable(own, variant).answer("answer"), defined)
    x = torch.ones(3, 2)
    assert torch.equal(2 * x, defined["answer"](x))


def test_sources_in_an_answer_keep_every_character(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the encoding of the machine that writes them again."""
    source = f"// \U0001f600 \u00b5\n{SOURCE}"
    (own / "scale.cpp").write_text(source, encoding="utf-8")
    found: list[Path] = []
    extension = "torch.utils.cpp_extension.load"
    monkeypatch.setattr(extension, lambda sources, **_: found.extend(map(Path, sources)))
    monkeypatch.setattr("tempfile.tempdir", str(own))
    exec(portable(own, "fast").answer("answer"), {})
    assert source == (found[0].parent / "scale.cpp.inc").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("variant", "changes", "said"),
    [
        ("program", {}, r"no word for a program \(program\)"),
        ("eager", {"ops.py": f"import factors\n{OPS}", "factors.py": "TWO = 2\n"}, "which imports factors"),
        ("fast", {"scale.cpp": SOURCE.replace("factor.h", "gone.h")}, "gone.h, which scale.cpp includes"),
    ],
)
def test_what_cannot_be_said_is_refused(variant: str, changes: dict[str, str], said: str, own: Path) -> None:
    """With its reason; nothing is written."""
    for name, text in changes.items():
        (own / name).write_text(text)
    with pytest.raises(UsageError, match=said):
        export(own, variant, "flashinfer-trace")
    assert not (own.parent / f"flashinfer-trace-{variant}").exists()


def test_what_a_format_leaves_out_is_told(own: Path) -> None:
    """KernelBench has one shape; nothing else is lost."""
    one = portable(own)
    assert ("a KernelBench task has one shape: N3 M33 float32",) == tuple(WRITERS["kernelbench"](one).remarks)
    assert () == tuple(WRITERS["flashinfer-trace"](portable(own)).remarks)


def test_files_that_are_there_stay(own: Path) -> None:
    """The same text may be written again; any other is not touched."""
    output = export(own, "eager", "kernelbench")
    export(own, "eager", "kernelbench")
    (output / "eager.py").write_text("mine")
    with pytest.raises(UsageError, match="there already"):
        export(own, "eager", "kernelbench")
    assert "mine" == (output / "eager.py").read_text()


def test_an_answer_to_a_task_of_the_format_is_one_already(tmp_path: Path) -> None:
    """It is copied."""
    answer = tmp_path / "mine.py"
    answer.write_text(tasks.ANSWER)
    folder, _ = as_target(tasks.kernelbench(tmp_path), [str(answer)])
    output = export(folder, "mine", "kernelbench")
    assert tasks.ANSWER == (output / "mine.py").read_text()
    with pytest.raises(UsageError, match="no word for"):
        export(folder, "mine", "flashinfer-trace")


def test_a_trace_says_what_was_verified_and_timed(own: Path) -> None:
    """A workload that passed needs a time; a wrong one has its error instead."""
    one = portable(own)
    first, second = one.workloads
    failed = make_check(right=False, max_error=0.5).model_copy(update={"workload": second})
    checks = [make_check().model_copy(update={"workload": first}), failed]
    timed = make_measurement(ratio=2.0, variant="eager", candidate_us=10.0, reference_us=20.0)
    timed = timed.model_copy(update={"workload": first})
    where = {"environment": {"hardware": "here", "libs": {}}, "timestamp": "now"}
    right, wrong = (json.loads(line) for line in traces(one, checks, [timed], where).splitlines())
    assert ("scale", "eager", "PASSED") == (right["definition"], right["solution"], right["evaluation"]["status"])
    speed = {"latency_ms": 0.01, "reference_latency_ms": 0.02, "speedup_factor": 2.0}
    assert speed == right["evaluation"]["performance"]
    assert ("INCORRECT_NUMERICAL", 0.5) == (
        wrong["evaluation"]["status"],
        wrong["evaluation"]["correctness"]["max_absolute_error"],
    )
    assert "" == traces(portable(own), checks[:1], [], where)


def session(own: Path, *steps: Finished, **fields: Any) -> None:
    """A session of the target as it is, with steps that were done."""
    folder = sessions.create(project(own, own).sessions, "baseline", NOON)
    head = {"id": folder.id, "variants": ("eager",), "target": "scale", "target_folder": str(own)}
    folder.write_head(make_session_head(**{**head, "ground": targets.ground(project(own, own)), **fields}))
    lines = (Line(seq=n, at=NOON, event=step) for n, step in enumerate(steps, start=1))
    (folder.path / journal.NAME).write_text("".join(f"{journal.to_text(line)}\n" for line in lines))


def steps(own: Path, *verdicts: Verdict) -> list[Finished]:
    """Its variant right on the first workload, wrong under the emulator, and timed."""
    first = portable(own).workloads[0]
    right, wrong = (make_check(right=one).model_copy(update={"workload": first}) for one in (True, False))
    timed = make_measurement(ratio=2.0, variant="eager").model_copy(update={"workload": first})
    measured = MeasureOutput(ok=True, message="", measurements=(timed,), verdicts=verdicts)
    return [
        make_finished("verify", output=make_verify(right, variant="eager")),
        make_finished("emulate", output=make_verify(wrong, variant="eager")),
        make_finished("measure", output=measured),
    ]


def evaluations(own: Path) -> list[dict[str, Any]]:
    """What the traces of its last session say."""
    output = export(own, "eager", "flashinfer-trace", "--session", "last")
    lines = (output / "traces/loop/scale/scale.jsonl").read_text().splitlines()
    return [json.loads(line)["evaluation"] for line in lines]


def test_traces_say_what_the_session_measured(own: Path) -> None:
    """What an emulator says is none of it. Against another function there is no speedup over the reference."""
    manifest = own / "target.yaml"
    manifest.write_text(MANIFEST.replace('baseline: {python: "ops:scale"}', 'baseline: {python: "ops:wrong"}'))
    session(own, *steps(own))
    (only,) = evaluations(own)
    assert ("PASSED", ["latency_ms"]) == (only["status"], list(only["performance"]))


@pytest.mark.parametrize("name", ["eager", "baseline"])
def test_times_that_are_not_trusted_are_in_no_trace(name: str, own: Path) -> None:
    """Of the variant, or of what it was compared with."""
    session(own, *steps(own, make_no_speed("small", variant=name, verdict="invalid", reason="it remembers")))
    assert [] == evaluations(own)


@pytest.mark.parametrize("how", ["edited", "older", "changed"])
def test_a_session_of_other_sources_is_refused(how: str, own: Path) -> None:
    """Sources that were edited since, that an old session does not tell, or that it changed by itself."""
    more = [make_finished("decide", action="change.decide")] if how == "changed" else []
    session(own, *steps(own), *more, **({"ground": ""} if how == "older" else {}))
    if how == "edited":
        (own / "ops.py").write_text(OPS.replace("2 * x", "x + x"))
    with pytest.raises(UsageError, match="measured other sources") as caught:
        evaluations(own)
    assert "loop run session baseline --variant eager" in (caught.value.hint or "")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["kernelbench", "flashinfer-trace", "sol-execbench"])
@pytest.mark.parametrize(("variant", "code"), [("eager", 0), ("wrong", 1)])
def test_read_again_it_gets_the_same_verdict(form: str, variant: str, code: int, own: Path) -> None:
    """Written, read as somebody else's, and judged."""
    output = export(own, variant, form)
    words = [str(output / one.format(variant)) for one in TASKS[form]]
    assert 0 == CliRunner().invoke(app, ["trust", *words]).exit_code
    done = CliRunner().invoke(app, ["kernels", "verify", *words[1:], "--target", words[0], "--device", "cpu"])
    assert code == done.exit_code


@pytest.mark.slow
def test_a_compiled_variant_read_again_gets_the_same_verdict(own: Path) -> None:
    """Its C interface is called by a torch binding, and this by a C interface again."""
    output = export(own, "fast", "flashinfer-trace")
    words = [str(output / one.format("fast")) for one in TASKS["flashinfer-trace"]]
    assert 0 == CliRunner().invoke(app, ["trust", *words]).exit_code
    done = CliRunner().invoke(app, ["kernels", "verify", *words[1:], "--target", words[0], "--json"])
    assert 0 == done.exit_code, done.output
