"""GPU MODE: a folder with `task.yml`, `task.py` and `reference.py`; an answer defines `custom_kernel`."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from loop.base.documents import Document, complain, load_yaml, parse
from loop.base.documents.yaml_text import shown
from loop.base.errors import Complaint, DefinitionError, UsageError
from loop.formats import python_text
from loop.formats.model import Case, ForeignTask, Judging, Timing
from loop.formats.python_text import Module, Unknown
from loop.formats.target import ANSWERS, Made, tolerance, unnamed, variant, variants
from loop.model.base import Model

NAME = "gpumode"
MANIFEST = "task.yml"
SUBMISSION, ANSWER = "@SUBMISSION@", "submission.py"
GENERATE, CHECK = "generate_input", "check_implementation"
MATCH = {"rtol": 1e-5, "atol": 1e-8}
"""What `make_match_reference` and `verbose_allclose` allow where they are given nothing."""
SCORES = {
    "last": "seconds of the last benchmark",
    "mean": "mean of the benchmarks' seconds",
    "geom": "geometric mean of the benchmarks' seconds",
}
Word = int | bool | str | float | tuple[int, ...]
Arguments = dict[str, Word]


class File(Model):
    """One file of the folder in which an answer is judged."""

    name: str
    """Its name there."""
    source: str
    """Where it comes from, relative to the task; `@SUBMISSION@` for the answer."""


class Config(Model):
    """What is started (Python) or compiled (CUDA)."""

    main: str | None = None
    """The program that judges."""
    sources: tuple[str, ...] = ()
    """Translation units."""
    include_dirs: tuple[str, ...] = ()
    """Folders of headers."""
    defines: dict[str, str | int | None] = Field(default_factory=dict)
    """Macros."""
    compile_flags: tuple[str, ...] = ()
    """Flags."""


class Manifest(Model):
    """`task.yml`."""

    files: tuple[File, ...]
    """Files of the folder in which an answer is judged."""
    lang: Literal["py", "cu"]
    """What the judging program is written in."""
    description: str = ""
    """What the task is."""
    config: Config = Config()
    """How it is judged."""
    templates: dict[str, str] = Field(default_factory=dict)
    """Language to a file that an answer may start from."""
    libraries: tuple[str, ...] = ()
    """Libraries that the judging machine has."""
    tests: tuple[Arguments, ...] = ()
    """Calls that are checked."""
    benchmarks: tuple[Arguments, ...] = ()
    """Calls that are timed."""
    test_timeout: int = 180
    """Seconds for all tests."""
    benchmark_timeout: int = 180
    """Seconds for all benchmarks."""
    ranked_timeout: int = 180
    """Seconds for a ranked run."""
    ranking_by: Literal["last", "mean", "geom"] = "last"
    """What the score is made of."""
    seed: int | None = None
    """Seed of a ranked run."""
    multi_gpu: bool = False
    """Whether a call needs several GPUs."""
    gpus: tuple[str, ...] = ()
    """GPUs it is meant for."""


def claims(path: Path) -> str | None:
    """Why a path looks like one of its tasks."""
    folder = path.parent if path.name == MANIFEST else path
    return f"it has a {MANIFEST}" if (folder / MANIFEST).is_file() else None


def placed(task: ForeignTask) -> dict[str, Path]:
    """The files of the folder in which an answer is judged, by their names there, without the answer's own."""
    document = load_yaml(task.path / MANIFEST)
    return _files(task.path, parse(Manifest, document), document)


def main(task: ForeignTask) -> str:
    """The judging program's name in that folder."""
    return parse(Manifest, load_yaml(task.path / MANIFEST)).config.main or "eval.py"


def timed_by(task: ForeignTask) -> str:
    """The mode of the judging program that times an answer: the ranked one, where that checks what it times."""
    return "leaderboard" if task.timing.checked else "benchmark"


