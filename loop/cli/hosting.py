"""The table of commands about jobs and other machines: what there is, running one, setting a machine up."""

from pathlib import Path

from loop.cli.options import DEVICE, SEED, SETS, TARGET, THREADS, VARIANTS
from loop.cli.table import Command, argument, option

JOB = argument("job ID", str, "An id of a job, or last.", "last")

HOSTING = (
    Command(
        "jobs",
        "loop.cli.jobs:list_jobs",
        "List jobs: what waits, runs and has ended, where, and at what cost.",
        ("loop jobs", "loop jobs --watch"),
        (
            option("--limit", int, "The newest so many.", 40, min=1),
            option("--watch", bool, "Print the table again when it changes, until all have ended."),
        ),
        result="loop.cli.jobs:JobList",
        agents="reads",
    ),
    Command(
        "job run",
        "loop.cli.jobs:run_job",
        """Run the job in a folder: a `loop` command with the files it works on.

        Executors call it on the machine that does the work. A job that has ended is not run again.
        """,
        ("loop job run ~/.local/state/loop/jobs/4f2a90c1",),
        (argument("folder", Path, "Folder with a job.json."),),
        result="loop.cli.jobs:JobAnswer",
    ),
    Command(
        "run step",
        "loop.cli.parts:run_step",
        """Do one step of a pattern by itself: an action with its arguments, without a session.

        An executor has parts of a session done by it, each as a job.
        """,
        ("loop run step kernel.verify --variant cpu --json",),
        (
            argument("action", str, "A name from docs/reference/actions.md."),
            option("--with JSON", str, "Its arguments as JSON.", "{}", name="given"),
            TARGET,
            DEVICE,
            VARIANTS,
            THREADS,
            SEED,
            SETS,
            option("--checks NAME", list[str] | None, "A set that is only checked."),
            option("--budget-s", float, "Seconds that it is meant to take.", 60, min=0.001),
            option("--limit-s", float, "Seconds after which it is killed.", 600, min=0.001),
            option("--samples FILE", Path | None, "Write its raw samples there."),
        ),
        result="loop.cli.bench:BenchAnswer",
    ),
    Command(
        "hosts",
        "loop.cli.hosts:list_hosts",
        """List the machines of hosts.yaml: in your configuration folder, and next to target.yaml.

        The form of the file:

          format: 1

          hosts:

            l4: {ssh: me@34.1.2.3, usd_per_hour: 0.7, stop: gcloud compute instances stop my-l4}
        """,
        ("loop hosts", "loop hosts --json"),
        (TARGET,),
        result="loop.cli.hosts:HostList",
    ),
    Command(
        "hosts setup",
        "loop.cli.hosts:set_up",
        """Install this loop on a machine, and name what is missing there.

        It goes into an environment of its own, ~/.loop/venv. That sees the packages of `python:` and changes none.
        """,
        ("loop hosts setup l4",),
        (argument("host", str, "Name or label in hosts.yaml."), TARGET),
        result="loop.cli.hosts:HostsSetUp",
    ),
    Command(
        "hosts stop",
        "loop.cli.hosts:stop",
        "Stop a machine by the command that hosts.yaml names.",
        ("loop hosts stop l4",),
        (argument("host", str, "Name or label in hosts.yaml."), TARGET),
        result="loop.cli.hosts:Stopped",
    ),
    Command(
        "job probe",
        "loop.bisect.probe_job:show",
        """Try one commit of a bisection: what a job of `loop bisect --executor` runs.

        Prints log ratios of the commit to the known good, one a pair of processes, as one JSON object.
        """,
        ("loop job probe probes/3.json",),
        (argument("task", Path, "A task beside the files of its commits."),),
        result="loop.bisect.probe_job:Probed",
    ),
    Command(
        "jobs follow",
        "loop.cli.following:follow_job",
        "Show what a job on another machine says until it ends, and bring back what it made.",
        ("loop jobs follow", "loop jobs follow 20261123-120000-3fa9c1"),
        (JOB,),
    ),
    Command(
        "jobs cancel",
        "loop.cli.following:cancel_job",
        "End a job on another machine, as Ctrl-C does, and bring back what it made.",
        ("loop jobs cancel 20261123-120000-3fa9c1",),
        (JOB,),
    ),
)
