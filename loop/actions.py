"""What a step can do: one literal table."""

from loop.bisect import actions as bisecting
from loop.debug import actions as debugging
from loop.debug import turns
from loop.gate import changes, emulating, environment, kernel, properties, sanitizing
from loop.model import change, decision, output
from loop.model import debugging as causes
from loop.model import sanitizing as sanitized
from loop.money import actions as deciding
from loop.optimize import briefing, candidate, tuning
from loop.profile import actions as profile
from loop.profile import parallelism, promises
from loop.profile import resource_actions as resources
from loop.proving import actions as proving
from loop.steps import basic as session
from loop.steps.context import Action, Context, NoArguments, Result, Workshop
from loop.timing import comparing, measuring

ACTIONS: dict[str, Action] = {
    "environment.torch": Action(
        "torch is there, new enough, built for the device",
        environment.Requirement,
        output.TorchOutput,
        environment.torch,
    ),
    "environment.numpy": Action(
        "NumPy is there, new enough, agrees with torch",
        environment.Requirement,
        output.NumpyOutput,
        environment.numpy,
    ),
    "environment.device": Action(
        "the device computes rightly, its driver fits the toolkit",
        NoArguments,
        output.DeviceOutput,
        environment.device,
    ),
    "environment.libraries": Action(
        "shared libraries are found, none twice", NoArguments, output.LibrariesOutput, environment.libraries
    ),
    "environment.extension": Action(
        "built variants are fresh, load and answer",
        NoArguments,
        output.ExtensionOutput,
        environment.extension,
    ),
    "kernel.sources": Action(
        "one translation unit, no framework headers",
        kernel.SourceLimits,
        output.SourcesOutput,
        kernel.sources,
    ),
    "kernel.build": Action("compile the variants", NoArguments, output.BuildOutput, kernel.build_variants),
    "kernel.load": Action("libraries load and are what is on disk", NoArguments, output.LoadOutput, kernel.load),
    "kernel.verify": Action(
        "variants against the float64 reference", kernel.VerifyTerms, output.VerifyOutput, kernel.verify
    ),
    "kernel.emulate": Action(
        "the GPU's variants under the emulator, against the float64 reference",
        NoArguments,
        output.EmulateOutput,
        emulating.emulate,
    ),
    "kernel.sanitize": Action(
        "compiled CUDA variants under compute-sanitizer",
        sanitizing.SanitizeTerms,
        sanitized.SanitizeOutput,
        sanitizing.sanitize,
    ),
    "kernel.changes": Action(
        "what changed since the known good", NoArguments, output.ChangesOutput, changes.changes
    ),
    "kernel.properties": Action(
        "relations between outputs that need no reference",
        NoArguments,
        output.PropertiesOutput,
        properties.properties,
    ),
    "kernel.measure": Action(
        "variants against the baseline, turn about",
        measuring.MeasureTerms,
        output.MeasureOutput,
        measuring.measure,
    ),
    "kernel.compare": Action(
        "variants against themselves and their known good",
        comparing.CompareTerms,
        output.CompareOutput,
        comparing.compare,
    ),
    "kernel.prove_gate": Action(
        "the gate against variants made to err on purpose",
        proving.ProofTerms,
        output.GateOutput,
        proving.prove_gate,
    ),
    "kernel.profile": Action(
        "what holds each variant back where it does worst",
        profile.ProfileTerms,
        output.ProfileOutput,
        profile.profile,
    ),
    "kernel.parallelism": Action(
        "whether launches fill their device",
        parallelism.ParallelismTerms,
        output.ParallelismOutput,
        parallelism.parallelism,
    ),
    "kernel.resources": Action(
        "what a GPU would do, by compiler, launches and limits",
        resources.ResourceTerms,
        output.ResourcesOutput,
        resources.resources,
    ),
    "kernel.must_not_compile": Action(
        "bad configurations fail at compile time, with the right words",
        NoArguments,
        output.MustNotCompileOutput,
        promises.must_not_compile,
    ),
    "kernel.instances": Action(
        "promised template instances are in the built library",
        NoArguments,
        output.InstancesOutput,
        promises.instances,
    ),
    "debug.components": Action(
        "each component of what is wrong, by itself", NoArguments, causes.ComponentsOutput, debugging.components
    ),
    "debug.smallest": Action(
        "the smallest workload that still fails",
        debugging.Effort,
        causes.SmallestOutput,
        debugging.smallest,
    ),
    "debug.boundary": Action(
        "from which size on it fails", debugging.Effort, causes.BoundaryOutput, debugging.boundary
    ),
    "debug.map": Action("where outputs are wrong", NoArguments, causes.MapOutput, debugging.error_map),
    "debug.hypotheses": Action(
        "what was tried before, and that this is something else",
        NoArguments,
        causes.HypothesesOutput,
        turns.hypotheses,
    ),
    "debug.scope": Action(
        "one variant changed at a time, the simple one first", NoArguments, causes.ScopeOutput, turns.scope
    ),
    "change.brief": Action(
        "ask for one change, and wait until it is made", briefing.BriefTerms, change.BriefOutput, briefing.brief
    ),
    "change.tune": Action(
        "search what may be tuned, and propose the best values", tuning.TuneTerms, change.TuneOutput, tuning.tune
    ),
    "change.build": Action("compile the edited target", NoArguments, change.ChangeBuildOutput, candidate.build),
    "change.verify": Action(
        "what the edit changes, against the float64 reference",
        kernel.VerifyTerms,
        change.ChangeVerifyOutput,
        candidate.verify,
    ),
    "change.properties": Action(
        "relations between outputs of the edited target",
        NoArguments,
        change.ChangePropertiesOutput,
        candidate.check_properties,
    ),
    "change.sanitize": Action(
        "the edited target under the GPU's sanitizer",
        sanitizing.SanitizeTerms,
        change.ChangeSanitizeOutput,
        candidate.sanitize,
    ),
    "change.measure": Action(
        "the edited target against the baseline",
        measuring.MeasureTerms,
        change.ChangeMeasureOutput,
        candidate.measure,
    ),
    "change.compare": Action(
        "the edited target against what it is to replace",
        comparing.CompareTerms,
        change.ChangeCompareOutput,
        candidate.compare,
    ),
    "change.profile": Action(
        "what holds the edited target back", NoArguments, change.ChangeProfileOutput, candidate.look
    ),
    "change.decide": Action(
        "keep the change or take it back", candidate.DecideTerms, change.DecisionOutput, candidate.decide
    ),
    "bisect.search": Action(
        "which commit brought a regression", NoArguments, output.BisectOutput, bisecting.bisect
    ),
    "session.preemption": Action(
        "whether a cloud is about to take the machine away",
        NoArguments,
        decision.PreemptionOutput,
        deciding.preemption,
    ),
    "session.keep_or_stop": Action(
        "keep the GPU or stop it, by measured restart and prices",
        deciding.KeepTerms,
        decision.KeepOutput,
        deciding.keep_or_stop,
    ),
    "session.pivot": Action(
        "go on or pivot: stop rules and expected values",
        deciding.PivotTerms,
        decision.PivotOutput,
        deciding.pivot,
    ),
    "session.audit": Action(
        "the session's journal against its promises", session.Cadence, output.AuditOutput, session.audit
    ),
    "command.run": Action("a command of the user's own", session.Command, output.CommandOutput, session.command),
}

__all__ = ["ACTIONS", "Action", "Context", "Result", "Workshop"]
