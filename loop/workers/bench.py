"""The workers, scratch folder and running judge of a session's target."""

import contextlib
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import psutil

from loop.base.errors import WorkFailed
from loop.base.expressions import Expression
from loop.base.processes import Tick, kill_group
from loop.calls.call import Call, CommandTerms, FunctionTerms, LibraryTerms, Terms
from loop.machine.gpus import gpus
from loop.machine.machine import available_memory, cores, machine
from loop.machine.nvml import Sensors, open_sensors
from loop.model.dtypes import ITEM_SIZES, Device, Dtype, Layout
from loop.model.measurement import BASELINE, Build, DeviceReading, InputWeaknesses
from loop.model.profile import DeviceFacts, facts_of_present_gpu
from loop.model.target import CAbiVariant, Component, PythonVariant, Target, Workload
from loop.model.workloads import input_fills, is_supported
from loop.workers import program
from loop.workers.judge_messages import Begin, Discard, Examine, Examined, Expect, Look
from loop.workers.judge_process import Floors, JudgeProcess, Unjudged, empty_call, lag_of, measure_floors
from loop.workers.messages import Load, Mistake, Request
from loop.workers.nursery import EARLY, Nursery
from loop.workers.program import (
    START_LIMIT_S,
    Refusal,
    Worker,
    WorkerLost,
    memory_bounds,
    passed_on,
    thread_environment,
    timed_cores,
)
from loop.workers.workload_call import (
    expectation,
    file_name,
    finds_outputs,
    function_terms,
    make_call,
    terms_of_judge,
    under_two_seeds,
    widen_call,
)

JUDGE_LIMIT_S = 120.0
FIRST_CALL_S = 120.0
"""Default time limit in seconds for a process's first call, which may autotune."""
AFTER_HANG_S = 60.0
"""Limit for first calls of later processes after one first call has hung."""
TOO_LONG = "the first call took longer than {:g} s: killed; `first_call_s` in target.yaml allows more"
MADE_AT_RUN = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR")
"""Environment variables with the cache folders of just-in-time compilers. Each build of a variant
gets its own new folders, so `loop` never runs kernels that an earlier build or a proposer left in
the user's cache."""
UNDER_COMPILE = "loop.workers.compiled:baseline"
"""Function that a worker loads if the baseline runs under `torch.compile`. Compiled code is cached
next to the finished builds."""
SCRATCH = "loop-bench-"
VALUED: tuple[Layout, ...] = ("contiguous", "broadcast")
"""Layouts with input values of their own. All other layouts use the values of `contiguous`."""
UNJUDGED_HINT = "name smaller `values` for it in target.yaml, or leave it out"
R = TypeVar("R")
VariantKind = Literal["c_abi", "python", "command"]


@dataclass(frozen=True)
class Side:
    """What a worker runs: a variant with its build, or the baseline."""

    name: str
    terms: Terms
    """What the worker loads: a library, a Python function or a command."""
    dtypes: tuple[Dtype, ...]
    deterministic: bool
    build_id: str | None
    takes: str | None = None
    """The manifest's condition on the calls this variant supports; None: all calls."""
    slow: float = 0.0
    """Slow each call down by this share of its time (positive control); 0.0: not at all."""
    mistake: Mistake | None = None
    """A mistake or cheat to inject (negative control); None for an honest side."""
    environment: Mapping[str, str] = field(default_factory=dict)
    emulated: bool = False
    """Whether it runs under the emulator: 100 times slower, on every core, and never timed."""
    threads: int | None = None
    """CPU threads of its workers; None: the bench's number, or every core under the emulator."""

    @property
    def compiled(self) -> bool:
        """Whether it is a shared library, whose worker starts in milliseconds, without torch."""
        return isinstance(self.terms, LibraryTerms)

    @property
    def kind(self) -> VariantKind:
        """The kind of variant: `c_abi`, `python` or `command`."""
        if isinstance(self.terms, FunctionTerms):
            return "python"
        return "c_abi" if self.compiled else "command"

    def renamed(self, name: str, **changes: Any) -> "Side":
        """Copy the side under another name, with other fields changed."""
        return replace(self, name=name, **changes)


