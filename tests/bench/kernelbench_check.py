"""KernelBench's own check of outputs on a CPU: a program for the bench of other formats.

`kernelbench_check.py SOURCE TASK ANSWER ...` prints an answer's file to `right` or `wrong`, as JSON. Its function
`run_and_check_correctness` runs unmodified; CUDA's synchronisation does nothing. It times nothing.
"""

import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

TRIALS, SEED = 5, 42


def verdict(theirs: Any, torch: Any, task: str, answer: str) -> str:
    """`right` or `wrong`: the check's verdict on one answer, after the evaluator's own steps."""
    context: dict[str, Any] = {}
    try:
        with open(task) as file:
            kind, arguments, inputs = theirs.load_original_model_and_inputs(file.read(), context)
        theirs.set_seed(SEED)
        values = arguments()
        theirs.set_seed(SEED)
        reference = kind(*values)
        with open(answer) as file:
            model = theirs.load_custom_model(file.read(), context, None)
        with torch.no_grad():
            theirs.set_seed(SEED)
            candidate = model(*values)
            result = theirs.run_and_check_correctness(
                reference, candidate, inputs, {}, TRIALS, seed=SEED, device=torch.device("cpu")
            )
        return "right" if result.correctness else "wrong"
    except Exception:
        return "wrong"


def main(source: str, task: str, *answers: str) -> dict[str, str]:
    """Check each answer in a process of its own, because an answer may spoil its process."""
    sys.path.insert(0, source)
    import torch
    from kernelbench import eval as theirs  # type: ignore[import-not-found]

    torch.set_num_threads(max((os.cpu_count() or 2) - 1, 1))
    torch.cuda.synchronize = lambda *positional, **keywords: None  # type: ignore[assignment]
    verdicts = {}
    for answer in answers:
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
                os.write(write, verdict(theirs, torch, task, answer).encode())
            os._exit(0)
        os.close(write)
        os.waitpid(child, 0)
        verdicts[answer] = os.read(read, 100).decode() or "failed"
        os.close(read)
    return verdicts


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
