"""Members that start from adapters which were made elsewhere: who gets which, and what does not fit."""

import json
import os

import pytest
import torch
from peft import get_peft_model
from safetensors.torch import load_file, save_file

from tests.tiny import lora, tiny_model, tiny_population, two_layers
from trl_populora.evolution import Lineage
from trl_populora.hub.client import HubError
from trl_populora.training.initial_adapters import find_sources, import_events, start_from, warn_of_other_prompts


def begin(population, wanted, *, base="base"):
    start_from(population, wanted, find_sources(wanted), base=base)


def sft(folder, *, seed=1, **settings) -> str:
    """A PEFT folder as supervised training leaves it."""
    torch.manual_seed(seed)
    model = get_peft_model(two_layers(), lora(**settings))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(folder)
    return str(folder)


def same(population, name, folder):
    saved = load_file(f"{folder}/adapter_model.safetensors")
    own = population.factors(name)
    return all(
        torch.equal(X, saved[f"{path}.lora_{side}.weight"]) for path, f in own.items() for side, X in zip("AB", f)
    )


@pytest.fixture
def saved(tmp_path):
    """A population of 2 + 2 on disk."""
    population = tiny_population(noise=0.2, seed=0)
    population.save(str(tmp_path / "run"))
    return str(tmp_path / "run")


def test_one_adapter_starts_everybody(tmp_path):
    folder, population = sft(tmp_path / "sft"), tiny_population(noise=0)
    begin(population, folder)
    assert all(same(population, name, folder) for name in population)
    assert population["teacher_0"].parents == (f"{folder}@0",)
    assert all(parameter.requires_grad for name in population for parameter in population.parameters(name))


def test_a_population_starts_members_of_the_same_names(saved):
    population = tiny_population(1, 2, noise=0)
    begin(population, saved)
    assert all(same(population, name, f"{saved}/{name}") for name in population)
    assert population["student_1"].parents == (f"{saved}/student_1@0",)
    with pytest.raises(ValueError, match=r"has no student_2, student_3: it holds .* Name a source for each member"):
        begin(tiny_population(2, 4), saved)


def test_a_source_that_is_called_as_a_member_is_not_its_own_parent(saved, monkeypatch):
    """The command was given in the folder of the run that it takes members from."""
    monkeypatch.chdir(saved)
    population = tiny_population(1, 1, noise=0)
    begin(population, {"student": "student_0"})
    assert population["student_0"].parents == ("./student_0@0",)
    lineage = Lineage()
    lineage.extend(import_events(population))
    tree = lineage.family_tree(list(population))
    assert "./student_0@0  from elsewhere" in tree and "student_0@0 *" in tree.replace("./student_0", "")


def test_a_mapping_of_members_and_roles(saved, tmp_path):
    folder, population = sft(tmp_path / "sft"), tiny_population(noise=0)
    fresh = {name: [p.clone() for p in population.parameters(name)] for name in population}
    begin(population, {"student": folder, "student_1": saved, "teacher_1": f"{saved}/student_0"})
    assert same(population, "student_0", folder) and same(population, "student_1", f"{saved}/student_1")
    assert same(population, "teacher_1", f"{saved}/student_0")
    assert all(map(torch.equal, population.parameters("teacher_0"), fresh["teacher_0"]))
    assert [population[name].parents for name in population] == [
        (), (f"{saved}/student_0@0",), (f"{folder}@0",), (f"{saved}/student_1@0",)
    ]  # fmt: skip


def test_a_list_has_one_for_each_member(saved, tmp_path):
    sources = [f"{saved}/student_0", sft(tmp_path / "a", seed=2), saved, saved]
    population = tiny_population(noise=0)
    begin(population, sources)
    assert same(population, "teacher_1", sources[1]) and same(population, "student_0", f"{saved}/student_0")
    with pytest.raises(ValueError, match=r"lists 1 sources for 4 members \(teacher_0, teacher_1"):
        begin(population, sources[:1])


@pytest.mark.parametrize("settings, words", [
    ({"r": 8}, r"it has rank 8, this population 4\. Its own settings are lora_r: 8, lora_alpha: 16"),
    ({"lora_alpha": 4}, r"its scaling is 1, this population's 2\. .* lora_alpha: 4, .* without rank-stab"),
    ({"target_modules": ["q_proj", "v_proj"]}, r"it adapts q_proj, v_proj, this population .*: \[q_proj, v_proj\]"),
    ({"use_rslora": True}, r"its scaling is 4, this population's 2\. .* with rank-stabilised"),
    ({"use_dora": True}, r"use_dora=True"),
    ({"rank_pattern": {"q_proj": 2}}, r"it has rank 2, this population 4\. Its matrices have different ranks"),
])  # fmt: skip
def test_an_adapter_that_does_not_fit(tmp_path, settings, words):
    folder, population = sft(tmp_path / "sft", **settings), tiny_population(noise=0)
    with pytest.raises(ValueError, match=words):
        begin(population, folder)


def test_a_damaged_adapter(tmp_path):
    folder, population = sft(tmp_path / "sft"), tiny_population(noise=0)
    path = tmp_path / "sft" / "adapter_model.safetensors"
    save_file({name: X.log() for name, X in load_file(path).items()}, path)
    with pytest.raises(ValueError, match="sft has diverged: it has weights that are not finite"):
        begin(population, folder)
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(ValueError, match=f"{path} is damaged: .* Save, copy or download it again"):
        begin(population, folder)


