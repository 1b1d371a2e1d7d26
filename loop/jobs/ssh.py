"""The executor `ssh`: jobs on machines of `hosts.yaml`, one for each of their GPUs at a time.

A connection that is cut is made anew with the next look. A machine that stays away loses its jobs to the others.
Should it answer again, what it was at is ended, and not taken.
"""

import contextlib
import datetime
import os
import threading
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from loop.base.documents import write_atomic
from loop.base.errors import LoopError, MachineFailure, UsageError
from loop.base.places import MANIFEST, Project
from loop.base.remarks import remark
from loop.jobs import hosts as known
from loop.jobs.folder import OUT, RC, SRC, TALK, TRIES, JobFolder, read_text
from loop.jobs.hosts import Listed
from loop.jobs.remote import Connection, Unreachable, patiently
from loop.jobs.running import LEAST_BYTES
from loop.jobs.there import There
from loop.library.hosted import FILE, VARIABLE, Hosted
from loop.library.trust import definition_hash
from loop.machine.gpus import VISIBLE
from loop.model.jobs import State

CHOSEN = "LOOP_HOSTS"
"""In the environment: names or labels of the machines, separated by commas; all of the user's own without it."""
AWAY_S = 120.0
"""A machine that is away for so long loses its jobs."""
LOOK_S = 0.3
MOST = 32
"""Threads that talk to machines, at least: one for each."""
VISIT_S = 1.0
"""So long one look waits for machines that do not answer yet; they are asked on while the others are served."""
PATIENCE_S = 60.0
"""So long a machine is tried at the end that answered before."""


@dataclass
class SshMachine:
    """One machine, and what runs there."""

    there: There
    slots: Sequence[Mapping[str, str]]
    """Variables of each job that may run there at a time, by which it knows its GPU."""
    jobs: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Ids of jobs there with their slots."""
    folders: dict[str, JobFolder] = field(default_factory=dict)
    """The same jobs with their folders here."""
    devices: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Devices that jobs ran on, with the slot of each."""
    sending: set[str] = field(default_factory=set)
    """Those that are on their way: after a cut they may have begun there, or not."""
    ending: set[str] = field(default_factory=set)
    """Those that it is still to be told to end."""
    back: dict[str, LoopError | None] = field(default_factory=dict)
    """Those that have ended and are here, or why what they made cannot be had."""
    left: set[str] = field(default_factory=set)
    """Jobs there that nobody waits for any more."""
    answered_at: float = field(default_factory=time.monotonic)
    """When it last answered."""
    cut: float | None = None
    """Since when nothing can be sent."""
    away: bool = False
    """Whether it lost its jobs, and has not answered since."""
    visit: "Future[Mapping[str, State]] | None" = None
    """A call of it that has not come back yet, in a thread of its own."""
    one_at_a_time: threading.Lock = field(default_factory=threading.Lock)
    """Held by whoever talks to it."""

    def give_up(self, id_: str) -> Mapping[str, str]:
        """Wait no more for a job, which is removed there some time; the slot that it had."""
        self.sending.discard(id_)
        self.ending.discard(id_)
        self.back.pop(id_, None)
        self.folders.pop(id_)
        self.left.add(id_)
        return self.jobs.pop(id_)


def check() -> None:
    """Raises UsageError where no machine is named, or one that is not known."""
    _chosen()


def opened(width: int) -> "Ssh":
    """At most `width` jobs at a time, on the machines that LOOP_HOSTS names, else all of the user's own."""
    return Ssh(_chosen(), width)


def _chosen() -> list[Listed]:
    listed = known.hosts(None)
    words = [word for word in os.environ.get(CHOSEN, "").split(",") if word]
    chosen = {host.name: host for word in words or listed for host in known.choose(listed, word)}
    if not chosen:
        raise UsageError(f"--executor ssh: no hosts: there is no {FILE}", hint="loop hosts --help")
    return [*chosen.values()]


def slots(host: Listed) -> list[Mapping[str, str]]:
    """A job for each GPU that the file names; one where it names none."""
    return [{VISIBLE: str(number)} for number in host.host.gpus or ()] or [{}]


def _told(host: Listed, job: JobFolder) -> dict[str, str]:
    """What the machine is told of a job: that its files are allowed here, from where alone jobs are submitted."""
    targets = [job.path / SRC / name for name in job.job.files if name.rpartition("/")[2] == MANIFEST]
    projects = [Project(path.parent, path.parent, bundled=False) for path in targets]
    trusted = tuple(definition_hash(project) for project in projects)
    today = datetime.datetime.now(datetime.UTC).date()
    return {VARIABLE: Hosted(name=host.name, prices=host.host.prices, as_of=today, trusted=trusted).as_text()}


