"""What is the gate worth? Mutation tests of it: mistakes and cheats are put into an honest variant.

Begin with `negative_controls`: it lists them from the target's signature, with the reason for which the gate has
to reject each. `mistakes` makes them, in a worker. `prove` sends each through verification, like a candidate. The
honest variant, the plain implementation and the baseline have to pass.

What makes no difference to a function, such as swapping the terms of a sum, is no control. A mistake that passes
is put into the float64 reference (`telling`). What no input tells is reported; what other inputs tell is tried on
those. What only timing finds is timed in one process a variant (`in_turn`). Programs have no controls. On a GPU,
mistakes on single values go through the host; others queue whole tensors on the call's stream.

`actions` holds the step `kernel.prove_gate`. `section` says in the report how far verdicts can be trusted.
"""
