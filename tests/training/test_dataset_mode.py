"""A population on the user's own dataset and reward functions: `num_teachers=0`."""

import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from datasets import Dataset, DatasetDict, IterableDataset, concatenate_datasets
from transformers import GPT2Config, GPT2LMHeadModel, Qwen2MoeConfig, Qwen2MoeForCausalLM, TrainerCallback
from transformers.utils import logging
from trl import GRPOConfig, GRPOTrainer

from tests.processes import taken
from tests.tiny import lora, perturb, tiny_model, tiny_tokenizer
from tests.training.conftest import hash_reward
from tests.training.test_isolation import member_state
from tests.training.test_resume import timeless
from trl_populora.integrations.user_data import load_prompts
from trl_populora.reporting import read_history
from trl_populora.training import PopulationSelfPlayTrainer
from trl_populora.training.dataset_source import PromptSampler, rows_hash
from trl_populora.training.reward_ratings import RewardRatings


PROMPTS = Dataset.from_dict({"prompt": [f"say {word}" for word in "one two three four five six seven".split()]})
ANSWERED = PROMPTS.add_column("answer", ["a"] * 7)
CHAT = Dataset.from_dict({"prompt": [[{"role": "user", "content": f"say {i}"}] for i in range(6)], "answer": range(6)})


def exact(completions, answer, **columns):
    return [float(one == other) for one, other in zip(completions, answer, strict=True)]


@pytest.fixture
def make(config):
    trainers = []

    def make_trainer(
        *,
        model=None,
        peft_config=None,
        train_dataset=PROMPTS,
        eval_dataset=None,
        rewards=hash_reward,
        callbacks=None,
        **overrides,
    ):
        settings = dict(num_teachers=0, num_students=3, num_generations=2, per_device_train_batch_size=4, max_steps=2)
        trainer = PopulationSelfPlayTrainer(
            model or tiny_model(),
            rewards,
            config(**(settings | overrides)),
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=tiny_tokenizer(),
            peft_config=peft_config or lora(),
            callbacks=callbacks,
        )
        trainers.append(trainer)
        perturb(trainer.population, 0.1)
        return trainer

    yield make_trainer
    for trainer in trainers:
        trainer.close()


def seen_by(rewards):
    """A reward function that remembers who answered what, round by round."""
    calls = []

    def function(completions, prompts, player, **columns):
        calls.append((list(player), [str(prompt) for prompt in prompts], columns))
        return rewards(completions)

    return function, calls


@pytest.mark.every(2)
@pytest.mark.parametrize("sharing", ["shared", "split"])
@pytest.mark.parametrize("dataset", [PROMPTS, CHAT], ids=["text", "chat"])
def test_members_learn_from_the_dataset(make, sharing, dataset):
    function, calls = seen_by(hash_reward)
    trainer = make(train_dataset=dataset, rewards=function, member_prompts=sharing)
    before = {name: member_weights(trainer, name) for name in trainer.population}
    trainer.train()
    assert trainer.args.gradient_accumulation_steps == 3  # 12 rows: two groups of two for each of three members
    players, prompts, columns = calls[0]
    assert players == ["student_0"] * 2 + ["student_1"] * 2 + ["student_2"] * 2 + players[6:] and len(players) == 12
    for start in range(0, 12, 2):
        assert prompts[start] == prompts[start + 1], "a group is one prompt"
    different = len(set(prompts))
    assert different == (2 if sharing == "shared" else 6)
    assert dataset is PROMPTS or columns["answer"], "the dataset's columns reach reward functions"
    for name in trainer.population:
        assert any(not torch.equal(a, b) for a, b in zip(before[name], member_weights(trainer, name), strict=True))