@dataclass(frozen=True)
class GpuModeTask:
    """A task's manifest, and the files that it names."""

    manifest: Manifest
    document: Document
    files: Mapping[str, Path]
    modules: Mapping[str, Module]

    @property
    def reference(self) -> Module | None:
        """What makes inputs and checks outputs."""
        return self.modules.get("reference.py")

    @property
    def evaluator(self) -> Module | None:
        """The judging program, where it is Python."""
        return self.modules.get(self.manifest.config.main or "")

    @cached_property
    def said(self) -> set[str]:
        """Names that the judging program reads, imports, defines or takes as arguments."""
        nodes = ast.walk(self.evaluator.tree) if self.evaluator else ()
        named = (getattr(node, field, None) for node in nodes for field in ("id", "attr", "arg", "name"))
        return {name for name in named if isinstance(name, str)}

    @property
    def rechecks(self) -> bool:
        """Whether its ranked mode draws new inputs for each timed call, and checks each output."""
        return "recheck" in self.said

    @property
    def own_contract(self) -> bool:
        """Whether the judging program makes its inputs by itself: it never says the generator's name."""
        return self.evaluator is not None and GENERATE not in self.said

    @property
    def judges(self) -> list[Module]:
        """What runs besides the answer and the judging program."""
        return [module for name, module in self.modules.items() if module is not self.evaluator and name != ANSWER]

    @property
    def imports(self) -> tuple[str, ...]:
        """Packages that are not files of the task."""
        own = {Path(name).stem for name in self.modules}
        return tuple(dict.fromkeys(name for module in self.judges for name in module.imports if name not in own))

    @property
    def gpus(self) -> int:
        """GPUs of one call."""
        sizes = [case.get("world_size") for case in (*self.manifest.tests, *self.manifest.benchmarks)]
        return max((size for size in sizes if isinstance(size, int)), default=2) if self.manifest.multi_gpu else 1


def load(path: Path, why: str) -> ForeignTask:
    """Read one task. Raises DefinitionError with the line of what is wrong or missing."""
    folder = path.parent if path.name == MANIFEST else path
    document = load_yaml(folder / MANIFEST)
    manifest = parse(Manifest, document)
    files = _files(folder, manifest, document)
    modules = {name: python_text.read_module(file) for name, file in files.items() if file.suffix == ".py"}
    read = GpuModeTask(manifest, document, files, modules)
    python = manifest.lang == "py"
    if python:
        _check(read)
    only_cuda = not python or python_text.wants_cuda(read.judges)
    return ForeignTask(
        format=NAME,
        why=why,
        name=folder.name,
        path=folder,
        files=(folder / MANIFEST, *files.values()),
        entry=_entry(read),
        languages=("python", "triton", "cuda") if python else ("cuda",),
        reference="reference.ref_kernel",
        cases=tuple(_cases(manifest)),
        dtypes=(),
        judging=Judging(checker=manifest.config.main) if read.own_contract else _judging(read.reference),
        timing=_timing(read),
        imports=read.imports,
        made_for=manifest.gpus,
        devices=("cuda",) if only_cuda else ("cpu", "cuda"),
        gpus=read.gpus,
        hints=(*_words(read), *_seeds(read)),
        own_contract=read.own_contract,
    )


def _files(folder: Path, manifest: Manifest, document: Document) -> dict[str, Path]:
    """The files that the task brings, by their names. Raises DefinitionError for those that are not there."""
    contents, missing = {}, []
    for index, file in enumerate(manifest.files):
        source = (folder / file.source).resolve()
        if file.source != SUBMISSION and source.is_file():
            contents[file.name] = source
        elif file.source != SUBMISSION:
            got = f"{file.source}, which is not there"
            missing.append(complain(document, ("files", index, "source"), "a file", got))
    if all(file.source != SUBMISSION for file in manifest.files):
        missing.append(complain(document, ("files",), f"one file from {SUBMISSION}", "none"))
    if missing:
        raise DefinitionError(missing)
    return contents


