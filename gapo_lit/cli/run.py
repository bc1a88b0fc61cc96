"""`fit`, `validate` and `test`: a LightningCLI that composes recipes, explains mistakes and checks before it runs."""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from argparse import ArgumentError
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from jsonargparse import set_parsing_settings
from lightning import LightningModule, Trainer
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from lightning.pytorch.strategies import FSDPStrategy
from lightning.pytorch.utilities import rank_zero_only
from lightning.pytorch.utilities.exceptions import SIGTERMException

from gapo_lit import checks
from gapo_lit.callbacks import EvaluationReport, RunLogger
from gapo_lit.checks.contamination import write_shared
from gapo_lit.cli import summary
from gapo_lit.cli.complete import check_given, complete
from gapo_lit.cli.flags import CommandLine, with_flags
from gapo_lit.cli.names import check_names
from gapo_lit.cli.parts import load_parts
from gapo_lit.cli.recipe import RecipeError, compose
from gapo_lit.data import RolloutDataModule
from gapo_lit.evaluation.store import StoreError
from gapo_lit.module import PolicyModule
from gapo_lit.rewards.sandbox import IsolationError

DRY_RUN = "--dry-run"
TRACEBACK = "GAPO_LIT_TRACEBACK"
LOOK = "look for a section that is no mapping, or an interpolation of a key that is not there"
# What a wrong setting raises while parts are built; anything else is a fault of the program and keeps its traceback.
REFUSALS = (ValueError, ImportError, OSError, MisconfigurationException, IsolationError)


def run_command(command: str, arguments: Sequence[str]) -> int:
    """Run `fit`, `validate` or `test`; a recipe that cannot be used is explained in one message, with status 2."""
    dry_run = DRY_RUN in arguments
    _leave_out_noise()
    if dry_run:
        for name in ("lightning.pytorch", "lightning.fabric"):
            logging.getLogger(name).setLevel(logging.WARNING)
    # Lightning 2.6 calls jsonargparse by names that are on their way out; its users can do nothing about that.
    os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")
    set_parsing_settings(omegaconf_absolute_to_relative_paths=True)
    try:
        load_parts()
        line = CommandLine.split([a for a in arguments if a != DRY_RUN])
        GapoCLI(command, line, dry_run)
    except (RecipeError, ArgumentError) as error:
        if os.environ.get(TRACEBACK) == "1":
            raise
        summary.refusal(_readable(error))
        return 2
    return 0


def _leave_out_noise() -> None:
    """Leave out what Lightning says to every user of these versions and none can act on."""
    # Lightning 2.6 on torch 2.13.
    warnings.filterwarnings("ignore", message="`isinstance.treespec, LeafSpec.`", category=FutureWarning)
    # vLLM makes a process group even for one process, and what is logged are values of all ranks already.
    warnings.filterwarnings("ignore", message="It is recommended to use `self.log")
    # A checkpoint after so many updates is meant to hold what they made.
    warnings.filterwarnings("ignore", message="Using ModelCheckpoint with manual optimization")
    # A run that goes on from another's checkpoint has a folder of its own, and leaves that one's alone.
    warnings.filterwarnings("ignore", message="The dirpath has changed from")
    hints = logging.getLogger("lightning.pytorch.utilities.rank_zero")
    hints.addFilter(lambda record: "litlogger" not in record.getMessage())


