"""A source of rows of one's own: written here as a user would write it, and trained through the real trainer."""

import math
import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from datasets import Dataset

from tests.tiny import lora, perturb, tiny_model, tiny_tokenizer
from tests.training.test_isolation import member_state
from tests.training.test_resume import timeless
from trl_populora.generation import Completion
from trl_populora.reporting import read_history
from trl_populora.training import PopulationSelfPlayTrainer, RowSource


def right_digits(completions, wanted, **kwargs):
    """Share of the wanted text's characters that the completion has, and a little for having many."""
    shares = [len(set(w) & set(c)) / len(w) + len(set(c)) / 100 for w, c in zip(wanted, completions, strict=True)]
    return [float(share) for share in shares]


class Sums(RowSource):
    """Sums that grow with the rounds: no dataset, no teachers. The prompts of a round depend on (seed, round) only."""

    def make_reward_functions(self, args, functions, classes):
        return [right_digits, *functions], classes

    def begin(self, inputs, *, round, step, training):
        start, group = self.ranks.index * len(inputs), self.args.num_generations
        rows = []
        for i in range(start, start + len(inputs)):
            a, b = (random.Random(f"{self.args.seed}:{round}:{i // group}:{k}").randrange(10 + round) for k in "ab")
            rows.append({"prompt": f"{a} + {b} =", "wanted": str(a + b), "player": None})
        members = self.assign_members(len(inputs))
        return [row | {"player": name} for row, name in zip(rows, members, strict=True)], members


@pytest.fixture
def make(config):
    trainers = []

    def make_trainer(source, *, rewards=None, train_dataset=None, **overrides):
        settings = dict(num_teachers=0, num_students=3, num_generations=2, per_device_train_batch_size=4, max_steps=2)
        trainer = PopulationSelfPlayTrainer(
            tiny_model(),
            rewards,
            config(**(settings | overrides)),
            train_dataset=train_dataset,
            processing_class=tiny_tokenizer(),
            peft_config=lora(),
            row_source=source,
        )
        trainers.append(trainer)
        perturb(trainer.population, 0.1)
        return trainer

    yield make_trainer
    for trainer in trainers:
        trainer.close()


def test_members_learn_from_rows_of_a_source_of_ones_own(make):
    seen = []

    def remember(prompts, player, wanted, **kwargs):
        seen.append((prompts, player, wanted))
        return [0.0] * len(prompts)

    trainer = make(Sums(), rewards=remember, evolution_interval=1, evolution_kwargs={"operators": ["clone"]})
    before = {name: [p.detach().clone() for p in trainer.population.parameters(name)] for name in trainer.population}
    trainer.train()
    assert type(trainer.source) is Sums and len(seen) == 2 and seen[0] != seen[1]
    prompts, players, wanted = seen[0]
    assert players[:6] == ["student_0"] * 2 + ["student_1"] * 2 + ["student_2"] * 2 and len(players) == 12
    assert all(eval(prompt.rstrip("=")) == int(answer) for prompt, answer in zip(prompts, wanted, strict=True))
    for name in trainer.population:
        after = trainer.population.parameters(name)
        assert any(not torch.equal(a, b) for a, b in zip(before[name], after, strict=True))
    history = read_history(trainer.args.output_dir)
    assert len(trainer.lineage) == 1  # by reward; nobody is replaced at the end
    assert [[member.rows for member in summary.members] for summary in history] == [[4, 4, 4]] * 2
    assert all(member.reward > 0 and member.tokens > 0 for summary in history for member in summary.members)


class Remembering(Sums):
    """With a state of its own."""

    begun = 0

    def begin(self, inputs, **place):
        self.begun += 1
        return super().begin(inputs, **place)

    def state_dict(self):
        return {"begun": self.begun}

    def load_state_dict(self, state):
        self.begun = state["begun"]


