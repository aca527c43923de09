"""A slow proof on a toy base: a student learns countdown from rewards, and from shuffled rewards it does not.

The tiny base has never seen countdown, and some tokens of an answer not even in its own training. So a short
supervised start of the whole model teaches it puzzles of two one-digit numbers; in its last steps half of the answers
have a wrong operation, to give reinforcement something to lift. Then a LoRA student plays. About 140 s of one core.
"""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.learning.test_learning import shuffle_rewards, standard_error
from trl_populora.generation import TransformersSampler
from trl_populora.integrations.base_models import resolve_base
from trl_populora.integrations.lightning import causal_lm_loss, collate, encode
from trl_populora.integrations.lightning.seed_examples import SeedExamples
from trl_populora.tasks import Referee, make_task_types
from trl_populora.training import PopulationSelfPlayConfig, PopulationSelfPlayTrainer


pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

SETTINGS = {"countdown": {"max_numbers": 2, "largest_number": 9, "largest_target": 81}}  # 124 puzzles
WRONG = str.maketrans("+-*/", "-+/*")
STEPS, SPOILT_STEPS = 140, 40
SEED_TASKS, ROUNDS, DRAWS = 48, 25, 4


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Folder of the tiny base after the supervised start."""
    folder = str(tmp_path_factory.mktemp("countdown_base"))
    tokenizer = AutoTokenizer.from_pretrained(resolve_base("tiny"))
    model = AutoModelForCausalLM.from_pretrained(resolve_base("tiny")).train()
    types = make_task_types(["countdown"], style="compact", kwargs=SETTINGS)
    examples = SeedExamples(types, rng=random.Random(0), references=SEED_TASKS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = 1e-3 * min(1, (step + 1) / 10) * (1 - step / STEPS)
        batch = [examples.solve("countdown") if i % 8 else examples.propose("countdown") for i in range(32)]
        if step >= STEPS - SPOILT_STEPS:
            batch[1::2] = [replace(one, completion=one.completion.translate(WRONG)) for one in batch[1::2]]
        sums, tokens = causal_lm_loss(model, collate(encode(tokenizer, batch), tokenizer.pad_token_id))
        (sums.sum() / tokens.sum()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_trainer(base, folder):
    args = PopulationSelfPlayConfig(
        output_dir=str(folder),
        num_teachers=1,
        num_students=1,
        num_generations=8,
        prompts_per_teacher=1,
        task_types=["countdown"],
        task_kwargs=SETTINGS,
        per_device_train_batch_size=72,
        generation_rows=256,
        max_completion_length=40,
        prompt_style="compact",
        num_references=1,
        seed_tasks=SEED_TASKS,
        max_steps=ROUNDS,
        learning_rate=1e-3,
        teacher_learning_rate=0.0,
        lr_scheduler_type="constant",
        evolution_interval=0,
        gradient_checkpointing=False,
        use_cpu=True,
        bf16=False,
        save_strategy="no",
        report_to="none",
        logging_steps=ROUNDS,
        disable_tqdm=True,
    )
    return PopulationSelfPlayTrainer(base, args=args)


def nothing_runs(jobs):
    raise AssertionError("countdown runs nothing")


def tasks_beside_the_seeds(trainer):
    """The puzzles of a larger set that are not in the buffer."""
    kind, known = trainer.source.task_types["countdown"], trainer.source.buffer.tasks("countdown")
    keys = {kind.key(task.payload) for task in known}
    return [task for task in kind.seeds(100, seed=12345) if kind.key(task.payload) not in keys]


def solved(trainer, tasks):
    """Share of `DRAWS` answers at temperature 1 that solve each task."""
    types = trainer.source.task_types
    sampler = TransformersSampler(
        trainer.population, trainer.processing_class, max_completion_length=40, temperature=1.0, batch_size=256
    )
    asked = list(tasks) * DRAWS
    prompts = [types["countdown"].solve_prompt(task) for task in asked]
    answers = [answer.text for answer in sampler(prompts, ["student_0"] * len(asked), seed=0)]
    verdicts = Referee(types, nothing_runs).judge(asked, answers)
    return np.array([verdict.solved for verdict in verdicts], dtype=float).reshape(DRAWS, len(tasks)).mean(axis=0)


def test_a_student_learns_countdown_and_not_from_shuffled_rewards(base, tmp_path):
    gains = {}
    for name in ("rewards", "shuffled"):
        trainer = make_trainer(base, tmp_path / name)
        if name == "shuffled":
            shuffle_rewards(trainer)
        tasks = tasks_beside_the_seeds(trainer)
        before = solved(trainer, tasks)
        trainer.train()
        gains[name] = solved(trainer, tasks) - before
        assert not sum(trainer.source.executor.counts.values())  # no program ever ran
    gain, control = gains["rewards"].mean(), gains["shuffled"].mean()
    assert gain > 3 * standard_error(gains["rewards"]) and gain > 0.05, gains
    assert control < 3 * standard_error(gains["shuffled"]) and control < gain / 2, gains
