"""Why a variant is wrong: the cause, the rule, the component, where in the output.

Begin in `explaining`, the first step of the pattern `defensive-debugging`; then `components` and `actions`.
- `explaining` calls the variant in fresh processes: threads and earlier calls may decide. Then it looks for a
  rule, and compares wrong outputs with known faults.
- `rules` is pure. It names a fresh workload and is told whether that fails. A rule is said only after it foresaw
  at least six fresh workloads.
- `shrinking` is a pure generator. It names a workload and is sent whether that fails.
- `probing` asks the gate about that workload. So a smaller workload counts only where the gate finds the same
  kind of failure (`shrinking.kind_of`).
- The smallest workload has to fail again in a fresh process. Otherwise `loop` says that it fails at times.
- `places` puts the error map into words; `section` reports everything.
- `turns` looks at earlier sessions: a build that was wrong before is not tried again.

To look for another kind of rule, add it to `rules`; for another known fault, to `workers.suspects`.
"""
