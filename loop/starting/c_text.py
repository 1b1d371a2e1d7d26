"""Parse functions of C, C++ and CUDA from text: names, parameters, template instances."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

NOTE = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*", re.MULTILINE | re.DOTALL)
ALIASES = (
    re.compile(r"\busing\s+(?P<name>\w+)\s*=\s*(?P<type>[\w: ]+?)\s*;"),
    re.compile(r"\btypedef\s+(?P<type>[\w: ]+?)\s+(?P<name>\w+)\s*;"),
    re.compile(r"(?m)^[ \t]*#[ \t]*define[ \t]+(?P<name>\w+)[ \t]+(?P<type>float|double|int|long|\w+_t)[ \t]*$"),
)
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
    """The parameter's text in the source."""
    type: str
    """Type without `const`, pointers and qualifiers, with aliases resolved."""
    name: str
    pointers: int = 0
    is_const: bool = False
    """For a pointer: whether the pointed-to type is `const`."""

    @property
    def dtype(self) -> str | None:
        """The element type; None for a type that no tensor has."""
        return DTYPES.get(self.type)


@dataclass(frozen=True)
class CFunction:
    """A function that other code can call."""

    name: str
    called: str
    """The name with namespace and template arguments, for a call."""
    returns: str
    parameters: tuple[CParameter, ...]
    line: int
    lacks: str = ""
    """Why `loop` cannot call the function; empty if it can."""


def without_comments(text: str) -> str:
    """The source with comments and strings (except "C") replaced by spaces; lines are kept."""
    return NOTE.sub(lambda match: match[0] if match[0] == '"C"' else re.sub(r"[^\n]", " ", match[0]), text)


def functions(text: str) -> list[CFunction]:
    """Host functions with a body, outside classes, in order; `text`: a source without comments."""
    aliases = {match["name"]: match["type"] for pattern in ALIASES for match in pattern.finditer(text)}
    plain = DIRECTIVE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    instances: dict[str, str] = {}
    for match in INSTANCE.finditer(plain):
        name = match[1].rpartition("::")[2]
        if name not in instances or match[2].split(",")[0].strip() == "float":
            instances[name] = match[2].strip()
    definitions = []
    for space, head, line in _heads(plain):
        read = SIGNATURE.fullmatch(" ".join(IGNORED.sub(" ", head).split()) or " ")
        if read is None or re.search("__global__|__device__|operator", head):
            continue
        name, known, chosen, lacks = read["name"], dict(aliases), "", ""
        if read["template"]:
            types, lacks = _template_types(read["kinds"], instances.get(name))
            known |= types
            chosen = f"<{instances.get(name) or ', '.join(types.values())}>"
        texts = [part.strip() for part in _split(read["parameters"])]
        parameters = tuple(_parameter(part, known) for part in texts if part and part != "void")
        returns = _resolved((read["after"] or read["before"]).replace("const", " ").strip(), known)
        definitions.append(CFunction(name, f"{space}{name}{chosen}", returns, parameters, line, lacks))
    return definitions


def uncalled(candidates: list[CFunction], text: str) -> list[CFunction]:
    """The candidates that no other function of the source calls."""
    calls = [match[1] for match in CALLED.finditer(DIRECTIVE.sub("", text))]
    names = [function.name for function in candidates]
    return [function for function in candidates if calls.count(function.name) <= names.count(function.name)]


def _template_types(kinds: str, instance: str | None) -> tuple[dict[str, str], str]:
    """Template parameter to its argument (of an instance, else `float`), and why one is unknown."""
    names = [parameter.split("=")[0].split() for parameter in kinds.split(",") if parameter.strip()]
    if instance:
        return {words[-1]: text.strip() for words, text in zip(names, instance.split(","), strict=False)}, ""
    types = {words[-1]: "float" for words in names if words[0] in ("typename", "class")}
    others = [words[-1] for words in names if words[-1] not in types]
    if others and "=" not in kinds:
        how = "instantiate it, as in `template void f<float, 8>(...);`"
        return types, f"the template parameter `{others[0]}` has no value: {how}"
    return types, ""


def _split(text: str) -> Iterator[str]:
    """Split at commas outside brackets; `<` and `>` count as brackets, even as operators."""
    depth, start = 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "<([") - (letter in ">)]")
        if letter == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    yield text[start:]


def _parameter(text: str, known: Mapping[str, str]) -> CParameter:
    """Parse a parameter's text; `known`: aliases and template parameters to their types."""
    plain = re.sub(r"(\w+)\s*\[\s*\w*\s*\]$", r"*\1", text.split("=")[0].strip())
    words = re.sub(r"\bconst\b", " ", plain.replace("*", " ")).split()
    name = words[-1] if len(words) > 1 else ""
    kind = _resolved(" ".join(words[:-1] if name else words), known)
    is_const = "*" not in plain or bool(re.match(r".*\bconst\b[^*]*\*|.*\w\s+const\s*\*", plain))
    is_const = is_const or any("const" in value for key, value in known.items() if key in words)
    return CParameter(text, kind, name, plain.count("*"), is_const)


def _resolved(kind: str, known: Mapping[str, str]) -> str:
    """A type with aliases resolved, without `std::` and `const`."""
    for _ in range(4):
        kind = known.get(kind, kind)
    return " ".join(re.sub(r"\bstd::|\bconst\b", "", kind).split())


def _heads(text: str) -> Iterator[tuple[str, str, int]]:
    """Namespace, head and line of each `{` body that only namespaces or `extern "C"` enclose."""
    stack: list[str | None] = []
    """For each open brace: its namespace, or None for a body that is skipped."""
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
