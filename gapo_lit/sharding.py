"""What differs between one process, DDP, FSDP2 and FSDP; everything else in the package is the same under all of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy, ParallelStrategy, Strategy
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

T = TypeVar("T")


class FSDP2Strategy(ModelParallelStrategy):
    """Lightning's `ModelParallelStrategy` with "auto" sizes that shard over every rank.

    Lightning's own "auto" means one data-parallel rank and tensor parallelism within a node: gradients of replicas
    would not be averaged, and nothing would fail.
    """

    def setup_environment(self) -> None:
        """Fix the sizes once the number of ranks is known, before the device mesh is made."""
        if self._data_parallel_size == "auto" and self._tensor_parallel_size in ("auto", 1):
            environment = self.cluster_environment
            assert environment is not None
            self._data_parallel_size = environment.world_size()
            self._tensor_parallel_size = 1
        super().setup_environment()


class StepwiseFSDPStrategy(FSDPStrategy):
    """Lightning's `FSDPStrategy`, with each forward pass of a training step going through the wrapper by itself.

    Lightning runs a whole training step inside one forward of the wrapper. A step here has several forward and backward
    passes and clips its gradients, none of which FSDP allows inside its own forward.
    """

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own step, outside the wrapper; see `forward`."""
        assert self.lightning_module is not None
        with self.precision_plugin.train_step_context():
            return self.lightning_module.training_step(*args, **kwargs)


def check_strategy(strategy: Strategy) -> None:
    """Raise ValueError for Lightning's own FSDPStrategy, under which a step of several backward passes cannot run."""
    if isinstance(strategy, FSDPStrategy) and not isinstance(strategy, StepwiseFSDPStrategy):
        raise ValueError(
            "FSDPStrategy runs a training step inside one forward pass, where micro-batches cannot be accumulated nor "
            "gradients clipped; use gapo_lit.sharding.StepwiseFSDPStrategy (recipes/cluster/fsdp.yaml) or FSDP2Strategy"
        )


def forward(wrapped: nn.Module, module: nn.Module, *inputs: Any) -> Any:
    """A forward pass inside a training step: through FSDP's wrapper, which gathers parameters; else of the module.

    DDP runs the whole step inside its own forward, so there it must not be entered again.
    """
    return wrapped(*inputs) if isinstance(wrapped, FullyShardedDataParallel) else module(*inputs)


def data_parallel_mesh(mesh: DeviceMesh, world_size: int) -> DeviceMesh:
    """The mesh dimension that parameters are sharded over; raises ValueError unless it holds every rank."""
    size = mesh["data_parallel"].size()
    if size != world_size:
        raise ValueError(
            f"data_parallel_size={size} with {world_size} ranks leaves ranks that average nothing; "
            f"set data_parallel_size={world_size} and tensor_parallel_size=1, or use FSDP2Strategy, which does"
        )
    return mesh["data_parallel"]


def shard(model: nn.Module, mesh: DeviceMesh, precision: str) -> None:
    """Apply FSDP2's `fully_shard` to each decoder layer and to the whole, in place.

    Under a bf16-mixed precision parameters are gathered in bfloat16 and gradients reduced in float32.
    """
    policy = MixedPrecisionPolicy()
    if precision == "bf16-mixed":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in decoder_layers(model):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def decoder_layers(model: nn.Module) -> list[nn.Module]:
    """The transformer blocks, found by the class names that the model itself says must not be split."""
    names = set(getattr(model, "_no_split_modules", None) or ())
    return [module for module in model.modules() if type(module).__name__ in names]


@dataclass(frozen=True)
class Collectives:
    """The few collectives outside the model's own; each is a no-op in a single process."""

    strategy: Strategy

    def reduce(self, tensor: Tensor, how: Literal["sum", "max"]) -> Tensor:
        """The sum or maximum over ranks, on the CPU."""
        reduced = self.strategy.reduce(tensor.to(self.strategy.root_device), reduce_op=how)
        return torch.as_tensor(reduced).cpu()

    def gather(self, mine: T) -> list[T]:
        """What each rank has, by rank; small things only, as they are pickled."""
        if self.world_size == 1:
            return [mine]
        gathered: list[Any] = [None] * self.world_size
        torch.distributed.all_gather_object(gathered, mine)
        return gathered

    @property
    def world_size(self) -> int:
        """Ranks in the job."""
        return int(getattr(self.strategy, "world_size", 1))

    @property
    def rank(self) -> int:
        """The number of this one."""
        return self.strategy.global_rank if isinstance(self.strategy, ParallelStrategy) else 0


@contextmanager
def gradient_sync(wrapped: nn.Module, model: nn.Module, on: bool) -> Iterator[None]:
    """Whether the backward pass inside averages gradients over ranks; only the last micro-batch of a step should.

    wrapped: what the strategy made of the LightningModule; model: the language model inside.
    """
    no_sync: Callable[[], AbstractContextManager[None]] | None = getattr(wrapped, "no_sync", None)
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(on)
        yield
    elif not on and no_sync is not None:
        with no_sync():
            yield
    else:
        yield


def clip_gradients(wrapped: nn.Module, parameters: list[nn.Parameter], max_norm: float | None) -> Tensor:
    """Scale gradients to a global norm of at most `max_norm` (None: leave them); returns the norm before, over all
    ranks.
    """
    limit = float("inf") if max_norm is None else max_norm
    if isinstance(wrapped, FullyShardedDataParallel):
        return wrapped.clip_grad_norm_(limit)
    norm = torch.nn.utils.clip_grad_norm_(parameters, limit)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def gathered_parameters(wrapped: nn.Module, model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """(name, parameter) of `model`, tied ones under each name; FSDP2's are still sharded, and `sync_weights` gathers
    each.

    FSDP flattens the parameters of a unit, so there a unit is gathered at a time and this is a collective.
    """
    if not isinstance(wrapped, FullyShardedDataParallel):
        yield from model.named_parameters(remove_duplicate=False)
        return
    seen: set[str] = set()
    for unit in reversed(FullyShardedDataParallel.fsdp_modules(wrapped)):
        with FullyShardedDataParallel.summon_full_params(unit, recurse=False, writeback=False):
            inside = {id(p) for p in unit.module.parameters()}
            for name, parameter in model.named_parameters(remove_duplicate=False):
                if id(parameter) in inside and name not in seen and not _flattened(parameter):
                    seen.add(name)
                    yield name, parameter.detach().clone()


def _flattened(parameter: Tensor) -> bool:
    return type(parameter).__name__ == "FlatParameter"
