"""`PopulationModule`: trains the members of a population together under `lightning.Trainer`, each on its own rows."""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch import Tensor, nn

from ...population import Member, Population
from .random_states import collect_random_states, restore_random_states


LossFunction = Callable[[nn.Module, Any], Tensor | tuple[Tensor, Tensor]]
"""`(model, batch) -> loss of each row`, or each row's sum of losses and how many terms the sum has."""


class PopulationModule(lightning.LightningModule):
    """Trains every member of a population on the rows of a batch with its name.

    The loss of a member is the mean over its rows in an optimizer step, in all micro-batches and processes. Each
    member has its own optimizer group, learning rate and gradient clipping (`Trainer(gradient_clip_val=...)` limits
    each member's norm). A member without rows in a step does not change. So its update equals that of a run with only
    its rows.

    Use [`MemberLoader`], or any loader whose batches name the member of each row. The module logs `train_loss` and
    `val_loss` (means over members whose value is finite), and `train_loss/<member>` and `val_loss/<member>`.
    Checkpoints hold the adapters and the table of members, without the frozen base.

    Only the adapters belong to the module, so Lightning moves and saves only them. The base is moved to the same
    device and keeps its dtype and mode. During evaluation, it is in evaluation mode. The module works on one device or
    with data parallelism (`strategy="ddp"`).

    Subclasses may override [`PopulationModule.row_losses`], [`PopulationModule.members_of`], the steps and
    `configure_optimizers`; in hooks, call `super()`.

    Args:
        population ([`Population`]): Members and their model.
        loss (`Callable`, *optional*):
            `(model, batch) -> losses` of shape `(rows,)`. Or a tuple of each row's sum of losses and its number of
            terms (such as tokens); then a member's loss is the mean over terms. Required unless `row_losses` is
            overridden.
        optimizer (`Callable`, *optional*): Makes the optimizer from parameter groups; AdamW without weight decay if
            unset.
        schedule (`Callable[[int], float]`, *optional*): Factor on all learning rates at an optimizer step, from 0.
        members_key (`str`, *optional*, defaults to `"members"`): Key of a batch with the names of its rows' members.

    Raises:
        ValueError: If `population` is not a population, or there is no loss.
    """

    def __init__(
        self,
        population: Population,
        loss: LossFunction | None = None,
        *,
        optimizer: Callable[[list[dict]], torch.optim.Optimizer] | None = None,
        schedule: Callable[[int], float] | None = None,
        members_key: str = "members",
    ) -> None:
        super().__init__()
        if not isinstance(population, Population):
            raise ValueError(f"PopulationModule needs a Population, got {type(population).__name__}.")
        if loss is None and type(self).row_losses is PopulationModule.row_losses:
            raise ValueError("There is no loss: pass loss=..., such as causal_lm_loss, or override row_losses.")
        self.population, self.members_key = population, members_key
        self._owned = {name: population.parameters(name) for name in population}
        self.adapters = nn.ModuleDict({name: nn.ParameterList(owned) for name, owned in self._owned.items()})
        self._loss, self._optimizer, self._schedule = loss, optimizer, schedule
        self._places = {name: place for place, name in enumerate(population)}
        self._totals: Tensor | None = None  # of the optimizer step: sums of losses and of terms, (members, 2)
        self._evaluated: dict[str, Tensor] = {}  # of the evaluation: the same, by metric
        self._random_states: list[dict] | None = None
        self._rates: dict[str, float] = {}  # learning rate of each member that the optimizers know

    # What subclasses override ----------------------------------------------------------------------------------

    def row_losses(self, batch: Any) -> Tensor | tuple[Tensor, Tensor]:
        """Loss of each row, or sum and number of terms of each row. The rows are routed to their members during this
        call."""
        assert self._loss is not None
        return self._loss(self.population.model, batch)

    def members_of(self, batch: Any) -> Sequence[str]:
        """Name of the member of each row.

        Raises:
            ValueError: If the batch does not name them.
        """
        if not isinstance(batch, Mapping) or self.members_key not in batch:
            held = f"the keys {sorted(map(str, batch))}" if isinstance(batch, Mapping) else f"a {type(batch).__name__}"
            raise ValueError(
                f"The batch does not say which member each row is for: it is {held}. Use MemberLoader, or put a list "
                f"of names under {self.members_key!r}."
            )
        return batch[self.members_key]

    def configure_optimizers(self) -> Any:
        groups = []
        for name, member in self.population.items():
            rates = dict.fromkeys(("lr", "initial_lr"), member.learning_rate)
            groups.append({"params": self._owned[name], "name": name, **rates})
        optimizer = self._optimizer(groups) if self._optimizer else torch.optim.AdamW(groups, weight_decay=0.0)
        if self._schedule is None:
            return optimizer
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, self._schedule)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    # Training --------------------------------------------------------------------------------------------------

    def setup(self, stage: str) -> None:
        strategy = self.trainer.strategy
        if not isinstance(strategy, (SingleDeviceStrategy, DDPStrategy)):
            raise ValueError(
                f"A population trains on one device or with strategy='ddp', not with {type(strategy).__name__}: "
                "every process holds all members."
            )
        if stage == "fit" and getattr(self.trainer.precision_plugin, "scaler", None) is not None:
            raise ValueError(
                f"precision={self.trainer.precision!r} scales the gradients of all members together, so one member "
                "that diverges would stop all others. Use precision='bf16-mixed'."
            )
        if self.population.model.device != strategy.root_device:
            self.population.model.to(strategy.root_device)
        self.adapters.to(strategy.root_device)  # an exception in a call before has left them on the CPU

    def on_train_start(self) -> None:
        self._totals = None
        self._rates = {name: member.learning_rate for name, member in self.population.items()}
        if self._random_states is not None:
            restore_random_states(self._random_states)
            self._random_states = None

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        members = self.members_of(batch)
        self.population.routing.set(members)  # until `backward` is done: checkpointed layers run again in it
        try:
            sums, counts = self._sums_and_counts(batch, members)
        except BaseException:
            self.population.routing.clear()
            raise
        if self._totals is None:
            self._totals = torch.zeros(len(self.population), 2, device=sums.device, dtype=sums.dtype)
        self._totals.index_add_(0, self._index(members).to(sums.device), torch.stack([sums.detach(), counts], dim=1))
        loss = sums.sum()
        if self.trainer.world_size > 1:  # data parallelism waits for a gradient of every parameter
            absent = [p for name in self.population if name not in members for p in self._owned[name]]
            loss = loss + sum((p.view(-1)[0] * 0.0 for p in absent), torch.zeros_like(loss))
        return loss

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        try:
            super().backward(loss, *args, **kwargs)
        finally:
            self.population.routing.clear()

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Divides each member's gradient, so that it is that of its mean loss instead of the sum."""
        assert self._totals is not None
        totals = self.trainer.strategy.reduce(self._totals, reduce_op="sum").tolist()
        self._totals = None
        undo = self.trainer.accumulate_grad_batches * self.trainer.world_size  # both have divided the gradient
        means = {}
        for (name, parameters), (total, count) in zip(self._owned.items(), totals, strict=True):
            if count == 0:
                for parameter in parameters:
                    parameter.grad = None
                continue
            means[name] = total / count
            if learned := [p.grad for p in parameters if p.grad is not None]:  # none of a member that was frozen
                torch._foreach_mul_(learned, undo / count)
        self._log_means("train_loss", means)

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clips the gradient of each member separately."""
        if gradient_clip_algorithm == "value":
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)
        elif gradient_clip_val:
            for parameters in self._owned.values():
                torch.nn.utils.clip_grad_norm_(parameters, gradient_clip_val)

    def start_over(self, name: str) -> None:
        """Called after a member was replaced: drops moments and gradients of the old weights, and changes learning
        rates as that of the member has changed."""
        before, rate = self._rates[name], self.population[name].learning_rate
        self._rates[name] = rate

        def changed(value: float) -> float:
            return rate if value == before else value * (rate / before if before else 1.0)

        for parameter in self._owned[name]:
            parameter.grad = None
        if self._totals is not None:
            self._totals[self._places[name]] = 0.0
        for optimizer in self.trainer.optimizers:
            for parameter in self._owned[name]:
                optimizer.state.pop(parameter, None)
            for place, group in enumerate(optimizer.param_groups):
                if group.get("name") != name or rate == before:
                    continue
                group |= {key: changed(group[key]) for key in ("lr", "initial_lr") if key in group}
                for scheduler in schedulers_of(self.trainer, optimizer):
                    if hasattr(scheduler, "base_lrs"):
                        scheduler.base_lrs[place] = changed(scheduler.base_lrs[place])

    # Evaluation ------------------------------------------------------------------------------------------------

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self._evaluate("val_loss", batch)

    def test_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self._evaluate("test_loss", batch)

    def log_rows(self, metric: str, values: Tensor, members: Sequence[str], counts: Tensor | None = None) -> None:
        """Adds rows of an evaluation step to a metric.

        Args:
            metric (`str`): Logged at the end as `<metric>/<member>`, and as `<metric>` for the mean over members
                whose value is finite.
            values (`torch.Tensor` of shape `(rows,)`): Value of each row, or its sum over `counts` terms.
            members (`Sequence[str]`): Member of each row.
            counts (`torch.Tensor` of shape `(rows,)`, *optional*): Terms of each row; one if unset.
        """
        counts = torch.ones_like(values) if counts is None else counts
        rows = torch.stack([values.detach().double().cpu(), counts.detach().double().cpu()], dim=1)
        totals = self._evaluated.setdefault(metric, torch.zeros(len(self.population), 2, dtype=torch.float64))
        totals.index_add_(0, self._index(members), rows)

    def on_validation_epoch_start(self) -> None:
        self._evaluated = {}

    def on_validation_epoch_end(self) -> None:
        metrics = list(self._evaluated)
        if self.trainer.world_size > 1:  # each in the same order, also those that this process has no rows of
            everyones: list[Any] = [None] * self.trainer.world_size
            torch.distributed.all_gather_object(everyones, metrics)
            metrics = sorted({metric for own in everyones for metric in own})
        for metric in metrics:
            totals = self._evaluated.get(metric, torch.zeros(len(self.population), 2, dtype=torch.float64))
            if self.trainer.world_size > 1:
                totals = self.trainer.strategy.reduce(totals.to(self.device), reduce_op="sum")
            rows = zip(self.population, totals.tolist(), strict=True)
            self._log_means(metric, {name: total / count for name, (total, count) in rows if count})
        self._evaluated = {}

    on_test_epoch_start, on_test_epoch_end = on_validation_epoch_start, on_validation_epoch_end

    # Checkpoints -----------------------------------------------------------------------------------------------

    def get_extra_state(self) -> dict:
        """The table of members and the scaling of each adapted module, saved with the adapters."""
        return {
            "members": [member.to_json() for member in self.population.values()],
            "scalings": self._scalings(),
        }

    def set_extra_state(self, state: dict) -> None:
        members = [Member.from_json(row) for row in state["members"]]
        saved, own = [member.id for member in members], list(self.population)
        if saved != own:
            raise ValueError(f"The checkpoint holds the members {saved}, but this population has {own}.")
        before, now = state["scalings"], self._scalings()
        if before.keys() != now.keys():
            raise ValueError(
                f"The checkpoint's adapters cover other modules than this population's: "
                f"{sorted(before.keys() ^ now.keys())[:4]}. Use the base and the LoRA settings that it was saved with."
            )
        for module, scaling in now.items():
            if before[module] != scaling:
                raise ValueError(
                    f"The checkpoint's adapters have scaling {before[module]:g} at {module}, and this population's "
                    f"have {scaling:g}: every update would be rescaled. Use the lora_alpha, r and use_rslora that it "
                    "was saved with."
                )
        for member in members:
            self.population.restore(member)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["random_states"] = collect_random_states(self.trainer.world_size)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self._trainer is not None and self._trainer.state.fn == "fit":
            self._random_states = checkpoint.get("random_states")

    def teardown(self, stage: str) -> None:
        self.adapters.to(self.population.model.device)  # Lightning has taken them to the CPU

    # Helpers ---------------------------------------------------------------------------------------------------

    def _scalings(self) -> dict[str, float]:
        """Scaling of each adapted module, the same for all members."""
        factors = self.population.factors(next(iter(self.population)))
        return {path: factor.scaling for path, factor in factors.items()}

    def _index(self, members: Sequence[str]) -> Tensor:
        return torch.tensor([self._places[name] for name in members])

    def _sums_and_counts(self, batch: Any, members: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Sum of losses and number of terms of each row, both `(rows,)` and float32."""
        losses = self.row_losses(batch)
        for one in losses if isinstance(losses, tuple) else (losses,):
            shape = tuple(one.shape) if isinstance(one, Tensor) else None
            if shape != (len(members),):
                found = f"is a {type(one).__name__}" if shape is None else f"has shape {shape}"
                raise ValueError(
                    f"The loss {found}, but the batch has {len(members)} rows: return a tensor of one value per row "
                    "(reduction='none'), not their mean."
                )
        sums, counts = losses if isinstance(losses, tuple) else (losses, torch.ones_like(losses))
        return sums.float(), counts.detach().float()

    def _evaluate(self, metric: str, batch: Any) -> None:
        members = self.members_of(batch)
        with self.population.route(members), _evaluation_mode(self.population.model):
            sums, counts = self._sums_and_counts(batch, members)
        self.log_rows(metric, sums, members, counts)

    def _log_means(self, metric: str, means: Mapping[str, float]) -> None:
        if not means:
            return
        finite = [mean for mean in means.values() if math.isfinite(mean)] or list(means.values())
        self.log(metric, sum(finite) / len(finite), prog_bar=True)
        self.log_dict({f"{metric}/{name}": mean for name, mean in means.items()})


def schedulers_of(trainer: lightning.Trainer, optimizer: torch.optim.Optimizer) -> list[Any]:
    """Schedulers of an optimizer, also those within a `SequentialLR` or `ChainedScheduler`."""
    own = [config.scheduler for config in trainer.lr_scheduler_configs if config.scheduler.optimizer is optimizer]
    return [part for scheduler in own for part in getattr(scheduler, "_schedulers", [scheduler])]


@contextlib.contextmanager
def _evaluation_mode(model: nn.Module) -> Iterator[None]:
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
