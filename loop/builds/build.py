"""Build a shared library that carries a hash of everything it was built from.

Preprocessor, assembler, linker and loader list the files that they read. The build id is a hash of
their contents, of the recipe, and of the processor if flags say `native`. A cached build is used
while all these files are unchanged (`known_builds`).
"""

import ast
import functools
import itertools
import os
import platform
import re
import shutil
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from loop.base.documents import content_hash, hash_files, sums, to_json
from loop.base.processes import Completed, Waiting, child_environment, run
from loop.builds import known_builds
from loop.builds.known_builds import ENGLISH_MESSAGES, LIBRARY, BuildRecord, FileStates, file_states
from loop.machine.machine import compiler_version, processor_identity
from loop.model.measurement import Build
from loop.model.target import BuildRecipe, CAbiVariant, PythonVariant
from loop.workers.bench import Bench

PACKAGE_BY_COMPILER = {"nvcc": "nvidia-cuda-toolkit", "clang++": "clang"}
"""Debian package of a compiler, where its name is another."""
KNOWN_COMPILERS = ("nvcc", "g++", "gcc", "clang", "clang++")
COMPILER_ERROR = re.compile(
    r"(?P<file>[^\s:(][^:]*?)[:(](?P<line>\d+)(?:\)|:(?P<column>\d+))?:\s*"
    r"(?:fatal |catastrophic )?error:?\s*(?P<text>.*)"
)
"""An error of g++, clang and nvcc's host pass (`file:line:column:`), or of nvcc (`file(line):`)."""
ONLY_DEVICE_HEADER = "only kernels of loop_device.cuh can be emulated; others need nvcc"
EMULATOR_RULES = "the emulator has three rules: see loop_device.cuh, beside `loop kernels header`"
HINT_BY_MESSAGE = {
    "cuda_runtime.h: No such file": ONLY_DEVICE_HEADER,  # g++; clang's message follows.
    "'cuda_runtime.h' file not found": ONLY_DEVICE_HEADER,
    "'__global__' does not name a type": ONLY_DEVICE_HEADER,
    "'__shared__' was not declared": EMULATOR_RULES,
    "Failed to preprocess host compiler": "nvcc needs a host compiler: `apt-get install g++`",
    "Cannot find compiler 'g++'": "nvcc needs a host compiler: `apt-get install g++`",
    "unsupported GNU version": "nvcc refuses this g++: install an older, name it: `-ccbin g++-12`",
    "unrecognized command": "the compiler does not know this flag: it may be too old, g++ 9 does",
    "Unsupported gpu architecture": "this nvcc does not know the GPU: take a toolkit that does",
    "not defined for option 'gpu-arch": "this nvcc does not know the GPU: take a toolkit that does",
}
"""Compiler message to its remedy, for errors that no source line causes."""
MAX_ERROR_TEXT = 1000  # Most characters of a compiler's error in a message; the log has the rest.


class BuildFailed(Exception):
    """A build failed: the first error with file and line, a hint, and the whole log."""

    def __init__(self, text: str, hint: str, log: str = "", *, no_compiler: bool = False) -> None:
        """`hint`: what to do about it. `log`: all that the compiler printed; may be empty."""
        super().__init__(text)
        self.no_compiler = no_compiler  # It is missing: a fault of the machine, not of the source.
        self.message, self.hint, self.log = text, hint, log


def how_to_install(compiler: str) -> str:
    """Advice for a compiler that is not installed."""
    name = Path(compiler).name
    package = PACKAGE_BY_COMPILER.get(name, name)
    how = f" (Debian and Ubuntu: `apt-get install {package}`)" if name in KNOWN_COMPILERS else ""
    return f"install {name}{how}, or name another compiler in target.yaml"


def compiler_failure(completed: Completed, verb: str) -> BuildFailed:
    """The error for a failed compiler run. `verb`: `read` or `compile`, for the message."""
    message = first_error(completed.errors) or first_error(completed.output)
    message = message or f"{completed.command[0]} could not {verb} the sources ({completed.ending})"
    hints = [hint for text, hint in HINT_BY_MESSAGE.items() if text in completed.errors]
    hint = (*hints, "mend the line named above, then run the same command again")[0]
    if completed.timed_out:
        message = f"the compiler was {completed.ending}"
        hint = "raise `limit_s` of the step, or simplify the source"
    elif completed.code < 0 or completed.code == 127:
        message = f"{completed.command[0]}: {completed.ending}"
    return BuildFailed(message[:MAX_ERROR_TEXT], hint, completed.errors)