@pytest.mark.slow
def test_it_resumes_exactly(make):
    settings = dict(max_steps=4, save_strategy="steps", save_steps=2, evolution_interval=1)
    whole = make(Remembering(), **settings)
    whole.train()
    again = make(Remembering(), **settings)
    perturb(again.population, 0.7)
    again.train(resume_from_checkpoint=f"{whole.args.output_dir}/checkpoint-2")
    assert again.source.state_dict() == whole.source.state_dict() == {"begun": 4} and len(whole.lineage) > 1
    assert again.ratings.state_dict() == whole.ratings.state_dict() and list(again.lineage) == list(whole.lineage)
    for name in whole.population:
        assert member_state(again, name) == member_state(whole, name)
    assert timeless(again.state.log_history) == timeless(whole.state.log_history)


def test_advantages_and_spared_rows_are_the_sources(make):
    class Own(Sums):
        def spare(self, rewards):
            rewards[0] = torch.nan
            return rewards

        def advantages(self, rows):
            self.rows_seen = rows
            return rows.rewards * 0 + range(len(rows.rewards))

    trainer, taken = make(Own(), max_steps=1), []
    loss = trainer._compute_loss
    trainer._compute_loss = lambda model, inputs: taken.append(inputs["advantages"]) or loss(model, inputs)
    trainer.train()
    values = torch.cat(taken)
    assert sorted(values.tolist()) == list(range(12))  # 0 is that of the spared row
    rows = trainer.source.rows_seen
    assert rows.training and rows.members == trainer.source.assign_members(12) and len(rows.tokens) == 12
    assert list(rows.by_function) == ["right_digits"] and rows.rewards[1:].min() > 0
    (summary,) = read_history(trainer.args.output_dir)
    first = summary.members[0]
    assert (first.rows, first.unlearned_rows, first.unlearned_tokens) == (3, 1, rows.tokens[0])
    assert first.tokens == sum(rows.tokens[1:4]) and first.length == sum(rows.tokens[:4]) / 4
    assert first.prompt_tokens == sum(rows.prompt_tokens[1:4])


def test_every_row_of_a_step_has_a_seed_of_its_own():
    """Whoever draws it. Batches of an evaluation go on counting until members learn again."""

    def source(index, processes=2):
        made = Sums()
        made.args, made._evaluated = SimpleNamespace(seed=1), 0
        made.ranks = SimpleNamespace(index=index, accelerator=SimpleNamespace(num_processes=processes))
        return lambda rows, training: made._seeds(rows, step=5, training=training)

    first, second, alone = source(0), source(1), source(0, processes=1)
    for _ in range(2):
        learned = first(3, True) + second(3, True)
        assert learned == alone(6, True)
        evaluated = [first(3, False) + second(3, False) for _ in range(2)]
        assert evaluated == [alone(6, False), alone(6, False)]
        assert len({*learned, *evaluated[0], *evaluated[1]}) == 18