def _check(read: GpuModeTask) -> None:
    """Raise DefinitionError unless the reference defines what the format asks for, and takes the cases."""
    if read.reference is None:
        raise DefinitionError([complain(read.document, ("files",), "a file reference.py", "none")])
    for name in (GENERATE, CHECK):
        if not read.reference.defines(name) and not read.own_contract:
            raise python_text.mistake(read.reference.path, f"`{name}`", "a file without it")
    if not read.manifest.tests and not read.manifest.benchmarks:
        raise DefinitionError([complain(read.document, (), "`tests` or `benchmarks`", "neither")])
    generate = read.reference.function(GENERATE)
    if generate and not generate.args.kwarg and (wrong := list(_unfit(read, generate))):
        raise DefinitionError(wrong)


def _unfit(read: GpuModeTask, generate: ast.FunctionDef) -> Iterator[Complaint]:
    """Cases that the generator does not take. A rank comes from the judging program."""
    supplied = {"rank"} if read.manifest.multi_gpu else set[str]()
    known = [argument.arg for argument in (*generate.args.args, *generate.args.kwonlyargs)]
    required = set(known[: len(generate.args.args) - len(generate.args.defaults)]) - supplied
    for field, cases in (("tests", read.manifest.tests), ("benchmarks", read.manifest.benchmarks)):
        for index, case in enumerate(cases):
            if set(case) - set(known) or required - set(case):
                expected = f"what {GENERATE} takes ({', '.join(known)})"
                yield complain(read.document, (field, index), expected, ", ".join(case))


def _entry(read: GpuModeTask) -> str:
    """What the judging program takes from an answer."""
    names = [
        alias.name
        for node in (ast.walk(read.evaluator.tree) if read.evaluator else ())
        if isinstance(node, ast.ImportFrom) and node.module == "submission"
        for alias in node.names
    ]
    if not names and read.own_contract:
        return "what its description says"
    return " and ".join(f"def {name}" for name in dict.fromkeys(names or ["custom_kernel"]))


def _cases(manifest: Manifest) -> Iterator[Case]:
    for number, case in enumerate(manifest.tests):
        yield Case(name=f"tests.{number}", use=("check",), arguments=case)
    for number, case in enumerate(manifest.benchmarks):
        yield Case(name=f"benchmarks.{number}", use=("check", "time"), arguments=case)


def _judging(reference: Module | None) -> Judging:
    """The tolerance where it stands in the text, else the name of the task's own checker."""
    tree = reference.tree.body if reference else []
    for node in tree:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        if any(isinstance(target, ast.Name) and target.id == CHECK for target in node.targets):
            return Judging(**_allowed(node.value, reference), note="NaN and infinity have to match")
    own = f"reference.{CHECK}"
    function = reference.function(CHECK) if reference else None
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)] if function else []
    allowed = [_allowed(call, reference) for call in calls if _called(call).endswith(("allclose", "assert_close"))]
    return Judging(**(allowed[0] if len(allowed) == 1 else {}), checker=own)


def _allowed(call: ast.Call, reference: Module | None) -> dict[str, float | None]:
    """`rtol` and `atol` of a call; None for what only running it would tell."""
    names, allowed = (reference.constants if reference else {}), dict[str, float | None](MATCH)
    for keyword in call.keywords:
        if keyword.arg in MATCH:
            try:
                value = python_text.evaluate(keyword.value, names)
            except Unknown:
                value = None
            allowed[keyword.arg] = float(value) if isinstance(value, int | float) else None
    return allowed


def _called(node: ast.Call) -> str:
    return ast.unparse(node.func)


def _timing(read: GpuModeTask) -> Timing:
    return Timing(
        method="CUDA events, up to 100 repeats until the error of the mean is below 0.1 % or time is up",
        cold_cache=any("clear_l2" in name for name in read.said) if read.evaluator else None,
        fresh_inputs=read.rechecks,
        checked=read.rechecks,
        score=SCORES[read.manifest.ranking_by],
    )