def test_an_adapter_of_another_base(tmp_path):
    torch.manual_seed(0)
    get_peft_model(two_layers(hidden_size=64), lora()).save_pretrained(tmp_path / "wide")
    get_peft_model(tiny_model(num_hidden_layers=3), lora()).save_pretrained(tmp_path / "deep")
    for name, words in {"wide": "another base model", "deep": "another base model, or adapts other layers"}.items():
        with pytest.raises(ValueError, match=f"it belongs to {words}"):
            begin(tiny_population(), str(tmp_path / name))


def test_a_base_of_another_name_is_a_warning(tmp_path, caplog):
    folder = sft(tmp_path / "sft")
    path = tmp_path / "sft" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"base_model_name_or_path": "org/instruct"}))
    begin(tiny_population(), folder, base="org/instruct")
    assert not caplog.text
    begin(tiny_population(), folder, base="org/base")
    assert "was trained on org/instruct, and this run's base is org/base" in caplog.text


@pytest.mark.parametrize("wanted, words", [
    ("./nowhere", r"'./nowhere': there is no such folder"),
    ("nowhere", r"'nowhere' is neither a folder nor a repository on the Hub: user/repo\[@revision\]\[/folder\]"),
    ({"student_0": 5}, r"initial_adapters: 5 must be a folder"),
])  # fmt: skip
def test_what_is_not_there(wanted, words):
    with pytest.raises(ValueError, match=words):
        begin(tiny_population(), wanted)


def test_a_folder_that_may_be_a_repository_is_named(monkeypatch):
    def head(*args, **kwargs):
        raise HubError("runs/typo cannot be read: the Hub cannot be reached")

    monkeypatch.setattr("trl_populora.training.initial_adapters.head", head)
    with pytest.raises(ValueError, match="initial_adapters='runs/typo': there is no such folder, and on the Hub"):
        begin(tiny_population(), "runs/typo")


def test_names_that_are_no_members(saved):
    for name in ("student_9", "agent"):
        with pytest.raises(ValueError, match=rf"names '{name}': keys are members \(teacher_0.*\) or roles"):
            begin(tiny_population(), {name: saved})
    with pytest.raises(ValueError, match=r"names 'student': keys are members \(agent_0\)\.$"):
        begin(tiny_population(1, 1, shared_member=True), {"student": saved})


def test_a_population_without_that_member(saved):
    with pytest.raises(ValueError, match=r"is a population without student_2\. Name one of its members: .*/teacher_0"):
        begin(tiny_population(2, 3), {"student_2": saved})


@pytest.mark.slow
def test_the_lineage_goes_on_across_runs(make_trainer, saved):
    trainer = make_trainer(
        model=two_layers(),
        noise=0,
        initial_adapters={"student": saved},
        max_steps=2,
        evolution_interval=1,
        num_students=2,
    )
    assert [event.slot for event in import_events(trainer.population)] == ["student_0", "student_1"]
    trainer.train()
    lineage = Lineage(f"{trainer.args.output_dir}/lineage.jsonl")
    assert list(lineage) == list(trainer.lineage) and [event.kind for event in lineage][:2] == ["import"] * 2
    assert lineage.founders("student_0") <= {f"{saved}/student_0", f"{saved}/student_1"}
    assert lineage.founders("teacher_0") <= {"teacher_0", "teacher_1"}


@pytest.mark.slow
def test_a_run_that_resumes_needs_its_sources_no_more(make_trainer, saved, tmp_path):
    saving = {"save_strategy": "steps", "save_steps": 1, "initial_adapters": saved, "learning_rate": 1e-2}
    make_trainer(model=two_layers(), noise=0, max_steps=1, **saving).train()
    (tmp_path / "run2").mkdir()
    again = make_trainer(
        model=two_layers(),
        noise=0,
        max_steps=2,
        resume_from_checkpoint="auto",
        **saving | {"initial_adapters": "gone/gone"},
    )
    again.train(resume_from_checkpoint="auto")
    assert [event.kind for event in Lineage(f"{again.args.output_dir}/lineage.jsonl")] == ["import"] * 4


def test_the_penalty_would_undo_it(make_trainer, saved):
    with pytest.raises(ValueError, match=r"beta=0.1 with initial_adapters"):
        make_trainer(model=two_layers(), beta=0.1, initial_adapters=saved)


def test_a_warm_start_with_prompts_of_another_style_is_told(tmp_path, caplog):
    """As of `populora warmup`, whose default is another than the trainer's."""
    tiny_population().save(str(tmp_path / "warm"))
    (tmp_path / "warm" / "run.json").write_text('{"settings": {"prompt_style": "compact", "prompt_template": "chat"}}')
    sft(tmp_path / "sft")
    wanted = [str(tmp_path / "warm"), str(tmp_path / "warm" / "student_0"), str(tmp_path / "sft")]
    sources = find_sources(wanted)
    warn_of_other_prompts(sources, {"prompt_style": "compact", "prompt_template": "chat"})
    assert not caplog.records
    warn_of_other_prompts(sources, {"prompt_style": "full", "prompt_template": "chat"})
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2 and all(
        "was trained with prompt_style='compact', and this run's is 'full'" in one for one in told
    )
