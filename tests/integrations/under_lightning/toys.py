"""Rows, populations and trainers of toy size, shared by the tests of the Lightning integration and their processes."""

import logging
import random
import warnings

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader

from tests.tiny import lora, tiny_population, two_layers
from trl_populora.integrations.lightning import MemberLoader, PopulationModule, Row, causal_lm_loss, collate


logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
warnings.filterwarnings("ignore", module=r"lightning\.")


def rows(count: int, *, seed: int = 0) -> list[Row]:
    """Random rows of different lengths."""
    rng = random.Random(seed)
    return [
        Row(tuple(rng.randrange(3, 40) for _ in range(prompt + rng.randint(1, 5))), prompt)
        for prompt in (rng.randint(1, 6) for _ in range(count))
    ]


def collate_rows(samples: list[Row]) -> dict:
    return collate(samples, 0)


def batch_of(named: list[tuple[str, Row]]) -> dict:
    return collate_rows([row for _, row in named]) | {"members": [name for name, _ in named]}


def fixed(batches: list) -> DataLoader:
    """These batches, in this order."""
    return DataLoader(batches, batch_size=None, collate_fn=lambda batch: batch)


def population(students: int = 3, **settings):
    return tiny_population(0, students, lora_config=lora(2), **({"learning_rate": 1e-2} | settings))


def module(members, **settings) -> PopulationModule:
    return PopulationModule(members, causal_lm_loss, **settings)


def loader(count: int, members, *, seed: int = 0, **settings) -> MemberLoader:
    return MemberLoader(
        rows(count, seed=seed), members, collate=collate_rows, **({"rows_per_member": 2, "shuffle": True} | settings)
    )


def trainer(folder, **settings) -> lightning.Trainer:
    quiet = {
        "accelerator": "cpu",
        "devices": 1,
        "logger": CSVLogger(folder, flush_logs_every_n_steps=1),
        "log_every_n_steps": 1,
        "enable_checkpointing": any(isinstance(c, ModelCheckpoint) for c in settings.get("callbacks", ())),
        "enable_model_summary": False,
        "enable_progress_bar": False,
        "default_root_dir": folder,
    }
    return lightning.Trainer(**{**quiet, **settings})


def is_base(members) -> bool:
    """Whether a pass that names no members is the base that [`population`] began with: nobody's rows are routed."""
    ids = torch.tensor([[3, 4, 5]])
    with torch.no_grad():
        return torch.equal(members.base_model(ids).logits, two_layers()(ids).logits)


def weights(members) -> dict[str, list[torch.Tensor]]:
    return {name: [p.detach().clone() for p in members.parameters(name)] for name in members}


def equal(one: dict, other: dict) -> bool:
    return all(torch.equal(a, b) for name in one for a, b in zip(one[name], other[name], strict=True))