def _seeds(read: GpuModeTask) -> Iterator[str]:
    """Inputs that do not follow from the seed."""
    generate = read.reference.function(GENERATE) if read.reference else None
    if read.reference is not None and generate is not None:
        place = f"{shown(read.reference.path)}:{generate.lineno}"
        yield from (f"{place}: {complaint}" for complaint in _unseeded(generate))


def _unseeded(generate: ast.FunctionDef) -> Iterator[str]:
    known = [argument.arg for argument in (*generate.args.args, *generate.args.kwonlyargs)]
    nodes = list(ast.walk(generate))
    if "seed" not in known:
        yield f"{GENERATE} takes no seed: nothing says that its inputs vary"
    elif all(node.id != "seed" for node in nodes if isinstance(node, ast.Name)):
        yield f"{GENERATE} does not use its seed"
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    lines = sorted({call.lineno for call in calls if _draws_globally(call)})
    if lines and all(_called(call) != "torch.manual_seed" for call in calls):
        where = ", ".join(map(str, lines))
        yield f"draws without `generator=` on lines {where}: its seed does not set these values"


def _words(read: GpuModeTask) -> Iterator[str]:
    """The first value that reaches the generator as text and means something else there."""
    lists = {"tests": read.manifest.tests, "benchmarks": read.manifest.benchmarks}
    places = [
        (field, index, key)
        for field, cases in lists.items()
        for index, case in enumerate(cases)
        for key, value in case.items()
        if value is False
    ]
    for place in places[:1]:
        line, _ = read.document.position(place)
        what = f"`{place[2]}: False` reaches {GENERATE} as text, which counts as true"
        yield f"{read.document.name}:{line}: {what}"


def _draws_globally(node: ast.Call) -> bool:
    drawn = ("torch.rand", "torch.randn", "torch.randint", "torch.normal", "torch.randperm")
    return _called(node) in drawn and "generator" not in {keyword.arg for keyword in node.keywords}


GENERATE_, CHECK_, REFERENCE, KERNEL = "generate_input", "check_implementation", "ref_kernel", "custom_kernel"
OWN = "theirs"
LOOSE = {"float64": 1e-6, "float32": 1e-3, "float16": 1e-2, "bfloat16": 1e-2}
"""What an element may be off where the task has a checker of its own."""
SEEDS = 10_000
"""As many seeds at least, so that a fresh one is not known before."""
TESTS = "tests"
"""Cases that are only checked: mostly smaller ones."""
SETS = {"benchmarks": "time", TESTS: "check"}
ENTRY = '''"""Made by loop: the functions of the task, as a target calls them."""

import reference

from loop.workers import foreign

inputs = foreign.without_buffers(foreign.within_seeds(reference.{generate}, {seeds}), {places})
expected = foreign.with_buffers(reference.{reference})
check = foreign.with_buffers(reference.{check})
'''
ANSWER_FILE = '''"""Made by loop: the answer {name}, as a target calls it."""

from pathlib import Path

from loop.workers import foreign

HERE = Path(__file__).parent
{kernel} = foreign.with_buffers(foreign.from_file(HERE / "{file}", "{kernel}"))
'''


