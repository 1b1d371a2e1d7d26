"""Find out why a variant is wrong: cause, rule, component, and place in the output.

Begin in `explaining`, the first step of the pattern `defensive-debugging`.
- `explaining` calls the variant in fresh processes, to see whether threads or earlier calls matter.
  Then it compares wrong outputs with known faults, and searches a rule. It asks the gate about a
  workload, searches the smallest one that fails, and checks components. A smaller workload counts
  only if it shows the same kind of failure (`failure_kind`) and fails again in a fresh process.
  Otherwise `loop` reports that the variant fails at times.
- `rules` has no side effects. It proposes a fresh workload and learns whether that fails. A rule is
  reported only after it predicted at least six fresh workloads.

To look for another kind of rule, add it to `rules`; for another known fault, to `workers.suspects`.
"""
