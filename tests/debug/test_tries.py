"""What was tried before: the same build is known again, whoever built it and whatever was thought of it."""

from typing import Any

from loop.debug.turns import repeated
from loop.model.debugging import EarlierTry


def make_try(session: str = "one", **fields: Any) -> EarlierTry:
    """A try that came to nothing."""
    base = {
        "variant": "cpu",
        "build_id": "first",
        "ground": "g",
        "hypothesis": "sums",
        "right": False,
        "message": "off",
    }
    return EarlierTry.model_validate({"session": session, **base, **fields})


def test_a_build_that_was_wrong_is_known_again() -> None:
    """The last time it was tried is the one that is named; another build of it is something else."""
    tries = (make_try("one"), make_try("two", build_id="second"), make_try("three"))
    assert ["three"] == [one.session for one in repeated(tries, {"cpu": "first"}, "h")]
    assert () == repeated(tries, {"cpu": "third"}, "g")
    assert () == repeated((make_try(right=True),), {"cpu": "first"}, "g")


def test_what_has_no_build_is_known_by_the_targets_files() -> None:
    """A Python variant: the same files are the same source."""
    tries = (make_try(build_id=None),)
    assert tries == repeated(tries, {"cpu": None}, "g")
    assert () == repeated(tries, {"cpu": None}, "h")
    assert () == repeated((make_try(build_id=None, ground=""),), {"cpu": None}, "")