class Ssh:
    """Jobs on several machines. One that cannot take any, as without this `loop`, is told before all begin."""

    def __init__(self, hosts: Sequence[Listed], width: int) -> None:
        self._open = contextlib.ExitStack()
        self._queue: deque[JobFolder] = deque()
        self._machines: list[SshMachine] = []
        self._aside: list[SshMachine] = []
        """Those that get no further job."""
        self._ended: dict[str, State] = {}
        self._looked = 0.0
        self._visits = self._open.enter_context(ThreadPoolExecutor(max(MOST, len(hosts))))
        try:
            self._reach(hosts, width)
        except BaseException:
            self._open.close()
            raise

    def _reach(self, hosts: Sequence[Listed], width: int) -> None:
        unfit: list[MachineFailure] = []
        for host in hosts:
            free = width - sum(len(machine.slots) for machine in self._machines)
            if free > 0:
                there = There(self._open.enter_context(Connection(host)))
                try:
                    if there.ready().free_kb << 10 < LEAST_BYTES:
                        raise there.connection.full()
                    self._machines.append(SshMachine(there, slots(host)[:free]))
                except MachineFailure as error:
                    unfit.append(error)
        if unfit and not self._machines:
            raise unfit[0]
        for failure in unfit:
            remark(f"{failure.message}: the others do its jobs")

    def submit(self, job: JobFolder) -> None:
        """Put it at the end of the queue."""
        self._ended.pop(job.id, None)
        self._queue.append(job)

    def poll(self, jobs: Sequence[JobFolder]) -> Mapping[str, State]:
        """Send what can be sent, and look at what runs, on all machines at once: one that hangs holds up none.

        Raises LoopError where no machine is left.
        """
        for machine in self._visited():
            visit, machine.visit = machine.visit, None
            assert visit is not None
            try:
                self._take(machine, visit.result())
            except LoopError as error:  # A person has to mend it, as a key that changed or a disk that is full.
                remark(f"{error.message}: its jobs are done elsewhere")
                self._machines.remove(machine)
                self._aside.append(machine)
                self._lose(machine, [*machine.jobs])
                if not self._machines:
                    raise
        if all(machine.away for machine in self._machines):
            raise MachineFailure("no machine answers any more", hint="loop hosts")
        waiting = {job.id for job in self._queue}
        return {job.id: self._ended.get(job.id, "queued" if job.id in waiting else "running") for job in jobs}

    def _visited(self) -> list[SshMachine]:
        """Have every machine visited that is not being visited; those that have answered by now."""
        looks = time.monotonic() - self._looked >= LOOK_S
        for machine in self._machines:
            if machine.visit is None:
                self._assign(machine)
                going_on = {*machine.jobs} - {*machine.back} if looks else set()
                machine.visit = self._visits.submit(_visited, machine, going_on)
        wait([machine.visit for machine in self._machines if machine.visit], VISIT_S)
        self._looked = time.monotonic() if looks else self._looked
        return [machine for machine in self._machines if machine.visit is not None and machine.visit.done()]

    def rest(self, seconds: float) -> None:
        """Nobody tells of an end: it is looked for."""
        time.sleep(seconds)

    def _assign(self, machine: SshMachine) -> None:
        """Give a machine that answers a job for each slot that is free."""
        if machine.away or machine.cut is not None:
            return
        for slot in [slot for slot in machine.slots if slot not in machine.jobs.values()][: len(self._queue)]:
            job = self._queue.popleft()
            machine.jobs[job.id], machine.folders[job.id] = slot, job
            machine.sending.add(job.id)

    def _take(self, machine: SshMachine, states: Mapping[str, State]) -> None:
        """What was seen there; a machine that stays away loses all its jobs."""
        now = time.monotonic()
        if now - machine.answered_at >= AWAY_S or (machine.cut is not None and now - machine.cut >= AWAY_S):
            if not machine.away:
                remark(f"{machine.there.name} stays away: its jobs are done elsewhere")
            machine.away = True
            self._lose(machine, [*machine.jobs])
            return
        self._ended |= {id_: state for id_, state in states.items() if state in ("done", "failed")}
        self._lose(machine, [id_ for id_, state in states.items() if state == "lost"])

    def _lose(self, machine: SshMachine, lost: Sequence[str]) -> None:
        """Take jobs from a machine that does not bring them to an end."""
        for id_ in lost:
            tries = machine.folders[id_].path / TRIES
            write_atomic(tries, str(int(read_text(tries) or 0) + 1))  # Where it is begun next counts on from here.
            machine.give_up(id_)
            self._ended[id_] = "lost"

    def _of(self, job: JobFolder) -> SshMachine | None:
        return next((machine for machine in self._machines if job.id in machine.jobs), None)

    def cancel(self, job: JobFolder) -> None:
        """Take it out of the queue, or have it end there."""
        job.cancel()
        if job in self._queue:
            self._queue.remove(job)
        machine = self._of(job)
        if machine is not None:
            machine.ending.add(job.id)

    def collect(self, job: JobFolder) -> None:
        """It is here since it was seen to have ended: free its slot. Raises LoopError for what did not arrive."""
        machine = self._of(job)
        if machine is None:
            return
        try:
            if error := machine.back.get(job.id):
                raise error
            job.check()
        except LoopError:
            self._lose(machine, [job.id])
            raise
        slot = machine.give_up(job.id)
        if (where := job.where) is not None and where.uuid:
            machine.devices[where.uuid] = slot

    def avoid(self, uuid: str) -> bool:
        """Take the device's slot away, on each machine that named it, where another slot is left."""
        mine = [machine for machine in self._machines if uuid in machine.devices]
        if sum(len(machine.slots) for machine in self._machines) <= len(mine):
            return False
        for machine in mine:
            machine.slots = [slot for slot in machine.slots if slot != machine.devices[uuid]]
            del machine.devices[uuid]
        return bool(mine)

    def close(self) -> None:
        """End what still runs there, and every connection. The machines stay: what that costs is said."""
        for host in (machine.there.connection.listed for machine in (*self._machines, *self._aside)):
            prices, stops = host.host.prices, host.host.stop is not None
            if stops or prices:
                costs = f" and costs ${prices.at(None)[0]:.2f} an hour" if prices else ""
                end = f"when all is over: loop hosts stop {host.name}" if stops else "stop it yourself"
                remark(f"{host.name} goes on running{costs}; {end}")
        with self._open:
            for visit in [self._visits.submit(_leave, machine) for machine in (*self._machines, *self._aside)]:
                visit.result()


