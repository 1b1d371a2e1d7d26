"""What a step can do: one table, from an action's name to its function.

Its docstring says what an action does. The type of its second parameter has the fields of a step's
`with`, the class of its output the names that a gate may read.
"""

from loop.bisect import actions as bisecting
from loop.debug import explaining
from loop.gate import environment, kernel, properties, sanitizing
from loop.learning import turns
from loop.money import decisions as deciding
from loop.optimize import briefing, candidate, comparisons, tuning
from loop.optimize.candidate import on_edited_target
from loop.profile import actions as profile
from loop.profile import launch_limits, promises, resource_actions
from loop.proving import prove as proving
from loop.steps import actions as session
from loop.steps.context import Action
from loop.timing import against_baseline, against_known_good

ACTIONS: dict[str, Action] = {
    "environment.torch": Action(environment.torch),
    "environment.numpy": Action(environment.numpy),
    "environment.device": Action(environment.device),
    "environment.libraries": Action(environment.libraries),
    "environment.extension": Action(environment.extension),
    "kernel.sources": Action(kernel.sources),
    "kernel.build": Action(kernel.build_variants),
    "kernel.load": Action(kernel.load),
    "kernel.verify": Action(kernel.verify),
    "kernel.verify_share": Action(kernel.verify_share),
    "kernel.emulate": Action(kernel.emulate),
    "kernel.sanitize": Action(sanitizing.sanitize),
    "kernel.properties": Action(properties.properties),
    "kernel.measure": Action(against_baseline.measure),
    "kernel.compare": Action(against_known_good.compare),
    "kernel.check": Action(comparisons.check),
    "kernel.prove_gate": Action(proving.prove_gate),
    "kernel.profile": Action(profile.profile),
    "kernel.parallelism": Action(launch_limits.parallelism),
    "kernel.resources": Action(resource_actions.resources),
    "kernel.must_not_compile": Action(promises.must_not_compile),
    "kernel.instances": Action(promises.instances),
    "debug.components": Action(explaining.components),
    "debug.smallest": Action(explaining.smallest),
    "debug.explain": Action(explaining.explain),
    "debug.hypotheses": Action(turns.hypotheses),
    "debug.scope": Action(turns.scope),
    "change.brief": Action(briefing.brief),
    "change.tune": Action(tuning.tune),
    "change.build": Action(candidate.build),
    "change.verify": Action(on_edited_target(kernel.verify)),
    "change.properties": Action(on_edited_target(properties.properties)),
    "change.sanitize": Action(on_edited_target(sanitizing.sanitize)),
    "change.measure": Action(on_edited_target(against_baseline.measure)),
    "change.compare": Action(candidate.compare),
    "change.paired": Action(comparisons.paired),
    "change.profile": Action(candidate.profile_change),
    "change.decide": Action(candidate.decide),
    "change.confirm": Action(comparisons.confirm),
    "bisect.search": Action(bisecting.bisect),
    "session.preemption": Action(environment.preemption),
    "session.keep_or_stop": Action(deciding.keep_or_stop),
    "session.pivot": Action(deciding.pivot),
    "session.audit": Action(session.audit),
    "command.run": Action(session.run_command),
}
