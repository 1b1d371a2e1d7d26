"""What the user gave or allowed so that a session's AI can be charged: `ai.json` in its folder."""

from pydantic import ValidationError

from loop.documents import to_json, write_atomic
from loop.errors import LoopError
from loop.model.metering import AiGiven
from loop.store.sessions import SessionFolder

NAME = "ai.json"


def read(folder: SessionFolder) -> AiGiven:
    """What was given so far. Raises LoopError when the file is damaged."""
    path = folder.path / NAME
    try:
        return AiGiven.model_validate_json(path.read_bytes()) if path.exists() else AiGiven()
    except (OSError, ValidationError) as error:
        raise LoopError(f"{path}: damaged, or of another format", hint="move it aside", exit_code=1) from error


def add(folder: SessionFolder, given: AiGiven) -> AiGiven:
    """Keep what is given on top of what was: results add up, a stated amount replaces the one before."""
    before = read(folder)
    stated = before.stated_usd if given.stated_usd is None else given.stated_usd
    meter, results = before.meter or given.meter, (*before.results, *given.results)
    after = AiGiven(meter=meter, stated_usd=stated, results=results)
    if after != before:
        write_atomic(folder.path / NAME, to_json(after))
    return after
