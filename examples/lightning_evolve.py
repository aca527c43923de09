"""Eight LoRA adapters fine-tuned side by side on one dataset, evolved by validation loss. Seconds per epoch on a CPU.

    python examples/lightning_evolve.py

Each epoch the two worst of the eight make room for children of the two best, whose learning rates mutate with them.
"""

import argparse
import random

import lightning
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer

from trl_populora.integrations import resolve_base
from trl_populora.integrations.lightning import (
    EvolutionCallback,
    Example,
    MemberLoader,
    PopulationModule,
    causal_lm_loss,
    collate,
    encode,
)
from trl_populora.population import Population


def sums(count: int, seed: int) -> list[Example]:
    """Additions of two numbers below 30, asked and answered."""
    rng = random.Random(seed)
    pairs = [(rng.randrange(30), rng.randrange(30)) for _ in range(count)]
    return [Example(({"role": "user", "content": f"{a} + {b}"},), str(a + b)) for a, b in pairs]


def main(arguments: list[str] | None = None) -> lightning.Trainer:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="tiny", help="base model: Hub id, folder or 'tiny'")
    parser.add_argument("--output", default="runs/lightning_evolve")
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--samples", type=int, default=256)
    options = parser.parse_args(arguments)

    path = resolve_base(options.model)
    tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
    lora = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", lora_dropout=0.0)
    model = AutoModelForCausalLM.from_pretrained(path)
    population = Population(model, lora, num_teachers=0, num_students=options.members, learning_rate=3e-4)

    def loader(count: int, seed: int, **settings) -> MemberLoader:
        rows = encode(tokenizer, sums(count, seed))
        collation = {"collate": lambda rows: collate(rows, tokenizer.pad_token_id)}
        return MemberLoader(rows, population, rows_per_member=16, **collation, **settings)

    evolution = EvolutionCallback("val_loss", mode="min", interval=1, unit="epochs", mutate_learning_rate=True)
    trainer = lightning.Trainer(
        max_epochs=options.epochs,
        gradient_clip_val=1.0,
        callbacks=[evolution, ModelCheckpoint(save_last=True), LearningRateMonitor()],
        logger=CSVLogger(options.output),
        log_every_n_steps=1,
    )
    module = PopulationModule(population, causal_lm_loss)
    trainer.fit(module, loader(options.samples, 0, shuffle=True), loader(64, 1))
    population.save(f"{options.output}/population")  # a PEFT folder for each member
    print(evolution.lineage.family_tree(list(population)))
    return trainer


if __name__ == "__main__":
    main()
