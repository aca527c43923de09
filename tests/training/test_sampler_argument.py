"""The argument `sampler`: what may be passed, what is refused, and that the sampler of the documentation works."""

import re
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from trl import GRPOConfig

from tests.generation.engine_double import EngineDouble, base_model
from tests.generation.fake_server import ModelServer, running
from tests.tiny import lora, tiny_tokenizer
from tests.training.conftest import hash_reward
from trl_populora import PopulationSelfPlayTrainer, Sampler
from trl_populora.generation import EngineSampler, TransformersSampler, server_sampler
from trl_populora.generation.engines import SGLANG
from trl_populora.integrations.user_data import load_sampler


DOCS = Path(__file__).parents[2] / "docs" / "samplers.md"


@pytest.fixture
def documented(tmp_path, monkeypatch):
    """The example of docs/samplers.md as a module in the working folder."""
    (code,) = re.findall(r"<!-- run by .*?-->\n```python\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)
    (tmp_path / "my_documented_sampler.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield load_sampler("my_documented_sampler:OneByOne")
    sys.modules.pop("my_documented_sampler", None)


@pytest.mark.slow
def test_the_documented_sampler_trains(documented, make_trainer):
    trainer = make_trainer(sampler=documented)
    trainer.train()
    assert type(trainer.source.sampler) is documented and trainer.source.sampler.max_completion_length == 8
    assert len(trainer.source.played.rows) == trainer.args.rows_per_round
    assert any(row.completion.ids for row in trainer.source.played.rows)


def test_the_documented_sampler_draws_from_its_members(documented, make_trainer):
    """At a temperature near zero it draws what the transformers sampler does, base included."""
    population = make_trainer(noise=0.3).population
    settings = dict(max_completion_length=6, temperature=1e-4)
    mine, other = (kind(population, tiny_tokenizer(), **settings) for kind in (documented, TransformersSampler))
    prompts = [[{"role": "user", "content": text}] for text in ("one", "two and more", "three", "4")]
    for members in (list(population), [None] * 4):
        drawn = mine(prompts, members, seed=3)
        assert [list(c.ids) for c in drawn] == [list(c.ids) for c in other(prompts, members, seed=0)]
        assert mine(prompts[1:], members[1:], seed=3, streams=[1, 2, 3]) == drawn[1:]
    assert population.model.training == population.base_model.training


@pytest.mark.slow
def test_an_engine_of_ones_own_trains_with_its_log_probabilities(make_trainer, tmp_path):
    def sampler(population, tokenizer, accelerator, args):
        folder = str(tmp_path / "adapters")
        return EngineSampler.from_args(
            population, tokenizer, accelerator, args, engine=EngineDouble(), adapter_dir=folder
        )

    trainer = make_trainer(sampler=sampler, model=base_model(), max_completion_length=4)
    trainer.train()
    logs = [log for log in trainer.state.log_history if "sampling/sampling_logp_difference/max" in log]
    assert len(logs) == 2 and all(log["sampling/sampling_logp_difference/max"] < 1e-3 for log in logs)
    assert set(trainer.source.sampler.liveness) == set(trainer.population)


def refused(sampler, config, **settings):
    return PopulationSelfPlayTrainer(
        base_model(), hash_reward, config(**settings), processing_class=tiny_tokenizer(), sampler=sampler
    )


class Unwritten(Sampler):
    """Says nothing about how it draws."""


@pytest.mark.parametrize(
    "sampler, said",
    [
        ("my_sampler:OneByOne", "'my_sampler:OneByOne' is neither a class nor a function"),
        (dict, "dict.*is not a subclass of trl_populora.Sampler"),
        (Unwritten, "Unwritten.*lacks draw: implement it"),
        (lambda prompts: [], "cannot be called with four arguments: too many positional"),
        (lambda population, tokenizer, accelerator, args: None, "made None, which is not a trl_populora.Sampler"),
        (partial(server_sampler, kind="sglang"), "cannot be called with four arguments: missing.*base_url"),
        (partial(server_sampler, kind="tgi", base_url="http://localhost:9"), "kind='tgi' is unknown"),
        (partial(server_sampler, kind="vllm", base_url="localhost:9"), "base_url='localhost:9' is not the URL"),
    ],
)
def test_what_is_no_sampler_is_refused(config, sampler, said):
    with pytest.raises(ValueError, match=said):
        refused(sampler, config)


class Forgets(TransformersSampler):
    def __init__(self, population, tokenizer, **settings):
        pass


class Narrow(TransformersSampler):
    def __init__(self, population, tokenizer):
        super().__init__(population, tokenizer, max_completion_length=8)


@pytest.mark.parametrize(
    "sampler, kwargs, said",
    [
        (Forgets, {}, r"Forgets.__init__ must call super\(\).__init__\(population, tokenizer, \*\*settings\)"),
        (Narrow, {}, "Narrow cannot be made with .*unexpected keyword argument.*pass .*settings to super"),
        (TransformersSampler, {"bach_size": 3}, "TransformersSampler cannot be made .*argument 'bach_size'"),
    ],
)
def test_a_sampler_that_does_not_take_the_settings_is_refused(make_trainer, sampler, kwargs, said):
    with pytest.raises(ValueError, match=said):
        make_trainer(sampler=partial(sampler.from_args, **kwargs) if kwargs else sampler)


def test_a_sampler_that_takes_too_few_tokens_is_told_from_a_small_max_prompt_tokens(make_trainer):
    class Short(TransformersSampler):
        max_length = 100

    with pytest.raises(ValueError, match="max_prompt_tokens=92 is too small .*not set it, raise the length of"):
        make_trainer(sampler=Short)


def test_settings_that_a_class_takes_out_by_itself_are_given(make_trainer):
    class Takes(TransformersSampler):
        def __init__(self, *args, **settings):
            self.extra = settings.pop("extra", 3)
            super().__init__(*args, **settings)

    assert make_trainer(sampler=partial(Takes.from_args, extra=5)).source.sampler.extra == 5


@pytest.mark.parametrize("wrong", [float("nan"), float("-inf"), 0.5])
def test_what_is_no_log_probability_is_refused(make_trainer, wrong):
    class Reporting(TransformersSampler):
        reports_logprobs = True

    sampler = make_trainer(sampler=Reporting).source.sampler
    assert sampler.completion([1], [2, 3], [-0.5, 1e-6]).logprobs == [-0.5, 1e-6]  # 0 but for rounding
    assert len(sampler.completion([1], [2, 3], np.float32([-0.5, -1])).logprobs) == 2
    with pytest.raises(ValueError, match=f"Reporting gave {wrong} as a log-probability; it is a number up to 0"):
        sampler.completion([1], [2, 3], [-0.5, wrong])


def test_a_sampler_that_ignores_the_chat_template_is_refused(make_trainer):
    def without(population, tokenizer, accelerator, args):
        return TransformersSampler(population, tokenizer, max_completion_length=8)

    make_trainer(sampler=without)
    with pytest.raises(ValueError, match=r"renders prompts with chat_template_kwargs=\{\}, and not with .*False"):
        make_trainer(sampler=without, chat_template_kwargs={"enable_thinking": False})


@pytest.mark.slow
def test_a_sampler_is_refused_where_another_draws_or_nobody_is(config, make_trainer, tmp_path):
    with pytest.raises(ValueError, match="with use_vllm=true: both select the sampler"):
        refused(TransformersSampler, config, use_vllm=True)
    with pytest.raises(ValueError, match="already has a population.*Pass the class TransformersSampler"):
        refused(make_trainer().source.sampler, config)
    with pytest.raises(ValueError, match="sampler needs a population"):
        plain = GRPOConfig(str(tmp_path), use_cpu=True, bf16=False, report_to="none")
        PopulationSelfPlayTrainer(base_model(), hash_reward, plain, sampler=TransformersSampler)
    with pytest.raises(ValueError, match="loss_type='vespo' with vllm_importance_sampling_mode='sequence_mask'"):
        engine = EngineDouble()
        make = partial(EngineSampler.from_args, engine=engine, adapter_dir=str(tmp_path))
        PopulationSelfPlayTrainer(
            base_model(), hash_reward, config(loss_type="vespo", vllm_importance_sampling_mode="sequence_mask"),
            processing_class=tiny_tokenizer(), peft_config=lora(), sampler=make,
        )  # fmt: skip


@pytest.mark.parametrize(
    "name, kwargs, said",
    [
        ("nowhere:Sampler", None, "the module 'nowhere' cannot be imported"),
        ("trl_populora.Sampler", None, "must be 'module:Name'"),
        ("trl_populora:Nothing", None, "'trl_populora' has no 'Nothing'"),
        ("trl_populora.generation:server_sampler", {"url": "x"}, "do not fit .*unexpected keyword argument 'url'"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused(name, kwargs, said):
    with pytest.raises(ValueError, match=said):
        load_sampler(name, kwargs)


def test_settings_of_a_class_come_by_recipe(make_trainer):
    sampler = load_sampler("trl_populora.generation:TransformersSampler", {"batch_size": 3})
    assert make_trainer(sampler=sampler).source.sampler.batch_size == 3
    assert make_trainer().source.sampler.batch_size != 3


@pytest.mark.slow
def test_a_recipe_reaches_a_server_of_another_kind(make_trainer, tmp_path):
    with running(ModelServer(SGLANG)) as server:
        server.double.max_model_length = 4096
        kwargs = {"kind": "sglang", "base_url": server.url, "adapter_dir": str(tmp_path / "adapters")}
        sampler = load_sampler("trl_populora.generation:server_sampler", kwargs)
        trainer = make_trainer(sampler=sampler, model=base_model(), max_completion_length=4)
        trainer.train()
        logs = [log for log in trainer.state.log_history if "sampling/sampling_logp_difference/max" in log]
        assert len(logs) == 2 and all(log["sampling/sampling_logp_difference/max"] < 1e-3 for log in logs)
        trainer.close()
        assert not server.double.loaded


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "got"),
    [
        (lambda drawn: drawn[1:], r"\d+\.$"),
        (lambda drawn: None, "None"),
        (lambda drawn: ["text"] * len(drawn), r"\['text'"),
    ],
)
def test_wrong_completions_are_named_at_once(make_trainer, spoil, got):
    class Wrong(TransformersSampler):
        def draw(self, prompt_ids, members, row_seeds):
            return spoil(super().draw(prompt_ids, members, row_seeds))

    with pytest.raises(ValueError, match=rf"Wrong.draw must return a list of \d+ Completions, one per row, got {got}"):
        make_trainer(sampler=Wrong).train()


def test_a_token_that_the_base_does_not_have_is_named(make_trainer):
    class Wrong(TransformersSampler):
        def draw(self, prompt_ids, members, row_seeds):
            drawn = super().draw(prompt_ids, members, row_seeds)
            return [one._replace(ids=[*one.ids[:-1], 10**6]) for one in drawn]

    with pytest.raises(ValueError, match=r"with the token id 1000000, and the base has \d+ tokens"):
        make_trainer(sampler=Wrong).train()


def test_what_are_no_tokens_is_named(make_trainer):
    sampler = make_trainer().source.sampler
    for ids in ([[5, 6]], [5.0], [-1], "5", None):
        with pytest.raises(ValueError, match=r"TransformersSampler gave .* as the tokens of a row; give a list"):
            sampler.completion([1], ids)


def test_tokens_and_log_probabilities_of_any_kind_are_kept_as_lists(make_trainer):
    sampler = make_trainer().source.sampler
    for kind in (iter, np.array, tuple, torch.tensor):
        made = sampler.completion([1], kind([5, 6]), kind([-0.5, -1.0]))
        assert (made.ids, made.logprobs) == ([5, 6], [-0.5, -1.0]) and type(made.ids[0]) is int


@pytest.mark.parametrize("wrong", [[None, None], ["a", "b"], -0.5])
def test_what_are_no_log_probabilities_is_named(make_trainer, wrong):
    with pytest.raises(ValueError, match="TransformersSampler gave .* as the log-probabilities of a row; give a list"):
        make_trainer().source.sampler.completion([1], [2, 3], wrong)


def test_log_probabilities_of_other_tokens_are_named(make_trainer):
    class Cuts(TransformersSampler):
        """Shortens completions that are made, and keeps their log-probabilities."""

        reports_logprobs = True

        def draw(self, prompt_ids, members, row_seeds):
            made = [self.completion(ids, [5, 6], [-1.0, -1.0]) for ids in prompt_ids]
            return [one._replace(ids=one.ids[:1]) for one in made]

    with pytest.raises(ValueError, match="Cuts says reports_logprobs=True, but gave 2 log-probabilities for 1 tokens"):
        make_trainer(sampler=Cuts).train()


def test_rows_that_are_moved_in_place_are_named(make_trainer):
    class Sorts(TransformersSampler):
        def draw(self, prompt_ids, members, row_seeds):
            prompt_ids.reverse()
            return super().draw(prompt_ids, members, row_seeds)

    with pytest.raises(ValueError, match=r"Sorts.draw returned for row \d+ a completion of another prompt"):
        make_trainer(sampler=Sorts).train()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda drawn: drawn[::-1], r"for row \d+ a completion of another prompt. Keep the order"),
        (lambda drawn: [one._replace(ids=np.array([], int)) for one in drawn], "no token for row 0"),
    ],
)
def test_rows_in_another_order_are_named_at_once(make_trainer, spoil, said):
    """A server's sampler that takes answers as they come would train members on other prompts' answers."""

    class Wrong(TransformersSampler):
        def draw(self, prompt_ids, members, row_seeds):
            return spoil(super().draw(prompt_ids, members, row_seeds))

    with pytest.raises(ValueError, match=f"Wrong.draw returned {said}"):
        make_trainer(sampler=Wrong).train()


def test_a_completion_that_is_too_long_is_named_at_once(make_trainer):
    class Deaf(TransformersSampler):
        """Read the limit once, when it was made."""

        def draw(self, prompt_ids, members, row_seeds):
            return [self.completion(ids, [5] * (self.max_completion_length + 1)) for ids in prompt_ids]

    with pytest.raises(ValueError, match="Deaf.draw returned 17 tokens where max_completion_length is 16"):
        make_trainer(sampler=Deaf, max_completion_length=16).train()
