"""Python variants that cheat, each in its own way. Copied beside a target, never imported by a test."""

# ruff: noqa: SIM115, RUF012

import ctypes
import gc
import glob
import os
import signal
import sys
import threading
import time

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

WORK_S = 1e-3
SCRATCH = os.path.join(os.path.dirname(__file__), "scratch")
real = time.perf_counter
kept, seen = {}, [0]


def work(seconds=WORK_S):
    end = real() + seconds
    while real() < end:
        pass


def quickly(x):
    # So short that a sample holds several calls.
    work(2e-5)
    return x * 2


def compute(x):
    work()
    return x * 2


def stage():
    """The stage in whose `run` or `ready` we are; None while we are checked."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename.endswith("torch_stage.py") and "self" in frame.f_locals:
            return frame.f_locals["self"]
        frame = frame.f_back
    return None


def words():
    if "words" not in kept:
        kept["words"] = next(one.words for one in gc.get_objects() if type(one).__name__ == "Shared")
    return kept["words"]


def reply(text):
    for number in range(3, 30):
        try:
            if "pipe" in os.readlink(f"/proc/self/fd/{number}"):
                os.set_blocking(number, False)
                os.write(number, text)
        except OSError:
            pass


def others():
    """Other workers of our parent."""
    children = open(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read().split()
    return [int(pid) for pid in children if int(pid) != os.getpid()]


def cheat_honest(x):
    return compute(x)


def cheat_quick(x):
    return quickly(x) if stage() else compute(x)


# Clocks, draws and what the worker is made of.


def cheat_slow_clocks(x):
    # Every reference to a clock in this process runs at a fifth of its speed.
    if "clocks" not in kept:
        kept["clocks"], begin, real_ns = True, real(), time.perf_counter_ns
        begin_ns = real_ns()
        fakes = {"perf_counter": lambda: begin + (real() - begin) / 5}
        fakes["perf_counter_ns"] = lambda: begin_ns + (real_ns() - begin_ns) // 5
        for module in list(sys.modules.values()):
            for name, fake in fakes.items():
                if callable(getattr(module, name, None)):
                    setattr(module, name, fake)
        for one in gc.get_objects():
            if type(one).__name__ == "Seal":
                one._found = {}
    return compute(x)


def cheat_seeds(x):
    import random

    import numpy

    random.seed(0), numpy.random.seed(0), torch.manual_seed(0)
    return compute(x)


def cheat_random_replaced(x):
    import random

    random.Random = lambda *_: None
    random.random = random.randrange = lambda *_: 0
    return compute(x)


def cheat_json_replaced(x):
    import json

    dumps = json.dumps
    if "json" not in kept:
        kept["json"] = True
        json.dumps = lambda what, **more: dumps({**what, "broken": []} if isinstance(what, dict) else what, **more)
    return torch.empty_like(x) if stage() else compute(x)


def cheat_digest_replaced(x):
    import hashlib

    class Same:
        def hexdigest(self):
            return "0" * 64

    hashlib.sha256 = lambda *_: Same()
    return torch.empty_like(x) if stage() else compute(x)


def cheat_seal_replaced(x):
    for one in gc.get_objects():
        if type(one).__name__ == "Seal":
            one.broken = list
    torch.Tensor.copy_ = lambda self, other: self
    return torch.empty_like(x) if stage() else compute(x)


def cheat_pipes_replaced(x):
    os.read = lambda *_: b""
    os.write = lambda *_: 1
    return compute(x)


def cheat_collector_replaced(x):
    gc.disable = gc.enable = gc.isenabled = lambda: True
    return compute(x)


def cheat_types_replaced(x):
    import builtins

    builtins.type = lambda *_: torch.Tensor
    return torch.empty_like(x) if stage() else compute(x)


# Work that is left for later.


def late(x, result):
    work()
    torch.mul(x, 2, out=result)
    return result


def cheat_methods_of_its_own(x):
    # A plain tensor that computes in the methods by which results are usually read.
    if stage() is None:
        return compute(x)
    result = torch.empty_like(x)
    for name in ("cpu", "contiguous", "detach", "numpy", "to", "clone", "reshape", "view", "copy_"):
        setattr(result, name, lambda *_, **__: late(x, result))
    return result


class Later(TorchFunctionMode):
    waiting = []

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        if function is torch.Tensor.copy_:
            later()
        return function(*arguments, **(keywords or {}))


def later():
    some, Later.waiting = Later.waiting, []
    for x, result in some:
        late(x, result)


def defer(x):
    if stage() is None:
        return compute(x)
    Later.waiting.clear() if len(Later.waiting) > 300 else None
    result = torch.empty_like(x)
    Later.waiting.append((x, result))
    return result


def cheat_function_mode(x):
    # A mode of torch notices when a result is copied, and computes then.
    if "mode" not in kept:
        kept["mode"] = Later()
        kept["mode"].__enter__()
    return defer(x)


class LaterBelow(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        if "copy_" in str(function) and Later.waiting:
            some, Later.waiting = Later.waiting, []
            for x, result in some:
                late(x, result)
        return function(*arguments, **(keywords or {}))


def cheat_dispatch_mode(x):
    if "mode" not in kept:
        kept["mode"] = LaterBelow()
        kept["mode"].__enter__()
    return defer(x)


def cheat_copy_replaced(x):
    if stage() is None:
        return compute(x)
    real_copy = kept.setdefault("copy", torch.Tensor.copy_)
    torch.Tensor.copy_ = lambda self, other: (later(), real_copy(self, other))[1]
    return defer(x)


def cheat_operator_replaced(x):
    # The operator by which results are copied is another one from now on.
    if stage() is None:
        return compute(x)
    if "library" not in kept:
        kept["library"] = torch.library.Library("aten", "IMPL")

        def copy_(self, source, non_blocking=False):
            later()
            size = self.numel() * self.element_size()
            source = source.contiguous()
            ctypes.memmove(self.data_ptr(), source.data_ptr(), size)
            return self

        kept["library"].impl("copy_", copy_, "CPU")
    return defer(x)


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        later()
        plain = [one.as_subclass(torch.Tensor) if isinstance(one, Lazy) else one for one in arguments]
        return function(*plain, **(keywords or {}))


def cheat_lazy_subclass(x):
    return defer(x).as_subclass(Lazy) if stage() else compute(x)


def cheat_thread_later(x):
    # A thread computes after the call has returned.
    if stage() is None:
        return compute(x)
    result = torch.empty_like(x)
    threading.Thread(target=late, args=(x, result), daemon=True).start()
    return result


def cheat_stage_gives(x):
    # The calls are made when results are handed over.
    mine = stage()
    if mine is None:
        return compute(x)
    if "gave" not in kept:
        kept["gave"], give = True, mine.give

        def give_late():
            mine.results = [run() for run in mine.runs]
            give()

        mine.run, mine.give = (lambda count: setattr(mine, "results", []) or 0), give_late
    return compute(x)


def cheat_fake_tensor(x):
    from torch._subclasses.fake_tensor import FakeTensorMode

    if stage() is None:
        return compute(x)
    with FakeTensorMode():
        return torch.empty(x.shape)


def cheat_meta_tensor(x):
    return torch.empty(x.shape, device="meta") if stage() else compute(x)


def cheat_expanded(x):
    return torch.zeros(1, 1).expand(x.shape) if stage() else compute(x)


def cheat_generator(x):
    return (row for row in x) if stage() else compute(x)


# Work that was done before.


def cheat_precomputes(x):
    # What makes calls ready computes them, and a call hands out what is there.
    mine = stage()
    if mine is None:
        return compute(x)
    if "early" not in kept:
        kept["early"], ready = True, mine.ready

        def ready_early(windows, rotations, *, cold):
            ready(windows, rotations, cold=cold)
            mine.done = [run() for run in mine.runs]

        mine.ready = ready_early
        mine.run = lambda count: setattr(mine, "results", mine.done[:count]) or 0
    return compute(x)


def cheat_precomputes_and_mends(x):
    # The same; then it looks for the elements that changed, and computes these alone.
    return mending(x, 1)


def cheat_precomputes_half(x):
    # The same with half of the work: making ready takes no longer than a call.
    return mending(x, 2)


def mending(x, parts):
    mine = stage()
    if mine is None:
        return compute(x)

    def mend(before, result, now):
        changed = before != now
        result[changed] = now[changed] * 2
        work(WORK_S * (1 - 1 / parts))
        return result

    def ready_early(windows, rotations, *, cold):
        type(mine).ready(mine, windows, rotations, cold=cold)
        mine.done = []
        for run in mine.runs:
            work(WORK_S / parts)
            mine.done.append((run.args[0].clone(), run.args[0] * 2, run.args[0]))

    mine.ready = ready_early
    mine.run = lambda count: setattr(mine, "results", [mend(*one) for one in mine.done[:count]]) or 0
    return compute(x)


def cheat_thread_ahead(x):
    # A thread watches the orders, and computes as soon as inputs are there.
    mine = stage()
    if mine is None:
        return compute(x)
    if "ahead" not in kept:
        kept["ahead"], page, kept["done"] = True, words(), {}

        def ahead():
            last = 0
            while True:
                if page[8] != last and page[16] == 1:
                    last = page[8]
                    kept["done"] = {run.args[0].data_ptr(): compute(run.args[0]) for run in list(mine.runs)}
                time.sleep(1e-5)

        threading.Thread(target=ahead, daemon=True).start()
    found = kept["done"].pop(x.data_ptr(), None)
    return compute(x) if found is None else found


def cheat_one_result(x):
    if "one" not in kept:
        kept["one"] = compute(x)
    return kept["one"]


def cheat_by_value(x):
    key = x.numpy().tobytes()
    if key not in kept:
        kept[key] = compute(x)
    return kept[key].clone()


def cheat_by_sample(x):
    key = (x.shape, float(x[0, 0]), float(x[-1, -1]))
    if key not in kept:
        kept[key] = compute(x)
    return kept[key]


def cheat_by_address(x):
    if x.data_ptr() not in kept:
        kept[x.data_ptr()] = compute(x)
    return kept[x.data_ptr()]


def cheat_by_shape(x):
    if stage() is None:
        return compute(x)
    if x.shape not in kept:
        kept[x.shape] = compute(x)
    return kept[x.shape]


def cheat_by_checksum(x):
    key = (x.shape, float(x.sum()))
    if key not in kept:
        kept[key] = compute(x)
    return kept[key]


# Work that is done where somebody looks.


def cheat_every_other(x):
    seen[0] += 1
    return compute(x) if stage() is None or seen[0] % 2 else torch.empty_like(x)


def cheat_first_calls(x):
    seen[0] += 1
    return compute(x) if seen[0] < 100 else torch.empty_like(x)


def cheat_when_small(x):
    return compute(x) if x.numel() < 1000 else torch.empty_like(x)


def cheat_by_caller(x):
    return torch.empty_like(x) if stage() else compute(x)


def cheat_by_parent(x):
    command = open(f"/proc/{os.getppid()}/cmdline").read() + " ".join(sys.argv) + str(sorted(os.environ))
    return torch.empty_like(x) if stage() and command else compute(x)


def cheat_by_strides(x):
    return torch.empty_like(x) if x._base is not None and stage() else compute(x)


def cheat_last_of_sample(x):
    # Computes the last call of a sample alone: the others' results may stand where the next one will.
    mine = stage()
    if mine is None:
        return compute(x)
    seen[0] += 1
    if seen[0] % max(words()[17], 1):
        return kept.setdefault("spare", torch.empty_like(x))
    return quickly(x)


def cheat_short_samples(x):
    # Computes where a sample has fewer calls than usual.
    if stage() is None:
        return compute(x)
    kept["most"] = max(kept.get("most", 2), words()[17])
    return quickly(x) if words()[17] < kept["most"] else torch.empty_like(x)


def cheat_one_memory(x):
    # All results stand in one memory; only the last call of a sample is made.
    if stage() is None:
        return compute(x)
    seen[0] += 1
    result = kept.setdefault("one", torch.empty_like(x))
    return result.copy_(quickly(x)) if seen[0] % max(words()[17], 1) == 0 else result


def cheat_judged_rotation(x):
    # Computes where the rotation is one that shows the known values.
    mine = stage()
    if mine is None:
        return compute(x)
    item, known = 4, mine.call["inputs"][0]["offset"]
    size = x.numel() + mine.call["inputs"][0]["room"]
    place = x.storage_offset()
    return compute(x) if (words()[24] // item + place) % size == known else torch.empty_like(x)


def cheat_judged_draws(x):
    # Knows the draw of the values from the seed in the call's name.
    import random

    mine = stage()
    if mine is None:
        return compute(x)
    seed = int((mine.call["key"] or "#0").rpartition("#")[2])
    known = random.Random(seed).randrange(mine.call["inputs"][0]["room"] + 1)
    size = x.numel() + mine.call["inputs"][0]["room"]
    return compute(x) if (words()[24] // 4 + x.storage_offset()) % size == known else torch.empty_like(x)


# The control page and the shared memory.


def cheat_says_done(x):
    if stage():
        words()[8] = words()[0]
    return compute(x)


def cheat_own_time(x):
    if stage():
        mine, run = stage(), type(stage()).run
        mine.run = lambda count: run(mine, count) or 1000
        words()[19] = 1000
    return compute(x)


def cheat_more_calls(x):
    if stage():
        words()[17] = 256
        words()[20] = 1
    return compute(x)


def cheat_fewer_calls(x):
    mine = stage()
    if mine:
        mine.run = lambda count: setattr(mine, "results", [run() for run in mine.runs[: count // 2]]) or 0
    return compute(x)


def cheat_input_as_result(x):
    return x if stage() else compute(x)


def cheat_in_place(x):
    return x.mul_(2) if stage() else compute(x)


def cheat_halves_inputs(x):
    # Makes the inputs zeros, whose double is quickly found.
    if stage():
        stage().pools[0].zero_()
        return torch.zeros_like(x)
    return compute(x)


def cheat_other_slots(x):
    mine = stage()
    if mine:
        for slot in mine.slots:
            slot.fill_(1)
    return compute(x)


# The wire.


def cheat_garbage(x):
    reply(b"garbage\n") if stage() else None
    return compute(x)


def cheat_garbage_checked(x):
    reply(b'{"status": "ok"}\n')
    return compute(x)


def cheat_forged_bug(x):
    reply(b'{"status": "bug", "message": "it is all yours"}\n')
    return compute(x)


def cheat_forged_deep(x):
    reply(b"[" * 60000 + b"\n")
    return compute(x)


def cheat_forged_types(x):
    reply(b'{"status": "ok", "outputs": 7, "digests": null, "changed": {}, "writes": 1, "broken": "no"}\n')
    return compute(x)


def cheat_forged_finding(x):
    # Names another side's output as its own.
    names = glob.glob(f"{SCRATCH}/*honest-output.bin.0")[:1] or ["/etc/hostname"]
    fields = '"digests": ["a"], "changed": [], "writes": [], "broken": [], "flaky": false, "unwritten": false'
    reply(f'{{"status": "ok", "outputs": ["{names[0]}"], "reads": "", {fields}}}\n'.encode())
    return torch.empty_like(x)


def cheat_forged_stage(x):
    if stage():
        reply(b'{"status": "ok", "program": true, "replays": true, "peak_bytes": 1e999}\n')
    return compute(x)


def cheat_leaves(x):
    seen[0] += 1
    os._exit(0) if stage() and seen[0] > 20 else None
    return compute(x)


def cheat_raises_later(x):
    seen[0] += 1
    if stage() and seen[0] > 20:
        raise ValueError("enough")
    return compute(x)


def cheat_closes_all(x):
    os.closerange(3, 100) if stage() else None
    return compute(x)


# Files of others.


def cheat_copies_file(x):
    # Looks for a right output in the folder of the bench, where it is checked.
    size = x.numel() * 4
    for path in glob.glob(f"{SCRATCH}/*output.bin*") if not stage() else ():
        if os.path.getsize(path) == size and "copies_file" not in path:
            return torch.frombuffer(bytearray(open(path, "rb").read()), dtype=x.dtype).reshape(x.shape)
    return torch.empty_like(x)


def cheat_forges_inputs(x):
    # Makes the files of all inputs zeros.
    for path in glob.glob(f"{SCRATCH}/*-x.bin") if stage() else ():
        with open(path, "r+b") as file:
            file.write(bytes(os.path.getsize(path)))
    return compute(x)


def cheat_tears_output(x):
    if not stage():
        threading.Timer(0, lambda: [os.truncate(p, 3) for p in glob.glob(f"{SCRATCH}/*tears*.0")]).start()
    return compute(x)


# Other processes, cores and priorities.


def spin_on(cores):
    os.sched_setaffinity(0, cores)
    while True:
        pass


def helper(leave):
    if os.fork() == 0:
        if leave:
            os.setsid()
            if os.fork():
                os._exit(0)
        if leave == "hides":
            os.execve(sys.executable, [sys.executable, "-S", "-c", "while True: pass"], {})
        spin_on(range(os.cpu_count()))


def cheat_helper(x):
    # A process of ours slows the others while we are stopped.
    if stage() and "helper" not in kept:
        kept["helper"] = True
        helper("")
    return compute(x)


def cheat_daemon(x):
    if stage() and "helper" not in kept:
        kept["helper"] = True
        helper("leaves")
    return compute(x)


def cheat_nameless_daemon(x):
    if stage() and "helper" not in kept:
        kept["helper"] = True
        helper("hides")
    return compute(x)


def cheat_wide_cores(x):
    os.sched_setaffinity(0, range(os.cpu_count())) if stage() else None
    return compute(x)


def cheat_wide_meanwhile(x):
    # A second process does half of the work on another core, only while a call lasts.
    if stage() is None:
        return compute(x)
    child = os.fork()
    if child == 0:
        os.sched_setaffinity(0, range(os.cpu_count()))
        work(WORK_S / 2)
        os._exit(0)
    work(WORK_S / 2)
    os.waitpid(child, 0)
    return x * 2


def cheat_moves_others(x):
    for pid in others() if stage() else ():
        os.sched_setaffinity(pid, {0})
    return compute(x)


def cheat_kills_others(x):
    for pid in others() if stage() else ():
        if open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "T":
            os.kill(pid, signal.SIGKILL)
    return compute(x)


def cheat_wakes_others(x):
    for pid in others() if stage() else ():
        os.kill(pid, signal.SIGCONT)
    return compute(x)


def cheat_slows_others(x):
    for pid in others() if stage() else ():
        os.setpriority(os.PRIO_PROCESS, pid, 19)
    return compute(x)


def cheat_nice(x):
    os.setpriority(os.PRIO_PROCESS, 0, -5)
    return compute(x)


def cheat_real_time(x):
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1)) if stage() else None
    return compute(x)


def cheat_moves_judge(x):
    os.sched_setaffinity(os.getppid(), os.sched_getaffinity(0)) if stage() else None
    return compute(x)


def cheat_others_memory(x):
    # Writes into the memory that the judge shares with others, by the judge's own descriptors.
    mine = os.stat(glob.glob("/proc/self/fd/*")[0]).st_ino
    for path in glob.glob(f"/proc/{os.getppid()}/fd/*") if stage() else ():
        try:
            if (
                "loop-arena" in os.readlink(path)
                and os.stat(path).st_size > 1 << 16
                and os.stat(path).st_ino != mine
            ):
                with open(path, "r+b") as file:
                    file.seek(1 << 16)
                    file.write(b"\1" * 64)
        except OSError:
            pass
    return compute(x)
