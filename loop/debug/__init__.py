"""Why a variant is wrong: the cause, the rule, the component, where in the output.

Begin in `explaining`, the first step of the pattern `defensive-debugging`.
- `explaining` calls the variant in fresh processes: threads and earlier calls may decide. Then it compares wrong
  outputs with known faults, and looks for a rule. It puts the error map into words, and reports everything.
- `rules` is pure. It names a fresh workload and is told whether that fails. A rule is said only after it foresaw
  at least six fresh workloads.
- `probing` asks the gate about a workload, looks for the smallest one that fails, and checks components. A smaller
  workload counts only where the gate finds the same kind of failure (`kind_of`), and where it fails again in a
  fresh process. Otherwise `loop` says that it fails at times.
- `turns` looks at earlier sessions: a build that was wrong before is not tried again.

To look for another kind of rule, add it to `rules`; for another known fault, to `workers.suspects`.
"""
