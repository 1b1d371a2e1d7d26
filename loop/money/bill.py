"""A session's cost and savings: measured use times dated prices; unknown figures are named."""

import datetime
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from loop.gate.model import BuildOutput
from loop.model.dtypes import Device
from loop.model.index import SessionRow
from loop.model.jobs import HostUse
from loop.model.money import AiUse, Basis, Bill, Charge, Gains, Rate, RateCard, Saving, Unmeasured
from loop.model.output import read_output
from loop.model.profile import is_same_gpu_model
from loop.model.record import Finished, SessionHead

STALE_DAYS = 30
"""Age in days above which a price is reported as old."""
MARKET = ("gpu", "ai")
"""Resources with a market price, which can go out of date; an engineer's hour is an assumption."""
NO_AI = "no agent reported its cost, no amount was stated (--ai-usd)"
CARD = "rates.yaml beside target.yaml (sessions/rates.yaml for the bundled target)"


@dataclass(frozen=True)
class Used:
    """Measured use of a session."""

    seconds: float
    """Duration from the first step to the last, by a clock that did not jump."""
    device: Device
    gpu: str | None = None
    """Name of the GPU by its driver; None if unknown."""
    ai: AiUse | None = None
    ai_reason: str = NO_AI
    hosts: Sequence[HostUse] = ()
    """Use of other machines that ran the session's jobs and have a price of their own."""

    def priced(self, card: RateCard) -> Iterator[Charge | Unmeasured]:
        """A charge for each resource at the card's prices, or the reason why it has no figure."""
        rate, waiting = machine_rate(card, self.device, self.gpu), card.find_rate(card.waiting)
        if rate is not None:
            yield _by_time(rate, max(self.seconds, rate.minimum_s))
        elif self.device == "cuda":
            yield Unmeasured(resource="gpu", reason=no_price(card, self.gpu))
        for host in self.hosts:
            yield Charge(resource="gpu", rate=f"jobs on {host.host}", seconds=host.seconds, usd=host.usd)
        if waiting is not None:
            yield _by_time(waiting, self.seconds, "stated")
        ai, hourly = self.ai, card.find_rate(card.ai)
        if ai is None:
            unknown = Unmeasured(resource="ai", reason=self.ai_reason)
            yield unknown if hourly is None else _by_time(hourly, self.seconds, "stated")
            return
        # Reported amounts take precedence over the card's hourly rate; an unknown amount is not zero.
        if ai.usd is not None and ai.source == "stated":
            yield Charge(resource="ai", rate="stated", seconds=0, usd=ai.usd, basis="stated")
        elif ai.usd is not None:
            source = f"{' and '.join(ai.agents) or 'an agent'}, its own result"
            yield Charge(resource="ai", rate=source, seconds=0, usd=ai.usd)
        if ai.unpriced:
            tokens = sum(use.tokens.total for use in ai.models if use.usd is None)
            names = ", ".join(ai.unpriced)
            silent = f"{names} stated no AI cost (--ai-usd)"
            reason = f"the cost of {tokens:,} tokens of {names} is unknown" if tokens else silent
            yield Unmeasured(resource="ai", reason=reason)


def _by_time(rate: Rate, seconds: float, basis: Basis = "measured") -> Charge:
    """A charge for `seconds` at an hourly rate."""
    usd = seconds / 3600 * rate.usd_per_hour
    return Charge(resource=rate.resource, rate=rate.name, seconds=seconds, usd=usd, basis=basis)


def make_bill(
    used: Used,
    card: RateCard,
    finished: Sequence[Finished] = (),
    *,
    gains: Gains | None = None,
    today: datetime.date | None = None,
) -> Bill:
    """Cost and savings of a session.

    `finished`: its ended steps, for builds from the cache; empty if it only repeats an earlier
    session. `today`: date for the age of prices; None: no check of the age.
    """
    priced = [*used.priced(card)]
    charges = tuple(item for item in priced if isinstance(item, Charge))
    usd = sum(charge.usd for charge in charges)
    per_minute = sum(rate.usd_per_hour for rate in charged_rates(card, used.device, used.gpu)) / 60
    savings = spared_builds(finished, per_minute)
    saved_usd = sum(saving.usd for saving in savings)
    return Bill(
        charges=charges,
        unmeasured=tuple(item for item in priced if isinstance(item, Unmeasured)),
        savings=savings,
        usd=usd,
        saved_usd=saved_usd,
        roi=(saved_usd - usd) / usd if usd > 0 and savings else None,
        ai=used.ai,
        gains=gains or Gains(),
        notes=tuple(old_prices(charges, card, today)) if today is not None else (),
    )


