"""What a step is given, what it gives back, and what a command sets up before the first one.

Begin with `context`. An action is a function from a `Context` and its arguments to a generator: it yields ticks
while it waits and returns a `Result`. A context has three parts. The task is fixed when the session begins. The
past is what earlier sessions found. What goes on now is the bench and the finished steps. The function says
everything that the table of actions shows: its docstring, the type of its arguments, the output named in
`Working[...]`.

`setting` reads a project's definitions, asks for trust, and chooses device, variants and threads.
"""
