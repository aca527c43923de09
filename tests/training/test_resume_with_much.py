"""Settings that change what a run carries from round to round, many at a time: a resumed run is the whole one."""

import os

import pytest

from tests.training.conftest import Altered
from tests.training.test_resume import files, outcome
from tests.training.victim import plausible


EVOLVED = dict(
    num_teachers=4,
    num_students=4,
    shared_init=True,
    learning_rate_spread=4.0,
    evolution_interval=1,
    evolution_kwargs={
        "islands": 2,
        "migration_interval": 2,
        "fraction": 0.5,
        "selection": "tournament",
        "max_age": 2,
        "mutate_learning_rate": True,
        "mutate_temperature": True,
    },
    hall_of_fame_probability=0.5,
    hall_of_fame_size=2,
    pairing="hard",
    balance_rows=True,
    advantage="role_task",
    buffer_capacity=8,
    loss_type="dapo",
    importance_sampling_level="sequence",
)
RECOMBINED = dict(
    recombination_interval=1,
    recombination_roles="students",
    num_iterations=2,
    max_steps=8,
    save_steps=4,
    task_types=["code_o", "countdown", "code_i"],
    task_kwargs={},
    seed_tasks=0,
    max_unsolved_tries=1,
    teacher_reward="solvable",
    solvable_rounds=1,
    temperature=0.7,
    top_p=0.9,
    optim="adafactor",
    lr_scheduler_type="constant_with_warmup",
    warmup_steps=3,
    eval_strategy="steps",
    eval_steps=2,
    probe_kwargs={"exams": ["held_out[:2]"], "founders": 1},
)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [EVOLVED, RECOMBINED], ids=["evolved", "recombined"])
def test_resume_is_exact(make_trainer, settings):
    settings = dict(max_steps=4, save_strategy="steps", save_steps=2) | settings

    def make(noise):
        trainer = make_trainer(noise=noise, **settings)
        trainer.source.sampler = Altered(trainer.source.sampler, plausible)
        trainer.source.self_play.lengths = None  # eight tokens would hold none of the answers that `plausible` writes
        return trainer

    whole = make(0.1)
    whole.train()
    wanted, wanted_files = outcome(whole), files(whole.args.output_dir)
    assert sum(map(sum, wanted["ratings"]["games"])), "somebody must have played"
    again = make(0.5)
    again.train(resume_from_checkpoint=os.path.join(whole.args.output_dir, f"checkpoint-{settings['save_steps']}"))
    assert outcome(again) == wanted
    assert files(again.args.output_dir) == wanted_files
