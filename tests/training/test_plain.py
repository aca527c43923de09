"""With a plain configuration the class is GRPOTrainer: where that is decided. That it is so: `tests/drop_in`."""

from types import SimpleNamespace

import pytest
from datasets import Dataset
from trl import GRPOTrainer
from trl.experimental.gmpo import GMPOConfig, GMPOTrainer

from tests.tiny import tiny_model, tiny_tokenizer
from trl_populora.progress import Progress
from trl_populora.training import PopulationSelfPlayTrainer


def test_neither_settings_nor_data_names_the_configuration():
    with pytest.raises(ValueError, match=r"args=PopulationSelfPlayConfig\(output_dir=...\)"):
        PopulationSelfPlayTrainer(tiny_model())


def test_without_settings_it_is_grpo_trainer(monkeypatch):
    given, data = [], Dataset.from_dict({"prompt": ["a"]})
    monkeypatch.setattr(GRPOTrainer, "__init__", lambda self, *args, **kwargs: given.append((args, kwargs)))
    trainer = PopulationSelfPlayTrainer("base", len, train_dataset=data, callbacks=[])
    assert given == [(("base", len), {"args": None, "train_dataset": data, "callbacks": []})]
    assert trainer.population is None
    assert trainer.close() is None
    PopulationSelfPlayTrainer("base", environment_factory=dict)  # an environment brings its own prompts and rewards
    assert given[1] == (("base", None), {"args": None, "train_dataset": None, "environment_factory": dict})
    PopulationSelfPlayTrainer("base", len, None, data, None, "tokenizer")
    assert given[2] == (("base", len, None, data, None, "tokenizer"), {})


@pytest.mark.parametrize("ours_first", [False, True])
def test_it_can_be_mixed_with_a_trainer_of_trl(ours_first, tmp_path):
    """Whose constructor takes the later arguments by keyword only."""
    bases = (GMPOTrainer, PopulationSelfPlayTrainer)
    mixed = type("Mixed", bases[::-1] if ours_first else bases, {})
    args = GMPOConfig(str(tmp_path), use_cpu=True, bf16=False, report_to="none")
    data = Dataset.from_dict({"prompt": ["a"]})
    trainer = mixed(tiny_model(), len, args, train_dataset=data, processing_class=tiny_tokenizer())
    assert trainer.population is None and isinstance(trainer, GMPOTrainer)


@pytest.mark.parametrize("name", ["row_source", "on_round", "sampler", "task_types"])
def test_what_only_a_population_has_is_refused_without_one(name):
    with pytest.raises(ValueError, match=f"{name} needs a population"):
        PopulationSelfPlayTrainer(tiny_model(), len, None, Dataset.from_dict({"prompt": ["a"]}), **{name: print})


@pytest.mark.parametrize("population", [False, True])
def test_a_subclass_overrides_as_ever(monkeypatch, population):
    """Its `super()` reaches our override with a population, and passes it by without; a class between is not lost."""
    calls = []

    class Between(GRPOTrainer):
        def training_step(self, model, inputs, num_items_in_batch):
            calls.append("between")
            return super().training_step(model, inputs, num_items_in_batch)

    class Users(PopulationSelfPlayTrainer, Between):
        def training_step(self, model, inputs, num_items_in_batch):
            calls.append("users")
            return super().training_step(model, inputs, num_items_in_batch)

    monkeypatch.setattr(GRPOTrainer, "training_step", lambda self, *inputs: inputs)
    trainer = object.__new__(Users)
    if population:
        trainer.population = SimpleNamespace(routing=SimpleNamespace(clear=lambda: calls.append("ours")))
        trainer.progress, trainer.args = Progress(), SimpleNamespace(per_device_train_batch_size=1)
        trainer.importance_sampling_level, trainer._metrics = "token", {"train": {}}
        trainer._batch, trainer._unseen = {}, 0
    assert trainer.training_step(1, inputs=2, num_items_in_batch=3) == (1, 2, 3)
    assert calls == ["users", "between"] + ["ours"] * population
    assert isinstance(trainer, PopulationSelfPlayTrainer) and isinstance(trainer, GRPOTrainer)
