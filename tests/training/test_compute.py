"""What each adapter learns from: counted by an outsider, balanced where asked, and shown."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from datasets import Dataset

from tests.tiny import lora, tiny_model, tiny_tokenizer
from tests.training.conftest import hash_reward
from tests.training.test_member_updates import shorten
from tests.training.test_resume import files, outcome
from trl_populora.reporting import read_history
from trl_populora.self_play.settlement import choose
from trl_populora.training import PopulationSelfPlayTrainer


def counted(trainer):
    """Rows, prompt tokens and completion tokens of each adapter as its loss sees them, counted in `_compute_loss`.

    With a loss by rows it sees all of them: rows without an advantage are left out of a loss by tokens, and count too.
    """
    seen, parent, names = (
        {name: Counter() for name in trainer.population},
        trainer._compute_loss,
        [*trainer.population],
    )

    def count(model, inputs):
        for row, member in enumerate(inputs["member_ids"].tolist()):
            own = seen[names[member]]
            own["rows"] += 1
            own["prompt_tokens"] += int(inputs["prompt_mask"][row].sum())
            own["tokens"] += int(inputs["completion_mask"][row].sum())
        return parent(model, inputs)

    trainer._compute_loss = count
    return seen


def play(trainer):
    """A round of self-play that nobody learns from."""
    trainer.source.begin([{}] * trainer.args.rows_per_round, round=0, step=0, training=True)
    return trainer.source.played


def recorded(trainer):
    totals = {name: Counter() for name in trainer.population}
    for summary in read_history(trainer.args.output_dir):
        for member in summary.members:
            for name in ("rows", "prompt_tokens", "tokens", "updates", "unlearned_rows", "unlearned_tokens"):
                totals[member.name][name] += getattr(member, name)
    return totals


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"balance_rows": True},
        {
            "balance_rows": True,
            "num_teachers": 1,
            "num_students": 2,
            "num_generations": 4,
            "prompts_per_teacher": 2,
        },
        {"balance_rows": True, "num_teachers": 1, "num_students": 1, "shared_member": True},
        {"balance_rows": True, "evolution_interval": 1, "hall_of_fame_probability": 0.5},
    ],
    ids=lambda settings: "-".join(settings) or "plain",
)
def test_history_tells_what_was_learned_from(make_trainer, settings):
    trainer = make_trainer(max_steps=3, per_device_train_batch_size=2, loss_type="grpo", **settings)
    seen = counted(trainer)
    trainer.train()
    args, totals = trainer.args, recorded(trainer)
    assert {name: {key: own[key] for key in seen[name]} for name, own in totals.items()} == seen
    assert {own["updates"] for own in totals.values()} == {3}
    rows = sum(own["rows"] for own in totals.values())
    assert rows == 3 * args.rows_per_round
    assert rows + sum(own["unlearned_rows"] for own in totals.values()) == 3 * args.completions_per_round
    if args.balance_rows:
        assert len({own["rows"] for own in totals.values()}) == 1
        groups = (args.num_teachers + args.num_students) * args.prompts_per_teacher
        assert args.rows_per_round == groups * args.num_generations


@pytest.mark.slow
def test_with_rewards_that_wait_history_tells_what_was_learned_from_in_each_round(make_trainer):
    """The outsider counts the rows with a reward that the trainer was given; a child's first ones have none."""
    seen, summaries, weights = [], [], []

    def look(summary):
        rows = [row for row in trainer.source.played.rows if row.reward is not None]
        counts = {name: Counter() for name in trainer.population}
        for row in rows:
            own = {"rows": 1, "prompt_tokens": len(row.completion.prompt_ids), "tokens": len(row.completion.ids)}
            counts[row.player].update(own)
        seen.append(counts)
        summaries.append(summary)
        weights.append({name: [p.clone() for p in trainer.population.parameters(name)] for name in trainer.population})

    late = {"teacher_reward": "solvable", "solvable_rounds": 1, "evolution_interval": 2}
    trainer = make_trainer(max_steps=4, on_round=look, **late)
    before = {name: [p.clone() for p in trainer.population.parameters(name)] for name in trainer.population}
    trainer.train()
    child = next(event["slot"] for event in summaries[1].events if event["slot"].startswith("teacher"))
    for number, (summary, counts) in enumerate(zip(summaries, seen, strict=True)):
        for member in summary.members:
            own = {name: getattr(member, name) for name in ("rows", "prompt_tokens", "tokens")}
            assert own == {name: counts[member.name][name] for name in own}
            idle = member.role == "teacher" and (number == 0 or (number, member.name) == (2, child))
            assert (member.rows, member.updates) == ((0, 0) if idle else (2 if member.role == "teacher" else 4, 1))
            assert (member.reward is None) == idle
            assert member.unlearned_rows == (2 if idle and number else 0)
    same = {name: all(map(torch.equal, before[name], weights[0][name])) for name in before}
    assert same == {name: name.startswith("teacher") for name in before}, "no update without a row to learn from"
    rows = sum(one.rows + one.unlearned_rows for summary in summaries for one in summary.members)
    assert rows == 4 * trainer.args.completions_per_round - 4, "those of the last round wait"