def member_weights(trainer, name):
    return [p.detach().clone() for p in trainer.population.parameters(name)]


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"loss_type": "grpo"}], ids=["dapo", "grpo"])
def test_update_equals_a_trainer_of_one(make, tmp_path, settings):
    """Each member's update is that of GRPOTrainer with one adapter on the member's rows."""
    from peft import PeftModel

    recorded = []

    def reward(completions, player, completion_ids, prompts, **kwargs):
        values = hash_reward(completions)
        recorded.extend(zip(player, prompts, completion_ids, values, strict=True))
        return values

    trainer = make(rewards=reward, max_steps=1, **settings)
    trainer.population.save(str(tmp_path / "start"))
    trainer.train()
    name = "student_1"
    rows = [row for row in recorded if row[0] == name]
    model = PeftModel.from_pretrained(tiny_model(), str(tmp_path / "start" / name), is_trainable=True)

    def replay(prompts, _):
        tokenizer = tiny_tokenizer()
        return {
            "prompt_ids": [tokenizer(row[1])["input_ids"] for row in rows],
            "completion_ids": [list(row[2]) for row in rows],
            "logprobs": None,
            "value": [row[3] for row in rows],
        }

    args = GRPOConfig(
        output_dir=str(tmp_path / "alone"), per_device_train_batch_size=len(rows), num_generations=2,
        max_completion_length=8, max_steps=1, learning_rate=1e-2, use_cpu=True, bf16=False, save_strategy="no",
        report_to="none", disable_tqdm=True, **settings,
    )  # fmt: skip
    alone = GRPOTrainer(
        model,
        lambda completions, value, **kwargs: value,
        args,
        train_dataset=PROMPTS,
        processing_class=tiny_tokenizer(),
        rollout_func=replay,
    )
    alone.train()
    own = dict(model.named_parameters())
    for path, factor in trainer.population.factors(name).items():
        for side, value in zip("AB", factor[:2], strict=True):
            torch.testing.assert_close(value, own[f"{path}.lora_{side}.default.weight"], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_evolution_goes_by_reward(make):
    def reward(completions, player, **kwargs):
        return [float(name[-1]) + len(set(str(c))) / 100 for name, c in zip(player, completions, strict=True)]

    trainer = make(rewards=reward, max_steps=4, evolution_interval=2, evolution_kwargs={"operators": ["clone"]})
    trainer.train()
    (event,) = trainer.lineage
    assert event.slot == "student_0" and event.parents == (("student_2", 0),)
    assert event.fitness["student_2"] > event.fitness["student_1"] > event.fitness["student_0"]


@pytest.mark.slow
def test_members_that_nobody_scored_are_not_replaced(make):
    """One function scores two of three members, and gives one of them a reward that is not finite."""

    def reward(completions, player, **kwargs):
        worth = {"student_0": None, "student_1": 1.5, "student_2": float("inf")}
        return [worth[name] for name in player]

    rounds = []
    trainer = make(rewards=reward, max_steps=2, evolution_interval=1)
    trainer.on_round = rounds.append
    trainer.train()
    assert not trainer.lineage and any("scored student_0, student_2" in alarm for alarm in rounds[0].alarms)
    assert [member.reward for member in rounds[0].members] == [None, 1.5, None]
    assert [(member.mu, member.sigma) for member in rounds[1].members] == [(None, None), (1.5, 0.0), (None, None)]
    assert all("no row of student_0, student_2 has a reward" in summary.alarms for summary in rounds)
    with open(f"{trainer.args.output_dir}/history.jsonl") as file:
        for line in file:
            json.loads(line, parse_constant=lambda value: pytest.fail(f"{value} in the history"))


@pytest.mark.slow
def test_rewards_that_teach_nobody_raise_an_alarm(make):
    """Groups may differ from each other: only differences within a group give an advantage."""

    def reward(completions, player, trainer_state, **kwargs):
        return [float(name[-1]) + (trainer_state.global_step and i % 2) for i, name in enumerate(player)]

    rounds = []
    trainer = make(rewards=reward)
    trainer.on_round = rounds.append
    trainer.train()
    alarm = "the rewards within every group are equal: no member can learn from them"
    assert [alarm in summary.alarms for summary in rounds] == [True, False]


@pytest.mark.parametrize("temperature, repeats", [(1.0, False), (1e-4, True)])
def test_how_different_completions_to_one_prompt_are(make, temperature, repeats):
    rounds = []
    trainer = make(max_steps=1, temperature=temperature)
    trainer.on_round = rounds.append
    trainer.train()
    found = [member.distinct for member in rounds[0].members]
    assert all(value == 0 if repeats else value > 0 for value in found)
    assert trainer.state.log_history[0]["students/distinct"] == pytest.approx(sum(found) / len(found))


@pytest.mark.slow
def test_a_member_without_a_reward_stays_as_it_is(make):
    """Adam's moments of earlier rounds do not move it, and it is not said to have learned."""
    rounds, weights = [], []

    def reward(completions, player, **kwargs):
        scores = hash_reward(completions)
        return [None if len(rounds) == 1 and name == "student_0" else one for name, one in zip(player, scores)]

    def look(summary):
        rounds.append(summary)
        weights.append({name: [p.clone() for p in trainer.population.parameters(name)] for name in trainer.population})

    trainer = make(rewards=reward, max_steps=3)
    trainer.on_round = look
    trainer.train()
    for name in trainer.population:
        same = [all(map(torch.equal, weights[i][name], weights[i + 1][name])) for i in (0, 1)]
        assert same == [name == "student_0", False]
    first = [summary.members[0] for summary in rounds]
    each = rounds[0].members[1].rows
    assert [(one.rows, one.unlearned_rows, one.updates) for one in first] == [(each, 0, 1), (0, each, 0), (each, 0, 1)]
    assert first[1].grad_norm is None and first[1].tokens == 0 < first[1].unlearned_tokens


@pytest.mark.slow
def test_a_finished_run_is_not_trained_on(make):
    settings = dict(max_steps=2, save_strategy="steps", save_steps=2)
    whole = make(**settings)
    whole.train()
    again = make(**settings)
    perturb(again.population, 0.5)
    output = again.train(resume_from_checkpoint="auto")
    assert output.global_step == 2 and again.state.log_history == whole.state.log_history[:-1]
    for name in whole.population:
        for mine, theirs in zip(member_weights(again, name), member_weights(whole, name), strict=True):
            assert torch.equal(mine, theirs)


@pytest.mark.slow
def test_a_finished_run_goes_on_for_more_epochs(make):
    settings = dict(max_steps=-1, save_strategy="steps", save_steps=3)
    make(num_train_epochs=1, **settings).train()
    assert make(num_train_epochs=1, **settings).train(resume_from_checkpoint="auto").global_step == 3
    longer = make(num_train_epochs=1.5, **settings)
    assert longer.train(resume_from_checkpoint="auto").global_step == 5


@pytest.mark.slow
def test_evaluation_covers_every_member(make):
    trainer = make(
        eval_dataset=PROMPTS.select(range(2)),
        eval_strategy="steps",
        eval_steps=2,
        num_generations_eval=2,
        per_device_eval_batch_size=4,
    )
    trainer.train()
    (log,) = [log for log in trainer.state.log_history if "eval_reward" in log]
    rewards = [log[f"eval_reward/student_{i}"] for i in range(3)]
    assert sum(rewards) / 3 == pytest.approx(log["eval_reward"])


def answered_by(trainer, dataset):
    """Member -> number of its rows, when a user evaluates on a dataset."""
    counts = Counter()
    begin = trainer.source.begin

    def counted(inputs, **place):
        rows, members = begin(inputs, **place)
        counts.update(members)
        return rows, members

    trainer.source.begin = counted
    trainer.evaluate(dataset)
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("several", [False, True])
def test_every_member_answers_what_a_user_evaluates_on(make, several):
    """With other numbers of generations than in training, and batches that begin within a member's rows."""
    trainer = make(num_generations_eval=2, per_device_eval_batch_size=6)
    dataset = {"a": PROMPTS.select(range(2)), "b": PROMPTS.select(range(2))} if several else PROMPTS.select(range(4))
    assert answered_by(trainer, dataset) == dict.fromkeys(trainer.population, 8)


@pytest.mark.slow
def test_a_batch_to_evaluate_is_recorded_whole(make):
    """With more rows than a generation batch has, which is how many TRL's log of completions keeps."""
    trainer, seen = make(per_device_eval_batch_size=24), []
    finish = trainer.source.finish
    trainer.source.finish = lambda rows, metrics: seen.append(rows) or finish(rows, metrics)
    trainer.evaluate(PROMPTS.select(range(4)))
    (rows,) = seen
    assert len(rows.members) == 24 > trainer.args.generation_batch_size
    assert hash_reward(rows.completions) == pytest.approx(rows.rewards.tolist())
    assert len(rows.prompts) == len(rows.advantages) == 24


def test_a_reward_function_that_lacks_a_column_of_the_rows_to_evaluate(make):
    trainer = make(train_dataset=ANSWERED, rewards=exact)
    with pytest.raises(ValueError, match="exact.* cannot be called with the columns of eval_dataset .*'answer'"):
        trainer.evaluate(PROMPTS)


def test_a_transform_that_drops_the_member_is_named(make):
    dropping = PROMPTS.with_transform(lambda rows: {"prompt": rows["prompt"]})
    trainer = make(eval_dataset=dropping, num_generations_eval=2, per_device_eval_batch_size=6)
    with pytest.raises(ValueError, match="no column 'player'.* transform of the dataset .* must keep"):
        trainer.evaluate()
    with pytest.raises(ValueError, match="eval_dataset streams"):
        trainer.evaluate(IterableDataset.from_generator(lambda: iter(PROMPTS)))


@pytest.mark.parametrize("given", [[{"prompt": "a"}], DatasetDict({"train": PROMPTS})], ids=["list", "splits"])
@pytest.mark.parametrize("name", ["train_dataset", "eval_dataset"])
def test_other_kinds_of_data_are_named(make, name, given):
    kind = "Dataset" if name == "eval_dataset" and isinstance(given, dict) else type(given).__name__
    if kind == "Dataset":  # several datasets to evaluate on
        assert set(make(eval_dataset=given).eval_dataset) == {"train"}
        return
    with pytest.raises(ValueError, match=f"{name} must be a datasets.Dataset, got {kind}: .*Dataset.from_list"):
        make(**{name: given})


def test_a_prompt_that_leaves_no_room_for_its_completion_is_named(make):
    """A base with an embedding for each position would end in an IndexError of torch."""
    shape = dict(vocab_size=259, n_positions=32, n_embd=32, n_layer=1, n_head=2, eos_token_id=2, pad_token_id=0)
    base, rows = GPT2LMHeadModel(GPT2Config(**shape)), Dataset.from_dict({"prompt": ["a" * 24, "b" * 25]})
    trainer = make(model=base, train_dataset=rows, eval_dataset=rows.select([0]), max_completion_length=8)
    trainer.evaluate()
    with pytest.raises(ValueError, match="A prompt of 25 tokens and max_completion_length=8 exceed the 32 tokens"):
        trainer.train()


@pytest.mark.slow
def test_experts_have_no_loss_of_their_own(make):
    """Their auxiliary loss would couple members. The model's own settings ask for it by default."""
    shape = dict(vocab_size=259, hidden_size=32, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
    experts = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, shared_expert_intermediate_size=8)
    config = Qwen2MoeConfig(**shape, **experts, num_key_value_heads=1, eos_token_id=2, pad_token_id=0)
    trainer = make(model=Qwen2MoeForCausalLM(config), peft_config=lora(target_modules=["q_proj", "v_proj"]))
    trainer.train()
    assert not any("aux_loss" in log for log in trainer.state.log_history)


class Stop(TrainerCallback):
    """Ctrl-C after some micro-batches."""

    def __init__(self, passes):
        self.passes = passes

    def on_substep_end(self, *args, **kwargs):
        self.passes -= 1
        if not self.passes:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_a_run_that_was_interrupted_while_it_learned_goes_on_in_the_same_trainer(make, tmp_path):
    settings = {"max_steps": 3, "save_strategy": "steps", "save_steps": 1}
    whole = make(**settings, output_dir=str(tmp_path / "whole"))
    whole.train()
    trainer = make(**settings, output_dir=str(tmp_path / "again"), callbacks=[Stop(4)])  # two of three in each step
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert trainer.state.global_step == 1
    trainer.train(resume_from_checkpoint=True)
    for name in whole.population:
        assert all(map(torch.equal, member_weights(whole, name), member_weights(trainer, name)))
    assert timeless(trainer.state.log_history) == timeless(whole.state.log_history)


@pytest.mark.slow
def test_a_run_that_continues_another_keeps_nothing_of_what_it_overwrites(make, tmp_path):
    settings = {"save_strategy": "steps", "save_steps": 1}
    first = make(**settings, output_dir=str(tmp_path / "first"))
    first.train()
    make(**settings, output_dir=str(tmp_path / "second"), seed=1).train()
    third = make(**settings, output_dir=str(tmp_path / "second"), max_steps=3)
    third.train(resume_from_checkpoint=str(tmp_path / "first/checkpoint-2"))
    rounds = [json.loads(line)["round"] for line in (tmp_path / "second/history.jsonl").read_text().splitlines()]
    assert rounds == [2] and not (tmp_path / "second/checkpoint-1").exists()
    (tmp_path / "link").symlink_to(tmp_path / "first/checkpoint-2")
    assert not first.folder.is_elsewhere(str(tmp_path / "link"))


@pytest.mark.slow
def test_a_resume_with_other_rows_is_told_and_recorded(make, caplog):
    settings = {"save_strategy": "steps", "save_steps": 1, "eval_dataset": PROMPTS.select(range(2))}
    first = make(**settings, max_steps=1)
    first.train()
    again = make(**settings, train_dataset=PROMPTS.map(lambda row: {"prompt": row["prompt"].upper()}))
    again.train(resume_from_checkpoint="auto")
    record = json.loads((Path(again.args.output_dir) / "run.json").read_text())
    assert record["dataset_hash"] == again.source.dataset_hash
    old, new = (trainer.source.dataset_hash["train_dataset"] for trainer in (first, again))
    changed = {"dataset_hash.train_dataset": [old, new], "max_steps": [1, 2]}
    assert record["resumed"] == [{"step": 1, "changed": changed}]
    assert f'dataset_hash.train_dataset "{old}" -> "{new}"' in caplog.text


def test_the_hash_of_rows_does_not_depend_on_how_they_were_loaded(tmp_path):
    rows = [{"prompt": [{"role": "user", "content": f"say {i}é"}], "answer": i, "note": None} for i in range(2100)]
    rows[5]["note"] = "five"
    whole = Dataset.from_list(rows)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(dict(reversed(row.items()))) + "\n" for row in rows))
    whole.to_parquet(tmp_path / "rows.parquet")
    whole.save_to_disk(tmp_path / "saved")
    alike = [load_prompts(str(tmp_path / name)) for name in ("rows.jsonl", "rows.parquet", "saved")]
    alike += [concatenate_datasets([whole.select(range(7)), whole.select(range(7, 2100))]), whole.with_format("torch")]
    assert {rows_hash(one) for one in alike} == {rows_hash(whole)}
    other = Dataset.from_list([*rows[:-1], rows[-1] | {"answer": 0}])
    assert len({rows_hash(one) for one in (whole, other, whole.select(range(2099)), whole.shuffle(seed=0))}) == 4


