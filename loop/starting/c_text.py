"""Parse functions of C, C++ and CUDA from text: names, parameters, template instances."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

TOKEN = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
"""A comment or a string."""
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*", re.MULTILINE | re.DOTALL)
ALIASES = (
    re.compile(r"\busing\s+(?P<name>\w+)\s*=\s*(?P<type>[\w: ]+?)\s*;"),
    re.compile(r"\btypedef\s+(?P<type>[\w: ]+?)\s+(?P<name>\w+)\s*;"),
)
SIGNATURE = re.compile(
    r"(?P<template>template\s*<(?P<kinds>[^{};()]*?)>\s*)?(?P<before>[\w\s:*&<>,]*?[\s*&>])(?P<name>\w+)\s*"
    r"\((?P<parameters>[^{};]*)\)\s*(?:noexcept)?\s*"
)
TEMPLATE_INSTANCE = re.compile(r"\btemplate\s+(?!<)[\w\s:*&]*?\b([\w:]+)\s*<([^;(){}]*)>\s*\(")
OUTER_COMMA = re.compile(r",(?![^<(\[]*[>)\]])")
"""A comma outside brackets: no bracket closes after it before another opens. `<` and `>` count, too."""
CALL = re.compile(r"\b(\w+)\s*(?:<[^;(){}]*>)?\s*\(")
NAMESPACE = re.compile(r"(?:inline\s+)?namespace(?:\s+([\w:]+))?|extern \"C\"")
IGNORED = re.compile(
    r"\b(static|inline|extern|constexpr|__host__|__forceinline__|__inline__|register|volatile|struct|typename|"
    r"__restrict__|__restrict|restrict|RESTRICT|\w*_API|\w*_EXPORT)\b|\"C\"|\[\[[^\]]*\]\]|__attribute__\s*\(\(.*?\)\)"
)
C_TYPES = {
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
DTYPE_BY_C_TYPE = {name: dtype for dtype, names in C_TYPES.items() for name in names.split(", ")}
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
    """Whether the caller's data stays: it is passed by value, or points to a `const` type."""

    @property
    def dtype(self) -> str | None:
        """The element type; None for a type that no tensor has."""
        return DTYPE_BY_C_TYPE.get(self.type)


@dataclass(frozen=True)
class CFunction:
    """A function that other code can call."""

    name: str
    call_name: str
    """The name with namespace and template arguments, for a call."""
    returns: str
    """The return type."""
    parameters: tuple[CParameter, ...]
    line: int
    problem: str = ""
    """Why `loop` cannot call the function; empty if it can."""

    @property
    def pointers(self) -> list[CParameter]:
        """Its pointer parameters to tensor elements."""
        return [parameter for parameter in self.parameters if parameter.pointers == 1 and parameter.dtype]

    @property
    def numbers(self) -> list[CParameter]:
        """Its numeric parameters, passed by value."""
        return [parameter for parameter in self.parameters if not parameter.pointers and parameter.dtype]


def _to_spaces(match: re.Match[str]) -> str:
    """Spaces in place of the matched text; its line breaks stay, so that line numbers do."""
    return re.sub(r"[^\n]", " ", match[0])


def without_comments(text: str) -> str:
    """The source with comments and strings (except "C") replaced by spaces; lines are kept."""
    return TOKEN.sub(lambda match: match[0] if match[0] == '"C"' else _to_spaces(match), text)


