"""Find out why a variant is wrong: cause, rule, component, and place in the output.

- `explaining`, the first step of the pattern `defensive-debugging`, calls the variant in fresh
  processes, to see whether threads or earlier calls matter. Then it compares wrong outputs with
  known faults, searches a rule and the smallest workload that fails, and checks components. That
  workload counts only if it fails alike (`failure_kind`) and again in a fresh process.
- `rules` has no side effects. It proposes fresh workloads and learns whether they fail. A rule is
  reported only after it predicted at least six.

To look for another kind of rule, add it to `rules`; for another known fault, to `workers.suspects`.
"""
