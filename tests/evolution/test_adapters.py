import json
import pickle
from dataclasses import replace

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from torch import nn
from toy_adapters import assert_same_bits, delta

from tests.tiny import tiny_population
from trl_populora.evolution import (
    OPERATORS,
    EvolutionSettings,
    Lineage,
    breed,
    evolve,
    read_adapter,
    replay,
    write_adapter,
)
from trl_populora.population.factors import Factor
from trl_populora.self_play.ratings import Outcome, Ratings


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 6), nn.Linear(6, 4)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


def saved(folder, seed: int, **options) -> tuple[Base, PeftModel]:
    """An adapter that PEFT made and saved, with values in B."""
    torch.manual_seed(0)
    base = Base()
    config = LoraConfig(target_modules=["first", "second"], **{"r": 2, "lora_alpha": 6, **options})
    torch.manual_seed(seed)
    model = get_peft_model(base, config)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter)
    model.save_pretrained(folder)
    return base, model


FORMS = [{}, {"use_rslora": True}, {"rank_pattern": {"second": 3}, "alpha_pattern": {"first": 5, "second": 1}}]


@pytest.mark.parametrize("form", FORMS, ids=["plain", "rslora", "patterns"])
def test_factors_give_the_update_that_peft_merges(form, tmp_path):
    _, model = saved(tmp_path / "a", 1, **form)
    _, factors = read_adapter(tmp_path / "a")
    for path, factor in factors.items():
        layer = model.get_submodule(path)
        torch.testing.assert_close(delta(factor).float(), layer.get_delta_weight("default"))


@pytest.mark.every(4)
@pytest.mark.parametrize("form", FORMS, ids=["plain", "rslora", "patterns"])
@pytest.mark.parametrize("name", list(OPERATORS))
def test_every_child_loads_in_peft_as_what_it_is(name, form, tmp_path):
    parents = []
    for seed in range(OPERATORS[name].num_parents):
        saved(tmp_path / f"parent_{seed}", seed, **form)
        config, factors = read_adapter(tmp_path / f"parent_{seed}")
        parents.append(factors)
    child = breed(name, parents, seed=3)
    write_adapter(tmp_path / "child", config, child)
    assert_same_bits(read_adapter(tmp_path / "child")[1], child)
    torch.manual_seed(0)
    model = PeftModel.from_pretrained(Base(), tmp_path / "child")
    for path, factor in child.items():
        expected = delta(factor).float()
        torch.testing.assert_close(model.get_submodule(path).get_delta_weight("default"), expected)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"use_dora": True}, "use_dora=True"),
        ({"bias": "all"}, "bias='all'"),
        ({"lora_bias": True}, "lora_bias=True"),
        (
            {"init_lora_weights": "pissa_niter_4"},
            "init_lora_weights='pissa_niter_4', with which PEFT changes the base",
        ),
        ({"init_lora_weights": "olora"}, "init_lora_weights='olora'.*path_initial_model_for_weight_conversion"),
    ],
)
def test_what_operators_cannot_keep_is_refused(options, words, tmp_path):
    saved(tmp_path, 0, **options)
    with pytest.raises(ValueError, match=words):
        read_adapter(tmp_path)


def test_folders_without_a_lora_adapter_are_refused(tmp_path):
    with pytest.raises(ValueError, match="is not a PEFT folder"):
        read_adapter(tmp_path)
    saved(tmp_path, 0)
    config = tmp_path / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"peft_type": "LOHA"}))
    with pytest.raises(ValueError, match="type 'LOHA'"):
        read_adapter(tmp_path)


@pytest.mark.parametrize("content", [b"", b"no zip", pickle.dumps(print), None], ids=["empty", "text", "code", "cut"])
def test_a_damaged_file_of_pytorch_is_named(content, tmp_path):
    saved(tmp_path, 0)
    weights, path = tmp_path / "adapter_model.safetensors", tmp_path / "adapter_model.bin"
    torch.save(load_file(weights), path)
    weights.unlink()
    assert len(read_adapter(tmp_path)[1]) == 2
    path.write_bytes(path.read_bytes()[:-50] if content is None else content)
    with pytest.raises(ValueError, match="adapter_model.bin is damaged, or holds more than weights"):
        read_adapter(tmp_path)


def run_of_three_events(folder):
    """Founders, then three times: members learn (their weights move), evolve, and are saved."""
    population = tiny_population(4, 4)
    ratings = Ratings(population.teachers, population.students)
    ratings.update([Outcome("teacher_0", "student_3", 8, 0), Outcome("teacher_1", "student_0", 8, 8)])
    lineage = Lineage(folder / "lineage.jsonl")
    population.save(str(folder / "founders"))
    settings = EvolutionSettings(fraction=0.5)
    for step in (0, 20, 40):
        torch.manual_seed(step)
        if step:
            for parameter in (p for name in population for p in population.parameters(name)):
                parameter.data.add_(0.01 * torch.randn_like(parameter))
        rng = torch.Generator().manual_seed(step)
        lineage.extend(evolve(population, ratings, settings=settings, step=step, rng=rng))
        population.save(str(folder / f"checkpoint-{step}"))
    return population


@pytest.mark.slow
def test_the_lineage_file_replays_every_child_bit_for_bit(tmp_path):
    run_of_three_events(tmp_path)
    lineage = Lineage(tmp_path / "lineage.jsonl")
    assert len(lineage) == 12 and {event.version for event in lineage} >= {1, 2}
    for event in lineage:
        checkpoint = tmp_path / f"checkpoint-{event.step}"
        folders = [checkpoint] if event.step else [tmp_path / "founders"]
        child = replay(event, folders)
        assert_same_bits(child, read_adapter(checkpoint / event.slot)[1])


@pytest.mark.every(3)
@pytest.mark.parametrize("name", list(OPERATORS))
def test_children_of_files_are_those_of_the_factors_in_memory(name, tmp_path):
    """Tensors in a mapped file start at any multiple of 8 bytes; torch's start at multiples of 64."""
    held, read = [], []
    for seed in range(OPERATORS[name].num_parents):
        config = LoraConfig(r=4, target_modules=["first"])
        rng = torch.Generator().manual_seed(seed)
        shapes = {"first": (16, 32), "second": (32, 16), "third": (16, 48)}
        held.append({p: Factor(torch.randn(4, n, generator=rng), torch.randn(m, 4, generator=rng), 2.0)
                     for p, (m, n) in shapes.items()})  # fmt: skip
        write_adapter(tmp_path / str(seed), config, held[-1])
        read.append(read_adapter(tmp_path / str(seed))[1])
        held[-1] = {path: held[-1][path] for path in read[-1]}
    for seed in range(8):
        assert_same_bits(breed(name, read, seed=seed), breed(name, held, seed=seed))


def test_replay_names_the_parent_that_nobody_holds(tmp_path):
    run_of_three_events(tmp_path)
    first, *_, last = Lineage(tmp_path / "lineage.jsonl")
    lost = replace(last, parents=((first.slot, 99),))
    with pytest.raises(
        ValueError, match=rf"founders'\] holds {first.slot}@99, a parent of {last.slot}@{last.version}"
    ):
        replay(lost, [tmp_path / "founders"])
    imported = replace(last, kind="import", parents=(("runs/sft", 0),))
    with pytest.raises(ValueError, match=f"{last.slot}@{last.version} is a copy of the adapter runs/sft, which is no"):
        replay(imported, [tmp_path / "founders"])
