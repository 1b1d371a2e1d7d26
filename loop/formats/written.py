"""Each format that a variant can be written in: the files of the task, of the answer, and of what was measured."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from loop.base.errors import UsageError
from loop.formats import flashinfer, gpumode, kernelbench
from loop.formats.exporting import Exported, Portable
from loop.model.measurement import Check, Measurement
from loop.model.target import CAbiVariant

AUTHOR = "loop"
KERNELBENCH_TASK = """

class Model(torch.nn.Module):
    def forward(self, {inputs}):
        return reference({inputs})


def get_inputs():
    return [{made}]


def get_init_inputs():
    return []
"""
KERNELBENCH_ANSWER = """

class ModelNew(torch.nn.Module):
    def forward(self, {inputs}):
        return answer({inputs})
"""
GPUMODE_TASK = """
from utils import make_match_reference


def generate_input({sizes}, seed: int):
    generator = torch.Generator(device={device!r}).manual_seed(seed)
    return {made},


def ref_kernel(data):
    return reference(*data)


check_implementation = make_match_reference(ref_kernel, rtol={rtol}, atol={atol})
"""
GPUMODE_ANSWER = """

def custom_kernel(data):
    return answer(*data)
"""
STATUS = {"wrong": "INCORRECT_NUMERICAL", "hung": "TIMEOUT"}
"""Ours to theirs; any other is an error of the call."""


def _kernelbench(one: Portable) -> Exported:
    """A task and an answer of one file each, at the first workload."""
    _no_scalars(one, kernelbench.NAME)
    first, signature = one.workloads[0], one.target.signature
    inputs = ", ".join(signature.inputs)
    made = ", ".join(
        f"torch.randn({_shape(text, first.sizes)}, dtype=torch.{one.type_of(name)})"
        for name, text in signature.inputs.items()
    )
    if len(one.workloads) > 1:
        one.remarks.append(f"a KernelBench task has one shape: {first.name}")
    if one.dtype != "float32":
        one.remarks.append("its evaluator casts all inputs to float32 unless it is told another precision")
    reference = one.python(one.target.reference.python, "reference")
    name = f"1_{one.target.name}.py"
    return Exported(
        {
            name: reference + KERNELBENCH_TASK.format(inputs=inputs, made=made),
            f"{one.name}.py": one.answer("answer") + KERNELBENCH_ANSWER.format(inputs=inputs),
        },
        one.remarks,
    )


def _gpumode(one: Portable) -> Exported:
    """A task's folder and a submission. The judging programs are those of a checkout, beside the folder."""
    _no_scalars(one, gpumode.NAME)
    signature = one.target.signature
    sizes = signature.dimensions
    device = "cuda" if one.variant.device == "cuda" else "cpu"
    made = ", ".join(
        f"torch.randn({_words(text)}, generator=generator, device={device!r}).to(torch.{one.type_of(name)})"
        for name, text in signature.inputs.items()
    )
    tolerance = one.target.tolerance[one.dtype]
    cases = [
        {**{size: work.sizes[size] for size in sizes}, "seed": 4242 + n} for n, work in enumerate(one.workloads)
    ]
    manifest = {
        "files": [
            {"name": "submission.py", "source": "@SUBMISSION@"},
            *({"name": name, "source": name} for name in ("task.py", "reference.py")),
            *({"name": name, "source": f"../{name}"} for name in ("utils.py", "eval.py")),
        ],
        "lang": "py",
        "description": one.target.name,
        "config": {"main": "eval.py"},
        "tests": cases,
        "benchmarks": cases,
        "ranking_by": "geom",
    }
    one.remarks.append("utils.py and eval.py are those of a checkout: put the folder beside its other tasks")
    given = {
        "sizes": ", ".join(f"{size}: int" for size in sizes),
        "device": device,
        "made": made,
        "rtol": tolerance.rtol,
        "atol": tolerance.atol,
    }
    return Exported(
        {
            "task.yml": json.dumps(manifest, indent=1) + "\n",
            "task.py": "input_t = output_t = object\n",
            "reference.py": one.python(one.target.reference.python, "reference") + GPUMODE_TASK.format(**given),
            "submission.py": one.answer("answer") + GPUMODE_ANSWER,
        },
        one.remarks,
    )


def _no_scalars(one: Portable, form: str) -> None:
    if one.given:
        what = f"{', '.join(one.given)} differs by workload, and {form} passes tensors alone"
        raise UsageError(f"{one.target.name}: {what}", hint="choose workloads that agree: --workloads")


def _shape(text: str, sizes: Mapping[str, int]) -> str:
    return ", ".join(str(sizes[word]) for word in text.split()) or "()"


def _words(text: str) -> str:
    return ", ".join(text.split()) or "()"


def _definition(one: Portable) -> dict[str, Any]:
    signature = one.target.signature
    axes = {word: {"type": "var", "description": signature.words.get(word, word)} for word in signature.dimensions}

    def spec(name: str, text: str) -> dict[str, Any]:
        return {"shape": text.split(), "dtype": one.type_of(name), "description": name}

    kinds = {"flag": "bool", "number": "float32"}
    scalars = {name: {"shape": None, "dtype": kinds[signature.attributes[name].kind]} for name in one.given}
    return {
        "name": one.target.name,
        "op_type": one.target.function,
        "axes": axes,
        "inputs": {name: spec(name, text) for name, text in signature.inputs.items()} | scalars,
        "outputs": {name: spec(name, text) for name, text in signature.outputs.items()},
        "reference": one.python(one.target.reference.python, "run"),
        "description": f"written by loop from the target {one.target.name}",
    }


