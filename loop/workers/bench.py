"""The workers, scratch folder and running judge of a session's target."""

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar, get_args

import psutil

from loop.base.errors import WorkFailed
from loop.base.expressions import Expression
from loop.base.processes import Waiting
from loop.calls.call import Call, CommandTerms, FunctionTerms, LibraryTerms, Refused, Terms
from loop.machine.machine import available_memory, cores, detect_gpus, facts_of_present_gpu, machine
from loop.machine.nvml import Sensors, open_sensors
from loop.model.dtypes import Device, Dtype, Layout
from loop.model.measurement import BASELINE, Build, DeviceReading, Weaknesses
from loop.model.profile import DeviceFacts
from loop.model.target import CAbiVariant, Component, PythonVariant, Target, Workload
from loop.model.workloads import is_supported
from loop.workers import judge_messages, program, workload_call
from loop.workers.messages import Load, Request
from loop.workers.nursery import Nursery
from loop.workers.program import START_LIMIT_S, Floors, JudgeProcess, Unjudged, Worker, WorkerLost

JUDGE_LIMIT_S = 120.0
FIRST_CALL_S = 120.0  # Default limit in seconds for a process's first call, which may autotune.
FIRST_CALL_HUNG = " took longer than {:g} s: killed; `first_call_s` in target.yaml allows more"
JIT_CACHE_VARIABLES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR")
"""Variables for the cache folders of just-in-time compilers. Each build of a variant gets new ones,
so `loop` never runs kernels that an earlier build or a proposer left in the user's cache."""
SCRATCH_PREFIX = "loop-bench-"
LAYOUTS_WITH_OWN_VALUES: tuple[Layout, ...] = ("contiguous", "broadcast")
"""Layouts with input values of their own. All other layouts use the values of `contiguous`."""
UNJUDGED_HINT = "name smaller `values` for it in target.yaml, or leave it out"
R = TypeVar("R")
VariantKind = Literal["c_abi", "python", "command"]
CONTEXT_BYTES = 512 * 2**20  # GPU memory of a process without tensors: code, stacks and libraries.
TENSOR_COPIES = {"c_abi": (3, 1), "python": (2, 2), "command": (0, 0)}
"""Kind of variant to (copies of inputs, copies of outputs) in device memory. Rotated inputs need
their originals, and a graph needs outputs of its own. A command manages its own memory."""


@dataclass(frozen=True)
class Side:
    """What a worker runs: a variant with its build, or the baseline."""

    name: str
    terms: Terms  # What the worker loads: a library, a Python function or a command.
    dtypes: tuple[Dtype, ...]
    deterministic: bool
    build_id: str | None
    takes: str | None = None  # The manifest's condition on the calls it supports; None: all.
    slowdown_share: float = 0.0  # Share of its time by which a positive control slows each call.
    environment: Mapping[str, str] = field(default_factory=dict)
    emulated: bool = False  # Run by the emulator: 100 times slower, on every core, never timed.
    threads: int | None = None  # CPU threads; None: the bench's, or every core if emulated.

    @property
    def kind(self) -> VariantKind:
        """The kind of variant: `c_abi`, `python` or `command`."""
        if isinstance(self.terms, FunctionTerms):
            return "python"
        return "c_abi" if isinstance(self.terms, LibraryTerms) else "command"


