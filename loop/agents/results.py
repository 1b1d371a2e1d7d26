"""What an agent says of its own run: the JSON that it prints at its end."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from loop.agents import claude, codex
from loop.agents.calls import Call, Odd, count, inner, text
from loop.agents.counting import total, use
from loop.agents.prices import Price
from loop.base.errors import LoopError
from loop.model.metering import AiUse, ModelUse, Tokens

HINT = "the output of `claude -p --output-format json` or `codex exec --json` is one"


def read_result(printed: str, source: str, price: Price | None) -> AiUse:
    """The use that an agent's output states. `source`: where it is from, for errors.

    Raises LoopError where it states none.
    """
    objects = list(_objects(printed))
    final = next((one for one in reversed(objects) if "total_cost_usd" in one), None)
    try:
        if final is not None:
            return _claude(final, price)
        turns = [inner(one, "usage") for one in objects if one.get("type") == "turn.completed"]
        if turns:
            return use(_turns(turns, objects), "result", price)
        usage = next((one for one in reversed(objects) if isinstance(one.get("usage"), dict)), None)
        if usage is not None:
            return use([_lone(usage)], "result", price)
    except Odd as error:
        raise LoopError(f"{source}: {error}", hint=HINT) from error
    raise LoopError(f"{source}: no result of an agent: neither total_cost_usd nor usage", hint=HINT)


def _objects(printed: str) -> Iterator[dict[str, Any]]:
    """One JSON value over all of it, or one a line; other lines are talk."""
    try:
        parts = [json.loads(printed)]
    except (ValueError, RecursionError):
        parts = [found for line in printed.splitlines() if (found := _json(line)) is not None]
    for part in parts:
        yield from (one for one in (part if isinstance(part, list) else [part]) if isinstance(one, dict))


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _claude(final: Mapping[str, Any], price: Price | None) -> AiUse:
    """Its own total stands; models are listed for the tokens."""
    usd = final["total_cost_usd"]
    if isinstance(usd, bool) or not isinstance(usd, int | float) or not 0 <= usd < float("inf"):
        raise Odd(f"total_cost_usd: expected dollars, got {usd!r}")
    models = [_model(name, fields) for name, fields in inner(final, "modelUsage").items()]
    if not models and isinstance(final.get("usage"), dict):
        tokens = claude.tokens(inner(final, "usage"))
        models = [ModelUse(model=text(final, "model") or codex.NAMELESS, calls=0, tokens=tokens, usd=float(usd))]
    found = total(models, "result", (claude.AGENT,))
    if usd == 0 and any(one.tokens.total > 0 for one in models):
        free = "it states no cost for its tokens, as under a subscription"
        return found.model_copy(
            update={"usd": None, "unpriced": found.unpriced or _names(models), "notes": (free,)}
        )
    return found.model_copy(update={"usd": float(usd), "unpriced": ()})


def _names(models: list[ModelUse]) -> tuple[str, ...]:
    return tuple(one.model for one in models)


def _model(name: str, fields: object) -> ModelUse:
    told = fields if isinstance(fields, dict) else {}
    usd = told.get("costUSD")
    tokens = Tokens(
        input=count(told, "inputTokens"),
        output=count(told, "outputTokens"),
        cache_read=count(told, "cacheReadInputTokens"),
        cache_write=count(told, "cacheCreationInputTokens"),
        searches=count(told, "webSearchRequests"),
    )
    if isinstance(usd, bool) or not isinstance(usd, int | float) or usd <= 0:
        usd = None
    return ModelUse(model=name, calls=0, tokens=tokens, usd=usd)


def _turns(turns: list[Mapping[str, Any]], objects: list[dict[str, Any]]) -> Iterator[Call]:
    """Codex's turns: it prints tokens, no price, and its model only in some versions."""
    model = next((name for one in objects if (name := text(one, "model"))), codex.NAMELESS)
    for number, usage in enumerate(turns):
        read, cached, written = (count(usage, field) for field in codex.FIELDS)
        tokens = codex.tokens((read, cached, written))
        yield Call(codex.AGENT, str(number), None, None, model, tokens)


def _lone(one: Mapping[str, Any]) -> Call:
    """Tokens without a cost, from an agent that nobody knows."""
    tokens = claude.tokens(inner(one, "usage"))
    return Call("an agent", "0", None, None, text(one, "model") or codex.NAMELESS, tokens)
