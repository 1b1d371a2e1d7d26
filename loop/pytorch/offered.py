"""Builds that a session has verified, as operators by the variant's name: `loop.pytorch.offered:cpu`.

A worker process of the bench finds them like any Python function, and times them. Nothing is built or asked here:
the file that OFFERED names has the manifest and the build.
"""

import json
import os
from pathlib import Path

from loop.model.measurement import Build
from loop.model.target import CAbiVariant, Target
from loop.pytorch import Operator
from loop.pytorch.library import loaded
from loop.pytorch.registration import declare
from loop.timing.contract import contract_of
from loop.timing.ways import OFFERED


def __getattr__(name: str) -> Operator:
    """The operator of the variant that is offered under this name."""
    if OFFERED not in os.environ:
        raise AttributeError(f"{name}: no build is offered here, see {OFFERED}")
    offer = json.loads(Path(os.environ[OFFERED]).read_text())
    target, build = Target.model_validate(offer["target"]), Build.model_validate(offer["build"])
    variant = target.variants.get(name)
    if build.variant != name or not isinstance(variant, CAbiVariant):
        raise AttributeError(f"{name} is not offered here: {build.variant} is")
    contract = contract_of(target, name, variant)
    library = loaded(name, variant, build)
    return Operator(contract, library, declare(contract, library))