@dataclass
class Bench:
    """Workers, judge and scratch folder of one target. Ends its processes as a context manager."""

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
    """Decides which window of the inputs the judge has an answer for. No timed process knows it."""
    _sensors: tuple[Sensors | None] | None = None
    notes: dict[str, None] = field(default_factory=dict)
    """Notes on what the workloads so far could not test."""
    zeros_pass: dict[str, None] = field(default_factory=dict)
    """Workloads for which an all-zero output would pass."""
    took: dict[str, float] = field(default_factory=dict)
    """Workload name to the seconds that the judge needed for its inputs and reference."""
    slowest_first_s: float = field(init=False, default=0.0)
    """Seconds of the slowest first request so far: other processes may need as long."""
    first_calls_s: float = field(init=False, default=0.0)
    """Seconds of the first requests of all processes so far."""
    _judge: JudgeProcess = field(default_factory=JudgeProcess)
    _nursery: Nursery | None = None
    """Process that forks torch workers. Only the bench that started it closes it."""
    _floors: Floors | None = None
    """Measured once, when first needed."""
    _part: Component | None = None
    """The component under judgement; None: the whole target."""

    def __post_init__(self) -> None:
        self._owns_nursery = self._nursery is None
        self.first_call_s = self.target.first_call_s or FIRST_CALL_S
        """Time limit in seconds for the first call of a process."""
        self._judge.device = self.device
        if self.forks and self._judge.nursery is None:  # Torch is imported once, for judge and workers.
            self._judge.nursery = self.nursery

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        self._judge.dismiss()
        if self._nursery is not None and self._owns_nursery:
            self._nursery.close()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def at(self, folder: Path, target: Target) -> "Bench":
        """Make a bench for the target in another folder, with the same device and nursery."""
        rest = (self.cache, self.include, self.device, self.threads, self.sanitize)
        return Bench(target, folder, *rest, _nursery=self.nursery)

    def part(self, component: Component) -> "Bench":
        """Make a bench for one component. It shares this bench's judge."""
        return replace(
            self, target=self.target.component_target(component), _part=component, _nursery=self.nursery
        )

    def warm_up(self) -> None:
        """Start judge and nursery now, so that torch is imported in the background."""
        self._judge.warm_up()

    @property
    def forks(self) -> bool:
        """Whether the nursery forks torch workers: on a GPU, or with one thread. With several
        threads on a CPU, OpenMP binds them to cores when torch is imported, and each process needs
        other cores."""
        return self.device == "cuda" or self.threads == 1

    @property
    def nursery(self) -> Nursery:
        """The process that forks workers with torch already imported."""
        if self._nursery is None and EARLY and self.device == "cuda":
            self._nursery = EARLY[0]
        if self._nursery is None:
            cores = timed_cores(self.threads) if self.device == "cpu" else ""
            self._nursery = Nursery({**passed_on(), **thread_environment(self.threads, cores)})
        return self._nursery

    def examine(self, check: str, limit_s: float) -> Generator[Tick, None, Examined]:
        """Run one environment check in the judge's process. Raises LoopError if it dies."""
        request = Examine(check, cores(), self.device)
        return (yield from self._judge.ask(request, limit_s, f"checking {check}"))

    def judge(self, request: Request[R], limit_s: float, note: str) -> Generator[Tick, None, R]:
        """Send a request to the judge and return its reply. Starts the judge if necessary."""
        return (yield from self._judge.judge(self._begin, request, limit_s, note))

    @property
    def _begin(self) -> Begin:
        """The request that makes the judge learn this target or component."""
        return terms_of_judge(self.target, self._part, self.folder)

    def floors(self, *, again: bool = False) -> Generator[Tick, None, Floors]:
        """Measure the times of empty calls, once. `again`: measure again and keep the minimum."""
        if self._floors is None or again:
            with Worker(self.threads) as worker:
                floors = yield from measure_floors(worker, self.device, START_LIMIT_S)
            self._floors = self._floors.at_most(floors) if self._floors else floors
        return self._floors

    def lag(self) -> Generator[Tick, None, float]:
        """Seconds by which the judge's clock exceeds the GPU's for a sample now; 0.0 without
        GPU."""
        with Worker(self.threads) as worker, contextlib.suppress(Refusal):
            return (yield from lag_of(worker, START_LIMIT_S))
        return 0.0

    def floor_of_torch(self, worker: Worker) -> Generator[Tick, None, Floors]:
        """Add the floor of an empty PyTorch call, measured in a worker that has imported torch."""
        floors = yield from self.floors()
        torch_s = yield from empty_call(worker, "torch", floors.order_s, START_LIMIT_S)
        self._floors = floors.at_most(Floors(floors.order_s, {"torch": torch_s}))
        return self._floors

    def call(self, workload: Workload, reader: str, *, wide: bool = False, layout: Layout = "contiguous") -> Call:
        """Make the call of a workload. Its files lie in the scratch folder. `reader`: name of the
        side, used for its output file. `wide`: give input files room for more windows, so that each
        timed call reads other values."""
        owner = "".join(c if c.isalnum() else "_" for c in reader)
        call = make_call(self.target, workload, str(self.scratch), owner, layout)
        if self.target.generator is not None or finds_outputs(self.target.signature):
            known = self._judge.knows(self._begin, call.key)
            if known is None:
                return call
            path = call.output.path
            parts = tuple(part.replace(path=path) for part in known[1].parts)
            return known[1].replace(output=known[1].output.replace(path=path), parts=parts)
        if not wide:
            return call
        return widen_call(call, input_fills(self.target, workload), f"{self._secret} {workload.seed}", self.device)

    def side(self, name: str, build: Build | None = None, *, emulated: bool = False) -> Side:
        """Combine a variant with its build; the name `baseline` means the target's baseline."""
        if name == BASELINE:
            return self._baseline()
        variant = self.emulations([name])[name] if emulated else self.target.variants[name]
        terms: Terms
        environment = {}
        if isinstance(variant, PythonVariant):
            terms = function_terms(self.target, f"{variant.module}:{variant.function}")
            terms = terms.replace(passes_outputs=variant.passing == "passed")
            if build:
                terms = terms.replace(folder=build.library)
                environment = {folder: str(self.scratch / build.build_id / folder) for folder in MADE_AT_RUN}
        elif isinstance(variant, CAbiVariant):
            built = (build.library, build.build_id) if build else ("", "")
            terms = LibraryTerms(variant.device, variant.entry, *built)
            if emulated and self.sanitize:
                environment = program.environment(variant.build.compiler)
        else:
            signature = self.target.signature
            terms = CommandTerms(variant.run, {**signature.inputs, **signature.outputs})
        build_id = build.build_id if build else None
        side = Side(name, terms, variant.dtypes, variant.deterministic, build_id, variant.takes)
        return replace(side, environment=environment, emulated=emulated)

    def _baseline(self) -> Side:
        """The target's baseline, under `torch.compile` if the manifest says so."""
        python, environment, inductor = self.target.baseline.python, {}, self.cache / "inductor"
        if self.target.baseline.compiled:
            environment = {
                "LOOP_COMPILES": python,
                "TORCHINDUCTOR_CACHE_DIR": str(inductor),
                "TRITON_CACHE_DIR": str(inductor / "triton"),
                "TORCHINDUCTOR_COMPILE_THREADS": "1",  # A worker starts no processes of its own.
            }
            python = UNDER_COMPILE
        terms = function_terms(self.target, python)
        return Side(BASELINE, terms, tuple(ITEM_SIZES), False, build_id=None, environment=environment)

    def open(self, side: Side, under: Sequence[str] = ()) -> Worker:
        """Start a worker and ask it to load `side`. The caller still has to receive the reply.
        `under`: command line of a tool that starts the worker, such as a profiler."""
        threads = side.threads or (cores() if side.emulated else self.threads)
        environment = {**({} if side.emulated else memory_bounds(self.device)), **side.environment}
        forked = self.forks and isinstance(side.terms, FunctionTerms) and not under
        nursery = self.nursery if forked else None
        worker = Worker(threads, environment=environment, under=under, nursery=nursery)
        worker.send(Load(side.terms, str(self.folder), threads, self.device, side.slow, side.mistake))
        return worker

    def expect(
        self, workload: Workload, *, wide: bool = False, twice: bool = False, layout: Layout = "contiguous"
    ) -> Generator[Tick, None, None]:
        """Have the judge write the workload's inputs and compute the reference, unless both exist.
        `twice`: compute the reference twice and compare, to detect randomness. Raises LoopError if
        the reference cannot be trusted, or at once if memory is too small."""
        request = self._expectation(workload, wide=wide, layout=layout)
        known = self._judge.knows(self._begin, request.call.key)
        if known is not None and known[0] == request:
            return
        more = {"twice": twice, "needed": check_memory(self.target, workload)}
        begun = time.monotonic()
        reply = yield from self.judge(request.replace(**more), JUDGE_LIMIT_S, f"reference of {workload.name}")
        self.took[workload.name] = time.monotonic() - begun
        if reply.unjudged:
            raise Unjudged(f"{reply.unjudged} on {workload.name}", UNJUDGED_HINT)
        if reply.doubt:
            hint = "the manifest's `reference` and `plain` compute the same function in different types"
            raise WorkFailed(f"{reply.doubt} on {workload.name}", hint=hint)
        self.notes |= dict.fromkeys(reply.notes)
        if reply.zeros_pass and layout == "contiguous":  # Other layouts have other input values.
            self.zeros_pass[workload.name] = None
        self._judge.known[request.call.key] = request, reply.call or request.call

    def _expectation(self, workload: Workload, *, wide: bool, layout: Layout = "contiguous") -> Expect:
        """Build the judge's request for a workload's inputs and reference."""
        call = make_call(self.target, workload, str(self.scratch), "judge", layout)
        return expectation(self.target, workload, call, self._secret, self.device, wide=wide)

    def look(self, small: Workload | None) -> Generator[Tick, None, InputWeaknesses]:
        """Ask the judge what the inputs so far could not show. `small`: workload on which the judge
        also tests which inputs the reference reads; None: skip that."""
        pair = under_two_seeds(small) if small else ()
        calls = tuple(self._expectation(workload, wide=False) for workload in pair)
        looked = yield from self.judge(Look(calls), JUDGE_LIMIT_S, "what the inputs can show")
        for workload in pair:
            self._remove_files(workload)
        return looked

    def _remove_files(self, workload: Workload) -> None:
        """Delete the files of a workload's tensors."""
        for path in self.scratch.glob(f"{file_name(workload)}-*"):
            path.unlink(missing_ok=True)

    def discard(self, workload: Workload) -> Generator[Tick, None, None]:
        """Make the judge forget a workload's answer, and delete the workload's files."""
        for layout in VALUED:
            key = self.call(workload, "judge", layout=layout).key
            if self._judge.knows(self._begin, key):
                del self._judge.known[key]
                yield from self.judge(Discard(key), JUDGE_LIMIT_S, "tidying up")
        self._remove_files(workload)

    @property
    def sensors(self) -> Sensors | None:
        """Sensors of the GPU in use; None on a CPU or if the driver has no NVML."""
        if self.device == "cuda" and self._sensors is None:
            gpu = gpus().first
            self._sensors = (open_sensors(gpu.uuid if gpu else 0),)
        return self._sensors[0] if self._sensors else None

    @property
    def free_bytes(self) -> int:
        """Free memory in bytes on the device; 0 if the GPU does not report it."""
        if self.device == "cpu":
            return available_memory()
        memory = self.sensors.memory() if self.sensors else None
        return memory[0] if memory else 0

    def sense(self) -> DeviceReading | None:
        """Read the GPU's sensors now; None on a CPU or without NVML."""
        return self.sensors.read() if self.sensors else None

    def compiled(self, names: Iterable[str]) -> dict[str, CAbiVariant]:
        """Of the named variants, those that a compiler has to build, for this machine's GPU."""
        return {
            name: self.target.compiled_variant(name, self.architecture)
            for name in names
            if isinstance(self.target.variants[name], CAbiVariant)
        }

    def emulations(self, names: Iterable[str]) -> dict[str, CAbiVariant]:
        """Of the named variants, those that the emulator can run, with their emulator build."""
        variants = {
            name: self.target.emulated_variant(name) for name in names if name in self.target.emulated_variants
        }
        if self.sanitize:
            return {name: program.sanitized_build(variant) for name, variant in variants.items()}
        return variants

    @property
    def gpu(self) -> DeviceFacts | None:
        """Facts of this machine's GPU: from the manifest if listed there, else from the driver."""
        first = gpus().first
        return (
            facts_of_present_gpu(self.target.devices, first.capability, first.name, first.facts) if first else None
        )

    def gpu_for(self, architecture: str) -> DeviceFacts | None:
        """Facts of a GPU of this architecture, here or in the manifest; None if unknown."""
        first = gpus().first
        here = first is not None and first.architecture == architecture
        return self.gpu if here else self.target.devices.get(architecture)

    @property
    def architecture(self) -> str:
        """Value of `{arch}` in build flags, such as `sm_90`: this GPU, else the target's first."""
        capability = machine().capability
        return f"sm_{capability.replace('.', '')}" if capability else next(iter(self.target.devices), "sm_89")


