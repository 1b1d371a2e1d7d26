"""`loop kernels export`: a variant as an answer in somebody else's format, with what a session says of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loop.base.documents import did_you_mean, to_json, write_atomic
from loop.base.errors import ExitCode, UsageError
from loop.base.screen import Screen
from loop.formats import flashinfer, written
from loop.formats.exporting import Portable
from loop.formats.translated import made_of
from loop.model.base import Printed
from loop.model.dtypes import Device
from loop.model.output import MeasureOutput, VerifyOutput, outputs_of
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
    """What a session verified and timed."""
    folder = sessions.find(setting.project.sessions, session)
    head, finished = folder.head(), folder.finished()
    verified = [each for output in outputs_of(finished, VerifyOutput) for each in output.variants]
    checks = [check for each in verified if each.variant == one.name for check in each.checks]
    timed = [each for output in outputs_of(finished, MeasureOutput) for each in output.measurements]
    machine = head.machine
    libraries = {"python": machine.python, "torch": machine.torch, "nvcc": machine.nvcc, "g++": machine.compiler}
    where: dict[str, Any] = {
        "environment": {
            "hardware": head.gpu or machine.processor,
            "libs": {name: version for name, version in libraries.items() if version},
        },
        "timestamp": head.started.isoformat(),
    }
    return written.traces(one, checks, timed, where)
