"""Calls to what they used and cost, model by model. An unknown price is unknown, never zero."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loop.agents.calls import Call
from loop.agents.prices import MISSING, Price
from loop.model.metering import AiSource, AiUse, ModelUse, Tokens


@dataclass
class Sum:
    """What one model was used for so far."""

    tokens: Tokens
    calls: int = 0
    usd: float | None = 0.0


def use(calls: Iterable[Call], source: AiSource, price: Price | None, notes: Sequence[str] = ()) -> AiUse:
    """All calls, priced one by one: some prices depend on the length of a call."""
    sums: dict[str, Sum] = {}
    agents: dict[str, None] = {}
    for call in calls:
        agents[call.agent] = None
        name = call.model if call.listed else f"{call.model} (not at list price)"
        one = sums.setdefault(name, Sum(Tokens()))
        one.tokens, one.calls = one.tokens.plus(call.tokens), one.calls + 1
        usd = price(call.model, call.tokens, call.at) if price and call.listed else None
        one.usd = None if usd is None or one.usd is None else one.usd + usd
    models = [ModelUse(model=name, calls=s.calls, tokens=s.tokens, usd=s.usd) for name, s in sums.items()]
    return total(models, source, tuple(agents), [*notes, *([MISSING] if price is None and models else [])])


def total(models: Sequence[ModelUse], source: AiSource, agents: Sequence[str], notes: Sequence[str] = ()) -> AiUse:
    """The use of several models together: the sum of what is known, and what is not."""
    known = [one.usd for one in models if one.usd is not None]
    return AiUse(
        source=source,
        agents=tuple(agents),
        models=tuple(models),
        usd=sum(known) if known else None,
        unpriced=tuple(one.model for one in models if one.usd is None),
        notes=tuple(notes),
    )
