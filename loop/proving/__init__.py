"""What is the gate worth? Mutation tests of it: mistakes and cheats are put into an honest variant.

Begin with `prove.controls`: it lists them from the target's signature, with the reason for which the gate has
to reject each. `mistakes` makes them, in a worker. `prove` sends each through verification, like a candidate. The
honest variant has to pass.

Of each kind of mistake one is tried: about thirty, on a processor and on a GPU. What makes no difference to a
function, such as swapping the terms of a sum, is no control. A mistake whose error stays within what is allowed is
not counted: the target's inputs do not tell it. Programs have no controls. On a GPU, mistakes see copies on the
host. Cheats that only timing finds are no controls: `make bench-cheats` times them.

`actions` holds the step `kernel.prove_gate`, and says in the report how far verdicts can be trusted.
"""
