"""From a plan to a journal, a record and a report.

`run` tells it: open, walk, close. Begin there. `opening` resolves the plan and makes the head.
`walk` is a generator of events: it neither prints nor writes. Closing it ends everything that a step started:
so limits, budgets and Ctrl-C work. `drive` makes each event durable, then shows it. `bounds` holds every event
against time and money.

`closing` turns the journal into the record by pure rules: `objective`, and the grade in `course`. To resume,
the walk starts at the first step again, and a finished step stands. A step whose output has an `identity` is
made again; where the identity has changed, nothing after it is reused.

`page` is the report: what its template reads, by name. An action with a `section` in the table of actions
adds it by itself. `first_screen` is its beginning, and the short form for a comment. `next_session` proposes
what comes next. `command` is `loop report`; `shown` is what a command without a session prints; `recorded`
imports sessions.
"""
