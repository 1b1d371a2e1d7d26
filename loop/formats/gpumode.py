"""GPU MODE: a folder with `task.yml`, `task.py` and `reference.py`; an answer defines `custom_kernel`."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from loop.base.documents import Document, complain, load_yaml, parse
from loop.base.errors import DefinitionError
from loop.formats import python_text
from loop.formats.model import Case, ForeignTask, Judging, Timing
from loop.formats.python_text import Module, Unknown
from loop.model.base import Model

NAME = "gpumode"
MANIFEST = "task.yml"
SUBMISSION = "@SUBMISSION@"
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


def load(path: Path, why: str) -> ForeignTask:
    """Read one task. Raises DefinitionError with the line of what is wrong or missing."""
    folder = path.parent if path.name == MANIFEST else path
    document = load_yaml(folder / MANIFEST)
    manifest = parse(Manifest, document)
    files = _files(folder, manifest, document)
    modules = {name: python_text.read_module(file) for name, file in files.items() if file.suffix == ".py"}
    if manifest.lang == "py":
        _check(folder, manifest, document, modules)
    evaluator = modules.get(manifest.config.main or "")
    judges = [one for name, one in modules.items() if one is not evaluator and name != "submission.py"]
    reference = modules.get("reference.py")
    own = _own_contract(manifest, modules)
    worlds = [one["world_size"] for one in (*manifest.tests, *manifest.benchmarks) if "world_size" in one]
    return ForeignTask(
        format=NAME,
        why=why,
        name=folder.name,
        path=folder,
        files=(folder / MANIFEST, *files.values()),
        entry=_entry(manifest, modules),
        languages=("python", "triton", "cuda") if manifest.lang == "py" else ("cuda",),
        reference="reference.ref_kernel",
        cases=tuple(_cases(manifest)),
        dtypes=(),
        judging=Judging(checker=manifest.config.main) if own else _judging(reference),
        timing=_timing(manifest, evaluator),
        imports=_imports(judges, modules),
        made_for=manifest.gpus or tuple(_listed(folder)),
        devices=("cuda",) if python_text.wants_cuda(judges) or manifest.lang == "cu" else ("cpu", "cuda"),
        gpus=max((one for one in worlds if isinstance(one, int)), default=2) if manifest.multi_gpu else 1,
        hints=tuple(_hints(manifest, document, reference)),
        own_contract=own,
    )


def _files(folder: Path, manifest: Manifest, document: Document) -> dict[str, Path]:
    """The files that the task brings, by their names. Raises DefinitionError for those that are not there."""
    found, missing = {}, []
    for index, file in enumerate(manifest.files):
        if file.source == SUBMISSION:
            continue
        source = (folder / file.source).resolve()
        if source.is_file():
            found[file.name] = source
        else:
            missing.append(
                complain(document, ("files", index, "source"), "a file", f"{file.source}, which is not there")
            )
    if all(file.source != SUBMISSION for file in manifest.files):
        missing.append(complain(document, ("files",), f"one file from {SUBMISSION}", "none"))
    if missing:
        raise DefinitionError(missing)
    return found


def _check(folder: Path, manifest: Manifest, document: Document, modules: Mapping[str, Module]) -> None:
    """Raise DefinitionError unless the reference defines what the format asks for, and takes the cases."""
    if "reference.py" not in modules:
        raise DefinitionError([complain(document, ("files",), "a file reference.py", "none")])
    reference = modules["reference.py"]
    for name in (GENERATE, CHECK):
        if not reference.defines(name) and not _own_contract(manifest, modules):
            raise python_text.mistake(reference.path, f"`{name}`", "a file without it")
    if not manifest.tests and not manifest.benchmarks:
        raise DefinitionError([complain(document, (), "`tests` or `benchmarks`", "neither")])
    generate = reference.function(GENERATE)
    if generate is None or generate.args.kwarg:
        return
    given = {"rank"} if manifest.multi_gpu else set[str]()
    known = [one.arg for one in (*generate.args.args, *generate.args.kwonlyargs)]
    wanted = known[: len(generate.args.args) - len(generate.args.defaults)]
    lists = {"tests": manifest.tests, "benchmarks": manifest.benchmarks}
    wrong = [
        complain(document, (field, index), f"what generate_input takes ({', '.join(known)})", ", ".join(case))
        for field, cases in lists.items()
        for index, case in enumerate(cases)
        if set(case) - set(known) or set(wanted) - set(case) - given
    ]
    if wrong:
        raise DefinitionError(wrong)


def _own_contract(manifest: Manifest, modules: Mapping[str, Module]) -> bool:
    """Whether the judging program makes its inputs by itself: it never says the generator's name."""
    evaluator = modules.get(manifest.config.main or "")
    return evaluator is not None and GENERATE not in _words_of(evaluator)


def _words_of(module: Module) -> set[str]:
    """Names that a module reads, imports, defines or takes as arguments."""
    found = set[str]()
    for node in ast.walk(module.tree):
        named = [getattr(node, field, None) for field in ("id", "attr", "arg", "name")]
        found |= {one for one in named if isinstance(one, str)}
    return found


