"""KernelBench: a Python file with `Model`, `get_inputs`, `get_init_inputs`; answers: `ModelNew`."""

import re
from ast import Call, ClassDef, FunctionDef, unparse, walk
from collections.abc import Mapping
from pathlib import Path

from loop.formats import model
from loop.formats.model import Module, file_error

NAME = "kernelbench"
ENTRY, TASK = "ModelNew", "task.py"
STATEFUL_LAYER = "BatchNorm"
RANDOM_FUNCTION = re.compile(r"torch\.(rand|randn|randint|bernoulli|rand_like|randn_like)")
REQUIRED_NAMES = ("Model", "get_inputs", "get_init_inputs")
JUDGING = model.AcceptanceRule(
    atol=1e-4,
    rtol=1e-4,
    note="five random inputs; atol = rtol = 1e-4 in float32, 1e-2 in float16 and bfloat16; "
    "the same seed before each constructor makes the weights",
)
TIMING = model.Timing(
    method="CUDA events, 3 calls to warm up, mean of 100",
    cold_cache=True,
    fresh_inputs=False,
    checked=False,
    score="fast_p: share of tasks that are right and p times as fast as Model",
)


def claims(path: Path) -> str | None:
    """Why a path looks like a KernelBench task: its text defines two of the required names, perhaps
    with a syntax error, which `load` names. None if it does not."""
    if path.suffix != ".py" or not path.is_file() or path.stat().st_size > model.MOST_BYTES:
        return None
    text = path.read_bytes().decode(errors="replace")
    names = [n for n in REQUIRED_NAMES if re.search(rf"(?m)^((def|class) {n}\b|{n} *=)", text)]
    return f"it defines {', '.join(names)}" if len(names) > 1 else None


def load(path: Path) -> model.ForeignTask:
    """Read one task. Hints name random values in `forward`, and a ModelNew in the task's own file.
    Raises DefinitionError with the line."""
    module = model.read_module(path)
    _check_module(module)
    nodes, hints = list(walk(module.tree)), list[str]()
    forwards = [node for node in nodes if isinstance(node, FunctionDef) and node.name == "forward"]
    calls = [node for forward in forwards for node in walk(forward) if isinstance(node, Call)]
    lines = sorted({call.lineno for call in calls if RANDOM_FUNCTION.fullmatch(unparse(call.func))})
    if lines:
        problem = f"forward draws random values on lines {', '.join(map(str, lines))}"
        hints.append(f"{problem}: two calls on the same inputs differ")
    if module.defines("ModelNew"):
        hints.append("the file defines ModelNew as well: an answer in the task's own file")
    case = model.Case(name="get_inputs", use=("check", "time"))
    return model.ForeignTask(
        format=NAME,
        name=path.stem,
        path=path,
        files=(path,),
        entry="class ModelNew",
        languages=("python", "triton", "cuda"),
        reference="Model.forward",
        cases=(case,),
        dtypes=(),
        judging=JUDGING,
        timing=TIMING,
        imports=module.imported_packages,
        devices=("cuda",) if model.uses_cuda([module]) else ("cpu", "cuda"),
        downloads=any(getattr(node, "attr", "") == "from_pretrained" for node in nodes),
        hints=tuple(hints),
    )


def make_target(task: model.ForeignTask, answers: Mapping[str, Path]) -> model.TargetDraft:
    """Make a target of the classes of task and answers (name to file). Raises LoopError."""
    # BatchNorm in training updates its statistics in each call, so the module's state may change.
    nodes = walk(model.read_module(task.path).tree)
    node_names = [getattr(node, "attr", None) or getattr(node, "id", None) or "" for node in nodes]
    state = "free" if any(STATEFUL_LAYER in name for name in node_names) else "fixed"
    pattern = f"{model.ANSWERS}/{{}}.py"
    fields = {
        "function": "model",
        "signature": {},
        "generator": {"python": f"{TASK}:get_inputs"},
        "modules": {"arguments": {"python": f"{TASK}:get_init_inputs"}, "state": state},
        "reference": {"python": f"{TASK}:Model"},
        "baseline": {"python": f"{TASK}:Model"},
        "tolerance": model.tolerance_fields(task.judging, {"float32": 1e-4}),
        "dtypes": {"cpu": "float32", "cuda": "float32"},
        "workloads": {"task": [{}]},
        "variants": model.make_variants(task, answers, ENTRY, pattern, f"{TASK}:Model"),
    }
    links = {pattern.format(name): path for name, path in answers.items()}
    return model.TargetDraft(fields, {TASK: task.path, **links})


def _check_module(module: Module) -> None:
    """Raise DefinitionError unless the file defines the required names: functions that work without
    arguments, and a `Model` that, if it is a class there, has a base and a `forward`."""
    for name in REQUIRED_NAMES:
        if not module.defines(name):
            kind = f"class {name}" if name == "Model" else f"def {name}()"
            raise file_error(module.path, f"`{kind}`", "a file without it")
    for name in REQUIRED_NAMES[1:]:
        function = module.find_function(name)
        if function is not None and len(function.args.args) > len(function.args.defaults):
            got = f"`{name}({', '.join(argument.arg for argument in function.args.args)})`"
            raise file_error(module.path, f"`{name}()`", got, function.lineno)
    for node in module.tree.body:
        if isinstance(node, ClassDef) and node.name == "Model":
            methods = [part.name for part in node.body if isinstance(part, FunctionDef)]
            if not node.bases:
                raise file_error(module.path, "a Model with base nn.Module", "none", node.lineno)
            if "forward" not in methods:
                raise file_error(module.path, "a Model with `forward`", "none", node.lineno)