@pytest.mark.parametrize(
    ("source", "arguments", "message"),
    [
        (Sums, {}, "must be an object of a subclass of trl_populora.RowSource"),
        (Sums(), {"train_dataset": Dataset.from_dict({"prompt": ["a"]})}, "train_dataset given to Sums"),
    ],
    ids=["class", "dataset"],
)
def test_what_a_source_cannot_use_is_refused(make, source, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(source, **arguments)


def test_rows_without_log_probabilities_among_others_are_not_corrected():
    """Rows that waited for their rewards while the run got another sampler."""
    known, unknown = Completion("a", [1], [2, 3], [-0.5, -1.0]), Completion("b", [1], [4, 5], None)
    source = Sums()
    source.sampler = SimpleNamespace(reports_logprobs=True)
    told = source.as_rollout([[1], [1]], [unknown, known])["logprobs"]
    assert all(map(math.isnan, told[0])) and len(told[0]) == 2 and told[1] == [-0.5, -1.0]
    assert len(source.as_rollout([[1]], [unknown])["logprobs"]) == 1  # all rows of a process may have waited
    source.sampler = SimpleNamespace(reports_logprobs=False)
    assert source.as_rollout([[1], [1]], [unknown, known])["logprobs"] is None


def test_a_source_is_abstract():
    with pytest.raises(TypeError, match="begin.*make_reward_functions"):
        RowSource()


def test_a_run_is_not_resumed_with_another_source(make):
    class Others(Sums):
        pass

    trainer = make(Sums(), max_steps=1, save_strategy="steps", save_steps=1)
    trainer.train()
    with pytest.raises(ValueError, match="it was saved with row_source='Sums', not 'Others'"):
        make(Others(), max_steps=2).train(resume_from_checkpoint=f"{trainer.args.output_dir}/checkpoint-1")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda rows, members: (rows[1:], members),
        lambda rows, members: (rows, members[1:]),
        lambda rows, members: (rows, ["nobody"] * len(members)),
        lambda rows, members: ([{"wanted": "1"}] * len(rows), members),
    ],
    ids=["a row less", "a name less", "no member", "no prompt"],
)
def test_wrong_rows_are_named_at_once(make, spoil):
    class Wrong(Sums):
        def begin(self, inputs, **place):
            return spoil(*super().begin(inputs, **place))

    with pytest.raises(ValueError, match="Wrong.begin must return 12 rows with a 'prompt'"):
        make(Wrong()).train()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda rows, members: rows, "must return a list of rows and a list of members' names"),
        (lambda rows, members: None, "must return a list of rows and a list of members' names, got None"),
        (
            lambda rows, members: (rows, members[1:] + members[:1]),
            "rows 0 and 1 are of one group.*student_0, student_1",
        ),
        (lambda rows, members: (rows[1:] + rows[:1], members), "rows 0 and 1 are of one group of num_generations=2"),
        (lambda rows, members: ([{**row, "prompt": ""} for row in rows], members), "a prompt is text .*got '' and"),
        (lambda rows, members: ([{**row, "prompt": 5} for row in rows], members), "a prompt is text .*got 5 and"),
        (
            lambda rows, members: ([{**rows[0], "prompt": [{"role": "user", "content": "x"}]}, *rows[1:]], members),
            "of one kind in all rows; got '.*' and, in the first row, .{'role'",
        ),
        (
            lambda rows, members: ([{**rows[0], "more": 1}, *rows[1:]], members),
            "the same columns, got .'prompt', 'wanted', 'player', 'more'. and .'prompt', 'wanted', 'player'.",
        ),
    ],
)
def test_a_group_has_one_prompt_and_one_member(make, spoil, said):
    class Wrong(Sums):
        def begin(self, inputs, **place):
            return spoil(*super().begin(inputs, **place))

    class WithAdvantages(Wrong):
        """Which compares rows in another way."""

        def advantages(self, rows):
            return rows.rewards

    with pytest.raises(ValueError, match=f"Wrong.begin.*{said}"):
        make(Wrong()).train()
    if "group" in said:
        make(WithAdvantages(), max_steps=1).train()


@pytest.mark.parametrize(
    ("name", "spoil", "said"),
    [
        ("advantages", lambda found: np.zeros(1), r"of shape \(12,\) .* got array\(\[0.\]\) of shape \(1,\)"),
        ("advantages", lambda found: [0.0] * 12, "a NumPy array of shape"),
        ("advantages", lambda found: torch.zeros(12), "a NumPy array of shape"),
        ("advantages", lambda found: np.zeros((12, 1)), r"got .* of shape \(12, 1\)"),
        ("advantages", lambda found: np.full(12, np.nan), "a finite number for each row"),
        ("spare", lambda found: [True] * 12, r"a tensor of shape \(12, 1\), with NaN"),
        ("spare", lambda found: found[:, 0], r"a tensor of shape \(12, 1\), with NaN .* of shape \(12,\)"),
        ("spare", lambda found: found > 0, r"a tensor of shape \(12, 1\), with NaN .*True"),
        ("rollout", lambda found: None, "a dict of lists with one entry for each of 12 prompts"),
        ("rollout", lambda found: found | {"prompt_ids": found["prompt_ids"][1:]}, "with one entry for each of 12"),
        ("rollout", lambda found: found | {"logprobs": [0.0]}, "with one entry for each of 12"),
        ("rollout", lambda found: found | {"completion_ids": [[-1]] * 12}, "gave a completion with the token id -1"),
        ("summary", lambda found: None, "must return a RoundSummary, got None. Change what super"),
        ("summary", lambda found: replace(found, seconds={"sample": "long"}), "says: seconds is {'sample': 'long'}"),
        ("summary", lambda found: replace(found, alarms="too long"), "says: alarms is 'too long'"),
        ("summary", lambda found: replace(found, members=(None,)), r"says: members is \(None,\)"),
        (
            "summary",
            lambda found: replace(found, members=(replace(found.members[0], rows=1.5), *found.members[1:])),
            "says: rows is 1.5",
        ),
    ],
)
def test_what_a_source_returns_is_checked(make, name, spoil, said):
    def returns(self, *args, **named):
        return spoil(getattr(Sums, name)(self, *args, **named))

    with pytest.raises(ValueError, match=rf"(?s)Wrong\.{name} .*{said}"):
        make(type("Wrong", (Sums,), {name: returns})()).train()


