"""Failures in the records of a session: by signature, a variant at a time where one is wrong."""

from typing import Any

from loop.model.output import CommandOutput
from loop.model.record import Finished
from loop.store.fingerprints import failures_of, of_step
from tests.makers import make_check, make_finished, make_verify


def failed(step: str = "build", **fields: Any) -> Finished:
    """A step that failed."""
    return make_finished(step, **{"status": "failed", "message": "x.cu(4): error: broken", **fields})


def test_a_wrong_variant_is_known_by_its_kind_of_failure_not_by_numbers() -> None:
    """On whatever workload, with however many wrong elements."""
    one = make_verify(make_check(right=False, wrong=3))
    other = make_verify(make_check("B2 H2 S128 D64 float32", right=False, wrong=900))
    (first,), (second,) = (of_step(failed("verify", output=output)) for output in (one, other))
    assert ("cpu wrong", "cpu") == (first.text, first.subject)
    assert first.key == second.key


def test_each_wrong_variant_is_a_failure_of_its_own() -> None:
    """And one that crashes is another failure than one that is wrong."""
    wrong = make_verify(make_check(right=False))
    crashed = make_verify(make_check(right=False, status="crashed", message="crashed with SIGSEGV"), variant="fa1")
    both = wrong.model_copy(update={"variants": (*wrong.variants, *crashed.variants)})
    found = failures_of("s", [failed("verify", output=both)])
    assert ["cpu wrong", "fa1 crashed: crashed with SIGSEGV"] == [one.text for one in found]


def test_a_step_over_its_limit_is_known_by_what_it_did() -> None:
    """Not by the seconds it took, nor by what it was waiting for."""
    one, other = (failed(killed=True, message=f"killed after {s} s, its limit (compiling {s})") for s in (61, 607))
    assert ["kernel.build: over its limit"] == [s.text for s in of_step(one)]
    assert of_step(one) == of_step(other)


def test_a_command_is_known_by_the_line_that_names_its_error() -> None:
    """Else by how it ended and the last thing it said."""
    text = "building\nx.c:3:1: error: broken thing\nmake: *** [x] Error 1"
    output = CommandOutput(ok=False, message="exit 2: make", code=2, seconds=1.0, output=text)
    (named,) = of_step(failed("s1", action="command.run", message=output.message, output=output))
    assert "broken thing" == named.text
    silent = output.model_copy(update={"code": 3, "output": "gave up at 17:03"})
    (last,) = of_step(failed("s1", action="command.run", message="exit 3: gave up at 17:03", output=silent))
    assert last.text.startswith("exit 3: gave up at N")


def test_a_failure_that_a_later_attempt_got_past_was_cured_in_the_session() -> None:
    """By a resume; a failure of the same step in another way is not a cure."""
    passed = make_finished("build", attempt=2)
    assert ["s"] == [one.cured_by for one in failures_of("s", [failed(), passed])]
    assert [None] == [one.cured_by for one in failures_of("s", [passed, failed()])]
    assert [None, None] == [one.cured_by for one in failures_of("s", [failed(), failed(message="other")])]
