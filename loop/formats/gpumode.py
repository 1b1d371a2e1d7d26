"""GPU MODE: a folder with `task.yml`, `task.py`, `reference.py`; answers have `custom_kernel`."""

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from loop.base.documents import Document, complain, load_yaml, parse
from loop.base.errors import DefinitionError, UsageError
from loop.formats import model
from loop.formats.model import Case, Module, file_error, read_module

NAME = "gpumode"
MANIFEST = "task.yml"
SUBMISSION, ANSWER, EVALUATOR = "@SUBMISSION@", "submission.py", "eval.py"
GENERATE, CHECK = "generate_input", "check_implementation"
REFERENCE, KERNEL = "ref_kernel", "custom_kernel"
DEFAULT_TOLERANCE = {"rtol": 1e-5, "atol": 1e-8}
"""Default tolerances of GPU MODE's `make_match_reference` and `verbose_allclose`."""
SCORE_TEXTS = {
    "last": "seconds of the last benchmark",
    "mean": "mean of the benchmarks' seconds",
    "geom": "geometric mean of the benchmarks' seconds",
}
Arguments = dict[str, int | bool | str | float | tuple[int, ...]]


class File(model.TaskFile):
    """One file of the folder in which an answer is judged."""

    name: str
    source: str  # Path of the original, relative to the task; `@SUBMISSION@` for the answer.


class Config(model.TaskFile):
    """How an answer is judged."""

    main: str | None = None  # The program to start, for Python; without it, `eval.py`.


class Manifest(model.TaskFile):
    """`task.yml`: `tests` are calls that are checked, `benchmarks` calls that are timed."""

    files: tuple[File, ...]
    lang: Literal["py", "cu"]
    config: Config = Config()
    tests: tuple[Arguments, ...] = ()
    benchmarks: tuple[Arguments, ...] = ()
    ranking_by: Literal["last", "mean", "geom"] = "last"
    multi_gpu: bool = False
    gpus: tuple[str, ...] = ()


def claims(path: Path) -> str | None:
    """Why a path looks like a GPU MODE task; None if it does not."""
    folder = path.parent if path.name == MANIFEST else path
    return f"it has a {MANIFEST}" if (folder / MANIFEST).is_file() else None


def read_manifest(folder: Path) -> tuple[Manifest, Document, dict[str, Path]]:
    """A task's manifest, its document, and name to path of all files but the answer. Raises
    DefinitionError, also for a missing file or answer."""
    document = load_yaml(folder / MANIFEST)
    manifest = parse(Manifest, document)
    path_by_name, complaints = {}, []
    for index, file in enumerate(manifest.files):
        source = (folder / file.source).resolve()
        if file.source != SUBMISSION and source.is_file():
            path_by_name[file.name] = source
        elif file.source != SUBMISSION:
            got = f"{file.source}, which is not there"
            complaints.append(complain(document, ("files", index, "source"), "a file", got))
    if all(file.source != SUBMISSION for file in manifest.files):
        complaints.append(complain(document, ("files",), f"one file from {SUBMISSION}", "none"))
    if complaints:
        raise DefinitionError(complaints)
    return manifest, document, path_by_name


def load(path: Path) -> model.ForeignTask:
    """Read one task. Raises DefinitionError with the line."""
    folder = path.parent if path.name == MANIFEST else path
    manifest, document, files = read_manifest(folder)
    modules = {name: read_module(file) for name, file in files.items() if file.suffix == ".py"}
    reference, evaluator = modules.get("reference.py"), modules.get(manifest.config.main or "")
    nodes = ast.walk(evaluator.tree) if evaluator else ()
    # Names that the judging program reads, imports, defines or takes as arguments.
    names = {str(getattr(node, key, "")) for node in nodes for key in ("id", "attr", "arg", "name")}
    has_own_contract = evaluator is not None and GENERATE not in names  # It makes its own inputs.
    is_python = manifest.lang == "py"
    if is_python:
        _check_reference(reference, manifest, document, has_own_contract=has_own_contract)
    own_code = [each for name, each in modules.items() if each is not evaluator and name != ANSWER]
    packages = dict.fromkeys(package for module in own_code for package in module.imported_packages)
    own_modules = {Path(name).stem for name in modules}
    sizes = [case.get("world_size") for case in (*manifest.tests, *manifest.benchmarks)]
    counts = [size for size in sizes if isinstance(size, int)]
    cases = []
    for n, case in enumerate(manifest.tests):
        cases.append(Case(name=f"tests.{n}", use=("check",), arguments=case))
    for n, case in enumerate(manifest.benchmarks):
        cases.append(Case(name=f"benchmarks.{n}", use=("check", "time"), arguments=case))
    own_rule = model.AcceptanceRule(checker=manifest.config.main)
    rechecks = "recheck" in names  # Makes new inputs and checks the output for each timed call.
    return model.ForeignTask(
        format=NAME,
        name=folder.name,
        path=folder,
        files=(folder / MANIFEST, *files.values()),
        entry="what its description says" if has_own_contract else f"def {KERNEL}",
        languages=("python", "triton", "cuda") if is_python else ("cuda",),
        reference="reference.ref_kernel",
        cases=tuple(cases),
        dtypes=(),
        judging=own_rule if has_own_contract else _acceptance_rule(reference),
        timing=model.Timing(
            method="CUDA events, up to 100 repeats until the mean is known to 0.1 % or time is up",
            cold_cache=any("clear_l2" in name for name in names) if evaluator else None,
            fresh_inputs=rechecks,
            checked=rechecks,
            score=SCORE_TEXTS[manifest.ranking_by],
        ),
        imports=tuple(package for package in packages if package not in own_modules),
        made_for=manifest.gpus,
        devices=("cuda",) if not is_python or model.uses_cuda(own_code) else ("cpu", "cuda"),
        gpus=max(counts, default=2) if manifest.multi_gpu else 1,
        own_contract=has_own_contract,
    )


