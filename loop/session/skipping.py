"""Why a step was skipped, in words: from the first part of its `when` that does not hold."""

import ast
import re
from collections.abc import Mapping

from loop.base.expressions import Expression, ExpressionError
from loop.model.pattern import Step

FORMS = {
    r"device == 'cuda'": "needs a GPU",
    r"device == 'cpu'": "is for a session on the CPU",
    r"passed": "an earlier step failed",
    r"failed": "no step failed",
    r"\w+\.right != \[\]": "no correct variant",
    r"\w+\.wrong != \[\]": "no wrong variant",
    r"(\w+)\.good": r"step \1 did not pass",
    r"\w+\.edited": "nothing was edited",
    r"not session\.wrong": "a variant is wrong",
}
"""What may be asked for, and what it means that it does not hold."""


def reason(step: Step, values: Mapping[str, object]) -> str:
    """Why a step is not to be done; empty where it is. Its own words go first."""
    for part in Expression.parse(step.when).parts if step.when else ():
        try:
            if part.evaluate_bool(values):
                continue
        except ExpressionError as error:
            steps = sorted(
                name.partition(".")[0] for name in part.names if not name.startswith(("session.", "plan."))
            )
            never_ran = next((step for step in steps if values.get(step, {}) == {}), None)
            return f"step {never_ran} did not run" if never_ran else error.message
        return step.skipped_because or _in_words(ast.unparse(part.tree))
    return ""


def _in_words(condition: str) -> str:
    test = re.sub("^(not not )+", "", condition)
    for form, words in FORMS.items():
        match = re.fullmatch(form, test)
        if match:
            return match.expand(words)
    return f"only when {re.sub('None|True|False', lambda word: word[0].lower(), test)}"