def _calls(one: Portable) -> Iterator[dict[str, Any]]:
    for work in one.workloads:
        inputs: dict[str, Any] = {key: {"type": "random"} for key in one.target.signature.inputs}
        for name in one.given:
            value = work.attributes.get(name, one.target.signature.attributes[name].initial)
            inputs[name] = {"type": "scalar", "value": value}
        yield {"uuid": work.name.replace(" ", "_"), "axes": dict(work.sizes), "inputs": inputs}


def _solution(one: Portable, *, sol: bool) -> dict[str, Any]:
    variant = one.variant
    compiled = isinstance(variant, CAbiVariant)
    if compiled:
        files, _ = one.sources()
        sources = [{"path": path, "content": text} for path, text in files.items()]
        entry, language = "binding.cpp::run", "cuda" if variant.device == "cuda" else "cpp"
        if not sol and one.flags:
            one.remarks.append(f"flags of its build: {' '.join(one.flags)}")
        if sol and language == "cpp":
            raise UsageError(f"{one.name}: SOL-ExecBench has no language for C++ that runs on a CPU")
    else:
        sources = [{"path": "main.py", "content": one.answer("run")}]
        entry, language = "main.py::run", "python"
    words = {"cuda": "cuda_cpp", "python": "pytorch"}
    return {
        "name": one.name,
        "definition": one.target.name,
        "author": AUTHOR,
        "description": variant.title,
        "spec": {
            **({"languages": [words[language]]} if sol else {"language": language}),
            "target_hardware": ["LOCAL"] if sol else ["cuda" if variant.device == "cuda" else "cpu"],
            "entry_point": entry,
            "dependencies": [],
            "destination_passing_style": compiled,
            **({"binding": "torch"} if compiled or sol else {}),
            **({"compile_options": {"cuda_cflags": one.flags}} if compiled and sol else {}),
        },
        "sources": sources,
    }


def _trace(one: Portable) -> Exported:
    """The root of a trace set: definition, workloads, solution."""
    name, family = one.target.name, one.target.function
    calls = [{"definition": name, "workload": call, "solution": None, "evaluation": None} for call in _calls(one)]
    files = {
        f"definitions/{family}/{name}.json": _text(_definition(one)),
        f"workloads/{family}/{name}.jsonl": _lines(calls),
        f"solutions/{AUTHOR}/{family}/{name}/{one.name}.json": _text(_solution(one, sol=False)),
    }
    return Exported(files, one.remarks)


def _sol(one: Portable) -> Exported:
    """A problem's folder with a solution; the tolerance is the target's."""
    allowed = one.target.tolerance[one.dtype]
    rule = {"max_atol": allowed.atol, "max_rtol": allowed.rtol, "required_matched_ratio": allowed.matched}
    definition = _definition(one)
    files = {
        "definition.json": _text(definition),
        "reference.py": definition["reference"],
        "workload.jsonl": _lines([{**call, "tolerance": rule} for call in _calls(one)]),
        f"solution_{one.name}.json": _text(_solution(one, sol=True)),
    }
    return Exported(files, one.remarks)


def traces(one: Portable, checks: Iterable[Check], timed: Iterable[Measurement], where: Mapping[str, Any]) -> str:
    """Lines of a FlashInfer Trace for what was verified and timed; `where`: environment and timestamp.

    A workload that passed needs a time: without one it has no line. Of several checks a failed one counts. The
    format's speedup is over the reference: it is left out where the baseline is another function.
    """
    times = {each.workload.name: each for each in timed if each.variant == one.name}
    worst_last = sorted(checks, key=lambda each: not each.passed)
    plain = {each.workload.name: each for each in worst_last if each.inputs == "contiguous"}
    same = one.target.baseline.python == one.target.reference.python
    found = []
    for work, call in zip(one.workloads, _calls(one), strict=True):
        check, time = plain.get(work.name), times.get(work.name)
        if check is None or (check.passed and time is None):
            one.remarks.append(f"trace of {work.name}: it has no {'time' if check else 'check'}")
            continue
        found.append(
            {
                "definition": one.target.name,
                "workload": call,
                "solution": one.name,
                "evaluation": {**_told(check, time, compared=same), **where},
            }
        )
    return _lines(found)


def _told(check: Check, time: Measurement | None, *, compared: bool) -> dict[str, Any]:
    """What came of one workload; `compared`: whether the time is one against the reference."""
    told: dict[str, Any] = {"status": "PASSED" if check.passed else STATUS.get(check.status, "RUNTIME_ERROR")}
    told["log"] = "" if check.passed else check.message
    if check.passed or check.status == "wrong":
        absolute = "NaN" if check.max_error is None else check.max_error
        told["correctness"] = {"max_relative_error": "NaN", "max_absolute_error": absolute}
    if check.passed and time is not None:
        told["performance"] = {"latency_ms": time.candidate_us / 1e3}
        if compared:
            told["performance"] |= {"reference_latency_ms": time.reference_us / 1e3, "speedup_factor": time.ratio}
    return told


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=1) + "\n"


def _lines(values: Sequence[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


WRITERS: Mapping[str, Callable[[Portable], Exported]] = {
    kernelbench.NAME: _kernelbench,
    gpumode.NAME: _gpumode,
    flashinfer.TRACE: _trace,
    flashinfer.SOL: _sol,
}
"""By the name of the format."""
