"""The rule by which sessions are graded, as the report prints it."""

NEARLY = 0.05
"""An objective that is missed by no more than this share is nearly reached."""
RULE: tuple[tuple[str, str], ...] = (
    ("A", "every gate passed, the plan's objective is reached, session and steps kept their time"),
    (
        "B",
        f"every gate passed; the objective is missed by at most {NEARLY:.0%}, or session or step took longer than "
        "planned",
    ),
    ("C", "every gate passed; the objective is missed by more, or what it asks for is not known"),
    ("D", "a gate failed, or an output is incorrect or cannot be judged"),
    ("F", "the session was aborted, or no step of it was run"),
    ("-", "the session is paused; it is graded when it has ended"),
)
"""Letter and what leads to it: the lowest letter that applies. A plan that states no objective is graded by gates
and time."""
