"""The bench of one session: its target, its scratch folder, and the warm judge."""

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from loop.base.errors import WorkFailed
from loop.base.expressions import Expression
from loop.base.processes import Tick
from loop.calls.call import Call, make_call, widen
from loop.machine.gpus import gpus
from loop.machine.machine import available_memory, cores, machine
from loop.machine.nvml import Sensors, open_sensors
from loop.model.device import Device, Dtype
from loop.model.measurement import BASELINE, Build, DeviceReading
from loop.model.target import ITEM_SIZES, CAbiVariant, Component, Fill, PythonVariant, Target, Workload
from loop.model.workloads import fills, formula_values
from loop.workers import sanitizers
from loop.workers.judge_clock import Floors, empty_call, lag_of, measure_floors
from loop.workers.worker import START_LIMIT_S, Refusal, Worker, WorkerLost

JUDGE_LIMIT_S = 120.0
SCRATCH = "loop-bench-"
PATIENT = {"OMP_WAIT_POLICY": "passive"}
"""The judge works on every core while nobody is timed; its idle threads must not spin when somebody is."""


@dataclass(frozen=True)
class Side:
    """Something that computes the target's function: a variant with its build, or the baseline."""

    name: str
    terms: dict[str, Any]
    """What a worker needs to load it."""
    dtypes: tuple[Dtype, ...]
    deterministic: bool
    build_id: str | None
    takes: str | None = None
    """Calls that it takes, as the manifest says; None: all."""
    slow: float = 0.0
    """Share of its time by which every call is made longer on purpose."""
    mistake: dict[str, Any] | None = None
    """The mistake that a control makes on purpose, in the words of `loop.proving.controls`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What its worker's environment has besides."""
    emulated: bool = False
    """Whether it runs under the emulator: a hundred times as slow, on every core, and never timed."""

    @property
    def compiled(self) -> bool:
        """Whether its worker needs no torch, and starts in tens of milliseconds."""
        return bool(self.terms["kind"] == "c_abi")

    def renamed(self, name: str, **changes: Any) -> "Side":
        """The same under another name, with changes."""
        return replace(self, name=name, **changes)