def first_error(log: str) -> str | None:
    """The first error in a compiler's log, as `file:line:col: text` or its line; None: no error."""
    for line in log.splitlines():
        if match := COMPILER_ERROR.match(line):
            parts = match.groupdict()
            column = f":{parts['column']}" if parts.get("column") else ""
            return f"{parts['file']}:{parts['line']}{column}: {parts['text']}"
        is_linker_line = line.startswith(("/usr/bin/ld:", "ld:", "collect2:"))
        is_note = any(note in line for note in (": in function", ": warning:", ": NOTE:"))
        is_error = line.startswith("nvcc fatal") or "undefined reference" in line
        if is_error or (is_linker_line and not is_note):
            return line.strip()
    return next((line.strip() for line in log.splitlines() if "error:" in line), None)


COPIES = "sources"  # Subfolder of a build with the copy of a Python variant's files.
MAX_COPIED_BYTES = 16 << 20  # Largest file in bytes that is copied.
QUOTED_TEXT = re.compile(r'"([^"\n]{1,255})"')
"""Quoted text in a non-Python file, which may name another file: `#include "tile.cuh"`."""


def find_used_files(modules: Iterable[str], folder: Path) -> tuple[str, ...]:
    """Files of `folder` that these modules (names or files) use, as relative paths; no installed
    packages. Follows imports, and strings that name a file, from file to file."""
    module_names = list(modules)
    script_folders = [os.path.dirname(name) for name in module_names if name.endswith(".py")]
    search_folders = list(dict.fromkeys(["", *script_folders]))
    pending = [path for name in module_names for path in _module_paths(name, search_folders)]
    files: set[str] = set()
    while pending:
        path = pending.pop()
        try:
            file, place = os.path.normpath(path), folder / path
            is_inside = not os.path.isabs(path) and not file.startswith("..")
            is_copyable = is_inside and place.is_file() and place.stat().st_size <= MAX_COPIED_BYTES
        except (OSError, ValueError):  # The text is no valid file name.
            continue
        if is_copyable and file not in files:
            files.add(file)
            pending += _named_paths(file, search_folders, folder)
    return tuple(sorted(files))


def _module_paths(name: str, folders: Iterable[str]) -> Iterator[str]:
    """Paths that a module and its packages may have in these folders; of a file, its own name."""
    parts = name.split(".")
    if name.endswith(".py"):
        yield name
    for folder in () if name.endswith(".py") else folders:
        for count in range(1, len(parts) + 1):
            path = os.path.join(folder, *parts[:count])
            yield from (f"{path}.py", f"{path}/__init__.py")


def _named_paths(file: str, search_folders: Iterable[str], folder: Path) -> Iterator[str]:
    """Paths that a file of the folder may mean by its imports and by its strings."""
    file_folder, texts = os.path.dirname(file), list[str]()
    if not file.endswith(".py"):
        texts = QUOTED_TEXT.findall((folder / file).read_text(errors="replace"))
    for node in ast.walk(_parse_file(folder / file)) if file.endswith(".py") else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.append(node.value)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            level, prefix = getattr(node, "level", 0), f"{getattr(node, 'module', None) or ''}."
            parent_folder = os.path.join(file_folder, *[".."] * (level - 1))
            folders = [parent_folder] if level else [*search_folders, file_folder]
            for alias in node.names:  # Of `from a import b`, `a.b`: `b` may be a module.
                yield from _module_paths(f"{prefix}{alias.name}".lstrip("."), folders)
    yield from (os.path.join(start, text) for text in texts for start in (file_folder, ""))


