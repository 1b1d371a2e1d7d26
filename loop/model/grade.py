"""The rule by which sessions are graded, as the report prints it."""

RULE: tuple[tuple[str, str], ...] = (
    (
        "A",
        "every gate passed, every step kept its budget, every timed workload has a variant that is faster or same",
    ),
    (
        "B",
        "every gate passed; a step overran its budget, or up to half of the timed workloads have no such variant",
    ),
    ("C", "every gate passed; over half of the timed workloads have no such variant, or speed was not judged"),
    ("D", "a gate failed, or an output is incorrect or cannot be judged"),
    ("F", "the session was aborted, or no step of it was run"),
    ("-", "the session is paused; it is graded when it has ended"),
)
"""Letter and what leads to it: the lowest letter that applies. Speeds are those against the baseline; a session
without a step that measures is graded by its gates and budgets alone."""
