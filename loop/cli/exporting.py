"""`loop kernels export`: a variant as an answer in somebody else's format, with what a session says of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loop.base.documents import did_you_mean, to_json, write_atomic
from loop.base.errors import ExitCode, UsageError
from loop.base.screen import Screen
from loop.formats import flashinfer, written
from loop.formats.exporting import Portable
from loop.formats.translated import made_of
from loop.library import targets
from loop.model.base import Printed
from loop.model.dtypes import Device
from loop.model.measurement import BASELINE, Check, Measurement
from loop.model.output import MeasureOutput, Output, VerifyOutput, outputs_of
from loop.model.record import Finished
from loop.model.workloads import expand
from loop.steps.setting import Setting, choose_sets, choose_variants, read_setting, with_given
from loop.store import sessions


@dataclass(frozen=True)
class ExportRequest:
    """What the user asked for."""

    variant: str
    form: str
    """Name of the format."""
    output: Path
    target: Path | None = None
    workloads: tuple[str, ...] = ()
    session: str | None = None
    """Whose measurements go with it."""
    json: bool = False


class WrittenAnswer(Printed):
    """A variant in another format."""

    files: tuple[str, ...]
    """What was written."""
    remarks: tuple[str, ...]
    """What the format has no word for."""


def export(request: ExportRequest, screen: Screen) -> int:
    """Write the files, and say what could not be said. Nothing that is there already is changed."""
    if request.form not in written.WRITERS:
        names = list(written.WRITERS)
        hint = did_you_mean(request.form, names) or f"one of {', '.join(names)}"
        raise UsageError(f"no format {request.form!r} to write", hint=hint)
    setting = with_given(read_setting(request.target), request.workloads)
    files, remarks = _copied(request, setting) or _made(request, setting)
    for name, text in files.items():
        path = request.output / name
        if path.exists() and path.read_text() != text:
            raise UsageError(f"{path}: there already, and it says something else", hint="name an empty folder")
    for name, text in files.items():
        path = request.output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text)
    if request.json:
        screen.data(to_json(WrittenAnswer(files=tuple(files), remarks=tuple(remarks))))
        return ExitCode.OK
    for name in files:
        screen.data(str(request.output / name))
    for remark in remarks:
        screen.say(f"not expressed: {remark}")
    return ExitCode.OK


def _copied(request: ExportRequest, setting: Setting) -> tuple[Mapping[str, str], list[str]] | None:
    """An answer to a task of that very format is one already; None for any other target."""
    made = made_of(setting.project.target)
    if made is None or made[0].format != request.form:
        return None
    task, answers = made
    if request.variant not in answers:
        raise UsageError(
            f"{task.path}: no answer {request.variant!r}", hint=did_you_mean(request.variant, [*answers])
        )
    path = answers[request.variant]
    return {path.name: path.read_text()}, [f"nothing: {path} is such an answer already, and was copied"]


def _made(request: ExportRequest, setting: Setting) -> tuple[Mapping[str, str], list[str]]:
    """A variant of a target of one's own."""
    target, name = setting.target, request.variant
    if name not in target.variants:
        choose_variants([name], target, "cpu")
    device: Device = "cuda" if target.variants[name].device == "cuda" else "cpu"
    workloads = expand(target, choose_sets(request.workloads, target), target.dtypes[device])
    architecture = next(iter(target.devices), "native") if device == "cuda" else "native"
    one = Portable(target, setting.project.target, name, workloads, architecture)
    files = dict(written.WRITERS[request.form](one).files)
    if request.session:
        if request.form != flashinfer.TRACE:
            raise UsageError(
                f"--session: {request.form} has no place for measurements", hint="flashinfer-trace has"
            )
        files[f"traces/{written.AUTHOR}/{target.function}/{target.name}.jsonl"] = _evidence(
            request.session, setting, one
        )
    return files, list(dict.fromkeys(one.remarks))


def _evidence(session: str, setting: Setting, one: Portable) -> str:
    """What a session verified and timed. Raises UsageError where that was not what is exported."""
    folder = sessions.find(setting.project.sessions, session)
    head, finished = folder.head(), folder.finished()
    changed = any(record.action.startswith("change.") for record in finished)
    if changed or head.ground != targets.ground(setting.project):
        raise UsageError(
            f"--session: {head.id} measured other sources than those of {one.name} as they are now",
            hint=f"measure these first: {head.command(one.name)}",
        )
    machine = head.machine
    libraries = {"python": machine.python, "torch": machine.torch, "nvcc": machine.nvcc, "g++": machine.compiler}
    where: dict[str, Any] = {
        "environment": {
            "hardware": head.gpu or machine.processor,
            "libs": {name: version for name, version in libraries.items() if version},
        },
        "timestamp": head.started.isoformat(),
    }
    return written.traces(one, _checks(finished, one.name), _timed(finished, one), where)


def _checks(finished: Sequence[Finished], variant: str) -> list[Check]:
    """Those of the variant itself: what an emulator ran is none."""
    verified = outputs_of((record for record in finished if record.action == "kernel.verify"), VerifyOutput)
    found = (each for output in verified for each in output.variants if each.variant == variant)
    return [check for each in found for check in each.checks]


def _timed(finished: Sequence[Finished], one: Portable) -> list[Measurement]:
    """Its times; none, and a remark, where the variant or what it is compared with is not trusted."""
    for verdict in (verdict for output in outputs_of(finished, Output) for verdict in output.verdicts):
        if verdict.verdict == "invalid" and verdict.variant in (one.name, BASELINE):
            one.remarks.append(f"times of {one.name}: they are not trusted: {verdict.reason}")
            return []
    return [each for output in outputs_of(finished, MeasureOutput) for each in output.measurements]