def _entry(manifest: Manifest, modules: Mapping[str, Module]) -> str:
    """What the judging program takes from an answer."""
    evaluator = modules.get(manifest.config.main or "")
    taken = [
        alias.name
        for node in (ast.walk(evaluator.tree) if evaluator else ())
        if isinstance(node, ast.ImportFrom) and node.module == "submission"
        for alias in node.names
    ]
    if not taken and _own_contract(manifest, modules):
        return "what its description says"
    return " and ".join(f"def {name}" for name in dict.fromkeys(taken or ["custom_kernel"]))


def _cases(manifest: Manifest) -> Iterator[Case]:
    for number, case in enumerate(manifest.tests):
        yield Case(name=f"tests.{number}", use=("check",), arguments=case)
    for number, case in enumerate(manifest.benchmarks):
        yield Case(name=f"benchmarks.{number}", use=("check", "time"), arguments=case)


def _imports(judges: Sequence[Module], modules: Mapping[str, Module]) -> tuple[str, ...]:
    own = {Path(name).stem for name in modules}
    return tuple(dict.fromkeys(one for module in judges for one in module.imports if one not in own))


def _judging(reference: Module | None) -> Judging:
    """The tolerance where it stands in the text, else the name of the task's own checker."""
    tree = reference.tree.body if reference else []
    for node in tree:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _assigns(node, CHECK):
            return Judging(**_allowed(node.value, reference), note="NaN and infinity have to match")
    own = f"reference.{CHECK}"
    function = reference.function(CHECK) if reference else None
    calls = [one for one in ast.walk(function) if isinstance(one, ast.Call)] if function else []
    allowed = [_allowed(one, reference) for one in calls if _called(one).endswith(("allclose", "assert_close"))]
    return Judging(**(allowed[0] if len(allowed) == 1 else {}), checker=own)


def _allowed(call: ast.Call, reference: Module | None) -> dict[str, float | None]:
    """`rtol` and `atol` of a call; None for what only running it would tell."""
    names, found = (reference.constants if reference else {}), dict[str, float | None](MATCH)
    for one in call.keywords:
        if one.arg in MATCH:
            try:
                value = python_text.evaluate(one.value, names)
            except Unknown:
                value = None
            found[one.arg] = float(value) if isinstance(value, int | float) else None
    return found


def _assigns(node: ast.Assign, name: str) -> bool:
    return any(isinstance(one, ast.Name) and one.id == name for one in node.targets)


def _called(node: ast.Call) -> str:
    return ast.unparse(node.func)


def _timing(manifest: Manifest, evaluator: Module | None) -> Timing:
    words = _words_of(evaluator) if evaluator else set()
    return Timing(
        method="CUDA events, up to 100 repeats until the error of the mean is below 0.1 % or time is up",
        cold_cache=any("clear_l2" in one for one in words) if evaluator else None,
        fresh_inputs=False,
        checked=False,
        score=SCORES[manifest.ranking_by],
    )


def _listed(folder: Path) -> Iterator[str]:
    """GPUs that a set's manifest beside the sets names for this task."""
    sets = folder.parent.parent
    for path in sorted(sets.glob("*.yaml")):
        try:
            data: Any = load_yaml(path).data
        except DefinitionError:
            continue
        problems = data.get("problems") if isinstance(data, dict) else None
        for one in problems if isinstance(problems, list) else ():
            if isinstance(one, dict) and one.get("directory") == f"{folder.parent.name}/{folder.name}":
                yield from (str(gpu) for gpu in one.get("gpus") or ())
                return


def _hints(manifest: Manifest, document: Document, reference: Module | None) -> Iterator[str]:
    yield from _words(manifest, document)
    generate = reference.function(GENERATE) if reference else None
    if reference is None or generate is None:
        return
    place = f"{python_text.shown(reference.path)}:{generate.lineno}"
    known = [one.arg for one in (*generate.args.args, *generate.args.kwonlyargs)]
    used = {one.id for one in ast.walk(generate) if isinstance(one, ast.Name)}
    if "seed" not in known:
        yield f"{place}: generate_input takes no seed: nothing says that its inputs vary"
    elif "seed" not in used:
        yield f"{place}: generate_input does not use its seed"
    calls = [one for one in ast.walk(generate) if isinstance(one, ast.Call)]
    loose = [one.lineno for one in calls if _draws_globally(one)]
    if loose and not any(_called(one) == "torch.manual_seed" for one in calls):
        lines = ", ".join(map(str, sorted(set(loose))))
        yield f"{place}: draws without `generator=` on lines {lines}: its seed does not set these values"


def _words(manifest: Manifest, document: Document) -> Iterator[str]:
    """Values that reach the generator as text."""
    for field in ("tests", "benchmarks"):
        for index, case in enumerate(getattr(manifest, field)):
            for key, value in case.items():
                if value is False:
                    line, _ = document.position((field, index, key))
                    said = f"`{key}: False` reaches {GENERATE} as text, which counts as true"
                    yield f"{document.name}:{line}: {said}"
                    return


def _draws_globally(node: ast.Call) -> bool:
    drawn = ("torch.rand", "torch.randn", "torch.randint", "torch.normal", "torch.randperm")
    return _called(node) in drawn and "generator" not in {one.arg for one in node.keywords}
