"""From options to requests: `loop run session`, `run pattern`, `optimize`, `trust`.

And `loop kernels ...`, `loop doctor` and `loop run step`, which run actions without a session.
"""

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import PrivateAttr, ValidationError

from loop.actions import ACTIONS
from loop.agents.proposing import check_stated_usd
from loop.base.documents import did_you_mean
from loop.base.errors import ExitCode, UsageError, remark_once
from loop.base.expressions import Expression
from loop.base.places import include_folder, shipped
from loop.cli.command import make_request
from loop.jobs import executor as executors
from loop.library import trust
from loop.library.definitions import find_project, read_file
from loop.machine.failures import Folders
from loop.machine.machine import machine
from loop.model.base import Printed
from loop.model.campaign import TUNER, Campaign
from loop.model.dtypes import Device
from loop.model.output import ChecksOutput, DebugOutput, Explanation, outputs_of
from loop.model.plan import Pattern, Plan, PlannedPattern, ResolvedPlan, Step, TimeBudget
from loop.model.record import Finished
from loop.model.target import Target, Variant
from loop.report.screen import Screen
from loop.session.closing import ExportedSession
from loop.session.drive import SessionLimits, Show, drive
from loop.session.opening import PlanForecast, SessionRequest
from loop.session.run import resume_session, run_session
from loop.session.shown import show_findings
from loop.session.walk import StepEnded, Walk, WalkEvent
from loop.steps import setting as settings
from loop.steps.context import Context, Task
from loop.steps.setting import read_setting
from loop.steps.spread import write_samples
from loop.store import sessions

SessionAnswer = ExportedSession | PlanForecast  # Of `run session --json`; the other of --dry-run.
FLAGS = {"candidates": "max_candidates", "target": "target_ratio"}  # Field of `Campaign` to option.
FLAGS |= {name: f"max_{name}" for name in ("minutes", "tokens", "usd")}
NOTHING_TO_EXPLAIN = "nothing is wrong"  # A step that was skipped for this reason is not shown.


def start_session(screen: Screen, **values: Any) -> int:
    """`loop run session`, `run pattern`, `optimize`: run a plan or resume a session. Returns the
    exit code. `values`: options by name. Without a `proposer`, the plan's steps name theirs."""
    proposer, resume = values.get("proposer"), values.get("resume")
    values["stated_ai_usd"] = check_stated_usd(values.get("ai_usd"))
    values["campaign"] = make_campaign(**values)
    if proposer is None:
        values["attended"] = os.environ.get("LOOP_ATTENDED", "") not in ("", "0")
        values["limits"] = SessionLimits(values.get("budget_minutes"), values.get("max_usd"))
    elif resume:  # The steps of a campaign hold its limits.
        values["plan"] = None
    elif proposer == TUNER:
        values["plan"] = "tune"
    request = make_request(SessionRequest, values)
    if resume is not None:
        return resume_session(resume, request, screen)
    if request.decline:
        hint = "loop run session --resume last --decline"
        raise UsageError("--decline answers a session that waits", hint)
    return run_session(request, screen)


def make_campaign(**values: Any) -> Campaign:
    """A campaign from the values of options, by their names; None means the default. Raises
    UsageError that names the wrong option, or if the executor cannot work here."""
    if values.get("executor"):
        executors.load_executor(values["executor"])
    fields = {field: values.get(FLAGS.get(field, field)) for field in Campaign.model_fields}
    try:
        return Campaign(**{name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0])
        flag = f"--{FLAGS.get(field, field).replace('_', '-')}"
        message = f"{flag} {first['input']}: {first['msg'].lower()}"
        raise UsageError(message, "loop optimize --help") from error


class TrustGranted(Printed):
    """What `loop trust --json` prints: the commands that are allowed now."""

    target: str
    """Folder of the project or the session."""
    trusted: Literal[True] = True
    runs: tuple[str, ...]
    """Every command and code file that they run."""
    _note: str = PrivateAttr("")

    def show(self, screen: Screen) -> None:
        """Print a line for each command and code file, and for how long they are allowed."""
        for line in self.runs:
            screen.data(line)
        screen.say(self._note)