def new_scratch() -> Path:
    """Make a folder for tensors, named by our process id. Removes folders of dead processes."""
    root = Path(tempfile.gettempdir())
    for left in root.glob(f"{SCRATCH}*-*"):
        owner = left.name.removeprefix(SCRATCH).split("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{SCRATCH}{os.getpid()}-"))


def check_memory(target: Target, workload: Workload) -> float:
    """Bytes that the reference of a workload needs; 0 if the manifest gives no formula. Raises
    LoopError if less memory is free."""
    if target.memory is None:
        return 0.0
    needed = Expression.parse(target.memory).evaluate_number(workload.formula_values)
    free = available_memory()
    if needed > free:
        raise WorkFailed(
            f"{workload.name} needs about {needed / 2**30:.1f} GiB for its float64 reference; "
            f"{free / 2**30:.1f} GiB are free",
            hint="leave its workload set out (`--workloads`), or run on a machine with more memory",
        )
    return needed


class KeptWorker:
    """Keeps one worker for a side. Replaces a lost worker, but does not retry a side that failed to
    load. On a CPU a check uses every core, even if measurements use one: with one thread no data
    race would show."""

    def __init__(self, bench: Bench, side: Side) -> None:
        alone = bench.device == "cuda" or side.threads is not None
        self.bench, self.side = bench, side if alone else replace(side, threads=cores())
        self._worker: Worker | None = None
        self._loaded = False
        self.fresh = True
        """True until its process has answered a request."""
        self._no_use: Refusal | None = None

    def start(self) -> Worker:
        """Start the worker if none runs. It loads the side in the background."""
        if self._worker is None:
            self._worker, self._loaded, self.fresh = self.bench.open(self.side), False, True
        return self._worker

    def load(self) -> Generator[Tick, None, Worker]:
        """Return the worker with its side loaded. Raises WorkerLost or Refusal."""
        if self._no_use is not None:
            raise self._no_use
        worker = self.start()
        if not self._loaded:
            try:
                yield from worker.receive(START_LIMIT_S, f"loading {self.side.name}")
            except (Refusal, WorkerLost) as error:
                self._no_use = error if isinstance(error, Refusal) else None
                self.close()
                raise
            self._loaded = True
        return worker

    def ask(
        self, request: Request[R], *, limit_s: float, note: str, first_call_s: float = 0.0
    ) -> Generator[Tick, None, R]:
        """Load the side, send a request and return the reply. Raises WorkerLost or Refusal.
        `first_call_s`: longer limit for a process's first request: a kernel may autotune."""
        worker = yield from self.load()
        begun, fresh = time.monotonic(), self.fresh
        limit_s = max(limit_s, first_call_s) if fresh else limit_s
        try:
            reply = yield from worker.ask(request, limit_s=limit_s, note=note)
        except WorkerLost as lost:
            self.close()
            if lost.kind == "hung" and fresh and first_call_s:
                self.bench.first_call_s = min(self.bench.first_call_s, AFTER_HANG_S)
                raise WorkerLost("hung", TOO_LONG.format(limit_s), lost.errors, lost.cause) from lost
            raise
        if fresh:
            seconds, self.fresh = time.monotonic() - begun, False
            self.bench.slowest_first_s = max(self.bench.slowest_first_s, seconds)
            self.bench.first_calls_s += seconds
        return reply

    def kill(self) -> None:
        """Kill the worker without waiting for its end; `close` comes next."""
        if self._worker is not None:
            kill_group(self._worker.child.process.pid)

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.close()
        self._worker = None


