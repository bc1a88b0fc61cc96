"""Every component module of the package, imported so that recipes can name what is in them."""

from __future__ import annotations

import importlib
import pkgutil

from gapo_lit import registry
from gapo_lit.cli.recipe import RecipeError

# Packages whose modules register parts; a plug-in brings its own.
HOMES = ("policies", "clipping", "rewards", "prompts", "rollout")


def load_parts() -> None:
    """Import our own parts, then the plug-ins'; RecipeError for a plug-in that fails.

    Worker programs are left alone: they run in processes of their own.
    """
    for home in HOMES:
        package = importlib.import_module(f"gapo_lit.{home}")
        for module in pkgutil.iter_modules(package.__path__):
            if not module.name.endswith("worker"):
                importlib.import_module(f"gapo_lit.{home}.{module.name}")
    try:
        registry.load_plugins()
    except RuntimeError as error:
        raise RecipeError(str(error)) from error
