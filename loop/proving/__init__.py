"""Mutation tests of the gate: `loop` injects mistakes and cheats (controls) into an honest variant.

Begin with `prove.controls`: it lists the controls from the target's signature, with the causes for
which the gate has to reject each. `mistakes` injects them, in a worker process. `prove` verifies
each like a real candidate. The honest variant has to pass.

One control of each kind is tried, about twenty-five. A mistake that changes no output, such as
swapping the terms of a sum, is no control. A mistake whose error stays within the tolerance is not
counted, because the target's inputs cannot show it. Programs have no controls. Cheats that only
timing finds are no controls: `make bench-cheats` times them. `prove` also holds the step
`kernel.prove_gate`, and the report's sentences."""