@pytest.mark.slow
def test_resume_is_exact_in_a_later_epoch(make):
    """Seven prompts, two a batch, three batches an epoch: the checkpoint lies in the middle of the second one."""
    settings = dict(max_steps=8, save_strategy="steps", save_steps=4, evolution_interval=2)
    whole = make(**settings)
    whole.train()
    again = make(**settings)
    perturb(again.population, 0.7)
    again.train(resume_from_checkpoint=f"{whole.args.output_dir}/checkpoint-4")
    assert again.ratings.state_dict() == whole.ratings.state_dict() and len(whole.lineage) > 1
    for name in whole.population:
        assert member_state(again, name) == member_state(whole, name)
    assert timeless(again.state.log_history) == timeless(whole.state.log_history)


@pytest.mark.slow
def test_epochs_instead_of_steps(make):
    trainer = make(max_steps=-1, num_train_epochs=2)
    trainer.train()
    assert trainer.state.global_step == 6 and trainer.state.epoch == 2.0


def test_prompt_sampler_is_a_function_of_seed_and_epoch():
    def order(epoch, **kwargs):
        settings = dict(batch_size=2, mini_repeat_count=3, repeat_count=2, shuffle=True, seed=1) | kwargs
        sampler = PromptSampler(range(7), epoch=lambda: epoch, **settings)
        assert len(list(sampler)) == len(sampler)
        return list(sampler)

    assert order(0) == order(0) != order(1)
    assert order(0) != order(0, seed=2)
    first = order(0)[:6]
    assert order(0)[6:12] == first == [first[0]] * 3 + [first[3]] * 3
    assert order(0, shuffle=False)[:12] == [0] * 3 + [1] * 3 + [0] * 3 + [1] * 3
    assert len(set(order(0))) == 6, "the seventh prompt would make an incomplete batch"


