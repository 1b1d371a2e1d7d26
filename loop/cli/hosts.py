"""`loop hosts` and `loop jobs`: lists, sets up and stops the machines of `hosts.yaml`; lists jobs."""

from pathlib import Path

from loop.base.errors import LoopError, UsageError, WorkFailed, remark_once
from loop.base.places import config_folder, find_project
from loop.cli.on_host import connection_to, hosts_folder, stop_machine, warn_of_cost
from loop.jobs import executor, remote
from loop.jobs import folder as folders
from loop.jobs import hosts as machines
from loop.jobs import remote_jobs as sent_jobs
from loop.jobs.folder import JobFolder
from loop.jobs.hosts import HostEntry
from loop.library.hosted import HOSTS_FILE
from loop.library.trust import is_trusted, untrusted_error
from loop.model.base import Model, Printed
from loop.model.jobs import JobRun
from loop.model.money import HourPrices
from loop.report import format as say
from loop.report.screen import Screen


class JobAnswer(Printed):
    """What `loop job run --json` prints."""

    job: JobRun

    def show(self, screen: Screen) -> None:
        """Print the job's id and state."""
        screen.say(f"job {self.job.id} {self.job.state}")


def run_job(folder: Path) -> tuple[JobAnswer, int]:
    """Run the job in a folder. Returns it, and its exit code: 128 + N after signal N, as in a shell."""
    job = JobFolder(folder.absolute())
    code = executor.run_job(job)  # -N after signal N.
    return JobAnswer(job=job.run_record), code if code >= 0 else 128 - code


class JobList(Printed):
    """This user's jobs on this machine, oldest first."""

    schema_version: int = 2
    jobs: tuple[JobRun, ...]

    def show(self, screen: Screen) -> None:
        """Print a table with a row each."""
        if not self.jobs:
            screen.say("no jobs: --executor and --on make some")
            return
        rows = []
        for job in self.jobs:
            state = f"{job.state}, {job.tries} times" if job.tries > 1 else job.state
            place = job.host if job.device == "cpu" else f"{job.device}, {job.host}"
            rows.append((job.id, state, job.title, place, f"{job.seconds:.0f}"))
        screen.table(("job", "state", "work", "where", "s"), rows, wrap=2)


def list_jobs(limit: int) -> JobList:
    """The newest `limit` jobs. A damaged job is reported on stderr and left out."""
    jobs = list[JobRun]()
    for folder in folders.list_jobs():
        try:
            jobs.append(folder.run_record)
        except LoopError as error:
            remark_once(f"{error.message}; {error.hint}")
    return JobList(jobs=tuple(jobs[-limit:]))


class HostRow(Model):
    """A machine of hosts.yaml."""

    name: str
    ssh: str
    usd_per_hour: HourPrices | None
    file: str
    jobs: tuple[str, ...]
    """Ids of jobs whose results are still on that machine."""
    lacks: tuple[str, ...] = ()
    """What the machine lacks, with the remedy; filled by `loop hosts setup` only."""

    @classmethod
    def from_entry(cls, entry: HostEntry, lacks: tuple[str, ...] = ()) -> "HostRow":
        """A machine of hosts.yaml, with its jobs. `lacks`: what `set_up` missed on it, a line each."""
        return cls(
            name=entry.name,
            ssh=entry.host.ssh,
            usd_per_hour=entry.host.prices,
            file=str(entry.path),
            jobs=tuple(folder.id for folder, _ in sent_jobs.list_sent_jobs(entry.name)),
            lacks=lacks,
        )

    @property
    def price(self) -> str:
        """Dollars per hour, in words; `?` if the price is not known."""
        prices = self.usd_per_hour
        if prices is None:
            return "?"
        if prices.on_demand == prices.spot:
            return say.usd(prices.usd_and_terms(None)[0])
        usd_by_terms = {"on demand": prices.on_demand, "spot": prices.spot}
        prices_known = {terms: usd for terms, usd in usd_by_terms.items() if usd is not None}
        return ", ".join(f"{say.usd(usd)} {terms}" for terms, usd in prices_known.items())


class HostList(Printed):
    """The machines of hosts.yaml."""

    hosts: tuple[HostRow, ...]

    def show(self, screen: Screen) -> None:
        """Print a table with a row each."""
        if not self.hosts:
            example = "format: 1, hosts: {gpu: {ssh: me@ADDRESS}}"
            screen.say(f"no hosts; write {config_folder() / HOSTS_FILE}: {example}")
            return
        rows = [(row.name, row.ssh, row.price, ", ".join(row.jobs) or "-", row.file) for row in self.hosts]
        screen.table(("host", "ssh", "an hour", "jobs there", "file"), rows)


def list_hosts(target: Path | None) -> HostList:
    """The machines of hosts.yaml. Opens no connection."""
    entries = machines.read_hosts(hosts_folder(find_project(target, Path.cwd())))
    return HostList(hosts=tuple(map(HostRow.from_entry, entries.values())))


def set_up(host: str, target: Path | None, screen: Screen) -> HostList:
    """Install this `loop` on a machine, and print what it lacks."""
    here = find_project(target, Path.cwd())
    entry = machines.choose_host(machines.read_hosts(hosts_folder(here)), host)
    if entry.path.parent == here.target and not is_trusted(here):
        raise untrusted_error(here)  # The project's own hosts.yaml names the machine.
    with connection_to(entry, screen) as connection:
        facts = remote.ask_facts(connection)
        remote.refuse_unfit_machine(connection, facts)
        if running := connection.list_running():
            hint = f"wait for it, or end it: loop jobs follow {running[0]} --cancel"
            raise UsageError(f"{host}: job {running[0]} runs with the loop that is there", hint)
        lacks = tuple(remote.list_missing_tools(connection, facts))
        for line in lacks:
            screen.say(f"{host}: {line}")
        wait = "" if facts["torch"] else "; torch takes minutes"
        folder = f"~/{remote.LOOP_FOLDER}/venv"
        screen.say(f"{host}: installing loop into {folder}, over Python {facts['python']}{wait}")
        remote.install(connection, facts)
    torch = f"torch {facts['torch']}" if facts["torch"] else "torch of its own"
    gpus = f"{facts['gpus']}, driver {facts['driver']}" if facts["gpus"] else "no GPU"
    screen.say(f"{host}: ready, with {torch} and {gpus}")
    screen.say(f"  next: loop run session --on {host}")
    return HostList(hosts=(HostRow.from_entry(entry, lacks),))


def stop(host: str, target: Path | None, screen: Screen) -> HostList:
    """Run a machine's `stop:` command. Raises WorkFailed if it still runs."""
    here = find_project(target, Path.cwd())
    entry = machines.choose_host(machines.read_hosts(hosts_folder(here)), host)
    if entry.host.stop is None:
        raise WorkFailed(warn_of_cost(entry, f"{entry.path} has no `stop:` for it"), "stop it yourself")
    stop_machine(entry, str(here.target), screen)
    return HostList(hosts=(HostRow.from_entry(entry),))
