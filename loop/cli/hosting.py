"""Commands about jobs and other machines: what there is, running one, setting a machine up."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from loop.cli.command import command
from loop.cli.options import HostName, JobId, Json, Target


@command("jobs", "cli.jobs:list_jobs", "JobList", "loop jobs", "watch loop jobs", agents="reads")
def jobs(limit: Annotated[int, Option(help="The newest so many.", min=1)] = 40, json: Json = False) -> None:
    """List jobs: what waits, runs and has ended, where, and at what cost."""


@command(
    "jobs follow",
    "cli.following:follow_job",
    "",
    "loop jobs follow",
    "loop jobs follow 20261123-120000-3fa9c1",
    "loop jobs follow last --cancel",
)
def jobs_follow(
    job: JobId = "last", cancel: Annotated[bool, Option("--cancel", help="End it first, as Ctrl-C does.")] = False
) -> None:
    """Show what a job on another machine says until it ends, and bring back what it made."""


@command("job run", "cli.jobs:run_job", "JobAnswer", "loop job run ~/.local/state/loop/jobs/4f2a90c1")
def job_run(folder: Annotated[Path, Argument(help="Folder with a job.json.")], json: Json = False) -> None:
    """Run the job in a folder: a `loop` command with the files it works on.

    Executors call it on the machine that does the work. A job that has ended is not run again.
    """


@command("hosts", "cli.hosts:list_hosts", "HostList", "loop hosts", "loop hosts --json")
def hosts(target: Target = None, json: Json = False) -> None:
    """List the machines of hosts.yaml: in your configuration folder, and next to target.yaml.

    The form of the file:

      format: 1

      hosts:

        l4: {ssh: me@34.1.2.3, usd_per_hour: 0.7, stop: gcloud compute instances stop my-l4}
    """


@command("hosts setup", "cli.hosts:set_up", "HostList", "loop hosts setup l4")
def hosts_setup(host: HostName, target: Target = None, json: Json = False) -> None:
    """Install this loop on a machine, and name what is missing there.

    It goes into an environment of its own, ~/.loop/venv. That sees the packages of `python:` and changes none.
    """


@command("hosts stop", "cli.hosts:stop", "HostList", "loop hosts stop l4")
def hosts_stop(host: HostName, target: Target = None, json: Json = False) -> None:
    """Stop a machine by the command that hosts.yaml names."""