def test_reward_ratings():
    ratings = RewardRatings(["a", "b"], window=3)
    assert ratings.fitness("a") != ratings.fitness("a"), "nobody has scored it"
    for value in (9.0, 1.0, 2.0, 3.0):
        ratings.update({"a": [value, float("nan")], "b": [float("nan")]})
    assert ratings["a"].mu == 2.0 and ratings["a"].sigma == pytest.approx(1 / 3**0.5)
    ratings.update({"a": [float("inf")]})
    assert ratings["a"].mu == 2.0, "what is not finite does not count"
    ratings.inherit("a", ["b"])
    assert ratings.state_dict()["rewards"]["a"] == [], "nobody has scored the parent: there is nothing to inherit"
    ratings.update({"a": [2.0]})
    assert ratings.inherit("b", ["a"]).mu == 2.0
    state = ratings.state_dict()
    other = RewardRatings(["a", "b"], window=3)
    other.load_state_dict(state)
    assert other.state_dict() == state
    with pytest.raises(ValueError, match="same members"):
        RewardRatings(["a"], window=3).load_state_dict(state)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(train_dataset=None), "pass train_dataset"),
        (dict(train_dataset=PROMPTS.select([0])), "fewer than the 2"),
        (dict(train_dataset=IterableDataset.from_generator(lambda: iter([{"prompt": "a"}]))), "take\\(n\\)"),
        (dict(train_dataset=Dataset.from_dict({"prompt": ["a"] * 4, "image": [0] * 4})), "image column"),
        (dict(train_dataset=PROMPTS.add_column("player", ["student_0"] * 7)), "column 'player'"),
        (dict(train_dataset=Dataset.from_dict({"text": ["a"] * 8})), r"no column 'prompt', only \['text'\]"),
        (dict(eval_dataset=PROMPTS.add_column("player", ["white"] * 7)), "eval_dataset has a column 'player'"),
        (dict(train_dataset=PROMPTS.add_column("completions", ["a"] * 7)), "column 'completions'"),
        (dict(remove_unused_columns=True), "remove_unused_columns"),
        (dict(max_steps=-1, logging_steps=0.05), "share of max_steps=-1"),
        (
            dict(train_dataset=Dataset.from_dict({"prompt": ["a", None]})),
            "the prompt of row 2 .* is null",
        ),
        (dict(rewards=None), "reward_funcs is empty"),
        (
            dict(train_dataset=ANSWERED, eval_dataset={"seen": ANSWERED, "new": PROMPTS}, rewards=exact),
            "exact.* cannot be called with the columns of new .*'answer'",
        ),
        (dict(num_teachers=2, num_students=2), "num_teachers=0"),
        (dict(gradient_accumulation_steps=2), "multiple of 3"),
        (dict(generation_batch_size=24), "generation_batch_size=24"),
        (dict(member_prompts="mine"), "'shared', 'split'"),
        (
            dict(advantage="role_task", pairing="hard"),
            "advantage='role_task' without .*pairing='hard' without self-play",
        ),
        (dict(task_types=["math"], seed_tasks=9), r"task_types=\['math'\] without self-play.*seed_tasks=9 without"),
        (dict(teacher_reward="frontier"), "teacher_reward='frontier' without self-play"),
        (dict(reward_kwargs={"wrong": 0.0}), "reward_kwargs=.* without self-play"),
        (dict(num_teachers=2, num_students=2, member_prompts="split"), "member_prompts='split' in self-play"),
        (dict(num_students=0), "at least one student"),
        (dict(num_teachers=-1), "num_teachers=-1"),
    ],
)
def test_bad_input_is_refused_with_the_fix(make, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**arguments)