@pytest.mark.slow
def test_updates_count_optimizer_steps_and_not_those_held_back(make_trainer):
    trainer = make_trainer(max_steps=4, num_iterations=2)
    broken = trainer.population.parameters("student_1")[0]
    broken.register_hook(lambda gradient: gradient * float("nan") if trainer.state.global_step >= 2 else gradient)
    trainer.train()
    rounds = read_history(trainer.args.output_dir)
    updates = [{member.name: member.updates for member in summary.members} for summary in rounds]
    others = {"teacher_0": 2, "teacher_1": 2, "student_0": 2}
    assert updates == [{**others, "student_1": 2}, {**others, "student_1": 0}]


def test_balanced_students_learn_from_whole_groups_drawn_from_the_seed(make_trainer):
    trainer = make_trainer(max_steps=1, balance_rows=True, num_generations=4, per_device_train_batch_size=4)
    played = play(trainer)
    rows, record, G = played.rows, played.record, 4
    assert [row.role for row in rows] == ["teacher"] * 2 * G + ["student"] * 2 * G
    for start in range(0, len(rows), G):
        assert len({(row.player, row.prompt[0]["content"]) for row in rows[start : start + G]}) == 1
    learned = [attempt for attempt in record.attempts if attempt.learned]
    assert len(record.attempts) == 2 * G * G and len(learned) == 2 * G
    assert [attempt.completion for attempt in learned] == [row.completion.text for row in rows[2 * G :]]
    table = list(record.rows())
    assert [row["learned"] for row in table] == [True] * 2 * G + [attempt.learned for attempt in record.attempts]
    assert all(row["prompt_tokens"] > 0 for row in table)


def test_the_draw_does_not_look_at_outcomes_and_takes_every_task_equally_often(make_trainer):
    trainer = make_trainer(max_steps=1, balance_rows=True, num_generations=4, per_device_train_batch_size=4)
    game, students = trainer.source.self_play, trainer.population.students
    record = play(trainer).record
    fresh = [replace(one, learned=True) for one in record.attempts]
    solved = [replace(one, solved=True, refusal=None, reward=1.0) for one in fresh]
    counts = Counter()
    for round in range(400):
        first, second = (choose(own, students, game.settings, round=round) for own in (fresh, solved))
        assert [one.learned for one in first] == [one.learned for one in second]
        counts.update({one.group for one in first if one.learned})
    assert set(counts) == set(range(8))
    assert all(60 < count < 140 for count in counts.values())  # 100 expected, standard deviation 9


def test_all_attempts_count_for_rewards_and_ratings(make_trainer):
    plain, balanced = (
        make_trainer(max_steps=1, num_generations=4, per_device_train_batch_size=4, balance_rows=on)
        for on in (False, True)
    )
    first, second = (play(trainer).record for trainer in (plain, balanced))
    assert [p.reward for p in first.proposals] == [p.reward for p in second.proposals]
    assert first.matches == second.matches
    assert plain.source.ratings.state_dict() == balanced.source.ratings.state_dict()


@pytest.mark.slow  # test_resume.py resumes others
def test_a_balanced_run_resumes_exactly(make_trainer):
    settings = dict(max_steps=4, save_strategy="steps", save_steps=2, evolution_interval=2, balance_rows=True)
    whole = make_trainer(**settings)
    whole.train()
    wanted, wanted_files = outcome(whole), files(whole.args.output_dir)
    again = make_trainer(noise=0.5, **settings)
    again.train(resume_from_checkpoint=f"{whole.args.output_dir}/checkpoint-2")
    assert outcome(again) == wanted and files(again.args.output_dir) == wanted_files


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"num_teachers": 1, "num_students": 4, "prompts_per_teacher": 4}, "num_generations to at least 4"),
        ({"num_teachers": 0, "num_students": 2}, "needs self-play"),
        ({"per_device_train_batch_size": 3}, "8 rows a round .num_teachers=2 x 2 and num_students=2 x 2"),
    ],
)
def test_what_cannot_be_balanced_is_refused(config, settings, words):
    with pytest.raises(ValueError, match=words):
        config(balance_rows=True, **settings)


