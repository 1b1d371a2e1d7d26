"""A session's cost and savings: measured use times dated prices; unknown figures are named."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from loop.gate.model import BuildOutput
from loop.machine.machine import is_same_gpu_model
from loop.model.dtypes import Device
from loop.model.money import AiUse, Basis, Bill, Charge, Rate, RateCard, Saving, Unmeasured
from loop.model.output import read_output
from loop.model.record import Finished, HostUse, SessionHead

STALE_DAYS = 30  # Age in days above which a price is reported as old.
NO_AI_COST = "no agent reported its cost, no amount was stated (--ai-usd)"


@dataclass(frozen=True)
class SessionUse:
    """Measured use of a session."""

    seconds: float  # Duration from the first step to the last, by a clock that did not jump.
    device: Device
    gpu: str | None = None  # Name of the GPU by its driver; None if unknown.
    ai: AiUse | None = None
    ai_reason: str = NO_AI_COST  # Why `ai` is None.
    hosts: Sequence[HostUse] = ()  # Machines with a price that ran jobs.


def make_bill(
    use: SessionUse, card: RateCard, finished: Sequence[Finished] = (), *, today: date | None = None
) -> Bill:
    """Cost and savings of a session: a charge for each resource by the rate card, or why it has no
    figure. AI: as agents reported or the user stated, else by the card's hourly rate. `finished`:
    steps whose cached builds count. `today`: for notes on a GPU's price, too old or yet to come."""
    charges, unmeasured, notes = list[Charge](), list[Unmeasured](), list[str]()
    rates, ai_rate = charged_rates(card, use.device, use.gpu), card.find_rate(card.ai)
    used_rates = [(rate, max(use.seconds, rate.minimum_s)) for rate in rates]
    used_rates += [(ai_rate, use.seconds)] if use.ai is None and ai_rate is not None else []
    for rate, seconds in used_rates:
        basis: Basis = "measured" if rate.resource == "gpu" else "stated"  # Only GPUs are timed.
        fields = {"seconds": seconds, "usd": seconds / 3600 * rate.usd_per_hour, "basis": basis}
        charges.append(Charge(resource=rate.resource, rate=rate.name, **fields))
        age_days = (today - rate.as_of).days if today is not None and basis == "measured" else 0
        price = f"the price of {rate.name} is"
        if age_days > STALE_DAYS:
            notes.append(f"{price} {age_days} days old: look it up and set it in rates.yaml")
        elif age_days < 0:
            notes.append(f"{price} dated {rate.as_of}, which is yet to come")
    if use.device == "cuda" and not any(rate.resource == "gpu" for rate in rates):
        unmeasured.append(Unmeasured(resource="gpu", reason=explain_missing_price(card, use.gpu)))
    for host in use.hosts:
        jobs = f"jobs on {host.host}"
        charges.append(Charge(resource="gpu", rate=jobs, seconds=host.seconds, usd=host.usd))
    if (ai := use.ai) is not None:
        if ai.usd is not None:
            basis = "stated" if ai.source == "stated" else "measured"
            own_result = f"{' and '.join(ai.agents) or 'an agent'}, its own result"
            source = own_result if basis == "measured" else "stated"
            charges.append(Charge(resource="ai", rate=source, seconds=0, usd=ai.usd, basis=basis))
        if ai.unpriced:  # An unknown amount is not zero.
            tokens = sum(model.tokens for model in ai.models if model.usd is None)
            reason = f"{', '.join(ai.unpriced)} stated no AI cost (--ai-usd)"
            if tokens:
                reason = f"the cost of {tokens:,} tokens of {', '.join(ai.unpriced)} is unknown"
            unmeasured.append(Unmeasured(resource="ai", reason=reason))
    elif ai_rate is None:
        unmeasured.append(Unmeasured(resource="ai", reason=use.ai_reason))
    savings = savings_by_cache(finished, sum(rate.usd_per_hour for rate in rates) / 60)
    usd, saved_usd = sum(charge.usd for charge in charges), sum(saving.usd for saving in savings)
    roi = (saved_usd - usd) / usd if usd > 0 and savings else None
    rows = {"charges": tuple(charges), "unmeasured": tuple(unmeasured), "savings": savings}
    return Bill(**rows, usd=usd, saved_usd=saved_usd, roi=roi, ai=use.ai, notes=tuple(notes))