def trust_project(target: Path | None, variants: Sequence[str]) -> TrustGranted:
    """Trust all that a project or a stored session (a folder with a head) runs. `variants`: the
    answers to a task, which `target` was made of; UsageError for any other name."""
    if target is not None and (target / sessions.HEAD).is_file():
        session = sessions.SessionFolder(target.resolve())
        trusted_folder, trusted_commands = session.path, trust.session_commands(session.head())
        note = "allowed, for this session"
        trust.grant_session(session.path, session.head())
    else:
        setting = read_setting(target)
        if unknown := [name for name in variants if name not in setting.target.variants]:
            message = f"{unknown[0]}: no answer to a task of another format"
            raise UsageError(message, hint=f"loop trust {target}")
        project = setting.project
        trusted_folder, trusted_commands = project.target, tuple(trust.what_runs(project))
        note = "it ships with loop: always trusted"
        if not project.bundled:
            note = "allowed, until what these definitions run changes"
            trust.grant(project.target, trust.definition_hash(project))
            if origin := trust.read_origin(project.target):
                from loop.formats.table import write_as_target  # Slow to import.

                for answer in origin.answers.values():  # A command may name one of them alone.
                    folder, _ = write_as_target(Path(origin.task), [answer], origin.format)
                    alone = find_project(folder, folder)
                    trust.grant(alone.target, trust.definition_hash(alone))
    granted = TrustGranted(target=str(trusted_folder), runs=tuple(trusted_commands))
    granted._note = note
    return granted


@dataclass(frozen=True)
class BenchRequest:
    """The options of `loop kernels ...`, `doctor` and `run step`; see their --help."""

    subcommand: str
    """The command's last word: verify, check, measure, prove-gate, resources, doctor or step."""
    variants: Sequence[str] = ()
    target: Path | None = None
    device: str = "auto"
    workloads: Sequence[str] = ()
    threads: int | None = None
    seed: int = 0
    rounds: int = 3
    first_failure_only: bool = False  # Whether a variant's verification ends at its first failure.
    emulate: bool = False
    sanitize: bool = False
    executor: str = ""
    width: int = 1
    gpu: str = "sm_89"
    action: str = ""
    arguments: str = "{}"
    checks: Sequence[str] = ()  # Workload sets that are verified but not timed.
    budget_s: float = 60
    limit_s: float = 600
    samples: Path | None = None


Chosen = tuple[Device, tuple[str, ...], tuple[str, ...]]
"""A device, the variants that run on it (or are only compiled), and the emulated ones."""


class BenchAnswer(Printed):
    """What these commands print with `--json`: the steps, and their common status."""

    status: Literal["passed", "failed"]
    """`failed` if any step neither passed nor was skipped."""
    steps: tuple[Finished, ...]
    explanations: tuple[Explanation, ...] = ()
    """Why and where variants are wrong, one entry per wrong variant."""
    _request: BenchRequest = PrivateAttr()

    def show(self, screen: Screen) -> None:
        """Print the steps' results, and the command that repeats a failure on the same inputs."""
        request = self._request
        options = [word for name in request.workloads for word in ("--workloads", name)]
        options += ["--device", request.device] if request.device != "auto" else []
        options += [f"--{name}" for name in ("emulate", "sanitize") if getattr(request, name)]
        options += ["--threads", str(request.threads)] if request.threads else []
        options += ["--target", str(request.target)] if request.target else []
        show_findings(self.steps, tuple(options), screen)