@dataclass
class Bench:
    """Where kernels are built, verified and timed. Use as a context manager: it ends its workers."""

    target: Target
    folder: Path
    """Folder of the manifest."""
    cache: Path
    """Folder of finished builds."""
    include: Path
    """Folder of loop_kernel.h."""
    device: Device
    threads: int
    sanitize: bool = False
    """Whether emulated variants are built and run with the sanitizers."""
    scratch: Path = field(default_factory=lambda: new_scratch())
    _secret: str = field(default_factory=lambda: os.urandom(16).hex())
    """What nobody can know who is timed: from it follows which values have an answer that the judge knows."""
    _sensors: tuple[Sensors | None] | None = None
    _examiner: Worker | None = None
    _judging: bool = False
    _expected: dict[str, bool] = field(default_factory=dict)
    """Calls whose answer the judge knows, and whether their files have room."""
    _written: dict[str, list[bytes]] = field(default_factory=dict)
    """Calls to the digests of their inputs' files: any process can write there."""
    _floors: Floors | None = None
    _part: Component | None = None
    """The component that is judged; None for the target itself."""

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        self.dismiss()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def at(self, folder: Path, target: Target) -> "Bench":
        """A bench of its own for another place of the target, on the same device."""
        return Bench(target, folder, self.cache, self.include, self.device, self.threads, self.sanitize)

    def dismiss(self) -> None:
        """End the warm worker; the next request starts a new one."""
        if self._examiner is not None:
            self._examiner.close()
        self._examiner, self._judging = None, False
        self._expected.clear()

    def examine(self, check: str, limit_s: float) -> Generator[Tick, None, dict[str, Any]]:
        """One check of the environment, in the process that will judge. Raises LoopError when it dies."""
        return (yield from self._ask("examine", limit_s, f"checking {check}", check=check))

    def judge(self, do: str, limit_s: float, note: str, **fields: Any) -> Generator[Tick, None, dict[str, Any]]:
        """A request to the judge, which is started when there is none."""
        if not self._judging:
            yield from self._ask("start_judge", START_LIMIT_S, "importing torch", **self._judge_terms())
            self._judging = True
        return (yield from self._ask(do, limit_s, note, **fields))

    def _judge_terms(self) -> dict[str, Any]:
        target = self.target
        return {
            "folder": str(self.folder),
            "reference": target.reference.python,
            "plain": target.plain.python if target.plain else None,
            "inputs": self._part.inputs.python if self._part and self._part.inputs else None,
            "form": self._part.form.python if self._part and self._part.form else None,
            "tolerance": {dtype: t.model_dump() for dtype, t in target.tolerance.items()},
            "dimensions": target.signature.output.split(),
            "signature": target.signature.model_dump(mode="json"),
        }

    def _ask(self, do: str, limit_s: float, note: str, **fields: Any) -> Generator[Tick, None, dict[str, Any]]:
        worker = self.warm_up()
        try:
            request = {"threads": cores(), "device": self.device, **fields}
            return (yield from worker.ask(do, limit_s=limit_s, note=note, **request))
        except WorkerLost as lost:
            self.dismiss()
            raise WorkFailed(f"the judging process was lost: {lost.how}", hint=_last_line(lost.errors)) from lost
        except Refusal as refusal:
            hint = "see `loop doctor`" if do == "examine" else "look at what target.yaml names for it"
            raise WorkFailed(str(refusal), hint=hint) from refusal

    def warm_up(self) -> Worker:
        """The warm worker, started now if there is none; its imports go on while something else is done."""
        if self._examiner is None:
            self._examiner = Worker(cores(), environment=PATIENT)
        return self._examiner

    def floors(self, *, again: bool = False) -> Generator[Tick, None, Floors]:
        """What the judge's clock shows of calls that do nothing; measured once, or `again` for what is shorter."""
        if self._floors is None or again:
            with Worker(self.threads, pinned=True) as worker:
                found = yield from measure_floors(worker, self.device, START_LIMIT_S)
            self._floors = self._floors.at_most(found) if self._floors else found
        return self._floors

    def lag(self) -> Generator[Tick, None, float]:
        """Seconds that a sample takes longer by the judge's clock than by the GPU's now; 0 without one."""
        with Worker(self.threads, pinned=True) as worker, contextlib.suppress(Refusal):
            return (yield from lag_of(worker, START_LIMIT_S))
        return 0.0

    def floor_of_torch(self, worker: Worker) -> Generator[Tick, None, Floors]:
        """The same with a call of PyTorch that only allocates, in a worker that has imported it."""
        floors = yield from self.floors()
        taken = yield from empty_call(worker, "torch", floors.order_s, START_LIMIT_S)
        self._floors = floors.at_most(Floors(floors.order_s, {"torch": taken}))
        return self._floors

    def call(self, workload: Workload, reader: str, *, wide: bool = False) -> Call:
        """The call of a workload, its files in the scratch folder; `wide`: with room for windows of other
        values."""
        call = make_call(self.target.signature, workload, str(self.scratch), _file_name(reader))
        return (
            widen(call, fills(self.target, workload), f"{self._secret} {workload.seed}", self.device)
            if wide
            else call
        )

    def side(self, name: str, build: Build | None = None, *, emulated: bool = False) -> Side:
        """A variant by name, with its build when it is compiled; `baseline` is the target's baseline."""
        if name == BASELINE:
            terms = {"kind": "python", "python": self.target.baseline.python}
            return Side(name, terms, tuple(ITEM_SIZES), deterministic=False, build_id=None)
        variant = self.emulations([name])[name] if emulated else self.target.variants[name]
        terms = variant.model_dump(mode="json")
        if isinstance(variant, PythonVariant):
            terms["python"] = f"{variant.module}:{variant.function}"
        if build is not None:
            terms |= {"library": build.library, "build_id": build.build_id}
        build_id = build.build_id if build else None
        side = Side(name, terms, variant.dtypes, variant.deterministic, build_id, variant.takes)
        if not emulated:
            return side
        side = replace(side, emulated=True)
        if self.sanitize and isinstance(variant, CAbiVariant):
            return replace(side, environment=sanitizers.environment(variant.build.compiler))
        return side

    @contextlib.contextmanager
    def part(self, component: Component) -> Iterator[None]:
        """While it lasts the target is a component: the judge knows its reference, and makes its inputs."""
        whole = self.target
        self._judge_anew(whole.part(component), component)
        try:
            yield
        finally:
            self._judge_anew(whole, None)

    def _judge_anew(self, target: Target, part: Component | None) -> None:
        self.target, self._part, self._judging = target, part, False
        self._expected.clear()

    def open(self, side: Side, under: Sequence[str] = ()) -> Worker:
        """A fresh worker that was asked to load `side`; the reply is still to be received.

        `under`: the command line of a tool that starts it, such as a profiler.
        """
        threads = cores() if side.emulated else self.threads
        worker = Worker(
            threads,
            pinned=True,
            environment=side.environment,
            under=under,
            unprivileged=self.device == "cpu",
        )
        terms = {"folder": str(self.folder), "threads": threads, "device": self.device}
        worker.send("load", variant=side.terms, slow=side.slow, mistake=side.mistake, **terms)
        return worker

    def expect(
        self, workload: Workload, *, wide: bool = False, twice: bool = False
    ) -> Generator[Tick, None, None]:
        """Have the judge write a workload's inputs and work out its right answer, once.

        `twice`: work it out twice, and see that it is the same. Raises LoopError when the reference cannot be
        trusted, and before anything is tried when its memory would not suffice.
        """
        call = self.call(workload, "judge", wide=wide)
        if self._expected.get(call.key) == wide and self._written.get(call.key) == digests(call):
            return  # Else somebody has changed the files of its inputs: they are written anew.
        check_memory(self.target, workload)
        reply = yield from self.judge(
            "expect",
            JUDGE_LIMIT_S,
            f"reference of {workload.name}",
            call=call.to_json(),
            fills=[self._fill(fill, index) for index, fill in enumerate(fills(self.target, workload))],
            seed=workload.seed,
            twice=twice,
        )
        if reply["doubt"]:
            hint = "the manifest's `reference` and `plain` compute the same function in different types"
            raise WorkFailed(f"{reply['doubt']} on {workload.name}", hint=hint)
        self._expected[call.key], self._written[call.key] = wide, digests(call)

    def _fill(self, fill: Fill, index: int) -> dict[str, Any]:
        dimensions = list(self.target.signature.inputs.values())[index].split()
        axis = dimensions.index(fill.nan_along) if fill.nan_along else None
        return {"kind": fill.kind, "scale": fill.scale, "axis": axis}

    def discard(self, workload: Workload) -> Generator[Tick, None, None]:
        """Let the judge forget a workload's answer, and remove its files."""
        key = self.call(workload, "judge").key
        if self._expected.pop(key, None) is not None:
            yield from self.judge("discard", JUDGE_LIMIT_S, "tidying up", key=key)
        for path in self.scratch.glob(
            f"{Path(self.call(workload, 'x').inputs[0].path).name.rpartition('-')[0]}-*"
        ):
            path.unlink(missing_ok=True)

    @property
    def sensors(self) -> Sensors | None:
        """The sensors of the GPU that everything runs on; None on a CPU, or without a driver that tells."""
        if self.device == "cuda" and self._sensors is None:
            gpu = gpus().first
            self._sensors = (open_sensors(gpu.uuid if gpu else 0),)
        return self._sensors[0] if self._sensors else None

    def sense(self) -> DeviceReading | None:
        """What the GPU's sensors say now; None on a CPU, or without a driver that tells."""
        sensors = self.sensors
        state = sensors.read() if sensors else None
        if state is None:
            return None
        fields = ("sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c", "throttle", "energy_j")
        return DeviceReading(**{name: getattr(state, name) for name in fields}, at_s=time.monotonic())

    def compiled(self, names: Iterable[str]) -> dict[str, CAbiVariant]:
        """Those of the named variants that have to be built, for the GPU at hand."""
        chosen = {name: self.target.variants[name] for name in names}
        return {
            name: self.target.compiled(name, self.architecture)
            for name, variant in chosen.items()
            if isinstance(variant, CAbiVariant)
        }

    def emulations(self, names: Iterable[str]) -> dict[str, CAbiVariant]:
        """Those of the named variants that the emulator can run, as they are built for it."""
        found = {name: self.target.emulation(name) for name in names if name in self.target.emulated}
        return {name: sanitizers.sanitized(one) for name, one in found.items()} if self.sanitize else found

    @property
    def architecture(self) -> str:
        """What `{arch}` in build flags stands for: the GPU at hand, else the first that the target knows."""
        capability = machine().capability
        return f"sm_{capability.replace('.', '')}" if capability else next(iter(self.target.devices), "sm_89")