def test_a_dataset_run_counts_too(config):
    args = config(num_teachers=0, num_students=2, per_device_train_batch_size=4, max_steps=2, loss_type="grpo")
    prompts = Dataset.from_list([{"prompt": "x" * n} for n in range(1, 9)])
    trainer = PopulationSelfPlayTrainer(
        tiny_model(), hash_reward, args, prompts, processing_class=tiny_tokenizer(), peft_config=lora()
    )
    seen = counted(trainer)
    trainer.train()
    totals = recorded(trainer)
    assert {name: {key: own[key] for key in seen[name]} for name, own in totals.items()} == seen
    assert {own["updates"] for own in totals.values()} == {2} and not any(
        own["unlearned_rows"] for own in totals.values()
    )


@pytest.mark.slow
def test_role_task_whitens_over_the_tokens_of_the_round(make_trainer):
    trainer = make_trainer(max_steps=1, advantage="role_task", num_generations=4, per_device_train_batch_size=40)
    trainer.source.sampler = shorten(trainer.source.sampler)
    outputs, parent = [], trainer._generate_and_score_completions
    trainer._generate_and_score_completions = lambda inputs: outputs.append(parent(inputs)) or outputs[-1]
    trainer.train()
    (output,), rows = outputs, trainer.source.played.rows
    rewards = np.array([row.reward + hash_reward([row.completion.text])[0] for row in rows])
    lengths = np.array([len(row.completion.ids) for row in rows])
    strata = [(row.player, row.role, row.type) for row in rows]
    wanted = np.zeros(len(rows))
    assert len(set(lengths.tolist())) > 1
    for stratum in set(strata):
        own = np.array([i for i, one in enumerate(strata) if one == stratum])
        tokens = np.repeat(rewards[own], lengths[own])
        wanted[own] = (rewards[own] - tokens.mean()) / np.sqrt(tokens.var(ddof=1) + 1e-8)
    torch.testing.assert_close(output["advantages"].double(), torch.from_numpy(wanted), rtol=1e-4, atol=1e-4)
    assert list(trainer._logs["advantages"]) == pytest.approx(wanted, abs=1e-4), "also in the table of completions"


@pytest.mark.slow
def test_nothing_is_added_to_the_model_or_kept_of_names_in_every_round(make_trainer):
    """TRL turns gradient checkpointing off and on in each step, and transformers adds a hook each time."""
    hooks, names = [], []

    def on_round(summary):
        hooks.append(len(trainer.population.base_model.get_input_embeddings()._forward_hooks))

    trainer = make_trainer(gradient_checkpointing=True, max_steps=4, logging_steps=1, on_round=on_round)
    trainer.train()
    assert hooks[0] > 0 and len(set(hooks)) == 1 and len(hooks) == 4
    for log in trainer.state.log_history[:4]:
        names.append({id(name) for name in log if name.startswith("reward")})
    assert names[0] and names[0] == names[3]  # the same objects


@pytest.mark.slow
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_means_over_tokens_do_not_depend_on_micro_batches(make_trainer, level):
    """Rows of similar length share one, so their mean counts tokens of short completions too much. With one ratio for
    each row, clip ratios are means over rows."""
    settings = {"importance_sampling_level": level, "logging_steps": 1}
    settings |= {"beta": 0.04, "num_iterations": 2, "max_completion_length": 24, "learning_rate": 0.1}
    few, all_rows = [make_trainer(**settings, per_device_train_batch_size=rows) for rows in (4, 12)]
    for trainer in (few, all_rows):
        trainer.train()
    first, second = all_rows.state.log_history[:2]
    assert second["clip_ratio/region_mean"] > 0 and first["completions/min_length"] < 12
    for log, expected in zip(few.state.log_history, (first, second)):
        for name in ("kl", "entropy", "clip_ratio/region_mean"):
            assert log[name] == pytest.approx(expected[name], rel=1e-4), name


@pytest.mark.slow
def test_the_gradient_norm_of_a_round_is_the_mean_over_its_steps(make_trainer):
    summaries, steps = [], []
    trainer = make_trainer(num_iterations=2, on_round=summaries.append)
    clip = trainer.updates.clip
    trainer.updates.clip = lambda optimizer: (clip(optimizer), steps.append(dict(trainer.updates.grad_norms)))[0]
    trainer.train()
    (summary,), (first, second) = summaries, steps
    for member in summary.members:
        assert member.grad_norm == pytest.approx((first[member.name] + second[member.name]) / 2)
        assert member.updates == 2
    assert first["student_0"] != pytest.approx(second["student_0"], rel=0.01)
