"""Supervised fine-tuning under `lightning.Trainer`: examples in, cross-entropy on the completions, AdamW steps.

It trains a whole model (the tiny base) or adapters that each see their own rows only (the warm start): what is trained
and how rows reach it are two callables given by the caller. Where examples come from is not decided here.
"""

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import lightning
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from ...tasks import render_prompt


IGNORED = -100  # label of a token that carries no loss


@dataclass(frozen=True)
class Example:
    """One supervised row.

    Attributes:
        messages (`tuple[dict, ...]`): The prompt, as chat messages.
        completion (`str`): The text to be learnt; the end-of-turn token is added to it.
        member (`str`): Whose row it is; any constant when a whole model is trained.
    """

    messages: tuple[dict, ...]
    completion: str
    member: str = ""


@dataclass(frozen=True)
class Row:
    """An `Example` in tokens: the first `prompt` of its `ids` are the prompt, the others the completion."""

    ids: tuple[int, ...]
    prompt: int
    member: str


def encode(tokenizer, examples: Sequence[Example], *, template: str = "chat") -> list[Row]:
    """Tokenise each rendered prompt and its completion after it, apart, as generation sees them."""
    prompts = [render_prompt(example.messages, tokenizer, template=template) for example in examples]
    completions = [example.completion for example in examples]
    prompt_ids, completion_ids = (tokenizer(t, add_special_tokens=False)["input_ids"] for t in (prompts, completions))
    end = tokenizer.eos_token_id
    return [
        Row((*prompt, *completion, end), len(prompt), example.member)
        for prompt, completion, example in zip(prompt_ids, completion_ids, examples, strict=True)
    ]


def collate(rows: Sequence[Row], pad_token_id: int) -> dict[str, Tensor | list[str]]:
    """Left-pad rows to one width.

    Every row ends in the last column, so all completions lie in the last columns and logits are needed there only.

    Returns:
        `dict`: `input_ids`, `attention_mask` and `labels` of shape `(rows, width)` (labels are -100 on prompts and
        padding) and `members`, one name per row.
    """
    width = max(len(row.ids) for row in rows)
    input_ids = torch.full((len(rows), width), pad_token_id)
    attention_mask = torch.zeros_like(input_ids)
    labels = torch.full_like(input_ids, IGNORED)
    for index, row in enumerate(rows):
        input_ids[index, width - len(row.ids) :] = torch.tensor(row.ids)
        attention_mask[index, width - len(row.ids) :] = 1
        completion = row.ids[row.prompt :]
        labels[index, width - len(completion) :] = torch.tensor(completion)
    return {
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "labels": labels,
        "members": [row.member for row in rows],
    }


