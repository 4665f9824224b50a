"""The template parameters that give functions the settings of `prismline up --set`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from prismline_deploy.order import parse
from prismline_localstack.stacks import templates


def parameters_for(root: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """The template parameters that give functions these settings, as far as there are such parameters."""
    found: dict[str, str] = {}
    for path in templates(root).values():
        for resource in parse(path.read_text())["Resources"].values():
            environment = resource.get("Properties", {}).get("Environment", {})
            variables = environment.get("Variables", {}) if isinstance(environment, Mapping) else {}
            for name, value in variables.items():
                if name in settings and isinstance(value, Mapping) and "Ref" in value:
                    found[value["Ref"]] = settings[name]
    return found
