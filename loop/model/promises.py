"""What a manifest promises of compiled code: resources a kernel may take, symbols that exist, errors that come."""

import itertools
import re
from typing import Annotated

from pydantic import Field, StringConstraints, field_validator, model_validator

from loop.model.base import Count, Model
from loop.model.pattern import Text

Placeholder = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*$")]
PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")


class ResourceBudget(Model):
    """What the kernels of one name may take; of several budgets that fit a kernel the first is its own."""

    kernel: Text
    """Part of the kernel's demangled name, or a regular expression that is found in it."""
    registers: Count | None = None
    """Registers a thread, at most."""
    spill_bytes: Count = 0
    """Bytes of registers that may be spilled to memory."""
    stack_bytes: Count | None = None
    """Bytes of stack a thread, at most."""
    shared_bytes: Count | None = None
    """Bytes of shared memory a block, static and dynamic, at most."""
    blocks_per_sm: Annotated[int, Field(ge=1)] | None = None
    """Blocks that one multiprocessor has to hold at a time, at least."""

    @field_validator("kernel")
    @classmethod
    def _can_be_searched(cls, text: str) -> str:
        try:
            re.compile(text)
        except re.error as error:
            if "<" not in text and "(" not in text:
                raise ValueError(f"expected a name or a regular expression: {error}") from error
        return text

    def fits(self, name: str) -> bool:
        """Whether it is meant for the kernel of that demangled name."""
        if self.kernel in name:
            return True
        try:
            return re.search(self.kernel, name) is not None
        except re.error:
            return False


class Instances(Model):
    """Template instances that the built library has to hold."""

    symbol: Text
    """Their name as `nm -C` prints it, without return type and parameters, as in `scale::rows<{T}, {N}>`."""
    over: Annotated[dict[Placeholder, tuple[str | int, ...]], Field(min_length=1)]
    """Placeholder to everything it stands for; all combinations are promised."""
    file: Text
    """Where the explicit instantiations are, relative to the target's folder."""
    line: Text
    """The line there that makes one, with the same placeholders."""

    @model_validator(mode="after")
    def _placeholders_agree(self) -> "Instances":
        for field, text in (("symbol", self.symbol), ("line", self.line)):
            used = set(PLACEHOLDER.findall(text))
            for name in sorted(used ^ set(self.over)):
                known = "which `over` does not have" if name in used else "which `over` has, is not in it"
                raise ValueError(f"{field}: {{{name}}}, {known}")
        return self

    def promised(self) -> tuple[tuple[str, str], ...]:
        """Each symbol with the line that makes it."""
        choices = itertools.product(*self.over.values())
        return tuple((self._filled(self.symbol, c), self._filled(self.line, c)) for c in choices)

    def _filled(self, text: str, choice: tuple[str | int, ...]) -> str:
        values = dict(zip(self.over, choice, strict=True))
        return PLACEHOLDER.sub(lambda match: str(values[match[1]]), text)


class MustNotCompile(Model):
    """A source that the compiler has to refuse, and what it has to say."""

    title: Text
    """What is wrong with it, in a few words."""
    source: Text
    """The file, relative to the target's folder."""
    flags: tuple[str, ...] = ()
    """Flags besides the variant's own, as in `-DD=20`."""
    says: Text
    """Text of the error, as in a static assertion; not of a source line that the compiler quotes."""