def digests(call: Call) -> list[bytes]:
    """What stands in the files of a call's inputs now."""
    paths = [Path(tensor.path) for tensor in call.inputs]
    return [hashlib.blake2b(path.read_bytes()).digest() if path.is_file() else b"" for path in paths]


def new_scratch() -> Path:
    """A folder for tensors, named by our process; those of processes that were killed are removed."""
    root = Path(tempfile.gettempdir())
    for left in root.glob(f"{SCRATCH}*-*"):
        owner = left.name.removeprefix(SCRATCH).split("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{SCRATCH}{os.getpid()}-"))


def check_memory(target: Target, workload: Workload) -> None:
    """Raise LoopError when the reference of a workload needs more memory than there is."""
    if target.memory is None:
        return
    needed = Expression.parse(target.memory, arithmetic=True).evaluate_number(formula_values(workload))
    free = available_memory()
    if needed > free:
        raise WorkFailed(
            f"{workload.name} needs about {needed / 2**30:.1f} GiB for its float64 reference; "
            f"{free / 2**30:.1f} GiB are free",
            hint="leave its workload set out (`--workloads`), or run on a machine with more memory",
        )


def _file_name(reader: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in reader)


def _last_line(text: str) -> str | None:
    lines = text.strip().splitlines()
    return lines[-1] if lines else None
