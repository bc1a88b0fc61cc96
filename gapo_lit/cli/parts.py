"""Every component module of the package, imported so that recipes can name what is in them."""

from __future__ import annotations

import importlib
import pkgutil

from gapo_lit import registry

# Packages whose modules register parts; a plug-in brings its own.
HOMES = ("policies", "clipping", "rewards", "prompts", "rollout")


def load_parts() -> None:
    """Import our own parts, then the plug-ins'. Worker programs are left alone: they run in processes of their own."""
    for home in HOMES:
        package = importlib.import_module(f"gapo_lit.{home}")
        for module in pkgutil.iter_modules(package.__path__):
            if not module.name.endswith("worker"):
                importlib.import_module(f"gapo_lit.{home}.{module.name}")
    registry.load_plugins()