def functions(text: str) -> list[CFunction]:
    """Host functions with a body, outside classes, in order; `text`: a source without comments."""
    aliases = {match["name"]: match["type"] for pattern in ALIASES for match in pattern.finditer(text)}
    code = DIRECTIVE.sub(_to_spaces, text)
    instances: dict[str, str] = {}  # Template to its arguments in an explicit instance; float is preferred.
    for match in TEMPLATE_INSTANCE.finditer(code):
        name = match[1].rpartition("::")[2]
        if name not in instances or match[2].split(",")[0].strip() == "float":
            instances[name] = match[2].strip()
    definitions = []
    for namespace, head, line in _heads(code):
        signature = SIGNATURE.fullmatch(" ".join(IGNORED.sub(" ", head).split()) or " ")
        if signature is None or re.search("__global__|__device__|operator", head):
            continue
        name, types, arguments, problem = signature["name"], aliases, "", ""
        if signature["template"]:
            template_types, problem = _template_types(signature["kinds"], instances.get(name))
            types = aliases | template_types
            arguments = f"<{instances.get(name) or ', '.join(template_types.values())}>"
        texts = [part.strip() for part in OUTER_COMMA.split(signature["parameters"])]
        parameters = tuple(_parameter(part, types) for part in texts if part and part != "void")
        returns = _resolve_type(signature["before"], types)
        call_name = f"{namespace}{name}{arguments}"
        definitions.append(CFunction(name, call_name, returns, parameters, line, problem))
    return definitions


def _template_types(kinds: str, instance: str | None) -> tuple[dict[str, str], str]:
    """Template parameter to its argument, and a message if one is unknown (else empty).
    `kinds`: as `typename T, int N`. `instance`: arguments of an explicit instance; None: types become float."""
    parameters = [text.split("=")[0].split() for text in kinds.split(",") if text.strip()]
    if instance:
        pairs = zip(parameters, instance.split(","), strict=False)
        return {tokens[-1]: argument.strip() for tokens, argument in pairs}, ""
    types = {tokens[-1]: "float" for tokens in parameters if tokens[0] in ("typename", "class")}
    numbers = [tokens[-1] for tokens in parameters if tokens[-1] not in types]
    if not numbers or "=" in kinds:
        return types, ""
    hint = "instantiate it, as in `template void f<float, 8>(...);`"
    return types, f"the template parameter `{numbers[0]}` has no value: {hint}"


def _parameter(text: str, types: Mapping[str, str]) -> CParameter:
    """Parse a parameter's text; `types`: alias or template parameter to its type."""
    as_pointer = re.sub(r"(\w+)\s*\[\s*\w*\s*\]$", r"*\1", text.split("=")[0].strip())  # x[] to *x
    tokens = re.sub(r"\bconst\b|\*", " ", as_pointer).split()
    name = tokens.pop() if len(tokens) > 1 else ""
    is_value = "*" not in as_pointer  # It cannot change the caller's data.
    is_alias_const = any("const" in types[token] for token in tokens if token in types)
    is_const = is_value or is_alias_const or bool(re.match(r".*\bconst\b[^*]*\*", as_pointer))
    type_name = _resolve_type(" ".join(tokens), types)
    return CParameter(text, type_name, name, as_pointer.count("*"), is_const)


def _resolve_type(type_name: str, types: Mapping[str, str]) -> str:
    """A type with aliases resolved, without `std::` and `const`."""
    for _ in range(4):  # An alias may name an alias.
        type_name = " ".join(re.sub(r"\bstd::|\bconst\b", "", type_name).split())
        type_name = types.get(type_name, type_name)
    return type_name


def _heads(text: str) -> Iterator[tuple[str, str, int]]:
    """Namespace, head (`void f(float *x)`) and line of each `{` body that only namespaces or "C" enclose."""
    open_braces: list[str | None] = []
    """For each open brace: its namespace, or None for a body that is skipped."""
    head, line = "", 1
    for part in re.findall(r"[{};]|[^{};]+", text):
        if part == "{":
            namespace = NAMESPACE.fullmatch(" ".join(head.split()))
            if namespace is None and None not in open_braces:
                yield "".join(map(str, open_braces)), head.strip(), line - head.lstrip().count("\n")
            prefix = f"{namespace[1]}::" if namespace and namespace[1] else ""
            open_braces.append(None if namespace is None else prefix)
        elif part == "}":
            open_braces = open_braces[:-1]
        head = "" if part in "{};" else head + part
        line += part.count("\n")