def completion_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Negative log-likelihood of each completion token.

    Args:
        logits (`torch.Tensor` of shape `(rows, kept, vocabulary)`): Logits of the last `kept` positions.
        labels (`torch.Tensor` of shape `(rows, width)`): Labels of all positions, `width >= kept`.

    Returns:
        `torch.Tensor` of shape `(rows, kept - 1)`, float32, zero where there is no label.
    """
    kept = logits.size(1)
    targets = labels[:, labels.size(1) - kept + 1 :]
    flat = F.cross_entropy(
        logits[:, :-1].float().flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none"
    )
    return flat.view_as(targets)


Forward = Callable[[Tensor, Tensor, Sequence[str], int], Tensor]
"""`(input_ids, attention_mask, members, logits_to_keep) -> logits` of the last positions."""


def model_forward(model) -> Forward:
    """The `Forward` of a causal language model; rows are routed by a context around it, if at all."""

    def forward(input_ids: Tensor, attention_mask: Tensor, members: Sequence[str], logits_to_keep: int) -> Tensor:
        positions = (attention_mask.cumsum(dim=1) - 1).clamp(min=0)  # as `generate` counts them under left padding
        outputs = model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=positions,
            logits_to_keep=logits_to_keep,
            use_cache=False,
        )
        return outputs.logits

    return forward


class SupervisedModule(lightning.LightningModule):
    """AdamW on the mean completion loss, with a linear warm-up and a linear decay to zero.

    Each member has its own mean, its own optimizer group and its own gradient clipping, so its update depends on its
    own rows alone. The model is held by `forward` only, never as a submodule: Lightning neither moves nor re-modes it.

    Args:
        forward (`Forward`): Computes logits.
        parameters (`Mapping[str, Iterable[torch.nn.Parameter]]`): Member -> what is trained on its rows.
        route (`Callable[[Sequence[str]], ContextManager]`, *optional*):
            Given the member of every row of a batch, a context in which forward and backward use these members.
        learning_rate (`float`): Peak learning rate.
        steps (`int`): Optimizer steps in all; the learning rate is zero after the last one.
        warmup_steps (`int`): Steps over which the learning rate rises.
        weight_decay (`float`): Of AdamW.
        max_grad_norm (`float`): Bound on the gradient norm of each member.
        rows_per_pass (`int`, *optional*):
            Rows per forward pass; rows of a batch are sorted by length, so that few passes are mostly padding.
        on_step (`Callable[[int, dict[str, float]], None]`, *optional*): Called after each step with the step (from 1)
            and each member's mean loss.
    """

    def __init__(
        self,
        forward: Forward,
        parameters: Mapping[str, Iterable[torch.nn.Parameter]],
        *,
        pad_token_id: int,
        learning_rate: float,
        steps: int,
        warmup_steps: int = 0,
        weight_decay: float = 0.0,
        max_grad_norm: float = 1.0,
        rows_per_pass: int | None = None,
        route: Callable[[Sequence[str]], contextlib.AbstractContextManager] | None = None,
        on_step: Callable[[int, dict[str, float]], None] | None = None,
    ):
        super().__init__()
        if not 0 <= warmup_steps <= steps:
            raise ValueError(f"warmup_steps={warmup_steps} must lie between 0 and steps={steps}.")
        self.automatic_optimization = False  # `route` must stay open until the backward pass is done
        self._compute_logits = forward
        self._groups = {member: list(group) for member, group in parameters.items()}
        self._route = route or (lambda members: contextlib.nullcontext())
        self.pad_token_id = pad_token_id
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.steps, self.warmup_steps = steps, warmup_steps
        self.max_grad_norm = max_grad_norm
        self.rows_per_pass = rows_per_pass
        self.on_step = on_step
        self.losses: list[dict[str, float]] = []

    def training_step(self, batch: list[Row], batch_idx: int) -> None:
        optimizer = self.optimizers()
        optimizer.zero_grad()
        tokens = dict.fromkeys(self._groups, 0)
        for row in batch:
            tokens[row.member] += len(row.ids) - row.prompt
        totals = dict.fromkeys((member for member, count in tokens.items() if count), 0.0)
        batch = sorted(batch, key=lambda row: len(row.ids))
        for start in range(0, len(batch), self.rows_per_pass or len(batch)):
            rows = batch[start : start + (self.rows_per_pass or len(batch))]
            for member, loss in self._backward(rows, tokens).items():
                totals[member] += loss
        for group in self._groups.values():
            torch.nn.utils.clip_grad_norm_(group, self.max_grad_norm)
        optimizer.step()
        self.lr_schedulers().step()
        self.losses.append(totals)
        if self.on_step is not None:
            self.on_step(len(self.losses), totals)

    def forget_gradients(self) -> None:
        """Leave no gradient behind that a later training would find."""
        for parameter in (parameter for group in self._groups.values() for parameter in group):
            parameter.grad = None

    def transfer_batch_to_device(self, batch: list[Row], device: torch.device, dataloader_idx: int) -> list[Row]:
        return batch  # rows become tensors, on the right device, one forward pass at a time

    def _backward(self, rows: Sequence[Row], tokens: Mapping[str, int]) -> dict[str, float]:
        """One forward and backward pass; returns these rows' share of each member's mean loss."""
        batch = collate(rows, self.pad_token_id)
        members = batch.pop("members")
        batch = {key: tensor.to(self.device) for key, tensor in batch.items()}
        logits_to_keep = max(len(row.ids) - row.prompt for row in rows) + 1
        weights = torch.tensor([1.0 / tokens[row.member] for row in rows], device=self.device)
        with self._route(members):
            logits = self._compute_logits(batch["input_ids"], batch["attention_mask"], members, logits_to_keep)
            losses = completion_loss(logits, batch["labels"]).sum(dim=1) * weights
            self.manual_backward(losses.sum())
        shares = dict.fromkeys(members, 0.0)
        for row, loss in zip(rows, losses.tolist(), strict=True):
            shares[row.member] += loss
        return shares

    def configure_optimizers(self):
        groups = [{"params": group} for group in self._groups.values()]
        optimizer = torch.optim.AdamW(groups, lr=self.learning_rate, weight_decay=self.weight_decay)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, self.learning_rate_factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def learning_rate_factor(self, step: int) -> float:
        """Learning rate of optimizer step `step` (from 0), as a fraction of the peak."""
        if step < self.warmup_steps:
            return (step + 1) / (self.warmup_steps + 1)
        return max(0.0, (self.steps - step) / max(1, self.steps - self.warmup_steps))


class _Batches(IterableDataset):
    def __init__(self, batches: Iterable[list[Row]]):
        self._batches = batches

    def __iter__(self) -> Iterator[list[Row]]:
        return iter(self._batches)


class SupervisedData(lightning.LightningDataModule):
    """Batches of rows, in the order they are given.

    Args:
        batches (`Iterable[list[Row]]`): One list of rows per optimizer step; may be endless.
    """

    def __init__(self, batches: Iterable[list[Row]]):
        super().__init__()
        self._batches = batches

    def train_dataloader(self) -> DataLoader:
        return DataLoader(_Batches(self._batches), batch_size=None)


def fit(
    module: SupervisedModule, batches: Iterable[list[Row]], *, device: torch.device, progress_bar: bool = False
) -> list[dict[str, float]]:
    """Run `module` on `batches` for its number of steps, on the device where the model already is.

    Returns:
        `list[dict[str, float]]`: Each step's mean loss per member.
    """
    with _quiet():
        trainer = lightning.Trainer(
            accelerator=device.type,
            devices=[device.index or 0] if device.type == "cuda" else 1,
            max_steps=module.steps,
            max_epochs=1,
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=progress_bar,
        )
        trainer.fit(module, datamodule=SupervisedData(batches))
    module.forget_gradients()
    if len(module.losses) < module.steps:
        raise ValueError(f"The data ended after {len(module.losses)} batches; steps={module.steps} need one each.")
    return module.losses


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hold back Lightning's hints about devices, data workers and its other products."""
    log = logging.getLogger("lightning.pytorch")
    level = log.level
    log.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"lightning\.")
            yield
    finally:
        log.setLevel(level)
