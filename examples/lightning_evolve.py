"""Eight LoRA adapters fine-tuned side by side on one dataset and evolved by validation loss, on a CPU in minutes.

    python examples/lightning_evolve.py

After each epoch the two worst make room for children of the two best, which may learn faster or slower than these.
"""

import random

import lightning
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer

import trl_populora.integrations.lightning as populora
from trl_populora.integrations import resolve_base
from trl_populora.population import Population


def sums(count: int, seed: int) -> list[populora.Example]:
    """Additions of two numbers below 30, asked and answered."""
    rng = random.Random(seed)
    pairs = [(rng.randrange(30), rng.randrange(30)) for _ in range(count)]
    return [populora.Example(({"role": "user", "content": f"{a} + {b}"},), str(a + b)) for a, b in pairs]


def main(model="tiny", output="runs/lightning_evolve", members=8, epochs=6, size=128) -> lightning.Trainer:
    path = resolve_base(model)
    tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
    lora = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", lora_dropout=0.0)
    base = AutoModelForCausalLM.from_pretrained(path)
    population = Population(base, lora, num_teachers=0, num_students=members, learning_rate=1e-3)

    def loader(count: int, seed: int, **settings) -> populora.MemberLoader:
        rows = populora.encode(tokenizer, sums(count, seed))
        collate_rows = lambda rows: populora.collate(rows, tokenizer.pad_token_id)  # noqa: E731
        return populora.MemberLoader(rows, population, rows_per_member=8, collate=collate_rows, **settings)

    evolution = populora.EvolutionCallback(
        "val_loss", mode="min", interval=1, unit="epochs", mutate_learning_rate=True
    )
    trainer = lightning.Trainer(
        max_epochs=epochs,
        gradient_clip_val=1.0,
        callbacks=[evolution, ModelCheckpoint(), LearningRateMonitor()],
        logger=CSVLogger(output),
        log_every_n_steps=1,
    )
    module = populora.PopulationModule(population, populora.causal_lm_loss)
    trainer.fit(module, loader(size, seed=0, shuffle=True), loader(size // 4, seed=1))
    population.save(f"{output}/population")  # a PEFT folder for each member
    print(evolution.lineage.family_tree(list(population)))
    return trainer


if __name__ == "__main__":
    main()
