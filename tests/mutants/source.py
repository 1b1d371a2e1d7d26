"""A kernel's source as the operators see it: only kernel code, and every position with its function."""

import bisect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

HOST = (
    "check_partials",
    "stand_in",
    "attention_split_k",
    "attention_split_partial",
    "attention_split_reduce",
    "has_map_strides",
    "is_mappable",
    "groups_tiling",
    "fastest_groups",
)
"""Functions that check and describe arguments or choose a kernel, beside the entries: `attention_<variant>`."""
BLANK = re.compile(
    r"^#(?:if defined\(ATTENTION_PARTS\)|else)[\s\S]*?^#endif"  # What looks inside a kernel is no part of it.
    r"|\bATTENTION_SEEN\([^;]*;"
    r"|//[^\n]*"
    r"|\"(?:\\.|[^\"\\\n])*\""
    r"|^[ \t]*#[^\n]*"
    r"|\bstatic_assert\([^;]*;"
    r"|\bif \([^;{}]*\) return (?:error|k[A-Z]\w+);"  # A check of arguments, or its answer handed on.
    r"| \? kSuccess : kLaunchFailed",
    re.MULTILINE,
)
OPENING, CLOSING = "([{", ")]}"
CONTROL = {"if", "for", "while", "switch", "constexpr", "__launch_bounds__"}


@dataclass(frozen=True)
class Source:
    """One file: `code` is `text` with comments, literals, assertions and checks of arguments blanked."""

    name: str
    text: str

    @cached_property
    def code(self) -> str:
        """As long as the text, so that positions are those of the text."""
        code = BLANK.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), self.text)
        for name, begin, end in functions(code):
            if name in HOST or name.startswith("attention_"):
                code = code[:begin] + re.sub(r"[^\n]", " ", code[begin:end]) + code[end:]
        return code

    @cached_property
    def _scopes(self) -> list[tuple[str, int, int]]:
        return sorted(functions(self.code), key=lambda one: one[2] - one[1])

    def scope(self, position: int) -> str:
        """The innermost function or struct around a position; empty at the top."""
        return next((name for name, begin, end in self._scopes if begin <= position < end), "")

    @cached_property
    def _lines(self) -> list[int]:
        return [0, *(found.end() for found in re.finditer("\n", self.text))]

    def line(self, position: int) -> int:
        """The line's number, from 1."""
        return bisect.bisect(self._lines, position)

    def line_text(self, position: int) -> str:
        """The code of the line, without a comment."""
        return self.code[self._lines[self.line(position) - 1] :].split("\n", 1)[0].strip()


def read(path: Path) -> Source:
    """A file of the kernels."""
    return Source(path.name, path.read_text())


def functions(code: str) -> Iterator[tuple[str, int, int]]:
    """Functions and structs: name, and where the body begins and ends."""
    for found in re.finditer(r"[^;{}]*\{", code):
        head = found[0].strip()
        named = re.findall(r"(\w+)\(", head)
        names = [name for name in named if name not in CONTROL]
        struct = re.match(r"(?:template <[^{]*> )?(?:struct|class) (\w+)", " ".join(head.split()))
        if struct:
            yield struct[1], found.end(), closing(code, found.end() - 1)
        elif names and not set(named) & (CONTROL - {"__launch_bounds__"}) and head.count("(") == head.count(")"):
            yield names[0], found.end(), closing(code, found.end() - 1)


def is_opening(code: str, at: int) -> bool:
    """Whether a bracket opens here. This code has no space before `<` of a template, and one before `less`."""
    return code[at] in OPENING or (code[at] == "<" and (code[at - 1].isalnum() or code[at - 1] == "_"))


def is_closing(code: str, at: int) -> bool:
    """Whether a bracket closes here: `>` of a template has no space before it, nor have its neighbours."""
    before = code[max(0, at - 3) : at].rstrip(">")
    return code[at] in CLOSING or (code[at] == ">" and before[-1:] not in ("", " ", "-", "\n"))


def closing(code: str, opened: int) -> int:
    """Where the bracket that opens at a position is closed."""
    depth, at = 0, opened
    while at < len(code):
        depth += is_opening(code, at) - is_closing(code, at)
        if depth == 0:
            return at
        at += 1
    return at


STOP = re.compile(r"[,;?}]|&&|\|\||(?<!:):(?!:)|\breturn\b|(?<![=!<>])=(?!=)")
"""What an expression does not reach over, at its own depth of brackets."""


def begin_of(code: str, before: int) -> int:
    """Where the expression that ends before a position begins: after an opening bracket or a stop."""
    depth, at = 0, before - 1
    while at > 0:
        depth += is_closing(code, at) - is_opening(code, at)
        stop = STOP.match(code, at) if depth == 0 else None
        if depth < 0 or stop:
            at = stop.end() if stop else at + 1
            return at + len(code[at:before]) - len(code[at:before].lstrip())
        at -= 1
    return at


def end_of(code: str, at: int, *, through: str = "") -> int:
    """Where the expression that begins at a position ends: before a closing bracket or a stop not in `through`."""
    depth = 0
    while at < len(code):
        depth += is_opening(code, at) - is_closing(code, at)
        stop = STOP.match(code, at) if depth == 0 else None
        if depth < 0 or (stop and stop[0] not in through):
            return at
        at += 1
    return at