@pytest.mark.slow
def test_an_infinite_reward_is_none(make, monkeypatch, tmp_path):
    """It would make the advantages of its group NaN, and the mean reward infinite."""

    def with_one(*given):
        def some(completions, player, **columns):
            rewards = zip(player, hash_reward(completions), given * len(player), strict=False)
            return [value if name == "student_1" else reward for name, reward, value in rewards]

        return some

    trainers, said = [], []
    monkeypatch.setattr(logging.get_logger("trl_populora.training.trainer"), "warning_once", said.append)
    for given in ((float("inf"), float("-inf")), (None,)):
        trainers.append(make(rewards=with_one(*given), output_dir=str(tmp_path / str(len(trainers)))))
        trainers[-1].train()
    got, want = trainers
    assert set(said) == {"Infinite rewards of some do not count: they are taken as None."}
    for name in got.population:
        assert all(map(torch.equal, member_weights(got, name), member_weights(want, name)))
    alarms = [one["alarms"] for one in map(json.loads, Path(got.folder.history).read_text().splitlines())]
    assert all(any("no row of student_1 has a reward" in alarm for alarm in told) for told in alarms)
    assert "Infinity" not in Path(got.folder.history).read_text() and "NaN" not in Path(got.folder.history).read_text()


def test_two_runs_in_one_folder_do_not_mix(make):
    trainer = make()
    Path(trainer.args.output_dir).mkdir(exist_ok=True)
    with taken(trainer.args.output_dir), pytest.raises(ValueError, match="another run trains there"):
        trainer.train()
    assert not Path(trainer.folder.history).exists()
    trainer.train()


@pytest.mark.slow
@pytest.mark.parametrize("masked", [True, False])
def test_truncated_completions_have_their_length(make, masked):
    trainer = make(mask_truncated_completions=masked, max_completion_length=6, max_steps=1)
    written, rollout, seen = [], trainer.source.rollout, []
    finish = trainer.source.finish

    def spied(prompts, trainer):
        result = rollout(prompts, trainer)
        written.extend(len(ids) for ids in result["completion_ids"])
        return result

    trainer.rollout_func = spied
    trainer.source.finish = lambda rows, metrics: seen.append(rows) or finish(rows, metrics)
    trainer.train()
    assert max(written) == 6, "one is truncated"
    (rows,) = seen
    assert rows.tokens == written
    lost = [length - left for length, left in zip(written, rows.loss_tokens, strict=True)]
    assert sorted(set(lost)) == ([0, 6] if masked and min(written) < 6 else [6] if masked else [0])
    (summary,) = read_history(trainer.args.output_dir)
    assert [member.length for member in summary.members] == [
        sum(length for length, name in zip(written, rows.members, strict=True) if name == member.name) / 4
        for member in summary.members
    ]
    assert sum(member.tokens for member in summary.members) == sum(written)
