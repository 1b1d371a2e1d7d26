"""What an agent says of its own run, in the JSON that it prints; and what a session's agents used in all."""

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from loop.base.documents import sums
from loop.base.errors import LoopError, UsageError
from loop.model.base import Model
from loop.model.campaign import Proposal
from loop.model.money import AiUse, ModelUse, Tokens
from loop.store.sessions import SessionFolder

NAMELESS = "a model without a name"
FREE = "it states no cost for its tokens, as under a subscription"
NAME = "ai.json"
PROPOSALS = "changes/candidates/[0-9][0-9][0-9][0-9].json"
"""What became of each candidate of a campaign, below a session's folder."""


def read_result(printed: str) -> AiUse | None:
    """The use that an agent's output states; None where it states none, or one of its numbers is none."""
    whole = _json(printed)
    parts = [whole] if whole is not None else [_json(line) for line in printed.splitlines()]
    values = (value for part in parts for value in (part if isinstance(part, list) else [part]))
    objects = [value for value in values if isinstance(value, dict)]
    try:
        use = _claude(objects) or _codex(objects)
        last = next((line for line in reversed(objects) if isinstance(line.get("usage"), dict)), None)
        if use is None and last is not None:  # Tokens without a cost, from an agent that nobody knows.
            use = _unpriced("an agent", str(last.get("model") or NAMELESS), [_tokens(last["usage"])])
    except ValueError:
        return None
    return use


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _claude(objects: Sequence[Mapping[str, Any]]) -> AiUse | None:
    """Its own total stands; models are listed for the tokens."""
    final = next((line for line in reversed(objects) if "total_cost_usd" in line), None)
    if final is None:
        return None
    usd = final["total_cost_usd"]
    if isinstance(usd, bool) or not isinstance(usd, int | float) or not 0 <= usd < float("inf"):
        raise ValueError(f"total_cost_usd: expected dollars, got {usd!r}")
    models = []
    for name, fields in _inner(final, "modelUsage").items():
        values = fields if isinstance(fields, dict) else {}
        own = values.get("costUSD")
        is_known = isinstance(own, int | float) and not isinstance(own, bool) and own > 0
        tokens = Tokens(
            input=_count(values, "inputTokens"),
            output=_count(values, "outputTokens"),
            cache_read=_count(values, "cacheReadInputTokens"),
            cache_write=_count(values, "cacheCreationInputTokens"),
            searches=_count(values, "webSearchRequests"),
        )
        models.append(ModelUse(model=name, calls=0, tokens=tokens, usd=own if is_known else None))
    if not models and isinstance(final.get("usage"), dict):
        name = str(final.get("model") or NAMELESS)
        models = [ModelUse(model=name, calls=0, tokens=_tokens(final["usage"]), usd=float(usd))]
    use = AiUse(source="result", agents=("claude-code",), models=tuple(models), usd=float(usd))
    if usd == 0 and any(model.tokens.total > 0 for model in models):
        names = tuple(model.model for model in models)
        return use.model_copy(update={"usd": None, "unpriced": names, "notes": (FREE,)})
    return use


def _codex(objects: Sequence[Mapping[str, Any]]) -> AiUse | None:
    """Turns with their tokens, and no price. What came from a cache stands within what was read."""
    turns = []
    for usage in (_inner(line, "usage") for line in objects if line.get("type") == "turn.completed"):
        read, cached = _count(usage, "input_tokens"), _count(usage, "cached_input_tokens")
        turns.append(Tokens(input=max(0, read - cached), cache_read=cached, output=_count(usage, "output_tokens")))
    model = next((str(line["model"]) for line in objects if line.get("model")), NAMELESS)
    return _unpriced("codex", model, turns) if turns else None


def _unpriced(agent: str, model: str, calls: Sequence[Tokens]) -> AiUse:
    tokens = functools.reduce(Tokens.plus, calls)
    use = ModelUse(model=model, calls=len(calls), tokens=tokens, usd=None)
    return AiUse(source="result", agents=(agent,), models=(use,), usd=None, unpriced=(model,))


def _tokens(usage: Mapping[str, Any]) -> Tokens:
    """Cache reads and writes stand beside `input_tokens`, not within."""
    hour = _count(_inner(usage, "cache_creation"), "ephemeral_1h_input_tokens")
    return Tokens(
        input=_count(usage, "input_tokens"),
        output=_count(usage, "output_tokens"),
        cache_read=_count(usage, "cache_read_input_tokens"),
        cache_write=max(0, _count(usage, "cache_creation_input_tokens") - hour),
        cache_write_1h=hour,
        searches=_count(_inner(usage, "server_tool_use"), "web_search_requests"),
    )


def _count(fields: Mapping[str, Any], name: str) -> int:
    """A number of tokens; 0 where none is told. Raises ValueError for what is no number of anything."""
    value = fields.get(name)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name}: expected a number of tokens, got {value!r}")
    return value


def _inner(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A mapping within another; an empty one where there is none."""
    value = fields.get(name)
    return value if isinstance(value, dict) else {}


class AiGiven(Model):
    """What the user stated; kept with the session, and so over a resume."""

    format: Literal[1] = 1
    """Format number."""
    stated_usd: float | None = None
    """What the AI cost, as the user says."""


def stated(usd: float | None) -> AiGiven:
    """What `--ai-usd` says. Raises LoopError for what is no amount."""
    if usd is not None and not 0 <= usd < float("inf"):
        raise UsageError(f"--ai-usd {usd}: expected dollars, 0 or more", hint="--ai-usd 1.50")
    return AiGiven(stated_usd=usd)


def add(folder: SessionFolder, more: AiGiven) -> None:
    """Keep what is stated in the place of what was."""
    if more.stated_usd is not None:
        sums.write_sealed(folder.path / NAME, more)


def used(folder: SessionFolder) -> tuple[AiUse | None, str]:
    """What is known of a session's AI, the best source alone; else None, and why where a file is damaged."""
    path = folder.path / NAME
    try:
        known, results = sums.read_sealed(AiGiven, path) if path.exists() else AiGiven(), proposed(folder)
    except OSError as error:
        return None, f"{path}: cannot be read: {error.strerror}"
    except LoopError as error:
        return None, error.message
    use = together(results) if results else None
    if known.stated_usd is not None and (use is None or use.usd is None):
        use = use or AiUse(source="stated", usd=None)
        use = use.model_copy(update={"source": "stated", "usd": known.stated_usd, "unpriced": ()})
    return use, ""


def proposed(folder: SessionFolder) -> list[AiUse]:
    """What each proposer of a campaign used, noted as soon as it ended."""
    proposals = (sums.read_sealed(Proposal, path) for path in sorted(folder.path.glob(PROPOSALS)))
    return [proposal.use for proposal in proposals if proposal.use]


def together(results: Sequence[AiUse]) -> AiUse:
    """What several runs of agents used."""
    known = [result.usd for result in results if result.usd is not None]
    return AiUse(
        source="result",
        agents=tuple(dict.fromkeys(agent for result in results for agent in result.agents)),
        models=tuple(model for result in results for model in result.models),
        usd=sum(known) if known else None,
        unpriced=tuple(dict.fromkeys(name for result in results for name in result.unpriced)),
        notes=tuple(dict.fromkeys(note for result in results for note in result.notes)),
    )
