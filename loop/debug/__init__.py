"""Why a variant is wrong: which component, from which size on, where in the output.

Begin in `actions`: one function for each step of the pattern `defensive-debugging`.
- `shrinking` and `boundary` are pure generators. They name a workload and are sent *fails*, *passes* or *other*.
- `probing` asks the gate about that workload. So a smaller workload counts only where the gate finds the same
  kind of failure (`shrinking.kind_of`).
- The smallest workload has to fail again in a fresh process. Otherwise `loop` says that it fails at times.
- A boundary is claimed only between neighbouring sizes that were tried.
- `causes` compares a wrong output with known faults, and puts the error map into words; `section` reports it.
- `turns` looks at earlier sessions: a build that was wrong before is not tried again.

To look for another cause, add a step to `actions` and its output to `model.debugging`.
"""
