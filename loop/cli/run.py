"""`loop run ...`"""

from typing import Annotated

import typer

from loop.base.errors import LoopError
from loop.cli.options import (
    AiResult,
    AiUsd,
    Device,
    Hypothesis,
    Json,
    MeterAi,
    Target,
    Threads,
    Variants,
    group,
    screen_for,
)

run_app = group("Run a session or a single pattern.")
WatchPreemption = Annotated[
    str,
    typer.Option(
        "--watch-preemption",
        envvar="LOOP_WATCH_PREEMPTION",
        help="auto, gcp, aws, azure or off: pause when the cloud takes the machine away.",
    ),
]


@run_app.command("session")
def run_session(
    plan: Annotated[str | None, typer.Argument(help="Name of a plan; see `loop plan list`. [baseline]")] = None,
    target: Target = None,
    device: Device = "auto",
    variant: Variants = None,
    threads: Threads = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Base of all input seeds. Default: fresh.")] = None,
    budget_minutes: Annotated[
        float | None,
        typer.Option("--budget-minutes", help="Stop in time to report by then; counts all walks of a session."),
    ] = None,
    max_usd: Annotated[
        float | None, typer.Option("--max-usd", help="The same in dollars, at the rate card's prices.")
    ] = None,
    watch_preemption: WatchPreemption = "auto",
    ai_result: AiResult = None,
    ai_usd: AiUsd = None,
    meter_ai: MeterAi = False,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent", metavar="COMMAND", help="Who makes the changes asked for: the brief comes on stdin."
        ),
    ] = None,
    agent_changes: Annotated[int, typer.Option("--agent-changes", min=1, help="How many changes it makes.")] = 1,
    agent_minutes: Annotated[float, typer.Option("--agent-minutes", min=0.01, help="Its limit for one.")] = 30,
    resume: Annotated[
        str | None, typer.Option("--resume", help="Go on with this session (an id, or last).")
    ] = None,
    decline: Annotated[
        bool, typer.Option("--decline", help="With --resume: no further change; end the session.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Try what lost in an earlier session on the same sources.")
    ] = False,
    hypothesis: Hypothesis = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the chain with time and cost; run nothing.")
    ] = False,
    json: Json = False,
    events: Annotated[bool, typer.Option("--events", help="Each event as a line of JSON on stdout.")] = False,
) -> None:
    """Walk a plan: build, verify, measure, report.

    Examples:

      loop run session

      loop run session quick --variant cpu

      loop run session --target ../my-kernel --json

      loop run session --resume last

      loop run session --budget-minutes 10 --max-usd 2   (exit 124 when it stops early)

      loop run session optimize --variant cpu   (pauses with a brief; edit, then --resume)

      loop run session optimize --agent "claude -p --output-format json --permission-mode acceptEdits"
    """
    from loop.agents import charged as metering
    from loop.agents import proposing as agents
    from loop.session import bounds
    from loop.session import run as session

    request = session.SessionRequest(
        plan=plan,
        target=target,
        device=device,
        variants=tuple(variant or ()),
        threads=threads,
        seed=seed,
        asked=bounds.Asked(budget_minutes, max_usd, watch_preemption),
        ai=metering.given_by(ai_result, ai_usd, meter_ai),
        agent=agents.Agent(agent, agent_changes, agent_minutes * 60) if agent else None,
        hypothesis=hypothesis,
        decline=decline,
        again=again,
        dry_run=dry_run,
        json=json,
        events=events,
    )
    screen = screen_for(json or events)
    if decline and resume is None:
        raise LoopError("--decline answers a session that waits", hint="loop run session --resume last --decline")
    if resume is not None:
        raise typer.Exit(session.resume_session(resume, request, screen))
    raise typer.Exit(session.run_session(request, screen))


@run_app.command("pattern")
def run_pattern(
    name: Annotated[str, typer.Argument(help="Name of a pattern; see `loop patterns list`.")],
    target: Target = None,
    device: Device = "auto",
    variant: Variants = None,
    threads: Threads = None,
    hypothesis: Hypothesis = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the chain with time and cost; run nothing.")
    ] = False,
    watch_preemption: WatchPreemption = "auto",
    json: Json = False,
) -> None:
    """Run one pattern as a session of its own.

    Example: loop run pattern baseline-first --variant cpu
    """
    from loop.session import bounds
    from loop.session import run as session

    request = session.SessionRequest(
        pattern=name,
        target=target,
        device=device,
        variants=tuple(variant or ()),
        threads=threads,
        asked=bounds.Asked(watch=watch_preemption),
        hypothesis=hypothesis,
        dry_run=dry_run,
        json=json,
    )
    raise typer.Exit(session.run_session(request, screen_for(json)))
