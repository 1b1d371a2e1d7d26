"""Runs a plan as a session: writes its journal, its record and its report.

Begin with `run`: it opens a session, walks its steps and closes it. `opening` resolves the plan and
builds the session's head (all that is known before the first step). `walk` is a generator of
events: it neither prints nor writes, and closing it ends every process that a step started. `drive`
writes each event to disk, shows it, and checks the limits of time and money.

`closing` computes the record from the journal by pure rules. A resumed walk reuses the records of
finished steps; one whose output has an `identity` runs again, and so do later ones if it changed.

`page` builds the report's sections and its first screen. `next_session` proposes what to do next.
`shown` prints results without a session. `recorded` imports sessions from elsewhere.
"""
