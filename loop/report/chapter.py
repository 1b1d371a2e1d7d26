"""What an action adds to the report of a session."""

from dataclasses import dataclass

from loop.report.markdown import Table


@dataclass(frozen=True)
class Chapter:
    """A heading, lines below it, and a table. All text is plain."""

    title: str
    lines: tuple[str, ...] = ()
    note: str = ""
    """A sentence above the table: how to read it."""
    table: Table | None = None
    modelled: bool = False
    """Whether it is of a device that was reckoned with, not of what ran."""
