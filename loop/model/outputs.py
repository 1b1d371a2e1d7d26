"""Stored outputs read back as what their actions find."""

from typing import Any

from pydantic import ValidationError

from loop.model.change import (
    BriefOutput,
    ChangeBuildOutput,
    ChangeCompareOutput,
    ChangeMeasureOutput,
    ChangeProfileOutput,
    ChangePropertiesOutput,
    ChangeSanitizeOutput,
    ChangeVerifyOutput,
    DecisionOutput,
    TuneOutput,
)
from loop.model.debugging import (
    BoundaryOutput,
    ComponentsOutput,
    HypothesesOutput,
    MapOutput,
    ScopeOutput,
    SmallestOutput,
)
from loop.model.decision import KeepOutput, PivotOutput, PreemptionOutput
from loop.model.outcome import Output
from loop.model.output import (
    AuditOutput,
    BisectOutput,
    BuildOutput,
    ChangesOutput,
    CommandOutput,
    CompareOutput,
    DeviceOutput,
    EmulateOutput,
    ExtensionOutput,
    GateOutput,
    InstancesOutput,
    LibrariesOutput,
    LoadOutput,
    MeasureOutput,
    MustNotCompileOutput,
    NumpyOutput,
    ParallelismOutput,
    ProfileOutput,
    PropertiesOutput,
    ResourcesOutput,
    SourcesOutput,
    TorchOutput,
    VerifyOutput,
)
from loop.model.sanitizing import SanitizeOutput

OUTPUTS: dict[str, type[Output]] = {
    "environment.torch": TorchOutput,
    "environment.numpy": NumpyOutput,
    "environment.device": DeviceOutput,
    "environment.libraries": LibrariesOutput,
    "environment.extension": ExtensionOutput,
    "kernel.sources": SourcesOutput,
    "kernel.build": BuildOutput,
    "kernel.load": LoadOutput,
    "kernel.verify": VerifyOutput,
    "kernel.emulate": EmulateOutput,
    "kernel.sanitize": SanitizeOutput,
    "kernel.changes": ChangesOutput,
    "kernel.properties": PropertiesOutput,
    "kernel.measure": MeasureOutput,
    "kernel.compare": CompareOutput,
    "kernel.prove_gate": GateOutput,
    "kernel.profile": ProfileOutput,
    "kernel.parallelism": ParallelismOutput,
    "kernel.resources": ResourcesOutput,
    "kernel.must_not_compile": MustNotCompileOutput,
    "kernel.instances": InstancesOutput,
    "debug.components": ComponentsOutput,
    "debug.smallest": SmallestOutput,
    "debug.boundary": BoundaryOutput,
    "debug.map": MapOutput,
    "debug.hypotheses": HypothesesOutput,
    "debug.scope": ScopeOutput,
    "change.brief": BriefOutput,
    "change.tune": TuneOutput,
    "change.build": ChangeBuildOutput,
    "change.verify": ChangeVerifyOutput,
    "change.properties": ChangePropertiesOutput,
    "change.sanitize": ChangeSanitizeOutput,
    "change.measure": ChangeMeasureOutput,
    "change.compare": ChangeCompareOutput,
    "change.profile": ChangeProfileOutput,
    "change.decide": DecisionOutput,
    "bisect.search": BisectOutput,
    "session.preemption": PreemptionOutput,
    "session.keep_or_stop": KeepOutput,
    "session.pivot": PivotOutput,
    "session.audit": AuditOutput,
    "command.run": CommandOutput,
}
"""Name of an action to what it finds."""


def read_output(action: str, output: dict[str, Any]) -> Output | None:
    """A record's output as what its action finds; None where it broke off before it found anything."""
    try:
        return OUTPUTS[action].model_validate(output, strict=False)
    except (KeyError, ValidationError):
        return None
