"""Commands about jobs and other machines: what there is, running one, setting a machine up."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from loop.cli.command import command
from loop.cli.options import HostName, JobId, Json, Target

if TYPE_CHECKING:
    from loop.base.screen import Screen


@command("jobs", "loop jobs", "loop jobs --watch", result="loop.cli.jobs:JobList", agents="reads")
def jobs(
    limit: Annotated[int, Option(metavar="NUMBER", help="The newest so many.", min=1)] = 40,
    watch: Annotated[
        bool, Option("--watch", help="Print the table again when it changes, until all have ended.")
    ] = False,
    json: Json = False,
    *,
    screen: "Screen",
) -> int:
    """List jobs: what waits, runs and has ended, where, and at what cost."""
    from loop.cli.jobs import list_jobs

    return list_jobs(screen, limit=limit, watch=watch, as_json=json)


@command(
    "jobs follow", "loop jobs follow", "loop jobs follow 20261123-120000-3fa9c1", "loop jobs follow last --cancel"
)
def jobs_follow(
    job: JobId = "last",
    cancel: Annotated[bool, Option("--cancel", help="End it first, as Ctrl-C does.")] = False,
    *,
    screen: "Screen",
) -> int:
    """Show what a job on another machine says until it ends, and bring back what it made."""
    from loop.cli.following import cancel_job, follow_job

    return cancel_job(job, screen) if cancel else follow_job(job, screen)


@command("job run", "loop job run ~/.local/state/loop/jobs/4f2a90c1", result="loop.cli.jobs:JobOrProbe")
def job_run(
    folder: Annotated[
        Path, Argument(help="Folder with a job.json; or the file of one trial of `loop bisect --executor`.")
    ],
    json: Json = False,
    *,
    screen: "Screen",
) -> int:
    """Run the job in a folder: a `loop` command with the files it works on.

    Executors call it on the machine that does the work. A job that has ended is not run again.
    """
    if folder.suffix == ".json":
        from loop.bisect.probe_job import show

        return show(folder, screen)
    from loop.cli.jobs import run_job

    return run_job(folder, screen, as_json=json)


@command("hosts", "loop hosts", "loop hosts --json", result="loop.cli.hosts:HostList")
def hosts(target: Target = None, json: Json = False, *, screen: "Screen") -> int:
    """List the machines of hosts.yaml: in your configuration folder, and next to target.yaml.

    The form of the file:

      format: 1

      hosts:

        l4: {ssh: me@34.1.2.3, usd_per_hour: 0.7, stop: gcloud compute instances stop my-l4}
    """
    from loop.cli.hosts import list_hosts

    return list_hosts(target, screen, as_json=json)


@command("hosts setup", "loop hosts setup l4", result="loop.cli.hosts:HostsSetUp")
def hosts_setup(host: HostName, target: Target = None, json: Json = False, *, screen: "Screen") -> int:
    """Install this loop on a machine, and name what is missing there.

    It goes into an environment of its own, ~/.loop/venv. That sees the packages of `python:` and changes none.
    """
    from loop.cli.hosts import set_up

    return set_up(host, target, screen, as_json=json)


@command("hosts stop", "loop hosts stop l4", result="loop.cli.hosts:Stopped")
def hosts_stop(host: HostName, target: Target = None, json: Json = False, *, screen: "Screen") -> int:
    """Stop a machine by the command that hosts.yaml names."""
    from loop.cli.hosts import stop

    return stop(host, target, screen, as_json=json)