def _visited(machine: SshMachine, jobs: Collection[str]) -> Mapping[str, State]:
    """Send what is to be sent to a machine, look at these jobs there, and bring back those that have ended.

    Where each stands; nothing while it is cut off. Raises LoopError where a person has to mend something.
    """
    with machine.one_at_a_time:
        try:
            _send(machine)
            machine.cut = None
            there = dict.fromkeys((id_ for id_ in jobs if id_ not in machine.sending), (0, 0))
            looks = machine.there.look(there) if there else {}
            for id_, look in looks.items():
                if look.state in ("done", "failed"):
                    machine.back[id_] = _fetched(machine, id_)
            machine.answered_at = time.monotonic()
        except Unreachable:
            machine.cut = machine.cut or time.monotonic()
            return {}
    return {id_: look.state for id_, look in looks.items()}


def _fetched(machine: SshMachine, id_: str) -> LoopError | None:
    """Bring back what a job made and printed; why that cannot be had. Raises Unreachable."""
    try:
        machine.there.collect(machine.folders[id_], OUT, TALK, RC, TRIES)
    except Unreachable:
        raise
    except LoopError as error:
        return error
    return None


def _send(machine: SshMachine) -> None:
    """Have it forget what nobody waits for, end what is to end, and begin what is new. Raises Unreachable."""
    if machine.left or machine.away or machine.cut is not None:
        forgotten = {*machine.left}  # It may grow meanwhile.
        machine.there.forget(*forgotten)
        machine.left -= forgotten
        machine.away = False
    for id_ in tuple(machine.ending & {*machine.jobs}):
        if id_ in machine.sending:
            machine.sending.discard(id_)
        else:
            machine.there.cancel(id_)
        machine.ending.discard(id_)
    for id_ in tuple(machine.sending):
        variables = _told(machine.there.connection.listed, machine.folders[id_])
        machine.there.submit(machine.folders[id_], {**machine.jobs[id_], **variables})
        machine.sending.discard(id_)


def _leave(machine: SshMachine) -> None:
    """End and remove what is still on a machine, after a visit that goes on."""
    with machine.one_at_a_time, contextlib.suppress(LoopError):
        if jobs := {*machine.jobs, *machine.left}:
            patiently(lambda: machine.there.forget(*jobs), 0.0 if machine.away else PATIENCE_S)