def run_bench(request: BenchRequest, screen: Screen) -> tuple[BenchAnswer, int]:
    """`loop kernels ...`, `doctor`, `run step`: run one pattern without a session. Returns its
    steps, except skips for `NOTHING_TO_EXPLAIN`, and the exit code. Raises Untrusted."""
    setting = settings.read_setting(request.target)
    setting = settings.with_stated_workloads(setting, [*request.workloads, *request.checks])
    project, target = setting.project, setting.target
    device, variants, emulated = choose_device_and_variants(request, target)
    # Values that a step's `when` reads as `plan.*`.
    parameters = {"variants": bool(variants), "emulated": bool(emulated)}
    parameters["sanitized"] = request.sanitize and device == "cuda"
    if request.sanitize and device == "cpu" and variants:
        reason = "they look at CUDA variants, on a GPU or under the emulator"
        remark_once(f"not exercised: sanitizers of {', '.join(variants)}: {reason}")
    if request.subcommand == "doctor":
        pattern = setting.patterns["environment-validation"].value
    elif request.subcommand == "step":
        pattern = step_pattern(request)
    else:
        pattern = bench_pattern(request, target, parameters)
    verifies_all = request.subcommand == "verify" and not request.workloads
    # Here, so that a mistyped name is refused before anybody is asked.
    settings.ask_for_trust(project, screen)
    plan = Plan(
        format=1,
        name=pattern.name,
        title=pattern.title,
        patterns=(pattern.name,),
        workloads=settings.choose_sets(request.workloads, target),
        checks=tuple(target.workloads if verifies_all else request.checks),
        budget=TimeBudget(minutes=pattern.estimate.minutes),
        parameters={**parameters},
    )
    planned = PlannedPattern(pattern=pattern, planned=True, seconds=60, evidence="prior")

    def session_values(finished: Sequence[Finished]) -> dict[str, object]:
        """Values that expressions of the pattern read as `session.*`."""
        outputs = outputs_of(finished, ChecksOutput)
        failures = [checks.first_failure for output in outputs for checks in output.variants]
        return {"wrong": any(failures)}

    def store(event: WalkEvent) -> WalkEvent:
        """Write the raw samples of an ended step into the file of `--samples`; the event itself."""
        if request.samples is not None and isinstance(event, StepEnded):
            write_samples(request.samples, event.samples)
        return event

    threads = settings.choose_threads(request.threads)
    with settings.open_bench(setting, device, threads, sanitize=request.sanitize) as bench:
        campaign = make_campaign(executor=request.executor, width=request.width)
        folder = project.target
        task = Task(plan, variants, machine(), request.seed, folder, emulated, campaign=campaign)
        if request.subcommand not in ("doctor", "resources"):
            bench.warm_up()  # torch is imported while the compiler works
        resolved = ResolvedPlan(plan=plan, patterns=(planned,))
        folders = Folders.for_process(target=folder)
        walk = Walk(resolved, Context(bench, task), session_values, folders=folders)
        show = Show(screen, printed_skips={(pattern.name, NOTHING_TO_EXPLAIN)})
        ending = drive(walk, show, store)
    steps = tuple(step for step in walk.finished if step.skipped_because != NOTHING_TO_EXPLAIN)
    is_passed = all(step.status in ("passed", "skipped") for step in steps)
    outputs = outputs_of(steps, DebugOutput)
    explanations = tuple(explanation for output in outputs for explanation in output.explanations)
    status: Literal["passed", "failed"] = "passed" if is_passed else "failed"
    answer = BenchAnswer(status=status, steps=steps, explanations=explanations)
    answer._request = request
    return answer, ending.exit_code or (ExitCode.OK if is_passed else ExitCode.GATE_FAILED)


def choose_device_and_variants(request: BenchRequest, target: Target) -> Chosen:
    """Device and variants of a command. `resources` only compiles: its GPU variants need no GPU.
    Raises UsageError if the command times variants and all can only be emulated."""
    is_for_gpu = set(target.variants_on("cpu")).isdisjoint(request.variants)
    if request.subcommand == "resources" and is_for_gpu and not machine().gpus:
        return "cpu", settings.choose_variants(request.variants, target, "cuda"), ()
    is_emulation = request.emulate
    if request.sanitize and not is_emulation:  # Without a GPU, sanitizers run under the emulator.
        is_emulation = settings.choose_device(request.device, target, request.variants) == "cpu"
    names = request.variants or (target.emulated_variants if is_emulation else ())
    device = settings.choose_device("cpu" if is_emulation else request.device, target, names)
    variants = settings.choose_variants(names, target, device)
    emulated = settings.choose_emulated(names, target, device)
    if request.subcommand in ("verify", "resources"):  # These also take what can only be emulated.
        return device, variants, emulated
    if not variants:
        names = ", ".join(emulated)
        hint = f"loop kernels verify {emulated[0]}" if emulated else "loop kernels list"
        message = f"no GPU: {names} can only be emulated, and what is emulated is not timed"
        raise UsageError(message, hint)
    return device, variants, ()


