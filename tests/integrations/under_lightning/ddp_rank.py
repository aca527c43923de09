"""One rank of a run of `test_ddp.py`: trains and evolves a population, leaves weights and lineage behind."""

import json
import os
import sys

import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from tests.integrations.under_lightning import toys
from trl_populora.integrations.lightning import EvolutionCallback, PopulationModule, causal_lm_loss


class Lengths(PopulationModule):
    """Logs a metric for each length, in the order in which this process meets them."""

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        super().validation_step(batch, batch_idx, dataloader_idx)
        lengths, members = batch["attention_mask"].sum(1), self.members_of(batch)
        for length, member in zip(lengths, members, strict=True):
            self.log_rows(f"rows_of_{length}", length.float()[None], [member])


def main(folder: str, processes: str, checkpoint: str = "") -> None:
    torch.manual_seed(int(os.environ.get("RANK", 0)))  # processes start with other random states
    members = toys.population(3)
    evolution = EvolutionCallback(
        "val_loss", operators=("gaussian", "layerwise"), lineage_file=os.path.join(folder, "lineage.jsonl")
    )
    saving = ModelCheckpoint(folder, filename="{step}", save_top_k=-1, save_on_train_epoch_end=False)
    fitting = toys.trainer(
        folder,
        max_epochs=3,
        devices=int(processes),
        strategy="ddp" if processes != "1" else "auto",
        accumulate_grad_batches=2,
        gradient_clip_val=0.5,
        callbacks=[evolution, saving],
    )
    # 3 rows of a batch: the processes' shares hold other members; 5 samples: the last batch is smaller
    train = toys.loader(5, members, rows_per_member=1)
    fitting.fit(
        Lengths(members, causal_lm_loss),
        train,
        toys.loader(3, members, seed=1, shuffle=False),
        ckpt_path=checkpoint or None,
    )
    torch.save(toys.weights(members), os.path.join(folder, f"rank{fitting.global_rank}.pt"))
    record = {
        "events": [event.to_json() for event in evolution.lineage],
        "metrics": {name: float(value) for name, value in fitting.callback_metrics.items()},
        "world": fitting.world_size,
    }
    with open(os.path.join(folder, f"rank{fitting.global_rank}.json"), "w", encoding="utf-8") as file:
        json.dump(record, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
