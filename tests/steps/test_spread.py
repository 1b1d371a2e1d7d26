"""Work that a step gives to jobs: what becomes of a job that failed."""

from types import SimpleNamespace
from typing import Any

import pytest

from loop.base.errors import WorkFailed
from loop.model.output import Output
from loop.steps.spread import result_of_job


@pytest.mark.parametrize(
    ("output", "error", "text"),
    [
        (None, WorkFailed, "(compare): it failed"),
        ({"traceback": "KeyError: 'ours again'"}, RuntimeError, "(compare): it failed\nKeyError: 'ours again'"),
    ],
)
def test_a_job_without_an_output_says_why(output: Any, error: type[Exception], text: str) -> None:
    """A bug of `loop` in a job is one of the session's, too, with the job's traceback."""
    answer = {"steps": [{"output": output, "message": "it failed", "hint": None}]}
    job: Any = SimpleNamespace(id="1", task=SimpleNamespace(title="compare"), read_answer=lambda: answer)
    with pytest.raises(error, match="compare") as raised:
        result_of_job(job, Output)
    assert str(raised.value).endswith(text)
