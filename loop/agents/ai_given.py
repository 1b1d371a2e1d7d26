"""What the user gave or allowed so that a session's AI can be charged: `ai.json` in its folder."""

from loop.base.documents import sums
from loop.base.errors import LoopError
from loop.model.metering import AiGiven
from loop.store.sessions import SessionFolder

NAME = "ai.json"


def read(folder: SessionFolder) -> AiGiven:
    """What was given so far. Raises LoopError when the file is damaged."""
    path = folder.path / NAME
    try:
        return sums.read_sealed(AiGiven, path) if path.exists() else AiGiven()
    except OSError as error:
        raise LoopError(f"{path}: cannot be read: {error.strerror}", exit_code=1) from error


def add(folder: SessionFolder, given: AiGiven) -> AiGiven:
    """Keep what is given on top of what was: results add up, a stated amount replaces the one before."""
    before = read(folder)
    stated = before.stated_usd if given.stated_usd is None else given.stated_usd
    meter, results = before.meter or given.meter, (*before.results, *given.results)
    after = AiGiven(meter=meter, stated_usd=stated, results=results)
    if after != before:
        sums.write_sealed(folder.path / NAME, after)
    return after