CONTEXT_BYTES = 512 * 2**20
"""GPU memory of a process without tensors: code, stacks and libraries."""
COPIES = {"c_abi": (3, 1), "python": (2, 2), "command": (0, 0)}
"""Kind of variant to (copies of inputs, copies of outputs) in device memory. Rotated inputs need
their originals, and a graph needs outputs of its own. A command manages its own memory."""


class Fitting(NamedTuple):
    """Workloads that fit into memory, and a sentence for each that does not."""

    workloads: tuple[Workload, ...]
    left_out: tuple[str, ...]
    """One sentence for each workload without room."""

    def said_after(self, message: str) -> str:
        """A step's message, extended by the workloads that were left out."""
        if not self.left_out:
            return message
        more = f", and {len(self.left_out) - 1} more" if len(self.left_out) > 1 else ""
        return f"{message or 'nothing has room'}; left out: {self.left_out[0]}{more}"


def fitting_workloads(
    bench: Bench, workloads: Sequence[Workload], sides: Sequence[Side], *, wide: bool = False, apart: bool = False
) -> Fitting:
    """Select the workloads whose tensors fit into free device memory for all sides (lower bound).
    Returns all workloads if the free memory is unknown. `wide`: inputs have room for other windows,
    as in timing. `apart`: sides run one after the other, so only the largest has to fit."""
    free = (bench.sensors.memory() or (None,))[0] if bench.sensors else None
    if free is None:
        return Fitting(tuple(workloads), ())
    room, left_out, gpu = [], [], gpus().first
    often = Counter(side.name for side in sides).items()
    names = ", ".join(side if count == 1 else f"{side} {count} times" for side, count in often)
    for workload in workloads:
        call, sizes = bench.call(workload, "x", wide=wide), []
        inputs = sum(tensor.pool_nbytes for tensor in call.inputs)
        for copies, results in (COPIES[side.kind] for side in sides if is_supported(side, workload)):
            context = CONTEXT_BYTES if copies else 0
            sizes.append(copies * inputs + results * call.output.nbytes + context)
        size = max(sizes, default=0) if apart else sum(sizes)
        if size <= free:
            room.append(workload)
            continue
        left_out.append(
            f"{workload.name}: inputs and outputs of {names} take {size / 2**30:.1f} GiB ({size} bytes) of device "
            f"memory together, {free / 2**30:.1f} GiB ({free} bytes) of {gpu.name if gpu else 'the GPU'} are free"
        )
    return Fitting(tuple(room), tuple(left_out))
