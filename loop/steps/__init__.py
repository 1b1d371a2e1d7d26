"""The interface of an action: its context, its result, and what a command sets up first.

Begin with `context`. An action is a function of a `Context` and its arguments. It is a generator:
it yields ticks while it waits, and returns a `Result`. A context has the task (fixed when the
session begins), the past (earlier sessions), the bench, and the steps finished so far. The table of
actions reads the function's docstring, type of arguments, and output, as in `RunningAction[...]`.

`setting` reads a project's definitions, asks for trust, and chooses device, variants and threads.
"""
