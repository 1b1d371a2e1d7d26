"""Functions of C, C++ and CUDA, read as text: names, parameters, template instances. Nothing is compiled."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

NOTE = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*", re.MULTILINE | re.DOTALL)
SIGNATURE = re.compile(
    r"(?P<template>template\s*<(?P<kinds>[^{};()]*?)>\s*)?(?P<before>[\w\s:*&<>,]*?[\s*&>])(?P<name>\w+)\s*"
    r"\((?P<parameters>[^{};]*)\)\s*(?:noexcept)?\s*(?:->\s*(?P<after>[\w:\s]+))?"
)
INSTANCE = re.compile(r"\btemplate\s+(?!<)[\w\s:*&]*?\b([\w:]+)\s*<([^;(){}]*)>\s*\(")
CALLED = re.compile(r"\b(\w+)\s*(?:<[^;(){}]*>)?\s*\(")
SPACE = re.compile(r"(?:inline\s+)?namespace(?:\s+([\w:]+))?|extern \"C\"")
IGNORED = re.compile(
    r"\b(static|inline|extern|constexpr|__host__|__forceinline__|__inline__|register|volatile|struct|typename|"
    r"__restrict__|__restrict|restrict|RESTRICT|\w*_API|\w*_EXPORT)\b|\"C\"|\[\[[^\]]*\]\]|__attribute__\s*\(\(.*?\)\)"
)
TYPES = {
    "float32": "float",
    "float64": "double",
    "int8": "int8_t, char, signed char",
    "uint8": "uint8_t, unsigned char, std::byte",
    "int16": "int16_t, short",
    "int32": "int, int32_t, signed, unsigned, unsigned int, uint32_t, signed int",
    "int64": "long, long long, int64_t, long int, long long int, size_t, ssize_t, ptrdiff_t, uint64_t, "
    "unsigned long, unsigned long long, intptr_t",
    "bool": "bool, _Bool",
    "float16": "half, __half, _Float16, at::Half, c10::Half",
    "bfloat16": "__nv_bfloat16, nv_bfloat16, __bf16, at::BFloat16, c10::BFloat16",
}
"""Element type of a tensor to the types in C that hold its elements."""
DTYPES = {name: dtype for dtype, names in TYPES.items() for name in names.split(", ")}
STREAM = "cudaStream_t"


@dataclass(frozen=True)
class CParameter:
    """One parameter of a function."""

    text: str
    """As it stands in the source."""
    type: str
    """Without `const`, pointers and qualifiers, aliases followed."""
    name: str
    pointers: int = 0
    is_const: bool = False
    """Of a pointer: whether what it points to is constant."""

    @property
    def dtype(self) -> str | None:
        """The element type; None for a type that no tensor has."""
        return DTYPES.get(self.type)


@dataclass(frozen=True)
class CFunction:
    """A function that other code can call."""

    name: str
    called: str
    """With its namespace and template arguments."""
    returns: str
    parameters: tuple[CParameter, ...]
    line: int


def bare(text: str) -> str:
    """A source with spaces for each comment and each string but that of `extern "C"`, line by line."""
    return NOTE.sub(lambda match: match[0] if match[0] == '"C"' else re.sub(r"[^\n]", " ", match[0]), text)


def functions(text: str) -> list[CFunction]:
    """Functions with a body that no class encloses, in order; `text`: a source without comments.

    A template counts where it is instantiated, as in `template void f<float, 8>(...);`, `float` before others.
    """
    plain = DIRECTIVE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    instances: dict[str, list[str]] = {}
    for match in INSTANCE.finditer(plain):
        name, arguments = match[1].rpartition("::")[2], [word.strip() for word in match[2].split(",")]
        if name not in instances or arguments[0] == "float":
            instances[name] = arguments
    definitions = []
    for space, head, line in _heads(plain):
        read = SIGNATURE.fullmatch(" ".join(IGNORED.sub(" ", head).split()) or " ")
        if read is None or re.search("__global__|__device__|operator", head):
            continue
        name, known, called = read["name"], dict[str, str](), f"{space}{read['name']}"
        if read["template"]:
            if name not in instances:
                continue
            kinds = [parameter.split("=")[0].split()[-1] for parameter in read["kinds"].split(",")]
            known = dict(zip(kinds, instances[name], strict=False))
            called = f"{called}<{', '.join(instances[name])}>"
        texts = [part.strip() for part in _split(read["parameters"])]
        parameters = []
        for part in texts if texts != ["void"] else ():
            plain_part = re.sub(r"(\w+)\s*\[\s*\w*\s*\]$", r"*\1", part.split("=")[0].strip())
            words = re.sub(r"\bconst\b", " ", plain_part.replace("*", " ")).split()
            own_name = words[-1] if len(words) > 1 else ""
            kind = _type(" ".join(words[:-1] if own_name else words), known)
            is_const = "*" not in plain_part
            is_const = is_const or bool(re.match(r".*\bconst\b[^*]*\*|.*\w\s+const\s*\*", plain_part))
            parameters.append(CParameter(part, kind, own_name, plain_part.count("*"), is_const))
        returns = _type((read["after"] or read["before"]).strip(), known)
        definitions.append(CFunction(name, called, returns, tuple(p for p in parameters if p.text), line))
    return definitions


def _type(text: str, known: Mapping[str, str]) -> str:
    """A type with what stands for a template's parameter, without `const` and `std::`."""
    plain = " ".join(re.sub(r"\bstd::|\bconst\b", "", text).split())
    return known.get(plain, plain)


def uncalled(candidates: list[CFunction], text: str) -> list[CFunction]:
    """Those that no other function of the source calls."""
    calls = [match[1] for match in CALLED.finditer(DIRECTIVE.sub("", text))]
    names = [function.name for function in candidates]
    return [function for function in candidates if calls.count(function.name) <= names.count(function.name)]


def _split(text: str) -> Iterator[str]:
    """Parameters, at commas outside of brackets. `<` and `>` are taken for brackets, also as operators."""
    depth, start = 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "<([") - (letter in ">)]")
        if letter == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    yield text[start:]


def _heads(text: str) -> Iterator[tuple[str, str, int]]:
    """Namespace, head and line of each body that namespaces and `extern "C"` alone enclose."""
    stack: list[str | None] = []
    """An open brace each: a namespace, or None for what is not looked into."""
    head, line = "", 1
    for part in re.findall(r"[{};]|[^{};]+", text):
        if part == "{":
            space = SPACE.fullmatch(" ".join(head.split()))
            if space is None and None not in stack:
                yield "".join(map(str, stack)), head.strip(), line - head.lstrip().count("\n")
            stack.append(None if space is None else f"{space[1]}::" if space[1] else "")
        elif part == "}":
            stack = stack[:-1]
        head = "" if part in "{};" else head + part
        line += part.count("\n")