def _check_reference(
    reference: Module | None, manifest: Manifest, document: Document, *, has_own_contract: bool
) -> None:
    """Raise DefinitionError unless the reference has the required functions and takes the cases."""
    if reference is None:
        raise DefinitionError([complain(document, ("files",), "a file reference.py", "none")])
    for name in (GENERATE, CHECK):
        if not reference.defines(name) and not has_own_contract:
            raise file_error(reference.path, f"`{name}`", "a file without it")
    if not manifest.tests and not manifest.benchmarks:
        raise DefinitionError([complain(document, (), "`tests` or `benchmarks`", "neither")])
    generate, complaints = reference.find_function(GENERATE), []
    if generate is None or generate.args.kwarg:
        return
    # Each case has to fit the generator's parameters (except `rank`).
    supplied = {"rank"} if manifest.multi_gpu else set[str]()
    parameters = [argument.arg for argument in (*generate.args.args, *generate.args.kwonlyargs)]
    required = set(parameters[: len(generate.args.args) - len(generate.args.defaults)]) - supplied
    for field, cases in (("tests", manifest.tests), ("benchmarks", manifest.benchmarks)):
        for index, case in enumerate(cases):
            if set(case) - set(parameters) or required - set(case):
                expected = f"what {GENERATE} takes ({', '.join(parameters)})"
                complaints.append(complain(document, (field, index), expected, ", ".join(case)))
    if complaints:
        raise DefinitionError(complaints)


def _acceptance_rule(reference: Module | None) -> model.AcceptanceRule:
    """The tolerance that the source states, else the task's own checker. It is stated by
    `check_implementation = make_match_reference(...)`, or by that function's only comparison."""
    stating_calls, fields = list[ast.Call](), {"note": "NaN and infinity have to match"}
    for node in reference.tree.body if reference else ():
        if isinstance(node, ast.Assign) and CHECK in map(ast.unparse, node.targets):
            stating_calls += [node.value] if isinstance(node.value, ast.Call) else []
    if not stating_calls:
        fields = {"checker": f"reference.{CHECK}"}
        checker = reference.find_function(CHECK) if reference else None
        nodes = ast.walk(checker) if checker else ()
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        comparisons = [call for call in calls if ast.unparse(call.func).endswith(COMPARISONS)]
        stating_calls = comparisons if len(comparisons) == 1 else []
    tolerance: dict[str, float | None] = {}  # None for a value that is no literal number.
    for call in stating_calls[:1]:
        tolerance |= DEFAULT_TOLERANCE
        for keyword in call.keywords:
            if keyword.arg in DEFAULT_TOLERANCE:
                value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
                tolerance[keyword.arg] = float(value) if isinstance(value, int | float) else None
    return model.AcceptanceRule.model_validate({**tolerance, **fields})


COMPARISONS = ("allclose", "assert_close")  # Endings of functions that compare with a tolerance.
TOLERANCES = {"float64": 1e-6, "float32": 1e-3, "float16": 1e-2, "bfloat16": 1e-2}
"""Element type to tolerance, if the task has its own checker instead of a tolerance."""
LEAST_SEEDS = 10_000  # Smallest range of seeds: an answer cannot know a fresh one in advance.
TESTS = "tests"  # Name of the workload set that is only checked; its cases are mostly small.
PARAMETER_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "flag"), (int, "size"), (float, "number"), ((str, list, tuple), "text"),
)  # fmt: skip
"""Python type of a generator's argument to a kind of parameter in target.yaml."""
ENTRY_TEMPLATE = '''"""Made by loop: the functions of the task, as a target calls them."""

import reference

from loop.workers import foreign

inputs = foreign.adapt_generator(reference.generate_input, {seeds}, {places})
expected = foreign.allocate_buffers(reference.ref_kernel)
check = foreign.allocate_buffers(reference.check_implementation)
'''
ANSWER_TEMPLATE = '''"""Made by loop: the answer {name}, as a target calls it."""

from pathlib import Path

from loop.workers import foreign

HERE = Path(__file__).parent
custom_kernel = foreign.allocate_buffers(foreign.import_function(HERE / "{file}", "custom_kernel"))
'''