@dataclass
class Bench(contextlib.AbstractContextManager["Bench"]):
    """Workers, judge and scratch folder of one target. Ends its processes as a context manager. A
    dictionary with values None is a set that keeps its order."""

    target: Target
    folder: Path  # Folder of the manifest.
    cache: Path  # Folder of finished builds.
    include: Path  # Folder of loop_kernel.h.
    device: Device
    threads: int
    sanitize: bool = False  # Whether emulated variants are built and run with the sanitizers.
    scratch: Path = field(default_factory=lambda: make_scratch_folder())
    _secret: str = field(default_factory=lambda: os.urandom(16).hex())
    """Decides which window of the inputs the judge has an answer for. No timed process knows it."""
    notes: dict[str, None] = field(default_factory=dict)  # What the workloads could not test.
    workloads_passing_zeros: dict[str, None] = field(default_factory=dict)  # Zeros would pass.
    reference_s: dict[str, float] = field(default_factory=dict)
    """Workload name to the seconds that the judge needed for its inputs and reference."""
    slowest_first_call_s: float = field(init=False, default=0.0)
    """Seconds of the slowest first request so far: other processes may need as long."""
    first_calls_s: float = field(init=False, default=0.0)  # Of the first requests of all processes.
    _judge: JudgeProcess = field(default_factory=JudgeProcess)
    _nursery: Nursery | None = None  # Another bench's, to fork torch workers; None: one of its own.
    _floors: Floors | None = None  # Measured once, when first needed.
    _component: Component | None = None  # The component under judgement; None: the whole target.

    def __post_init__(self) -> None:
        self.first_call_s = self.target.first_call_s or FIRST_CALL_S
        """Time limit in seconds for the first call of a process."""
        numbers = program.choose_cores(self.threads) if self.device == "cpu" else ""
        self._owns_nursery = self._nursery is None  # Copies share it.
        environment = program.thread_environment(self.threads, numbers)
        self.nursery = self._nursery = self._nursery or Nursery(environment)
        """Forks workers with torch imported; starts its process when it is first needed."""
        self._judge.device = self.device
        self.can_fork_torch = self.device == "cuda" or self.threads == 1
        """Whether the nursery forks torch workers. With several threads on a CPU, OpenMP binds them
        to cores when torch is imported, and each process needs other cores."""
        if self.can_fork_torch and self._judge.nursery is None:  # Torch is imported once for both.
            self._judge.nursery = self.nursery

    def __exit__(self, *_: object) -> None:
        self._judge.end()
        if self._owns_nursery:
            self.nursery.close()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def copy_for_folder(self, folder: Path, target: Target) -> "Bench":
        """Make a bench for the target in another folder: same device and nursery, another judge."""
        settings = (self.cache, self.include, self.device, self.threads, self.sanitize)
        return Bench(target, folder, *settings, _nursery=self.nursery)

    def copy_for_component(self, component: Component) -> "Bench":
        """Make a bench for one component. It shares this bench's judge."""
        target = self.target.component_target(component)
        return replace(self, target=target, _component=component, _nursery=self.nursery)

    def warm_up(self) -> None:
        """Start the judge, or the nursery that forks it, so that torch loads in the background."""
        if self._judge.nursery is None:
            self._judge.start_program()
        else:
            self._judge.nursery.warm_up()

    def ask_judge(self, request: Request[R], limit_s: float, note: str) -> Waiting[R]:
        """Send a request to the judge, as `JudgeProcess.ask` does, and return its reply."""
        return (yield from self._judge.ask(self._target_request, request, limit_s, note))

    @cached_property
    def _target_request(self) -> judge_messages.SetTarget:
        target = self.target.model_copy(update={"variants": {}})  # The judge loads no candidate.
        return judge_messages.SetTarget(target, self._component, str(self.folder), cores())

    def measure_floors(self, *, is_repeated: bool = False) -> Waiting[Floors]:
        """Measure, once, the time of an order without calls and of an empty call in each way: tenth
        percentiles, as interference only slows them. `is_repeated`: again; keeps the minimum."""
        if self._floors is not None and not is_repeated:
            return self._floors
        order_s, call_s_by_way = 0.0, dict[program.CallWay, float]()
        with Worker(self.threads) as worker:
            for way in get_args(program.CallWay)[: 4 if self.device == "cuda" else 3]:
                with contextlib.suppress(Refused):  # Without a GPU, a later request reports that.
                    pairs = yield from program.time_empty_orders(worker, way)
                    seconds = sorted(gpu_s or judge_s for judge_s, gpu_s in pairs)[len(pairs) // 10]
                    if way == "":
                        order_s = seconds
                    else:  # A GPU's own clock does not include the order.
                        calls_s = seconds if way == "kernel" else max(seconds - order_s, 0.0)
                        call_s_by_way[way] = calls_s / program.EMPTY_CALLS
        if self._floors is not None:
            order_s = min(order_s, self._floors.order_s)
            for way, call_s in self._floors.call_s_by_way.items():
                call_s_by_way[way] = min(call_s, call_s_by_way.get(way, call_s))
        self._floors = Floors(order_s, call_s_by_way)
        return self._floors

    def measure_gpu_lag_s(self) -> Waiting[float]:
        """Seconds by which the judge's clock exceeds the GPU's for one sample of empty kernels now:
        third quartile; 0.0 without GPU. On a shared GPU or busy host it is several times larger."""
        with Worker(self.threads) as worker, contextlib.suppress(Refused):
            pairs = yield from program.time_empty_orders(worker, "kernel")
            return sorted(judge_s - gpu_s for judge_s, gpu_s in pairs)[3 * len(pairs) // 4]
        return 0.0

    def make_call(
        self,
        workload: Workload,
        owner: str,
        *,
        with_windows: bool = False,
        layout: Layout = "contiguous",
    ) -> Call:
        """Make a workload's call, with files in the scratch folder. Tensors known only to the judge
        are missing before `prepare_answer`. `owner`: name of the side, for its output file.
        `with_windows`: input files have room for windows: each timed call reads other values."""
        call = self._answer_request(workload, layout, owner, with_windows).call
        if self.target.generator is None and not self.target.signature.has_unknown_outputs:
            return call
        answered = self._judge.find_answered(self._target_request, call.key)
        if answered is None:
            return call
        path, answered_call = call.output.path, answered[1]
        parts = tuple(part.replace(path=path) for part in answered_call.several_outputs)
        output = answered_call.output.replace(path=path)
        return answered_call.replace(output=output, several_outputs=parts)

    def make_side(self, name: str, build: Build | None = None, *, emulated: bool = False) -> Side:
        """Combine a variant with its build; name `baseline`: the target's. Without a `build`, no
        worker can load a compiled one. `emulated`: by the emulator; LoopError: no sanitizers."""
        modules, function, environment = self.target.modules, FunctionTerms(""), dict[str, str]()
        if modules is not None:
            arguments = modules.arguments.python if modules.arguments else ""
            function = FunctionTerms("", True, arguments, may_change_state=modules.state == "free")
        if name == BASELINE:
            terms: Terms = function.replace(python=self.target.baseline.python)
            return Side(BASELINE, terms, get_args(Dtype), deterministic=False, build_id=None)
        variant = self.emulated_variants([name])[name] if emulated else self.target.variants[name]
        library, build_id = (build.library, build.build_id) if build else ("", "")
        if isinstance(variant, PythonVariant):
            place = f"{variant.module}:{variant.function}"
            is_passed = variant.passing == "passed"
            terms = function.replace(python=place, passes_outputs=is_passed, folder=library)
            for cache in JIT_CACHE_VARIABLES if build_id else ():
                environment[cache] = str(self.scratch / build_id / cache)
        elif isinstance(variant, CAbiVariant):
            terms = LibraryTerms(variant.device, variant.entry, library, build_id)
            if emulated and self.sanitize:
                environment = program.sanitizer_environment(variant.build.compiler)
        else:
            signature = self.target.signature
            terms = CommandTerms(variant.run, {**signature.inputs, **signature.outputs})
        facts = (variant.dtypes, variant.deterministic, build_id or None, variant.takes)
        return Side(name, terms, *facts, environment=environment, emulated=emulated)

    def start_worker(self, side: Side, tool: Sequence[str] = ()) -> Worker:
        """Start a worker and ask it to load `side`. The caller still has to receive the reply.
        `tool`: command line of a tool that starts the worker, such as a profiler."""
        threads = side.threads or (cores() if side.emulated else self.threads)
        limit = {} if side.emulated else program.memory_limit(self.device)
        is_forked = self.can_fork_torch and isinstance(side.terms, FunctionTerms) and not tool
        nursery = self.nursery if is_forked else None
        environment = {**limit, **side.environment}
        worker = Worker(threads, environment=environment, tool=tool, nursery=nursery)
        worker.send(Load(side.terms, str(self.folder), threads, self.device, side.slowdown_share))
        return worker

    def prepare_answer(
        self,
        workload: Workload,
        *,
        with_windows: bool = False,
        checks_determinism: bool = False,
        layout: Layout = "contiguous",
    ) -> Waiting[None]:
        """Have the judge write the workload's inputs and compute the reference, unless both exist.
        Notes what they cannot test. `checks_determinism`: compute the reference twice, and compare.
        Unjudged: the reference raises or overflows. WorkFailed: it is in doubt; memory is short."""
        request = self._answer_request(workload, layout, with_windows=with_windows)
        answered = self._judge.find_answered(self._target_request, request.call.key)
        if answered is not None and answered[0] == request:
            return
        formula = Expression.parse(self.target.memory or "0")
        needed_bytes = formula.evaluate_number(workload.formula_values)
        free_bytes = available_memory()
        if needed_bytes > max(free_bytes, 0.0):
            raise WorkFailed(
                f"{workload.name} needs about {needed_bytes / 2**30:.1f} GiB for its float64 "
                f"reference; {free_bytes / 2**30:.1f} GiB are free",
                hint="leave its workload set out (`--workloads`), or use a machine with more",
            )
        terms = request.replace(checks_determinism=checks_determinism, reference_bytes=needed_bytes)
        start_s = time.monotonic()
        reply = yield from self.ask_judge(terms, JUDGE_LIMIT_S, f"reference of {workload.name}")
        self.reference_s[workload.name] = time.monotonic() - start_s
        if reply.unjudged_reason:
            raise Unjudged(f"{reply.unjudged_reason} on {workload.name}", UNJUDGED_HINT)
        if reply.doubt:
            hint = "`reference` and `plain` in target.yaml compute one function in different types"
            raise WorkFailed(f"{reply.doubt} on {workload.name}", hint=hint)
        self.notes |= dict.fromkeys(reply.notes)
        if reply.passes_zeros and layout == "contiguous":  # Other layouts have other input values.
            self.workloads_passing_zeros[workload.name] = None
        self._judge.answers[request.call.key] = request, reply.call or request.call

    def _answer_request(
        self, workload: Workload, layout: Layout, owner: str = "judge", with_windows: bool = False
    ) -> judge_messages.PrepareAnswer:
        """The request for a workload's answer; its call writes to the `owner`'s file."""
        call = workload_call.make_call(self.target, workload, str(self.scratch), owner, layout)
        arguments = self.target, workload, call, self._secret, self.device
        return workload_call.make_answer_request(*arguments, with_windows=with_windows)

    def find_blind_spots(self, small_workload: Workload | None) -> Waiting[Weaknesses]:
        """Ask the judge which errors the inputs so far could not show. `small_workload`: under two
        new seeds of it, the judge also tests which inputs the reference reads; None: skip that."""
        reseeded_pair = list[Workload]()
        if small_workload:  # Seeds of one group, under which a module has the same weights.
            first_seed = small_workload.seed + workload_call.UNCHECKED_SEED_OFFSET
            first_seed -= small_workload.base_seed % workload_call.SEEDS_PER_MODULE
            seeds = first_seed, first_seed + 1
            reseeded_pair = [small_workload.model_copy(update={"seed": seed}) for seed in seeds]
        requests = [self._answer_request(workload, "contiguous") for workload in reseeded_pair]
        request = judge_messages.FindBlindSpots(tuple(requests))
        weaknesses = yield from self.ask_judge(request, JUDGE_LIMIT_S, "what the inputs can show")
        for workload in reseeded_pair:
            yield from self.discard_answer(workload)
        return weaknesses

    def discard_answer(self, workload: Workload) -> Waiting[None]:
        """Make the judge forget a workload's answer, if it has one; delete the workload's files."""
        for layout in LAYOUTS_WITH_OWN_VALUES:
            key = self.make_call(workload, "judge", layout=layout).key
            if self._judge.find_answered(self._target_request, key):
                del self._judge.answers[key]
                request = judge_messages.DiscardAnswer(key)
                yield from self.ask_judge(request, JUDGE_LIMIT_S, "tidying up")
        for path in self.scratch.glob(f"{workload_call.file_stem(workload)}-*"):
            path.unlink(missing_ok=True)

    @cached_property
    def sensors(self) -> Sensors | None:
        """Sensors of the GPU in use, opened once; None on a CPU or if the driver has no NVML."""
        gpu = detect_gpus().first if self.device == "cuda" else None
        return open_sensors(gpu.uuid) if gpu else None

    @property
    def free_bytes(self) -> int:
        """Free memory in bytes on the device; 0 if the GPU does not report it."""
        if self.device == "cpu":
            return available_memory()
        memory = self.sensors.memory() if self.sensors else None
        return memory[0] if memory else 0

    def read_sensors(self) -> DeviceReading | None:
        """Read the GPU's sensors now; None on a CPU or without NVML."""
        return self.sensors.read() if self.sensors else None

    def compiled_variants(self, names: Iterable[str]) -> dict[str, CAbiVariant]:
        """Of the named variants, those that a compiler has to build, for this machine's GPU."""
        compiled = [name for name in names if isinstance(self.target.variants[name], CAbiVariant)]
        return {name: self.target.compiled_variant(name, self.architecture) for name in compiled}

    def emulated_variants(self, names: Iterable[str]) -> dict[str, CAbiVariant]:
        """Of the named variants, those that the emulator can run, with their emulator build."""
        emulated = {}
        for name in names:
            if name in self.target.emulated_variants:
                variant = self.target.emulated_variant(name)
                flags = (*variant.build.flags, *(program.SANITIZER_FLAGS if self.sanitize else ()))
                recipe = variant.build.model_copy(update={"flags": flags})
                emulated[name] = variant.model_copy(update={"build": recipe})
        return emulated

    @property
    def gpu(self) -> DeviceFacts | None:
        """Specifications of this machine's GPU, by the manifest or the driver; None without one."""
        gpu = detect_gpus().first
        if gpu is None:
            return None
        return facts_of_present_gpu(self.target.devices, gpu.capability, gpu.name, gpu.facts)

    @property
    def architecture(self) -> str:
        """Value of `{arch}` in build flags, such as `sm_90`: this GPU, else the target's first."""
        capability = machine().capability
        first = next(iter(self.target.devices), "sm_89")
        return f"sm_{capability.replace('.', '')}" if capability else first


def make_scratch_folder() -> Path:
    """Make a folder for tensors, named by our process id. Removes folders of dead processes."""
    root = Path(tempfile.gettempdir())
    for folder in root.glob(f"{SCRATCH_PREFIX}*-*"):
        pid = folder.name.removeprefix(SCRATCH_PREFIX).split("-")[0]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{SCRATCH_PREFIX}{os.getpid()}-"))


class KeptWorker:
    """Keeps one worker for a side. Replaces a lost worker, but loads no side again that refused to.
    On a CPU a check uses every core, even if measurements use one: one shows no data race."""

    def __init__(self, bench: Bench, side: Side) -> None:
        if bench.device == "cpu" and side.threads is None:
            side = replace(side, threads=cores())  # So that data races show.
        self.bench, self.side = bench, side
        self._worker: Worker | None = None
        self._is_loaded = False
        self.is_new_process = True  # True until its process has answered a request.
        self._load_error: Refused | WorkerLost | None = None
        """Why the side did not load; None if it did or was not tried. Only a `Refused` is final."""

    def start(self) -> Worker:
        """Start the worker if none runs. It loads the side in the background."""
        if self._worker is None:
            self._worker = self.bench.start_worker(self.side)
            self._is_loaded, self.is_new_process = False, True
        return self._worker

    def load(self) -> Waiting[Worker]:
        """Return the worker with its side loaded. Raises WorkerLost, or Refused: then each time."""
        if isinstance(self._load_error, Refused):
            raise self._load_error
        worker = self.start()
        if not self._is_loaded:  # `start` has already sent the request to load.
            # An import may compile, as `load_inline` does. It does not get that time twice.
            limit_s = max(START_LIMIT_S, 0.0 if self._load_error else self.bench.first_call_s)
            hung = "loading" + FIRST_CALL_HUNG
            try:
                yield from worker.receive(limit_s, f"loading {self.side.name}", hung)
            except (Refused, WorkerLost) as error:
                self._load_error = error
                self.close()
                raise
            self._is_loaded = True
        return worker

    def ask(
        self, request: Request[R], *, limit_s: float, note: str, first_call_s: float = 0.0
    ) -> Waiting[R]:
        """Load the side, send a request and return the reply. Raises WorkerLost or Refused.
        `first_call_s`: longer limit for a process's first request: a kernel may autotune."""
        worker = yield from self.load()
        start_s, is_first, hung = time.monotonic(), self.is_new_process, program.HUNG
        if is_first and first_call_s:
            limit_s, hung = max(limit_s, first_call_s), "the first call" + FIRST_CALL_HUNG
        try:
            reply = yield from worker.ask(request, limit_s=limit_s, note=note, hung=hung)
        except WorkerLost:
            self.close()
            raise
        if is_first:
            self.is_new_process = False
            seconds = time.monotonic() - start_s
            self.bench.slowest_first_call_s = max(self.bench.slowest_first_call_s, seconds)
            self.bench.first_calls_s += seconds
        return reply

    def kill(self) -> None:
        """Kill the worker without waiting, so that several end at once. The caller closes it."""
        if self._worker is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._worker.child.process.pid, signal.SIGKILL)  # It leads its group.

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.close()
        self._worker = None


class Fitting(NamedTuple):
    """Workloads that fit into memory, and a sentence for each that does not."""

    workloads: tuple[Workload, ...]
    exclusions: tuple[str, ...]  # One sentence for each workload without room.

    def extend_message(self, message: str) -> str:
        """A step's `message`, extended by the first excluded workload and the number of others."""
        if not self.exclusions:
            return message
        more = f", and {len(self.exclusions) - 1} more" if len(self.exclusions) > 1 else ""
        return f"{message or 'nothing has room'}; left out: {self.exclusions[0]}{more}"


def fit_workloads(
    bench: Bench,
    workloads: Sequence[Workload],
    sides: Sequence[Side],
    *,
    with_windows: bool = False,
    one_at_a_time: bool = False,
) -> Fitting:
    """Select the workloads whose tensors fit into free device memory for all sides (lower bound).
    Returns all workloads if the free memory is unknown. `with_windows`: inputs have room for other
    windows, as in timing. `one_at_a_time`: sides run in turn, so only the largest has to fit."""
    memory = bench.sensors.memory() if bench.sensors else None
    if memory is None:
        return Fitting(tuple(workloads), ())
    fitting, exclusions, gpu, free_bytes = [], [], detect_gpus().first, memory[0]
    names = ", ".join(dict.fromkeys(side.name for side in sides))
    available = f"{free_bytes / 2**30:.3f} GiB of {gpu.name if gpu else 'the GPU'} are free"
    for workload in workloads:
        call = bench.make_call(workload, "unused", with_windows=with_windows)
        input_bytes = sum(tensor.pool_nbytes for tensor in call.inputs)
        bytes_of_sides = []
        for side in sides:
            if is_supported(side, workload):
                input_copies, output_copies = TENSOR_COPIES[side.kind]
                tensor_bytes = input_copies * input_bytes + output_copies * call.output.nbytes
                bytes_of_sides.append(tensor_bytes + (CONTEXT_BYTES if input_copies else 0))
        size = max(bytes_of_sides, default=0) if one_at_a_time else sum(bytes_of_sides)
        if size <= free_bytes:
            fitting.append(workload)
        else:
            needed = f"inputs and outputs of {names} take {size / 2**30:.3f} GiB of device memory"
            exclusions.append(f"{workload.name}: {needed}, {available}")
    return Fitting(tuple(fitting), tuple(exclusions))
