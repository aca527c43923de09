"""Four students learn a dataset of your own with a reward function of your own, on a CPU: no teachers, no sandbox.

    python examples/own_dataset.py

The dataset is recipes/dataset/programs.jsonl. A row has a `prompt` and any other columns that the reward needs.
"""

import re
from pathlib import Path

from datasets import load_dataset

from trl_populora import PopulationSelfPlayConfig, PopulationSelfPlayTrainer
from trl_populora.integrations import resolve_base


DATA = Path(__file__).resolve().parents[1] / "recipes" / "dataset" / "programs.jsonl"
BLOCK = re.compile(r"```output\n(.*?)\n```", re.DOTALL)


def right_output(completions, answer, **columns):
    """1 for the right answer, 0 for a wrong one, -1 for no answer. `answer` is a column of the dataset."""
    found = [BLOCK.search(completion[0]["content"]) for completion in completions]
    return [-1.0 if block is None else float(block[1].strip() == right) for block, right in zip(found, answer)]


def main(model="tiny", output="runs/own_dataset", rounds=20, students=4) -> PopulationSelfPlayTrainer:
    trainer = PopulationSelfPlayTrainer(
        resolve_base(model),
        reward_funcs=right_output,
        args=PopulationSelfPlayConfig(
            output_dir=output,
            num_teachers=0,  # train on the dataset
            num_students=students,
            num_generations=8,
            per_device_train_batch_size=8 * students,  # one prompt for each student; a multiple of that
            max_completion_length=48,
            max_steps=rounds,
            learning_rate=3e-4,  # for the tiny base; a large one learns at 1e-5
            evolution_interval=5,  # the worst student makes room every five rounds
            gradient_checkpointing=False,
            use_cpu=True,
            bf16=False,
            save_strategy="no",
            report_to="none",
            overwrite_output_dir=True,
        ),
        train_dataset=load_dataset("json", data_files=str(DATA), split="train"),
    )
    trainer.train()
    trainer.save_model()
    for name in trainer.population:
        print(f"{name}: mean reward {trainer.ratings[name].mu:.2f}, adapter in {output}/{name}")
    return trainer


if __name__ == "__main__":
    main()
