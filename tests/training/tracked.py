"""A tiny run that reports to trackio, wandb and TensorBoard, without network, for test_trackers.py.

It runs in a process of its own: trackers keep threads and processes, and the network is forbidden in it.
"""

import json
import socket
import tempfile
from dataclasses import replace
from pathlib import Path


def forbid_network(log: Path) -> None:
    """Every attempt of this process to reach another machine is noted and fails."""
    connect = socket.socket.connect

    def local(self, address):
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
            with log.open("a") as file:
                file.write(f"{address}\n")
            raise OSError("no network in this test")
        return connect(self, address)

    socket.socket.connect = local


def main(where: str) -> None:
    folder = Path(where)
    forbid_network(folder / "network.txt")
    tempfile.tempdir = where  # a fork ends without wandb's removal of its temporary files
    from tests.tiny import lora, perturb, tiny_model, tiny_tokenizer
    from tests.training.conftest import Altered, hash_reward
    from tests.training.victim import plausible
    from trl_populora.training import PopulationSelfPlayConfig, PopulationSelfPlayTrainer

    args = PopulationSelfPlayConfig(
        output_dir=str(folder / "run"), num_teachers=2, num_students=2, num_generations=2,
        per_device_train_batch_size=4, max_completion_length=8, prompt_style="compact", num_references=1,
        task_types=["code_o"], seed_tasks=8, max_steps=4, learning_rate=1e-2, evolution_interval=2,
        executor_kwargs={"workers": 1}, use_cpu=True, bf16=False, save_strategy="no", disable_tqdm=True,
        report_to=["trackio", "wandb", "tensorboard"], run_name="tracked", project="populora", log_completions=True,
        num_completions_to_print=1, logging_steps=2, eval_strategy="steps", eval_steps=4,
        probe_kwargs={"exams": ["held_out[:2]"], "founders": 1},
    )  # fmt: skip
    summaries, advantages = [], []
    trainer = PopulationSelfPlayTrainer(
        tiny_model(),
        hash_reward,
        args,
        processing_class=tiny_tokenizer(),
        peft_config=lora(),
        on_round=lambda summary: summaries.append(summary.to_json()),
    )
    perturb(trainer.population, 0.1)
    trainer.source.sampler = Altered(trainer.source.sampler, plausible)
    trainer.source.self_play.lengths = None

    finish = trainer.source.finish

    def note(rows, metrics):
        finish(rows, metrics)
        advantages.append(rows.advantages.tolist())

    trainer.source.finish = note
    summary = trainer.source.summary
    trainer.source.summary = lambda **kwargs: replace(summary(**kwargs), alarms=("a test: nothing is wrong",))
    trainer.train()
    told = {
        "summaries": summaries,
        "advantages": advantages,
        "logs": trainer.state.log_history,
        "lineage": [event.to_json() for event in trainer.lineage],
    }
    (folder / "told.json").write_text(json.dumps(told))
    import wandb

    wandb.finish()