def spared_builds(finished: Iterable[Finished], usd_per_minute: float) -> tuple[Saving, ...]:
    """Compile time saved by the build cache, by pattern: the time that the cached build once took.

    A build counts once a session, and not if an earlier attempt in this session compiled it.
    """
    known: set[str] = set()
    cached: dict[str, dict[str, float]] = {}
    for record in finished:
        output = read_output(record, BuildOutput)
        for build in output.builds if output else ():
            if build.build_id not in known and build.cached and record.status == "passed":
                cached.setdefault(record.pattern, {})[build.variant] = build.seconds
            known.add(build.build_id)
    savings = []
    for pattern, seconds in cached.items():
        total = sum(seconds.values())
        source = f"{', '.join(seconds)} from the cache; compiling took {total:.1f} s then"
        saving = Saving(pattern=pattern, source=source, minutes=total / 60, usd=total / 60 * usd_per_minute)
        savings.append(saving)
    return tuple(savings)


def judged_before(rows: Iterable[SessionRow], ground: str) -> bool:
    """True if an earlier session completed on the same files, so repeating it saves nothing."""
    return any(row.ground == ground and row.status in ("passed", "failed") for row in rows)


def old_prices(charges: Iterable[Charge], card: RateCard, today: datetime.date) -> Iterator[str]:
    """A sentence for each charged price that is too old, or dated in the future."""
    for item in charges:
        rate = card.find_rate(item.rate)
        if rate is None or rate.resource not in MARKET or item.basis != "measured":
            continue
        days = (today - rate.as_of).days
        if days > STALE_DAYS:
            yield f"the price of {rate.name} is {days} days old: look it up and set it in rates.yaml"
        elif days < 0:
            yield f"the price of {rate.name} is dated {rate.as_of}, which is yet to come"


def charged_rates(card: RateCard, device: Device, gpu: str | None = None) -> tuple[Rate, ...]:
    """The rates at which each second of a session is charged."""
    return tuple(
        rate for rate in (machine_rate(card, device, gpu), card.find_rate(card.waiting)) if rate is not None
    )


def machine_rate(card: RateCard, device: Device, gpu: str | None) -> Rate | None:
    """Rate of the machine held; None on a processor, unless the whole machine is rented."""
    rate = rate_for_gpu(card, gpu)
    return rate if rate is not None and (device == "cuda" or rate.whole) else None


def hourly_usd(card: RateCard, head: SessionHead) -> float:
    """Dollars that an hour of a session costs, without AI."""
    rates = charged_rates(card.with_waiting_person(head.attended), head.device, head.gpu)
    return sum(rate.usd_per_hour for rate in rates)


def rate_for_gpu(card: RateCard, gpu: str | None) -> Rate | None:
    """The card's rate for a GPU; None if the rate is for another GPU.

    `NVIDIA H100 80GB HBM3` matches `NVIDIA H100`; a rate without a GPU fits any.
    """
    rate = card.find_rate(card.gpu)
    fits = rate is not None and (rate.gpu is None or gpu is None or is_same_gpu_model(rate.gpu, gpu))
    return rate if fits else None


def no_price(card: RateCard, gpu: str | None) -> str:
    """Message that the charged rate is not for this GPU, with the card's prices for the GPU."""
    rate = card.find_rate(card.gpu)
    of = f", the price of a machine with {rate.gpu}" if rate and rate.gpu else ""
    problem = f"the rate card charges {card.gpu}{of}; this GPU is {gpu or 'not known'}"
    counts = {name: machine.count for machine in card.machines for name in (machine.name, f"{machine.name}/spot")}
    prices = {}
    for rate in card.all_rates:
        if rate.resource == "gpu" and rate.gpu and gpu and is_same_gpu_model(rate.gpu, gpu):
            many = f" for {counts[rate.name]} GPUs" if counts.get(rate.name, 1) > 1 else ""
            prices[rate.name] = f"{rate.name}, {rate.gpu}: ${rate.usd_per_hour:.2f} an hour{many} ({rate.as_of})"
    if not prices:
        return f"{problem}, of which it has no price. Add its rate, and name it as `gpu:` in {CARD}"
    choose = f"Choose one: `gpu: {next(iter(prices))}` in {CARD}"
    return f"{problem}. Its prices: {'; '.join(prices.values())}. {choose}"
