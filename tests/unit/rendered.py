"""The launch arguments that the catalogue's model profiles render."""

from __future__ import annotations

from pathlib import Path

import yaml
from launch import launch_args
from packaging.specifiers import SpecifierSet
from plan import profile_launch

MODELS = Path(__file__).parents[2] / "catalog" / "models"


def rendered_commands(version: str) -> dict[str, list[str]]:
    """The launch arguments of every model profile that is meant for a version, by the profile's name."""
    commands = {}
    for path in sorted(MODELS.glob("*.yml")):
        profile = yaml.safe_load(path.read_text())
        if SpecifierSet(profile.get("sglang", "")).contains(version):
            options = profile_launch(profile, {"sglang": {"version": version}})
            commands[path.stem] = [*launch_args(options), "--model-path", "/nowhere"]
    return commands