class SavedRecipe(SaveConfigCallback):
    """The recipe as it was resolved, written to the run folder before training; running it again repeats the run."""

    def save_config(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Hand it to the loggers beside the run folder's own, too."""
        found = trainer.datamodule.found  # type: ignore[attr-defined]
        if found and trainer.log_dir is not None:
            write_shared(found, Path(trainer.log_dir) / "contamination.jsonl")
        recipe = yaml.safe_load(self.parser.dump(self.config, skip_unset=False))
        for logger in trainer.loggers[1:]:
            logger.log_hyperparams(recipe)


class GapoCLI(LightningCLI):
    """Composes the recipes of a command line, parses, builds, checks and runs.

    command: fit, validate or test. dry_run: stop after the checks, with a summary.
    """

    def __init__(self, command: str, line: CommandLine, dry_run: bool) -> None:
        self.line, self.dry_run, self.command = line, dry_run, command
        common = {"parser_mode": "omegaconf+", "exit_on_error": False}
        described = f"{DRY_RUN} checks the whole recipe in seconds, without loading a model, and stops."
        super().__init__(
            PolicyModule,
            RolloutDataModule,
            save_config_callback=SavedRecipe if command == "fit" and not dry_run else None,
            save_config_kwargs={"overwrite": True},
            seed_everything_default=0,
            auto_configure_optimizers=False,
            load_from_checkpoint_support=False,
            parser_kwargs={
                **common,
                "prog": "gapo-lit",
                command: {**common, "description": described},
            },
            args=list(line.flags),
        )

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]
        """The command at hand alone, as building a parser takes a second; what a recipe gives elsewhere is left out."""
        loaders = {"train_dataloaders", "val_dataloaders"} if self.command == "fit" else {"dataloaders"}
        return {self.command: {"model", "datamodule", *loaders}}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Settings of a run that belong to none of its parts."""
        parser.add_argument(
            "--allow_unbound_clip",
            type=bool,
            default=False,
            help="Run an adaptive clip with one update a rollout batch, where it can never bind.",
        )
        parser.add_argument(
            "--lineage",
            type=dict | None,
            default=None,
            help="Where a branch comes from; `gapo-lit branch` writes it.",
        )
        if self.command == "fit":
            return
        parser.add_argument(
            "--out",
            type=str | None,
            default=None,
            help="Folder for samples and results, runs/<recipe>-<command>/version_<N> by default; an evaluation that "
            "stopped there goes on.",
        )
        parser.add_argument(
            "--initial",
            type=str | None,
            default=None,
            help="Folder of an earlier evaluation, of the policy that training began with: pass@1 is then reported by "
            "initial solve rate, too.",
        )

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Compose the recipes, check every name, then let the parser check values and types."""
        if self.line.asks_for_help:
            parser.parse_args([self.command, *args])
        if not (self.line.recipes or args):
            raise RecipeError("there is no recipe; give one, such as --config recipes/quickstart.yaml")
        try:
            self._parse(parser, args)
        except (RecipeError, ArgumentError):
            raise
        except Exception as error:
            # A recipe may hold anything anywhere; what trips over it says too little to be shown as it is.
            said = " ".join(str(error).split())
            raise RecipeError(f"the recipe cannot be read, {type(error).__name__}: {said}; {LOOK}") from error

    def _parse(self, parser: LightningArgumentParser, args: Any) -> None:
        tree, applied = with_flags(compose(self.line.recipes), self.line)
        check_names(applied, self._sections())
        check_given(applied)
        if isinstance(applied.get("seed_everything"), bool):
            raise RecipeError("seed_everything is the seed of the whole run, so it must be a whole number, such as 0")
        complete(tree, applied, self.line.name)
        text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
        self.config = parser.parse_args([self.command, "--config", text, *args])

    def _sections(self) -> dict[str, Any]:
        classes = {"trainer": Trainer, "model": PolicyModule, "data": RolloutDataModule}
        own = {action.dest.split(".")[0]: None for action in self._subcommand_parsers[self.command]._actions}
        return {k: v for k, v in own.items() if k not in ("help", "config", "print_config")} | classes

    def instantiate_classes(self) -> None:
        """Build parts and trainer; a setting that a part refuses is explained like any other mistake in the recipe."""
        try:
            super().instantiate_classes()
        except REFUSALS as error:
            raise RecipeError(str(error)) from error

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """The Trainer with a CSV run folder always, first among its loggers, so that everything else goes there too."""
        config = self._get(self.config_init, "trainer")
        kwargs["logger"] = False if self.dry_run else self._loggers(config.get("logger"))
        try:
            trainer = super().instantiate_trainer(**kwargs)
        except (MisconfigurationException, TypeError) as error:
            if not (self.dry_run and _other_machine(config)):
                raise RecipeError(f"trainer: {error}") from error
            summary.warning(f"this machine cannot run the recipe, only check it: {error}")
            return Trainer(logger=False, enable_checkpointing=False, enable_progress_bar=False)
        if self.command != "fit" and not self.dry_run:
            trainer.callbacks.append(self._report())  # type: ignore[attr-defined]
        return trainer

    def _report(self) -> EvaluationReport:
        name = f"{self.line.name}-{self.command}"
        try:
            recipe = self._parser(self.command).dump(self.config[self.command], skip_unset=False)
            given = {key: self._get(self.config, key) for key in ("out", "initial", "ckpt_path")}
            return EvaluationReport(name, given["out"], given["initial"], given["ckpt_path"], recipe)
        except (OSError, ValueError) as error:
            raise RecipeError(f"--initial: {error}") from error

    def _loggers(self, given: Any) -> list[Any]:
        """The recipe's loggers, behind a run folder of our own where something is trained."""
        others = given if isinstance(given, list) else [] if given in (None, True, False) else [given]
        ours = [logger for logger in others if isinstance(logger, RunLogger)]
        rest = [logger for logger in others if not isinstance(logger, RunLogger)]
        return [*(ours or [RunLogger(name=self.line.name)]), *rest] if self.command == "fit" else rest

    def before_fit(self) -> None:
        """Check everything, before anything slow."""
        self._check(lambda: checks.check_fit(self.model, self.datamodule, self._settings()))

    def before_validate(self) -> None:
        """Check what validation needs."""
        self._check(lambda: checks.check_evaluation(self.model, self.datamodule, "validate"))

    def before_test(self) -> None:
        """Check what the benchmarks need."""
        self._check(lambda: checks.check_evaluation(self.model, self.datamodule, "test"))

    def fit(self, **kwargs: Any) -> None:
        """Train, or stop at what a dry run has to say."""
        self._run(self.trainer.fit, kwargs)

    def validate(self, **kwargs: Any) -> None:
        """Validate, or stop at what a dry run has to say."""
        self._run(self.trainer.validate, kwargs)

    def test(self, **kwargs: Any) -> None:
        """Evaluate the benchmarks, or stop at what a dry run has to say."""
        self._run(self.trainer.test, kwargs)

    def _run(self, loop: Callable[..., Any], kwargs: dict[str, Any]) -> None:
        if self.dry_run:
            summary.dry_run(self)
            return
        _announce(self)
        if self.command != "fit":
            kwargs["verbose"] = False  # the report says it
        try:
            loop(**kwargs)
        except StoreError as error:
            raise RecipeError(str(error)) from error
        except SIGTERMException:
            # Lightning's own ends the process with status 0, as if the run had finished.
            sys.exit(128 + signal.SIGTERM)

    def _check(self, check: Callable[[], list[str]]) -> None:
        try:
            warnings = check()
        except REFUSALS as error:
            raise RecipeError(str(error)) from error
        for text in warnings:
            _once(text)
        try:
            checks.check_installed(self.datamodule)
        except ValueError as error:
            if not self.dry_run:
                raise RecipeError(str(error)) from error
            _once(f"this machine cannot run the recipe, only check it: {error}")

    def _settings(self) -> checks.RunSettings:
        config = self._get(self.config_init, "trainer")
        return checks.settings_of(config, self.world_size, self._get(self.config, "allow_unbound_clip"))

    @property
    def steps(self) -> int:
        """Optimizer steps of the run; -1 where the recipe does not say."""
        trainer, data = self._get(self.config_init, "trainer"), self.datamodule
        steps, epochs = trainer.get("max_steps") or -1, trainer.get("max_epochs") or -1
        if steps < 0 and epochs > 0:
            steps = epochs * (len(data.train_prompts.prompts) // data.prompts_per_batch) * data.updates_per_batch
        return int(steps)

    @property
    def world_size(self) -> int:
        """Ranks of the run: what the launcher says, else devices times nodes as the recipe gives them."""
        config = self._get(self.config_init, "trainer")
        devices = config.get("devices")
        if isinstance(devices, int) and devices > 0:
            return devices * int(config.get("num_nodes") or 1)
        return self.trainer.num_devices * self.trainer.num_nodes


@rank_zero_only
def _announce(cli: GapoCLI) -> None:
    summary.estimate(cli)


@rank_zero_only
def _once(text: str) -> None:
    summary.warning(text)


def _other_machine(config: Any) -> bool:
    """Whether the recipe asks for a GPU that this machine does not have."""
    wants = config.get("accelerator") in ("gpu", "cuda") or isinstance(config.get("strategy"), FSDPStrategy)
    return (wants or config.get("strategy") == "fsdp") and not torch.cuda.is_available()


def _readable(error: Exception) -> str:
    """The parser's own words on one line, keys as a recipe has them."""
    message = " ".join((error.message if isinstance(error, ArgumentError) else str(error)).split())
    for prefix in ('Parser key "fit.', 'Parser key "validate.', 'Parser key "test.', 'Parser key "'):
        message = message.replace(prefix, '"')
    return message
