"""Words for an outcome, and how each is shown: one table for the terminal, the report and the site."""

from typing import Literal, NamedTuple

Kind = Literal["good", "bad", "wait", "soft"]


class Colour(NamedTuple):
    """A kind's colour: those of Okabe and Ito (2008), darker on light paper and lighter on dark."""

    terminal: str
    """Code of the escape sequence."""
    light: str
    dark: str


COLOURS: dict[Kind, Colour] = {
    "good": Colour("32", "#00705a", "#2cc295"),
    "bad": Colour("31", "#b34700", "#ff9b50"),
    "wait": Colour("35", "#8f3d78", "#e69ac9"),
    "soft": Colour("0", "#59636e", "#9198a1"),
}
KINDS: dict[str, Kind] = {
    **dict.fromkeys(("passed", "faster", "kept", "right", "yes", "validated"), "good"),
    **dict.fromkeys(
        ("failed", "aborted", "slower", "incorrect", "invalid", "wrong", "doubtful", "retired"), "bad"
    ),
    **dict.fromkeys(("paused", "open", "inconclusive"), "wait"),
    **dict.fromkeys(("skipped", "same", "recorded"), "soft"),
}
"""First words that are marked; the word itself says it."""


def kind(text: str) -> str:
    """The kind of what a text begins with, as in `slower: 0.80x`; empty for other words."""
    return KINDS.get(text.partition(" ")[0].rstrip(",:;"), "")


def css() -> str:
    """The colours as variables of a style sheet, by day, by night and on paper."""
    light, dark = (
        "".join(f"--{name}:{getattr(colour, theme)};" for name, colour in COLOURS.items())
        for theme in ("light", "dark")
    )
    return f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"
