"""Tools that no command line needs: jobs, and a change that is made without a shell. Rows like any command."""

from loop.cli.options import TARGET
from loop.cli.table import Command, argument, option

JOB = argument("job ID", str, "An id that a tool returned, or last.", "last")
SESSION = argument("session ID", str, "An id of a session, its beginning, or last.", "last")

OWN = (
    Command(
        "job status",
        "loop.driving.jobs:show",
        "Say what a job does, or what came of it. Without an id: the last one.",
        parameters=(JOB,),
        result="loop.driving.jobs:Job",
        agents="reads",
    ),
    Command(
        "job wait",
        "loop.driving.jobs:show",
        "Wait for a job to end, up to 50 s; call it again while the state is `running`.",
        parameters=(JOB, option("--wait-s", float, "Seconds to wait.", 50.0, min=0, max=50)),
        result="loop.driving.jobs:Job",
        agents="reads",
    ),
    Command(
        "job cancel",
        "loop.driving.jobs:cancel",
        "End a job in good order. A session that is cancelled can be resumed.",
        parameters=(JOB,),
        result="loop.driving.jobs:Job",
        agents="ends",
    ),
    Command(
        "change brief",
        "loop.driving.changes:show_brief",
        "Read what a waiting session asks for: the brief, how changes are judged, and the files that may change.",
        parameters=(SESSION, TARGET),
        result="loop.driving.changes:Asked",
        agents="reads",
    ),
    Command(
        "change edit",
        "loop.driving.changes:edit",
        """Write one file of the change that a waiting session asks for, in the session's own worktree.

        `kernels_check` with the folder as target says in seconds whether it is right. `run_session` with
        `resume` has it judged.
        """,
        parameters=(
            argument("file", str, "A file that the brief lets you change, or a new one beside it."),
            argument("text", str, "All that it is to hold."),
            option("--session", str, "An id of a session, its beginning, or last.", "last"),
            TARGET,
        ),
        result="loop.driving.changes:Edited",
        agents="edits",
    ),
)