def savings_by_cache(finished: Iterable[Finished], usd_per_minute: float) -> tuple[Saving, ...]:
    """Compile time that the build cache saved in passed steps, by pattern. A build counts where it
    first appears, unless made there; of a variant's builds in one pattern, the last."""
    known_build_ids: set[str] = set()
    seconds_by_pattern = dict[str, dict[str, float]]()  # Pattern to variant to compile time.
    for record in finished:
        output = read_output(record, BuildOutput)
        for build in output.builds if output else ():
            if build.build_id not in known_build_ids and build.cached and record.status == "passed":
                seconds_by_pattern.setdefault(record.pattern, {})[build.variant] = build.seconds
            known_build_ids.add(build.build_id)
    savings = []
    for pattern, seconds_by_variant in seconds_by_pattern.items():
        seconds = sum(seconds_by_variant.values())
        names, usd = ", ".join(seconds_by_variant), seconds / 60 * usd_per_minute
        source = f"{names} from the cache; compiling took {seconds:.1f} s then"
        savings.append(Saving(pattern=pattern, source=source, minutes=seconds / 60, usd=usd))
    return tuple(savings)


def charged_rates(card: RateCard, device: Device, gpu: str | None = None) -> list[Rate]:
    """The rates charged each second: the machine's (a CPU's if rented whole), and of who waits."""
    machine, waiting = rate_for_gpu(card, gpu), card.find_rate(card.waiting)
    rates = [machine] if machine is not None and (device == "cuda" or machine.whole) else []
    return [*rates, waiting] if waiting is not None else rates


def hourly_usd(card: RateCard, head: SessionHead) -> float:
    """Dollars that an hour of a session costs, without AI."""
    card = card.with_waiting_person(is_attended=head.attended)
    return sum(rate.usd_per_hour for rate in charged_rates(card, head.device, head.gpu))


def rate_for_gpu(card: RateCard, gpu: str | None) -> Rate | None:
    """The rate that the card charges; None if it names none, or that of another GPU (`NVIDIA H100`
    fits `NVIDIA H100 80GB HBM3`). A rate without a GPU fits each, as does an unknown GPU (None)."""
    rate = card.find_rate(card.gpu)
    if rate is None or rate.gpu is None or gpu is None or is_same_gpu_model(rate.gpu, gpu):
        return rate
    return None


def explain_missing_price(card: RateCard, gpu: str | None) -> str:
    """Message that the charged rate is not for this GPU, with the card's prices for the GPU."""
    charged_rate = card.find_rate(card.gpu)
    problem = f"the rate card charges {card.gpu}"
    if charged_rate and charged_rate.gpu:
        problem += f", the price of a machine with {charged_rate.gpu}"
    problem += f"; this GPU is {gpu or 'not known'}"
    place = "rates.yaml beside target.yaml (sessions/rates.yaml for the bundled target)"
    counts = {rate.name: machine.count for machine in card.machines for rate in machine.rates}
    names, prices = list[str](), list[str]()
    for rate in card.all_rates:
        if rate.gpu and gpu and is_same_gpu_model(rate.gpu, gpu):
            names.append(rate.name)
            gpus = f" for {counts[rate.name]} GPUs" if counts.get(rate.name, 1) > 1 else ""
            prices.append(f"{rate.name}, ${rate.usd_per_hour:.2f} an hour{gpus} ({rate.as_of})")
    if not names:
        advice = f"Add its rate, and name it as `gpu:` in {place}"
        return f"{problem}, of which it has no price. {advice}"
    choice = f"Choose one: `gpu: {names[0]}` in {place}"
    return f"{problem}. Its prices: {'; '.join(prices)}. {choice}"
