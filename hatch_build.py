"""Build hook: writes the JSON Schemas from the models, so that editors find them beside the definitions."""

import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SchemaHook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs before a wheel, an sdist and an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write loop/schema/*.json."""
        sys.path.insert(0, self.root)
        from loop.cli.patterns import write_schemas

        write_schemas()