def bench_pattern(request: BenchRequest, target: Target, parameters: Mapping[str, bool]) -> Pattern:
    """The shipped pattern of a command, with the user's options, without steps that do nothing.
    `parameters`: of its plan. Raises UsageError for a GPU that the target's `devices` lack."""
    pattern = read_file(shipped("patterns") / "bench" / f"{request.subcommand}.yaml", Pattern).value
    verify_arguments: dict[str, Any] = {"others_s": 0}  # Skip sets that the command does not name.
    if request.first_failure_only:
        verify_arguments["enough"] = True  # The action's word: a variant's first failure is enough.
    if request.subcommand == "verify":
        verify_arguments["threads"] = request.threads
    if request.subcommand == "resources" and target.devices and request.gpu not in target.devices:
        names = ", ".join(f"{key} ({device.name})" for key, device in target.devices.items())
        message = f"target {target.name} has no device {request.gpu!r}"
        raise UsageError(message, hint=f"its devices: {names}")
    arguments_by_step = {"verify": verify_arguments, "measure": {"rounds": request.rounds}}
    arguments_by_step["resources"] = {"device": request.gpu}
    # What the results will be is not known yet: keep every step that may be needed.
    names_in_when = {"plan": parameters, "passed": True, "session": {"wrong": True}}
    steps = []
    for step in pattern.steps:
        if step.when is None or Expression.parse(step.when).evaluate_bool(names_in_when):
            arguments = {**step.arguments, **arguments_by_step.get(step.id, {})}
            steps.append(step.model_copy(update={"arguments": arguments}))
    title = f"{request.subcommand} {' '.join(request.variants)}".strip()
    return pattern.model_copy(update={"steps": tuple(steps), "title": title})


def step_pattern(request: BenchRequest) -> Pattern:
    """A pattern whose only step is the request's action. Raises UsageError for an unknown action,
    arguments that are no JSON object, and a missing folder for samples."""
    action, samples = request.action, request.samples
    if action not in ACTIONS:
        raise UsageError(f"no action {action!r}", hint=did_you_mean(action, list(ACTIONS)))
    if samples is not None and not samples.absolute().parent.is_dir():
        raise UsageError(f"--samples {samples}: no such folder", hint=f"mkdir -p {samples.parent}")
    arguments: Any = None
    with contextlib.suppress(ValueError):
        arguments = json.loads(request.arguments)
    if not isinstance(arguments, dict):
        hint = """--with '{"seeds": 2}'"""
        raise UsageError(f"--with {request.arguments!r}: expected a JSON object", hint=hint)
    limits = {"budget_s": request.budget_s, "limit_s": request.limit_s}
    step = Step(id="step", title=action, action=action, arguments=arguments, **limits)
    texts: dict[str, Any] = {"title": action, "problem": action, "use_when": (action,)}
    minutes = TimeBudget(minutes=request.limit_s / 60)
    return Pattern(format=1, name="step", number=1, estimate=minutes, steps=(step,), **texts)


class VariantList(Printed):
    """The variants of a target."""

    target: str
    variants: dict[str, Variant]

    def show(self, screen: Screen) -> None:
        """Print a table with a row each."""
        rows = []
        for name, variant in self.variants.items():
            dtypes = ", ".join(variant.dtypes)
            rows.append((name, variant.kind, variant.device, dtypes, variant.title))
        screen.table(("variant", "kind", "device", "types", "idea"), rows)


def list_variants(target: Path | None) -> VariantList:
    """The variants of the target in a folder; None: of the one here, else of the bundled one."""
    definition = settings.read_setting(target).target
    return VariantList(target=definition.name, variants=definition.variants)


class HeaderPath(Printed):
    """What `loop kernels header --json` prints."""

    path: str

    def show(self, screen: Screen) -> None:
        """Print the path alone, for use in a shell."""
        screen.data(self.path)


def header() -> HeaderPath:
    """Path of the C header that a kernel includes."""
    return HeaderPath(path=str(include_folder() / "loop_kernel.h"))
