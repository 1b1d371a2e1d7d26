"""What is a session charged? Measured use times dated prices; what has no figure is named, never zero."""

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from loop.model.device_profile import same_card, same_chip
from loop.model.dtypes import Device
from loop.model.jobs import HostUse
from loop.model.money import AiUse, Basis, Charge, EnergyRate, Rate, RateCard, Unmeasured
from loop.model.record import Finished, SessionHead

STALE_DAYS = 30
"""A price list older than this may no longer be true."""
MARKET = ("gpu", "ai")
"""Resources whose price somebody else sets: an engineer's hour is an assumption, and does not age."""
JOULES_PER_KWH = 3_600_000.0
NO_AI = "no agent reported its cost, no amount was stated (--ai-usd)"
Priced = Charge | Unmeasured
NO_ENERGY = "no energy counter was read"


@dataclass(frozen=True)
class Used:
    """What a session used, as it was measured."""

    seconds: float
    """From its first step to its last, by whichever clock can be believed."""
    device: Device
    """Where it ran."""
    gpu: str | None = None
    """The GPU it ran on, as its driver names it; None where that is not known."""
    energy_j: float | None = None
    """Joules that the GPU took while it was measured; None where no sensor told."""
    energy_s: float = 0.0
    """Seconds over which it took them."""
    ai: AiUse | None = None
    """What agents used; None where nothing is known."""
    ai_reason: str = NO_AI
    """Why nothing is known of AI."""
    hosts: Sequence[HostUse] = ()
    """Other machines, with a price of their own, on which its jobs ran."""


@dataclass(frozen=True)
class Charged:
    """Charges, what could not be charged, and what a reader has to know."""

    charges: tuple[Charge, ...]
    unmeasured: tuple[Unmeasured, ...]
    notes: tuple[str, ...]


def charge(used: Used, card: RateCard, today: datetime.date | None = None) -> Charged:
    """Every resource, priced or named as unmeasured. `today`: for the age of prices; None looks at no age."""
    priced = [
        *_gpu(used, card),
        *_hosts(used),
        *_waiting(used, card),
        *_ai(used, card),
        *_energy(used, card.energy),
    ]
    charges = tuple(one for one in priced if isinstance(one, Charge))
    return Charged(
        charges=charges,
        unmeasured=tuple(one for one in priced if isinstance(one, Unmeasured)),
        notes=tuple(old_prices(charges, card, today)) if today is not None else (),
    )


def rates_of(card: RateCard, device: Device, gpu: str | None = None) -> tuple[Rate, ...]:
    """The rates at which each second of a session is charged."""
    return tuple(rate for rate in (held_rate(card, device, gpu), card.find(card.waiting)) if rate is not None)


def held_rate(card: RateCard, device: Device, gpu: str | None) -> Rate | None:
    """The rate of the machine that a session holds; None on a processor, unless the whole machine is rented."""
    rate = gpu_rate(card, gpu)
    return rate if rate is not None and (device == "cuda" or rate.whole) else None


def hourly_usd(card: RateCard, head: SessionHead) -> float:
    """What an hour of a session is charged, AI left out."""
    rates = rates_of(card.attended(head.attended), head.device, head.gpu)
    return sum(rate.usd_per_hour for rate in rates)


def gpu_rate(card: RateCard, gpu: str | None) -> Rate | None:
    """The card's rate for a GPU; None where it is the price of another one."""
    rate = card.find(card.gpu)
    return rate if rate is not None and is_for(rate, gpu) else None


def is_for(rate: Rate, gpu: str | None) -> bool:
    """Whether a rate is the price of that GPU, `NVIDIA H100 80GB HBM3` for one of an `NVIDIA H100`."""
    return rate.gpu is None or gpu is None or same_card(rate.gpu, gpu)


def no_price(card: RateCard, gpu: str | None) -> str:
    """That the card charges no rate of this GPU; the prices it has of it, and how to choose one."""
    rate = card.find(card.gpu)
    of = f", the price of a machine with {rate.gpu}" if rate and rate.gpu else ""
    said = f"the rate card charges {card.gpu}{of}; this GPU is {gpu or 'not known'}"
    own = _prices(card, lambda name: gpu is not None and same_card(name, gpu))
    if own:
        return f"{said}. Its prices: {'; '.join(own.values())}. Choose one: `gpu: {next(iter(own))}` in {CARD}"
    others = _prices(card, lambda name: gpu is not None and same_chip(name, gpu))
    near = f". Prices of other cards with that chip: {'; '.join(others.values())}" if others else ""
    return f"{said}, of which it has no price{near}. Add its rate, and name it as `gpu:` in {CARD}"