def make_target(task: model.ForeignTask, answers: Mapping[str, Path]) -> model.TargetDraft:
    """Make a target of the task and answers (name to file). Raises LoopError for an unfit one."""
    reference = read_module(next(path for path in task.files if path.name == "reference.py"))
    if reference.find_function(REFERENCE) is None:
        raise UsageError(f"{reference.path}: no {REFERENCE}: only its own evaluator can judge it")
    kinds: dict[str, str] = {}  # Parameter to its kind.
    workloads_by_set: dict[str, list[dict[str, Any]]] = {"benchmarks": [], TESTS: []}
    for case in task.cases:  # As a workload without a seed, which `loop` chooses.
        sizes = {name: value for name, value in case.arguments.items() if name != "seed"}
        for name, value in sizes.items():
            kind = next(kind for types, kind in PARAMETER_KINDS if isinstance(value, types))
            kinds[name] = kind if kinds.get(name, kind) == kind else "number"  # Cases disagree.
            if isinstance(value, list | tuple) or not model.WORKLOAD_NAME.fullmatch(name):
                problem = f"{task.path}: case {case.name}: {name} is no number, word or flag"
                raise UsageError(f"{problem}: loop cannot name it", "its evaluator can judge it")
        workloads_by_set["benchmarks" if "time" in case.use else TESTS].append(sizes)
    checker = {"python": "entry.py:check", "given": ["inputs", "outputs"]}
    fields = {
        "function": "kernel",
        "signature": {  # No inputs: the generator defines the tensors.
            "sizes": [name for name, kind in kinds.items() if kind == "size"],
            "parameters": {name: {"kind": kind} for name, kind in kinds.items() if kind != "size"},
        },
        "generator": {"python": "entry.py:inputs", "passes": "one"},
        "reference": {"python": "entry.py:expected"},
        "baseline": {"python": "entry.py:expected"},
        **({"checker": checker} if task.judging.checker else {}),
        "tolerance": model.tolerance_fields(task.judging, TOLERANCES),
        "dtypes": {"cpu": "float32", "cuda": "float32"},
        "workloads": {name: entry for name, entry in workloads_by_set.items() if entry},
        "variants": model.make_variants(task, answers, KERNEL, "{}_answer.py", "entry.py:expected"),
    }
    stated_seeds = [case.arguments.get("seed") for case in task.cases]
    # The end of the range of seeds; it contains the task's own seeds.
    seed_end = max(LEAST_SEEDS, *(seed + 1 for seed in stated_seeds if isinstance(seed, int)), 0)
    texts = {"entry.py": ENTRY_TEMPLATE.format(seeds=seed_end, places=_find_buffers(reference))}
    links = {path.name: path for path in task.files if path.suffix == ".py" and path.name != ANSWER}
    for name, path in answers.items():
        file = f"{model.ANSWERS}/{name}.py"
        links[file] = path
        texts[f"{name}_answer.py"] = ANSWER_TEMPLATE.format(name=name, file=file)
    return model.TargetDraft(fields, links, texts)


def _find_buffers(reference: Module) -> tuple[int, ...]:
    """Places, in what the generator returns, of tensors that `torch.empty` or `empty_like` makes,
    perhaps with `.contiguous()` behind: buffers that an answer fills."""
    generate = reference.find_function(GENERATE)
    ending = generate.body[-1] if generate else None
    returned = ending.value if isinstance(ending, ast.Return) else None
    if generate is None or not isinstance(returned, ast.Tuple):
        return ()
    nodes = (node for line in generate.body[:-1] for node in ast.walk(line))
    names = [node.id for node in nodes if isinstance(node, ast.Name)]
    empty_tensors = set()
    for node in generate.body:
        match node:
            case ast.Assign([ast.Name(name)], call):
                while isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                    # Named once: nothing else fills it.
                    if call.func.attr in ("empty", "empty_like") and names.count(name) == 1:
                        empty_tensors.add(name)
                    if call.func.attr != "contiguous":
                        break
                    call = call.func.value
    returned_names = [getattr(element, "id", "") for element in returned.elts]
    return tuple(place for place, name in enumerate(returned_names) if name in empty_tensors)