def target(task: ForeignTask, answers: Mapping[str, Path]) -> Made:
    """The task as a target. Raises UsageError for cases that a target cannot name."""
    reference = python_text.read_module(next(path for path in task.files if path.name == "reference.py"))
    if reference.function(REFERENCE) is None:
        raise UsageError(f"{reference.path}: no {REFERENCE}: only its own evaluator can judge this task")
    entries = {  # `benchmarks` are timed, `tests` only checked.
        name: [
            _workload(task, case)
            for case in task.cases
            if use in case.use and (name == "benchmarks" or "time" not in case.use)
        ]
        for name, use in SETS.items()
    }
    own = variant(task, "entry.py", "expected", "the task's own reference", "example")
    fields = {
        "function": "kernel",
        "signature": _signature(task),
        "generator": {"python": "entry.py:inputs", "passes": "one"},
        "reference": {"python": "entry.py:expected"},
        "baseline": {"python": "entry.py:expected"},
        **(
            {"checker": {"python": "entry.py:check", "given": ["inputs", "outputs"]}}
            if task.judging.checker
            else {}
        ),
        "tolerance": {dtype: tolerance(task.judging, default) for dtype, default in LOOSE.items()},
        "dtypes": {"cpu": "float32", "cuda": "float32"},
        "workloads": {name: entry for name, entry in entries.items() if entry},
        "variants": variants(task, answers, KERNEL, "{}_answer.py") or {OWN: own},
    }
    stated = [case.arguments.get("seed") for case in task.cases]
    words = {
        "generate": GENERATE_,
        # The end of the range that seeds are drawn from: the task's own lie in it.
        "seeds": max(SEEDS, *(seed + 1 for seed in stated if isinstance(seed, int)), 0),
        "places": _buffers(reference),
        "reference": REFERENCE,
        "check": CHECK_,
    }
    texts = {"entry.py": ENTRY.format(**words)}
    links = {path.name: path for path in task.files if path.suffix == ".py" and path.name != "submission.py"}
    for name, path in answers.items():
        links[f"{ANSWERS}/{name}.py"] = path
        texts[f"{name}_answer.py"] = ANSWER_FILE.format(name=name, file=f"{ANSWERS}/{name}.py", kernel=KERNEL)
    return Made(fields, links, texts)


def _signature(task: ForeignTask) -> dict[str, Any]:
    """Sizes and parameters of the generator; tensors are those that it makes."""
    kinds = _kinds(task)
    return {
        "sizes": [name for name, kind in kinds.items() if kind == "size"],
        "parameters": {name: {"kind": kind} for name, kind in kinds.items() if kind != "size"},
    }


def _workload(task: ForeignTask, case: Case) -> dict[str, Any]:
    """A case as a workload: without its seed, which loop chooses."""
    sizes = {name: value for name, value in case.arguments.items() if name != "seed"}
    lists = [name for name, value in sizes.items() if isinstance(value, list | tuple)]
    wrong = [*lists, *unnamed(list(sizes))]
    if wrong:
        raise UsageError(
            f"{task.path}: case {case.name}: {wrong[0]} is no number, word or flag: loop cannot name such a case",
            hint="its own evaluator can judge it",
        )
    return sizes


def _kinds(task: ForeignTask) -> dict[str, str]:
    """Each argument of the generator: a size, or a kind of parameter."""
    kinds: dict[str, str] = {}
    for case in task.cases:
        for name, value in case.arguments.items():
            kind = next(kind for types, kind in KINDS if isinstance(value, types))
            kinds[name] = kind if kinds.get(name, kind) == kind else "number"
    kinds.pop("seed", None)
    return kinds


KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "flag"),
    (int, "size"),
    (float, "number"),
    (str, "text"),
    ((list, tuple), "text"),
)


def _buffers(reference: Module) -> tuple[int, ...]:
    """Places of the generator's tuple where it returns a tensor that it made empty and did not touch."""
    generate = reference.function(GENERATE_)
    last = generate.body[-1] if generate else None
    if generate is None or not isinstance(last, ast.Return) or not isinstance(last.value, ast.Tuple):
        return ()
    empty = set(_empty(generate))
    named = [element.id if isinstance(element, ast.Name) else "" for element in last.value.elts]
    return tuple(place for place, name in enumerate(named) if name in empty)


def _empty(generate: ast.FunctionDef) -> Iterator[str]:
    """Names that are given an empty tensor, and are not mentioned again before the return."""
    names = [node.id for line in generate.body[:-1] for node in ast.walk(line) if isinstance(node, ast.Name)]
    for node in generate.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if names.count(name) == 1 and _makes_empty(node.value):
                yield name


def _makes_empty(node: ast.expr) -> bool:
    """`torch.empty(...)` or `torch.empty_like(...)`, perhaps made contiguous."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr == "contiguous":
        return _makes_empty(node.func.value)
    return node.func.attr in ("empty", "empty_like")