def _parse_file(path: Path) -> ast.Module:
    """Syntax tree of a file; empty if the file cannot be parsed."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])


def build_python(name: str, variant: PythonVariant, folder: Path, cache: Path) -> Build:
    """Copy a Python variant's files to the cache, or find the copy. Raises BuildFailed."""
    try:
        files = find_used_files([variant.module], folder)
        contents = {file: (folder / file).read_bytes() for file in files}
    except OSError as error:
        raise BuildFailed(f"{error.filename}: {error.strerror}", "see who writes there") from error
    if not contents:
        raise BuildFailed(f"{variant.module}: no such file", f"see {folder / 'target.yaml'}")
    for file in (file for file in contents if file.endswith(".py")):
        try:
            with warnings.catch_warnings(action="ignore"):
                ast.parse(contents[file])
        except SyntaxError as error:
            line = f"{file}:{error.lineno or 1}:{error.offset or 1}: {error.msg}"
            raise BuildFailed(line, "mend the line above", f"{line}\n{error.text or ''}") from error
        except (ValueError, RecursionError) as error:
            raise BuildFailed(f"{file}: {error}", "Python cannot read it") from error
    build_id = _python_build_id(contents)
    if python_copy := find_python_copy(name, build_id, cache):
        return python_copy
    with known_builds.new_folder(cache) as temporary_folder:
        for file, content in contents.items():
            path = temporary_folder / COPIES / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        find_copy = functools.partial(find_python_copy, name, build_id, cache)
        known_builds.move_folder(temporary_folder, cache / build_id, find_copy)
    return _python_build(name, build_id, cache, len(contents), cached=False)


