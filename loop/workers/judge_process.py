"""The judge: the parent's end of its process, which is started when it is first asked."""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TypeVar

from loop.base.errors import MachineFailure, WorkFailed
from loop.base.processes import Tick
from loop.calls.call import Call
from loop.machine.machine import cores, killed_for_memory
from loop.model.dtypes import Device
from loop.workers.judge_messages import Begin, Examine, ToJudge
from loop.workers.nursery import PATIENT, Nursery
from loop.workers.program import START_LIMIT_S, Program, Refusal, WorkerLost, thread_environment, within

UNTIMED = {**PATIENT, "THP_MEM_ALLOC_ENABLE": "1"}
"""Of programs that nobody times: PyTorch asks for huge pages, so large tensors cost about a hundredth of the page
faults. Workers keep the memory that users have."""
R = TypeVar("R")


class Unjudged(WorkFailed):
    """One workload cannot be judged: the reference raises there, or overflows. Others may be."""


@dataclass
class JudgeProcess:
    """One judge for all benches of a session: it judges one target at a time."""

    target: Begin | None = None
    """What it judges now."""
    expected: dict[str, tuple[bool, list[bytes]]] = field(default_factory=dict)
    """Calls whose answer it knows: whether their files have room, and digests of the files, for any process can
    write there."""
    calls: dict[str, Call] = field(default_factory=dict)
    """Calls with the tensors that only the judge could tell."""
    device: Device = "cuda"
    """On a CPU it is bound to the memory that there is. A GPU's driver maps more than it uses."""
    nursery: Nursery | None = None
    """It forks the judge, where there is one: torch is imported once for judge and workers."""
    _program: Program | None = None
    _killed: int = 0
    """Number of processes that the system had killed before for want of memory."""

    def warm_up(self) -> None:
        """Start it, or what will fork it: torch is imported while something else is done."""
        if self.nursery is None:
            self.program()
        else:
            self.nursery.warm_up()

    def program(self) -> Program:
        """Its process."""
        if self._program is None:
            environment = {**thread_environment(cores()), **UNTIMED, **within(self.device)}
            self._killed = killed_for_memory()
            self._program = Program("loop.workers.judge_program", environment=environment, nursery=self.nursery)
        return self._program

    def dismiss(self) -> None:
        """End it; the next request starts a new one."""
        if self._program is not None:
            self._program.close()
        self._program, self.target = None, None
        self.expected.clear()
        self.calls.clear()

    def judge(self, target: Begin, request: ToJudge[R], limit_s: float, note: str) -> Generator[Tick, None, R]:
        """The reply to a request about a target; it forgets any other one."""
        if self.target != target:
            self.expected.clear()
            self.calls.clear()
            yield from self.ask(target, START_LIMIT_S, "importing torch")
            self.target = target
        return (yield from self.ask(request, limit_s, note))

    def known(self, target: Begin, key: str) -> tuple[bool, list[bytes]] | None:
        """The entry in `expected` of a call of a target; None where it does not know the answer."""
        return self.expected.get(key) if self.target == target else None

    def found(self, call: Call) -> Call:
        """A call with the tensors that only the judge knew, once it told; its outputs are in a file of its own."""
        known = self.calls.get(call.key)
        if known is None:
            return call
        path = call.output.path
        parts = tuple(part.but(path=path) for part in known.parts)
        return known.but(output=known.output.but(path=path), parts=parts)

    def ask(self, request: ToJudge[R], limit_s: float, note: str) -> Generator[Tick, None, R]:
        """The reply to a request. Raises WorkFailed where it is refused, or the process dies.

        MachineFailure where the system killed it for want of memory.
        """
        try:
            return (yield from self.program().ask(request, limit_s=limit_s, note=note))
        except WorkerLost as lost:
            self.dismiss()
            last = lost.errors.strip().splitlines()[-1:]
            message = f"{note}: the judging process was lost: {lost.how}"
            if lost.kind == "crashed" and killed_for_memory() > self._killed:
                hint = "free some, or take fewer variants or a smaller workload"
                raise MachineFailure(f"{message}: memory ran out", hint) from lost
            raise WorkFailed(message, hint=last[0] if last else None) from lost
        except Refusal as refusal:
            examined = isinstance(request, Examine)
            hint = "see `loop doctor`" if examined else "look at that function of the target's"
            failed = Unjudged if refusal.cause == "raised" and not examined else WorkFailed
            raise failed(str(refusal), hint=hint) from refusal