def _prices(card: RateCard, is_sought: Callable[[str], bool]) -> dict[str, str]:
    """Name of a rate to `modal/any/h100, NVIDIA H100: $3.95 an hour (2026-05-07)`."""
    counts = {one.name: machine.count for machine in card.machines for one in machine.rates}
    found = {}
    for one in card.every:
        if one.resource == "gpu" and one.gpu and is_sought(one.gpu):
            count = counts.get(one.name, 1)
            several = f" for {count} GPUs" if count > 1 else ""
            found[one.name] = f"{one.name}, {one.gpu}: ${one.usd_per_hour:.2f} an hour{several} ({one.as_of})"
    return found


CARD = "rates.yaml beside target.yaml (sessions/rates.yaml for the bundled target)"


def _gpu(used: Used, card: RateCard) -> Iterator[Priced]:
    rate = held_rate(card, used.device, used.gpu)
    if rate is None and used.device != "cuda":
        return
    if rate is not None:
        yield _by_time(rate, max(used.seconds, rate.minimum_s))
        return
    yield Unmeasured(resource="gpu", reason=no_price(card, used.gpu))


def _hosts(used: Used) -> Iterator[Priced]:
    """Machines of jobs, as a campaign counts them: by what each job noted of its host's price."""
    for one in used.hosts:
        yield Charge(resource="gpu", rate=f"jobs on {one.host}", seconds=one.seconds, usd=one.usd)


def _waiting(used: Used, card: RateCard) -> Iterator[Priced]:
    rate = card.find(card.waiting)
    if rate is not None:
        yield _by_time(rate, used.seconds, "stated")


def _by_time(rate: Rate, seconds: float, basis: Basis = "measured") -> Charge:
    usd = seconds / 3600 * rate.usd_per_hour
    return Charge(resource=rate.resource, rate=rate.name, seconds=seconds, usd=usd, basis=basis)


def _ai(used: Used, card: RateCard) -> Iterator[Priced]:
    """What is known before the card's hours; an amount that is not known is nobody's zero."""
    ai, rate = used.ai, card.find(card.ai)
    if ai is None:
        unknown = Unmeasured(resource="ai", reason=used.ai_reason)
        yield unknown if rate is None else _by_time(rate, used.seconds, "stated")
        return
    if ai.usd is not None:
        basis: Basis = "stated" if ai.source == "stated" else "measured"
        yield Charge(resource="ai", rate=_ai_label(ai), seconds=0, usd=ai.usd, basis=basis)
    if ai.unpriced:
        tokens, named = sum(one.tokens.total for one in ai.models if one.usd is None), ", ".join(ai.unpriced)
        silent = f"{named} stated no AI cost (--ai-usd)"
        reason = f"the cost of {tokens:,} tokens of {named} is unknown" if tokens else silent
        yield Unmeasured(resource="ai", reason=reason)


def _ai_label(ai: AiUse) -> str:
    """Where a figure comes from: `claude-code, its own result`, `stated`."""
    return "stated" if ai.source == "stated" else f"{' and '.join(ai.agents) or 'an agent'}, its own result"


def _energy(used: Used, rate: EnergyRate | None) -> Iterator[Priced]:
    if used.energy_j is None:
        yield Unmeasured(resource="energy", reason=NO_ENERGY)
    elif rate is None:
        told = f"{used.energy_j:,.0f} J while it was timed; no price, for the card has no `energy:`"
        yield Unmeasured(resource="energy", reason=told)
    else:
        usd = used.energy_j / JOULES_PER_KWH * rate.usd_per_kwh
        yield Charge(resource="energy", rate="energy", seconds=used.energy_s, usd=usd)


def energy(finished: Iterable[Finished]) -> tuple[float, float] | None:
    """Joules and seconds over all measurements, of every attempt: what was used was used. None where none told."""
    # The measurement of a change stands one level below.
    outputs = [found if isinstance(found := one.output.get("found"), dict) else one.output for one in finished]
    both = [(output.get("energy_j"), output.get("energy_s")) for output in outputs]
    told = [(j, s) for j, s in both if isinstance(j, int | float) and isinstance(s, int | float)]
    return (sum(joules for joules, _ in told), sum(seconds for _, seconds in told)) if told else None


def age_days(as_of: datetime.date, today: datetime.date) -> int:
    """How many days old a price is; below 0 for one that is dated ahead."""
    return (today - as_of).days


def old_prices(charges: Iterable[Charge], card: RateCard, today: datetime.date) -> Iterator[str]:
    """A sentence for each price among the charges that is too old, or dated ahead of today."""
    for one in charges:
        rate = card.find(one.rate)
        if rate is not None and rate.resource in MARKET and one.basis == "measured":
            yield from _aged(rate.name, rate.as_of, today)
        if one.resource == "energy" and card.energy is not None:
            yield from _aged("energy", card.energy.as_of, today)


def _aged(name: str, as_of: datetime.date, today: datetime.date) -> Iterator[str]:
    days = age_days(as_of, today)
    if days > STALE_DAYS:
        yield f"the price of {name} is {days} days old: look it up and set it in rates.yaml"
    elif days < 0:
        yield f"the price of {name} is dated {as_of}, which is yet to come"
