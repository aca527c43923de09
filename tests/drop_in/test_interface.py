"""What can be seen of the class without training: signatures, overrides, attributes, and what a run is called."""

import inspect
from pathlib import Path

import pytest
from trl import GRPOTrainer

from tests.drop_in.pairs import CLASSES, plain, prompts, shown
from trl_populora.training import PopulationSelfPlayTrainer


BETWEEN = PopulationSelfPlayTrainer.__mro__[: PopulationSelfPlayTrainer.__mro__.index(GRPOTrainer)]
OVERRIDES = sorted(
    {
        name
        for owner in BETWEEN
        for name, value in vars(owner).items()
        if callable(getattr(GRPOTrainer, name, None)) and not (name.startswith("__") and name.endswith("__"))
    }
)
NAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def parameters(function) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def test_constructor():
    """GRPOTrainer's parameters in its order, with its names, kinds and defaults; ours come after, by keyword only."""
    theirs, ours = parameters(GRPOTrainer.__init__), parameters(PopulationSelfPlayTrainer.__init__)
    for own, other in zip(ours, theirs, strict=False):
        assert (own.name, own.kind, own.default) == (other.name, other.kind, other.default)
    added = ours[len(theirs) :]
    assert all(p.kind is p.KEYWORD_ONLY and p.default is None for p in added) and len(ours) >= len(theirs)


@pytest.mark.parametrize("name", OVERRIDES)
def test_an_override_can_be_called_as_its_parent(name):
    """However a caller splits the arguments into positions and keywords, each reaches the parameter of its name."""
    ours = inspect.signature(getattr(PopulationSelfPlayTrainer, name))
    theirs = [p for p in parameters(getattr(GRPOTrainer, name)) if p.kind in NAMED]
    for count in range(len(theirs) + 1):
        bound = ours.bind(*(p.name for p in theirs[:count]), **{p.name: p.name for p in theirs[count:]})
        for parameter in theirs:
            if parameter.name in ours.parameters:
                assert bound.arguments.get(parameter.name) == parameter.name, f"{count} arguments by position"
    for parameter in theirs:
        if parameter.name in ours.parameters:
            assert ours.parameters[parameter.name].default == parameter.default
    required = [p.name for p in theirs if p.default is p.empty]
    ours.bind(*required)


@pytest.mark.parametrize("name", OVERRIDES)
def test_an_override_is_its_parent_without_a_population(name, monkeypatch):
    """Also on an object that was never constructed: what an override reads first has a default on the class."""
    asked = []

    def parent(self, *args, **kwargs):
        asked.append((self, args, kwargs))

    monkeypatch.setattr(GRPOTrainer, name, parent, raising=False)
    bare = object.__new__(PopulationSelfPlayTrainer)
    given = [p for p in parameters(getattr(PopulationSelfPlayTrainer, name))[1:] if p.kind in NAMED]
    values = [object() for _ in given]
    getattr(bare, name)(*values)
    ((receiver, args, kwargs),) = asked
    assert receiver is bare and [*args, *(v for v in kwargs.values() if v is not None)] == values


def test_there_are_overrides():
    assert {"training_step", "_compute_loss", "_prepare_inputs", "create_optimizer"} <= set(OVERRIDES)


def test_class_attributes():
    """Those of presentation may be a population's own, as long as a plain run does not carry them (below)."""
    for name in ("loss_is_scaled_for_ga", "_template_file"):
        assert getattr(PopulationSelfPlayTrainer, name) == getattr(GRPOTrainer, name)
    assert issubclass(PopulationSelfPlayTrainer, GRPOTrainer)
    assert object.__new__(PopulationSelfPlayTrainer).population is None


def test_a_plain_run_is_called_what_it_is(folders, tmp_path, monkeypatch):
    """No population was trained, so neither the model's tags nor its card may say so."""
    monkeypatch.chdir(tmp_path)
    seen = []
    for trainer_class in CLASSES:
        trainer = trainer_class(**plain(folders))
        trainer.create_model_card(model_name="m", dataset_name="d", tags=["mine"])
        card = Path("run/README.md").read_text()
        seen.append((trainer.model.model_tags, trainer._tag_names, trainer._name, trainer._paper, card))
    for own, other in zip(*seen, strict=True):
        assert own == other


def test_no_attribute_of_grpo_trainer_is_missing_or_changed(folders, tmp_path, monkeypatch):
    """Scripts and callbacks read attributes of a trainer: same names, same kinds of values."""
    monkeypatch.chdir(tmp_path)
    ours, theirs = (vars(trainer_class(**plain(folders), eval_dataset=prompts())) for trainer_class in CLASSES)
    assert theirs.keys() <= ours.keys()
    assert {name: type(value) for name, value in theirs.items()} == {name: type(ours[name]) for name in theirs}
    plain_types = (bool, int, float, str, list, tuple, dict, type(None))
    for name, value in theirs.items():
        if isinstance(value, plain_types) and not any(word in name for word in ("reward_funcs", "generation_config")):
            assert shown(ours[name]) == shown(value), name
