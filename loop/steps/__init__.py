"""What a step is given, what it gives back, and what a command sets up before the first one.

Begin with `context`. An action is a function from a `Context` and its arguments to a generator: it yields ticks
while it waits and returns a `Result`. A context has three parts: the task, fixed when the session begins; the
past, what earlier sessions found; and what goes on now, the bench and the finished steps. The function says
everything that the table of actions shows: its docstring, the type of its arguments, the output named in
`Working[...]`.

`setting` reads a project's definitions, asks for trust, and chooses device, variants and threads.
"""