def test_a_setup_calls_the_inherited_one(make):
    with pytest.raises(ValueError, match=r"Wrong.setup does not call super\(\).setup\(args, population"):
        make(type("Wrong", (Sums,), {"setup": lambda self, *given: None})())


@pytest.mark.parametrize("made", [None, [right_digits, right_digits], (right_digits, right_digits), ([], None)])
def test_what_are_no_reward_functions_is_named(make, made):
    source = type("Wrong", (Sums,), {"make_reward_functions": lambda self, args, functions, classes: made})
    with pytest.raises(ValueError, match="Wrong.make_reward_functions must return a list of reward functions and"):
        make(source())


def test_a_source_may_log_without_ratings(make):
    class Logs(Sums):
        def finish(self, rows, metrics):
            metrics["mine"].append(float(len(rows.members)))

    trainer = make(Logs(), max_steps=1, logging_steps=1)
    trainer.train()
    assert trainer.state.log_history[0]["mine"] == 12 and len(trainer.source.scored.rewards) == 12
    assert read_history(trainer.args.output_dir)[0].members[0].mu is None


@pytest.mark.parametrize("value", [np.float32(1.5), torch.tensor(1.5), "a"])
def test_numbers_of_any_library_are_logged(make, value):
    class Logs(Sums):
        def finish(self, rows, metrics):
            super().finish(rows, metrics)
            metrics["mine"].append(value)

    trainer = make(Logs(), max_steps=1, logging_steps=1, save_strategy="steps", save_steps=1)
    if value == "a":
        with pytest.raises(
            ValueError, match="Logs.finish must append numbers to the lists of metrics, got mine: .'a'"
        ):
            trainer.train()
        return
    trainer.train()
    assert trainer.state.log_history[0]["mine"] == 1.5


def test_ratings_are_of_a_run_and_not_of_a_class(make):
    with pytest.raises(ValueError, match=r"Shared.ratings is an attribute of the class. Set self.ratings in `setup`"):
        make(type("Shared", (Sums,), {"ratings": SimpleNamespace()})())


def test_ratings_of_ones_own_need_their_methods(make):
    class Own(Sums):
        def setup(self, *args):
            super().setup(*args)
            self.ratings = SimpleNamespace(fitness=lambda name: 0.0)

    with pytest.raises(ValueError, match="Own.ratings has no inherit, state_dict, load_state_dict, __getitem__"):
        make(Own())


def test_a_source_may_have_its_state_from_the_first_round_on(make):
    class Late(Sums):
        def begin_run(self):
            self.seen = 0

        def state_dict(self):
            return {"seen": self.seen}

    assert make(Late(), max_steps=1).train().global_step == 1


def test_a_state_that_no_file_can_hold_is_named_at_construction(make):
    class Wrong(Sums):
        def state_dict(self):
            return {"seen": {1, 2}}

    with pytest.raises(
        ValueError, match="The state of Wrong or of its ratings is not what JSON can hold .Object of type set"
    ):
        make(Wrong())