def find_python_copy(name: str, build_id: str, cache: Path) -> Build | None:
    """The cached copy with this build id, for variant `name`; None if it is missing or changed."""
    copy_folder = cache / build_id / COPIES
    files = [path for path in copy_folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    if any(path.is_symlink() for path in files):  # Its content may change outside the cache.
        return None
    contents = {str(path.relative_to(copy_folder)): path.read_bytes() for path in files}
    is_same = contents and _python_build_id(contents) == build_id
    return _python_build(name, build_id, cache, len(contents), cached=True) if is_same else None


def _python_build_id(contents: dict[str, bytes]) -> str:
    """Build id of a Python variant: a hash of its files' names and contents."""
    parts = (part for name in sorted(contents) for part in (name, content_hash(contents[name])))
    return content_hash("\0".join(["python", *parts]))[:32]


def _python_build(name: str, build_id: str, cache: Path, file_count: int, *, cached: bool) -> Build:
    """The `Build` of a Python variant: a copy of its files in the cache."""
    return Build(
        variant=name,
        build_id=build_id,
        library=str(cache / build_id / COPIES),
        seconds=0.0,
        cached=cached,
        compiled=False,
        compiler=f"Python {platform.python_version()}",
        note=f"{name} copied ({file_count} file{'s' * (file_count != 1)})",
    )


def has_same_statements(first: Path, second: Path) -> bool:
    """True if two folders of Python files differ only in comments, docstrings and spacing."""

    def normal_forms(folder: Path) -> dict[Path, object]:
        """Path of each file to its syntax tree without docstrings, or its bytes if not Python."""
        forms = dict[Path, object]()
        for path in (path for path in folder.rglob("*") if path.is_file()):
            is_python = path.suffix == ".py"
            tree = _parse_file(path) if is_python else ast.Module([], [])
            for node in ast.walk(tree):
                body = getattr(node, "body", [])
                statement = body[0] if body and isinstance(body, list) else None
                if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                    body.remove(statement)
            forms[path.relative_to(folder)] = ast.dump(tree) if is_python else path.read_bytes()
        return forms

    return normal_forms(first) == normal_forms(second)


SCAN_S = 60.0  # Limit of the preprocessor, in seconds.
MAX_TRIES = 3  # Attempts at a build whose files change while it runs.
ASSEMBLER_LIST, LINKER_LIST = "--MD", "--dependency-file"
"""Options that make an assembler and a linker list the files they read."""
FRAMEWORK_HEADER = re.compile(r"(?:^|/)(?:torch|ATen|c10|pybind11|tensorflow)/")
COMPILER_VARIABLES = (
    "TZ", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "CPLUS_INCLUDE_PATH", "CUDA_HOME",
    "CUDA_PATH",
)  # fmt: skip
"""Environment variables that can change a compiler's output; not PATH: it only locates programs."""
Buildable = CAbiVariant | PythonVariant
"""A variant that has a build: a compiled library, or a copy of its Python files."""


def buildable_variants(bench: Bench, names: Iterable[str]) -> dict[str, Buildable]:
    """The named variants that are built from the target's files, by name; compiled ones for the GPU
    here. Left out: commands, and Python variants without a file of the target."""
    chosen: dict[str, Buildable] = {}
    for name in names:
        variant = bench.target.variants[name]
        if isinstance(variant, CAbiVariant):
            chosen |= bench.compiled_variants([name])
        elif isinstance(variant, PythonVariant) and find_used_files([variant.module], bench.folder):
            chosen[name] = variant
    return chosen


@dataclass(frozen=True)
class Scan:
    """The files from which a variant would be built, as the preprocessor lists them."""

    identity: str
    """Hash of files, recipe, compiler version, and of the processor if a flag says `native`."""
    framework_headers: tuple[str, ...]
    files: tuple[str, ...]  # The files inside the variant's folder, relative to it.
    files_read: tuple[str, ...]  # All files, as the compiler names them.


def scan_sources(variant: Buildable, folder: Path, include: Path) -> Waiting[Scan]:
    """The files from which a variant would be built: by the preprocessor, in Python by imports.
    Raises BuildFailed if the compiler, a source or a header is missing."""
    if isinstance(variant, PythonVariant):
        files = find_used_files([variant.module], folder)
        return Scan(hash_files((folder / file for file in files), folder), (), files, files)
    compiler = variant.build.compiler
    version = compiler_version(compiler)
    if version is None and shutil.which(compiler):
        raise BuildFailed(f"{compiler} is there and does not run", f"see `{compiler} --version`")
    if version is None:
        message = f"{compiler}: no such compiler on the PATH"
        raise BuildFailed(message, how_to_install(compiler), no_compiler=True)
    for source in variant.sources:
        if not (folder / source).is_file():
            raise BuildFailed(f"{source}: no such source file", f"see {folder / 'target.yaml'}")
    command = [compiler, *variant.build.flags, f"-I{include}", "-M", *variant.sources]
    note = "reading the sources"
    completed = yield from run(command, cwd=folder, limit_s=SCAN_S, env=ENGLISH_MESSAGES, note=note)
    if not completed.succeeded:
        raise compiler_failure(completed, "read")
    files_read = sorted(set(known_builds.parse_make_rules(completed.output)))
    hashes, own_files = list[tuple[str, str]](), set[str]()
    for file in files_read:
        path = folder / file
        name = os.path.relpath(path, folder)
        if not name.startswith(".."):
            own_files.add(name)
        # Of other files only the name counts, so that the place of a toolchain does not.
        counted_name = name if path.is_relative_to(folder) else path.name
        try:
            hashes.append((counted_name, content_hash(path.read_bytes())))
        except OSError as error:
            problem = f"{file}: the compiler read it, we cannot: {error.strerror}"
            hint = "it may have been replaced just now; its name has to be UTF-8 text"
            raise BuildFailed(problem, hint) from error
    parts = [*itertools.chain(*sorted(hashes)), *_recipe_words(variant, folder), version]
    headers = tuple(file for file in files_read if FRAMEWORK_HEADER.search(file))
    own_names = tuple(sorted(own_files))
    return Scan(content_hash("\0".join(parts))[:32], headers, own_names, tuple(files_read))


def _recipe_words(variant: CAbiVariant, folder: Path) -> list[str]:
    """Compiler, flags and sources; also the processor's identity if a flag says `native`."""
    flags = variant.build.flags
    words = [*flags, *known_builds.files_in_flags(flags, folder).values()]
    processor = processor_identity() if any("native" in text for text in words) else ""
    return [variant.build.compiler, *flags, *variant.sources, processor]


def _compiler_settings() -> list[str]:
    """`NAME=value` of each variable of `loop`'s environment that can change a compiler's output."""
    variables = child_environment()
    return [f"{name}={variables[name]}" for name in COMPILER_VARIABLES if name in variables]


def recipe_key(variant: CAbiVariant, folder: Path, include: Path) -> str:
    """Hash of recipe and environment, without file contents: the key to all builds of a recipe."""
    settings = [f"PATH={os.environ.get('PATH', '')}", *_compiler_settings()]
    return content_hash([*_recipe_words(variant, folder), str(include), *settings])[:32]


def find_record(recipe_folder: Path, folder: Path) -> BuildRecord | None:
    """Record of the newest intact build of the current files in the variant's folder, or None."""
    try:
        builds = sorted(recipe_folder.iterdir(), key=lambda build: -build.stat().st_mtime_ns)
    except OSError:
        return None
    records = (known_builds.read_record(each, folder) for each in builds[: known_builds.MAX_BUILDS])
    return next(filter(None, records), None)


def find_build(
    name: str, variant: CAbiVariant, folder: Path, *, cache: Path, include: Path
) -> Build | None:
    """The cached build of the current files; None if it is missing or damaged."""
    record = find_record(cache / recipe_key(variant, folder, include), folder)
    return None if record is None else _make_build(name, record, cache)


def find_build_by_id(variant_name: str, build_id: str, cache: Path) -> Build | None:
    """Cached build with this id, even if sources changed; None if it or a loaded library did."""
    if (python_copy := find_python_copy(variant_name, build_id, cache)) is not None:
        return python_copy
    for record in map(known_builds.read_record, cache.glob(f"*/{build_id}")):
        if record is not None and known_builds.are_unchanged(record.libraries_loaded, Path("/")):
            return _make_build(variant_name, record, cache)
    return None


def _make_build(name: str, record: BuildRecord, cache: Path) -> Build:
    """The `Build` of variant `name` from a library in the cache."""
    return Build(
        variant=name,
        build_id=record.build_id,
        library=str(cache / record.recipe / record.build_id / LIBRARY),
        seconds=record.seconds,
        cached=True,
        compiler=record.compiler,
    )


def list_inputs(variant: Buildable, folder: Path, *, cache: Path, include: Path) -> tuple[str, ...]:
    """Files that the current build read, and paths where a new file would shadow one of them; empty
    without a build. Of Python: files that it imports. Relative to `folder` if possible."""
    if isinstance(variant, PythonVariant):
        return find_used_files([variant.module], folder)
    record = find_record(cache / recipe_key(variant, folder, include), folder)
    return () if record is None else tuple(record.files_read)


def _build_id(
    variant: CAbiVariant, folder: Path, include: Path, files_read: FileStates, loaded: FileStates
) -> str:
    """Hash of contents, names, recipe and environment. Where the variant's folder, the folder of
    loop's headers (`include`) and the loaded libraries lie does not count."""
    parts = _recipe_words(variant, folder)
    contents = [(os.path.basename(path), content) for path, (content, _) in loaded.items()]
    for name, (content, _) in files_read.items():
        is_header = known_builds.is_below(name, str(include))
        contents.append((name.replace(str(include), "loop", 1) if is_header else name, content))
    absent = (known_builds.MISSING, known_builds.NOT_A_FILE)
    for name, content in sorted(contents):
        parts += [] if content in absent else [name, content]
    return content_hash([*parts, *_compiler_settings()])[:32]


class FileChanged(Exception):
    """A file changed during the build, so it is unknown which content the compiler read."""


def build(
    name: str, variant: Buildable, folder: Path, *, cache: Path, include: Path, limit_s: float
) -> Waiting[Build]:
    """Build a variant, or find its build in the cache. `limit_s`: the compiler's, in seconds. Tries
    again if a file changes meanwhile. Raises BuildFailed with the first error's file and line."""
    if isinstance(variant, PythonVariant):
        return build_python(name, variant, folder, cache)
    if (cached := find_build(name, variant, folder, cache=cache, include=include)) is not None:
        return cached
    sources = yield from scan_sources(variant, folder, include)
    for _ in range(MAX_TRIES):
        try:
            with known_builds.new_folder(cache) as output:
                record = yield from _compile(output, variant, folder, sources, include, limit_s)
                place = cache / record.recipe / record.build_id
                find_stored = functools.partial(known_builds.read_record, place)
                is_repaired = known_builds.move_folder(output, place, find_stored)
        except FileChanged as changed:
            changed_file = str(changed)
            continue
        note = "the cached build was damaged: not what was recorded; built again"
        changes = {"cached": False, "note": note if is_repaired else None}
        return _make_build(name, record, cache).model_copy(update=changes)
    message = f"{changed_file} changes while it is compiled"
    raise BuildFailed(message, "stop what writes it, then run this again")


def _compile(
    output: Path, variant: CAbiVariant, folder: Path, scan: Scan, include: Path, limit_s: float
) -> Waiting[BuildRecord]:
    """Compile a library into folder `output`, with log and record. The build id, known only after
    that, replaces a placeholder of equal length. This is a hash of contents, so that two clones
    link identical bytes. Raises BuildFailed, or FileChanged for a source."""
    placeholder, compiler, scratch = scan.identity, variant.build.compiler, output / "scratch"
    states_before = file_states(scan.files_read, folder, output)
    scratch.mkdir()
    is_nvcc = Path(compiler).name == "nvcc"
    host_option = ["-Xcompiler"] if is_nvcc else []
    command = [compiler, *variant.build.flags, f"-I{include}", "-shared", *host_option, "-fPIC"]
    command += [f'-DLOOP_BUILD_ID="{placeholder}"', *variant.sources]
    command += [*linked_libraries(variant.build), "-o", str(output / LIBRARY)]
    env, note = {**ENGLISH_MESSAGES, "TMPDIR": str(scratch)}, f"compiling {variant.sources[0]}"
    # Options to flags that make linker and assembler write a list of the files they read.
    list_options = {LINKER_LIST: ["-Xlinker", f"{LINKER_LIST}={scratch / LINKER_LIST}"]}
    if not is_nvcc:  # Its three assemblers would overwrite one file.
        path_words = ["-Xassembler", str(scratch / ASSEMBLER_LIST)]
        list_options[ASSEMBLER_LIST] = ["-Xassembler", ASSEMBLER_LIST, *path_words]
    start_time = time.monotonic()
    while True:  # Again without the options that an old assembler or linker refuses.
        full_command = [*command, *(word for flags in list_options.values() for word in flags)]
        completed = yield from run(full_command, cwd=folder, limit_s=limit_s, env=env, note=note)
        refused = [option for option in list_options if option in completed.errors]
        if completed.succeeded or not refused:
            break
        for option in refused:
            del list_options[option]
    if not completed.succeeded:
        raise compiler_failure(completed, "compile")
    if not (output / LIBRARY).is_file():
        message = f"{compiler} ended well and wrote no library"
        raise BuildFailed(message, "see what it does with `-o`", completed.errors)
    seconds = time.monotonic() - start_time
    libraries = yield from known_builds.loaded_libraries(output / LIBRARY)
    paths = [*scan.files_read]
    for path in (scratch / option for option in list_options):  # Of the assembler and the linker.
        text = path.read_text(errors="surrogateescape") if path.is_file() else ""
        paths += known_builds.parse_make_rules(text)
    paths += known_builds.files_in_flags(variant.build.flags, folder)
    paths += known_builds.compiler_paths(compiler)
    paths += known_builds.shadowing_paths(variant, scan.files_read, include, libraries)
    files_read = file_states(paths, folder, output)
    loaded = {library: known_builds.file_state(library) for library in libraries}
    for name, (content, _) in states_before.items():
        if files_read[name][0] != content:
            raise FileChanged(name)
    build_id = _build_id(variant, folder, include, files_read, loaded)
    binary = (output / LIBRARY).read_bytes().replace(placeholder.encode(), build_id.encode())
    (output / LIBRARY).write_bytes(binary)
    (output / known_builds.LOG).write_text(completed.errors)
    shutil.rmtree(scratch)
    record = BuildRecord(
        recipe=recipe_key(variant, folder, include),
        build_id=build_id,
        sha256=content_hash(binary),
        seconds=round(seconds, 3),
        compiler=compiler_version(compiler) or "",
        files_read=files_read,
        libraries_loaded=loaded,
    )
    (output / known_builds.RECORD).write_text(sums.with_checksum(to_json(record)))
    return record


def linked_libraries(recipe: BuildRecipe) -> list[str]:
    """Libraries among the flags; on the command line they must follow the sources."""
    return [flag for flag in recipe.flags if flag.startswith("-l") or flag.endswith((".a", ".so"))]
