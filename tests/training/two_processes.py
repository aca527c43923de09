"""A rank of test_two_processes.py: trains a tiny population, writes what this rank ended with.

Arguments: folder, optimizer steps, per-device batch, checkpoint to resume from ("" for none), what goes wrong on
rank 1 in its second round ("dies", "differs" or nothing; with "stops", rank 0 ends training, with "asks" or
"asks at once" it asks for more), and further settings as JSON.
"""

import json
import os
import signal
import sys

import torch
from transformers import TrainerCallback

from tests.tiny import lora, perturb, tiny_model, tiny_tokenizer
from tests.training.conftest import hash_reward
from trl_populora.training import PopulationSelfPlayConfig, PopulationSelfPlayTrainer


class Trouble(TrainerCallback):
    def __init__(self, kind):
        self.kind, self.trainer = kind, None

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 1 and self.trainer.accelerator.process_index == 1:
            if self.kind == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            with torch.no_grad():
                self.trainer.population.parameters("student_0")[0][0, 0] += 1e-3


def main(
    folder: str, steps: str = "3", batch: str = "2", checkpoint: str = "", trouble: str = "", more: str = "{}"
) -> None:
    args = PopulationSelfPlayConfig(
        output_dir=os.path.join(folder, "run"),
        num_teachers=2,
        num_students=2,
        num_generations=2,
        per_device_train_batch_size=int(batch),
        max_completion_length=8,
        prompt_style="compact",
        num_references=1,
        task_kwargs={"code_f": {"num_inputs": 4}},
        seed_tasks=8,
        max_steps=int(steps),
        lr_scheduler_type="constant",
        learning_rate=1e-2,
        optim="sgd",
        executor_kwargs={"workers": 1},
        use_cpu=True,
        bf16=False,
        save_steps=2,
        report_to="none",
        disable_tqdm=True,
        overwrite_output_dir=True,
        **({"evolution_interval": 2, "evolution_kwargs": {"operators": ["clone"]}} | json.loads(more)),
    )
    trainer = PopulationSelfPlayTrainer(
        tiny_model(), hash_reward, args, processing_class=tiny_tokenizer(), peft_config=lora()
    )
    perturb(trainer.population, 0.1)
    if trouble == "stops":

        def stop(summary):
            trainer.control.should_training_stop = summary.round == 1

        trainer.on_round = stop
    elif trouble.startswith("asks"):

        def ask(summary):
            trainer.control.should_save = summary.round == 0
            trainer.control.should_evaluate = summary.round == 1

        def stop_after(record):
            asked = record["step"] == 2 or trouble == "asks at once"
            trainer.control.should_save = trainer.control.should_training_stop = asked

        trainer.on_round, trainer.on_probe = ask, stop_after
    elif trouble:
        callback = Trouble(trouble)
        callback.trainer = trainer
        trainer.add_callback(callback)
    trainer.train(resume_from_checkpoint=checkpoint or None)
    rank = trainer.accelerator.process_index
    torch.save(
        {name: [p.detach().clone() for p in trainer.population.parameters(name)] for name in trainer.population},
        os.path.join(folder, f"rank{rank}.pt"),
    )
    record = {
        "lineage": [event.to_json() for event in trainer.lineage],
        "texts": [row["completion"] for row in trainer.source.rows()],
        "executed": sum(trainer.source.execution_counts.values()),
        "processes": trainer.accelerator.num_processes,
        "step": trainer.state.global_step,
    }
    with open(os.path.join(folder, f"rank{rank}.json"), "w", encoding="utf-8") as file:
        json.dump(record, file)
    trainer.accelerator.end_training()  # a process that exits with threads of gloo at work may abort


if __name__ == "__main__":
    main(*sys.argv[1:])
