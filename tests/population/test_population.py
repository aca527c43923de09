import json
import os
import zlib

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from tests.tiny import lora, perturb, tiny_population, two_layers
from trl_populora.population import Factor, Population
from trl_populora.population.member import check_names


NAMES = ["teacher_0", "teacher_1", "student_0", "student_1"]
ROWS = ["student_1", "teacher_0", "teacher_0", "student_0", "student_1", "teacher_1"]


@pytest.fixture
def ids():
    return torch.randint(3, 200, (len(ROWS), 9), generator=torch.Generator().manual_seed(1))


def test_is_a_mapping_of_members():
    population = tiny_population()
    assert list(population) == NAMES and len(population) == 4
    assert population.names("student") == ["student_0", "student_1"]
    assert population["teacher_1"].slot == 1 and population["teacher_1"].version == 0
    assert population.model.population["teacher_0"] is population["teacher_0"]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("config", [lora(), lora(r=3, use_rslora=True, target_modules=["q_proj", "down_proj"])])
def test_adapters_are_those_that_peft_adds(config, dtype):
    made = Population(two_layers().to(dtype), config, num_teachers=2, num_students=1)
    model = two_layers().to(dtype)
    for name in made:
        torch.manual_seed(zlib.crc32(f"0:{name}".encode()))
        if name == "teacher_0":
            model = get_peft_model(model, config, adapter_name=name)
        else:
            model.add_adapter(name, config)
    wanted, got = model.state_dict(), made.model.state_dict()
    assert list(got) == list(wanted) and all(torch.equal(got[key], wanted[key]) for key in wanted)
    assert {key: one.dtype for key, one in got.items()} == {key: one.dtype for key, one in wanted.items()}
    for name in made:
        own, other = (one.peft_config[name].to_dict() for one in (made.model, model))
        assert own.pop("target_modules") == sorted(other.pop("target_modules")) and own.pop("task_type") == "CAUSAL_LM"
        assert own == {key: value for key, value in other.items() if key != "task_type"}
    for path, layer in made.routing.layers.items():
        other = model.get_submodule(path)
        assert (layer.scaling, layer.r, layer.lora_alpha) == (other.scaling, other.r, other.lora_alpha)


def test_every_adapter_is_trainable_and_nothing_else():
    population = tiny_population()
    own = {id(p) for name in population for p in population.parameters(name)}
    assert {id(p) for p in population.model.parameters() if p.requires_grad} == own


def test_a_change_of_mode_visits_no_adapter(monkeypatch):
    """Trainer changes it for each micro-batch."""
    visits = []
    visit = torch.nn.Module.__setattr__

    def noted(module, name, value):
        if name == "training":
            visits[-1] += 1
        visit(module, name, value)

    for students in (1, 4):
        population = Population(two_layers(), lora(), num_teachers=1, num_students=students)
        visits.append(0)
        with monkeypatch.context() as patch:
            patch.setattr(torch.nn.Module, "__setattr__", noted)
            population.model.eval()
        assert not any(layer.training for layer in population.routing.layers.values())
    assert visits[0] == visits[1] > 0


def test_unrouted_forward_is_the_base(ids):
    population = tiny_population()
    with torch.no_grad():
        assert torch.equal(population.model(ids).logits, two_layers()(ids).logits)


@pytest.mark.slow
def test_routed_rows_equal_plain_peft(ids, tmp_path):
    population = tiny_population()
    population.save(tmp_path)
    with torch.no_grad(), population.route(ROWS):
        routed = population.model(ids).logits
    for i, name in enumerate(ROWS):
        alone = PeftModel.from_pretrained(two_layers(), tmp_path / name)
        with torch.no_grad():
            torch.testing.assert_close(routed[i], alone(ids[i : i + 1]).logits[0], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        NAMES,
        ["student_0"] * 6,
        ["teacher_1", "teacher_0", "teacher_0"],
    ],
)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_routed_gradients_equal_separate_passes(rows, checkpointing):
    ids = torch.randint(3, 200, (len(rows), 9), generator=torch.Generator().manual_seed(2))
    weights = torch.randn(len(rows), generator=torch.Generator().manual_seed(3))

    def loss(population, rows, ids, weights):
        log_probs = population.model(ids).logits.log_softmax(-1)[:, :-1].gather(2, ids[:, 1:, None])
        return (log_probs.mean((1, 2)) * weights).sum()

    together = tiny_population()
    if checkpointing:
        together.model.enable_input_require_grads()
        together.model.gradient_checkpointing_enable({"use_reentrant": False})
        together.model.train()
    with together.route(rows):
        loss(together, rows, ids, weights).backward()
    for name in NAMES:
        own = [i for i, row in enumerate(rows) if row == name]
        alone = tiny_population()
        if own:
            with alone.route([name] * len(own)):
                loss(alone, [name] * len(own), ids[own], weights[own]).backward()
        for got, want in zip(together.parameters(name), alone.parameters(name), strict=True):
            if want.grad is None:
                assert got.grad is None or not got.grad.any()
            else:
                torch.testing.assert_close(got.grad, want.grad, rtol=1e-4, atol=1e-6)


def test_routing_survives_nothing_after_an_error(ids):
    population = tiny_population()
    with pytest.raises(RuntimeError, match="boom"), population.route(ROWS):
        raise RuntimeError("boom")
    with torch.no_grad():
        assert torch.equal(population.model(ids).logits, two_layers()(ids).logits)


def test_routing_refuses_strangers_and_wrong_row_counts(ids):
    population = tiny_population()
    with pytest.raises(ValueError, match="student_7"), population.route(["student_7"]):
        pass
    with pytest.raises(ValueError, match="6 rows while 2"), population.route(["student_0"] * 2):
        population.model(ids)


def test_saved_configs_do_not_depend_on_the_process(tmp_path):
    tiny_population().save(str(tmp_path))
    modules = json.loads((tmp_path / "student_0" / "adapter_config.json").read_text())["target_modules"]
    assert modules == sorted(modules) and len(modules) > 1


def test_save_and_load_round_trip(ids, tmp_path):
    population = tiny_population(noise=0.3)
    factors = population.factors("teacher_1")
    population.replace("student_1", factors, operator="clone", parents=["teacher_1"], step=7)
    population.save(tmp_path)
    again = Population.from_pretrained(tmp_path, two_layers())
    assert dict(again) == dict(population)
    assert again["student_1"].parents == ("teacher_1@0",) and again["student_1"].version == 1
    for name in NAMES:
        for a, b in zip(again.parameters(name), population.parameters(name), strict=True):
            assert torch.equal(a, b)


def test_replace_is_in_place(ids):
    population = tiny_population()
    before = [id(p) for p in population.parameters("student_0")]
    population.write("student_0", population.factors("student_1"))
    assert [id(p) for p in population.parameters("student_0")] == before
    with torch.no_grad(), population.route(["student_0", "student_1"]):
        a, b = population.model(ids[:1].repeat(2, 1)).logits
    torch.testing.assert_close(a, b)
    assert all(p.requires_grad for p in population.parameters("student_0"))


def test_founders_differ_and_do_not_depend_on_the_size_of_the_population():
    small, large = (Population(two_layers(), lora(), num_teachers=1, num_students=n) for n in (1, 3))
    for a, b in zip(small.parameters("student_0"), large.parameters("student_0"), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(large.parameters("student_0")[0], large.parameters("student_1")[0])


@pytest.mark.slow
def test_founders_draw_a_by_their_names_or_share_one():
    def drawn(key: str) -> list[torch.Tensor]:
        model = two_layers()
        torch.manual_seed(zlib.crc32(key.encode()))
        model = get_peft_model(model, lora(task_type="CAUSAL_LM"), adapter_name="one")
        return [p for name, p in model.named_parameters() if "lora_" in name]

    sizes = {"num_teachers": 2, "num_students": 2, "seed": 7, "guests": ["guest_0"]}
    apart, shared = (Population(two_layers(), lora(), **sizes, shared_init=share) for share in (False, True))
    for name in NAMES:
        for founders, key in ((apart, f"7:{name}"), (shared, "7:founders")):
            for a, b in zip(founders.parameters(name), drawn(key), strict=True):
                assert torch.equal(a, b)
        assert all((factor.B == 0).all() and (factor.A != 0).any() for factor in shared.factors(name).values())


def test_random_states_stay_the_callers(monkeypatch):
    """Also those of a GPU that the base is not on yet: a base is often moved there later."""
    base, seeded = two_layers(), []
    monkeypatch.setattr("torch.cuda.manual_seed_all", seeded.append)
    before = torch.get_rng_state()
    Population(base, lora(), num_teachers=1, num_students=1)
    assert torch.equal(torch.get_rng_state(), before) and not seeded


@pytest.mark.parametrize("sizes", [(1, 0, False), (-1, 1, False), (2, 1, True), (0, 1, True)])
def test_sizes_that_are_no_population_are_refused(sizes):
    teachers, students, shared = sizes
    with pytest.raises(ValueError, match=f"num_teachers={teachers}, num_students={students}.*at least one student"):
        Population(two_layers(), lora(), num_teachers=teachers, num_students=students, shared_member=shared)


def test_shared_member_plays_both_roles():
    population = Population(two_layers(), lora(), num_teachers=1, num_students=1, shared_member=True)
    assert list(population) == ["agent_0"]
    assert population.adapter_of("teacher_0") == population.adapter_of("student_0") == "agent_0"


@pytest.mark.parametrize(
    "setting",
    [
        {"r": 0},
        {"lora_alpha": 0},
        {"lora_alpha": float("nan")},
        {"lora_dropout": 0.1},
        {"use_dora": True},
        {"init_lora_weights": "pissa"},  # and others that change the base, or need data
        {"init_lora_weights": "olora"},
        {"alora_invocation_tokens": [1]},
        {"use_qalora": True},
        {"layer_replication": [[0, 1]]},
        {"trainable_token_indices": [1]},
        {"bias": "all"},
        {"lora_bias": True},
        {"rank_pattern": {"q_proj": 2}},
        {"alpha_pattern": {"q_proj": 2}},
        {"modules_to_save": ["lm_head"]},
    ],
)
def test_refuses_lora_settings_it_cannot_honour(setting):
    name = next(iter(setting))
    with pytest.raises(ValueError, match=name if name != "r" else "rank"):
        config = LoraConfig(**(dict(r=4, lora_alpha=8, target_modules="all-linear") | setting))
        Population(two_layers(), config, num_teachers=1, num_students=1)


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        ({"teacher": 1e-4, "student_0": 1e-4}, "none for 'student_1': add its name or 'student'"),
        ({"teacher": 1e-4, "student": float("nan")}, "learning_rate=nan of 'student_0'"),
        (-1e-4, "learning_rate=-0.0001 of 'teacher_0'"),
    ],
)
def test_refuses_learning_rates_that_no_folder_could_hold(rate, words):
    with pytest.raises(ValueError, match=words):
        Population(two_layers(), lora(), num_teachers=1, num_students=2, learning_rate=rate)


@pytest.mark.parametrize("name", ["default", "ref", "a.b", "", "lora_x", "layers", "a/b"])
def test_refuses_names_that_peft_confuses(name):
    with pytest.raises(ValueError, match="not usable"):
        check_names([name], {"model", "layers", "0"})


def test_refuses_a_model_with_adapters():
    """Also one that an earlier population has left, as where a notebook's cell runs again."""
    for model in (tiny_population().model, tiny_population().base_model):
        with pytest.raises(ValueError, match="already carries adapters.* Load the base model again.*initial_adapters"):
            Population(model, lora(), num_teachers=1, num_students=1)


def test_refuses_targets_that_match_nothing():
    for names, words in (
        (
            ["v_proj", "q_porj"],
            r"target_modules=\['q_porj', 'v_proj'\]: the base has no module 'q_porj'. Did you mean 'q_p",
        ),
        (["v_proj", "nothing", "foo"], "no module 'foo', 'nothing'. Take it out"),
    ):
        with pytest.raises(ValueError, match=words):
            Population(two_layers(), lora(target_modules=names), num_teachers=1, num_students=1)
    with pytest.raises(ValueError):
        Population(two_layers(), lora(target_modules=".*nothing"), num_teachers=1, num_students=1)


def test_refuses_adapters_on_an_embedding():
    with pytest.raises(ValueError, match="include .*embed_tokens, an embedding.*take it out"):
        Population(two_layers(), lora(target_modules=["embed_tokens", "q_proj"]), num_teachers=1, num_students=1)


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        ("all-linear", "layers.0.mlp.experts, of a mixture of experts.* name other modules, such as .*'q_proj'"),
        (["gate", "q_proj"], r"layers.0.mlp.gate, of a mixture of experts.* such as \['q_proj'\]"),
        (["gate"], "name other modules[.]"),
    ],
)
def test_refuses_adapters_on_experts_and_their_router(targets, words):
    shape = dict(vocab_size=32, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1)
    experts = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, head_dim=8)
    base = Qwen3MoeForCausalLM(Qwen3MoeConfig(**shape, **experts, pad_token_id=0, bos_token_id=1, eos_token_id=2))
    with pytest.raises(ValueError, match=words):
        Population(base, lora(target_modules=targets), num_teachers=0, num_students=1)


def test_refuses_a_linear_layer_that_returns_more_than_a_tensor(ids):
    class Router(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x), x

    base = two_layers()
    base.model.layers[1].mlp.up_proj = Router(base.config.hidden_size, base.config.intermediate_size)
    population = Population(base, lora(target_modules=["up_proj"]), num_teachers=0, num_students=1)
    message = "include .*layers.1.mlp.up_proj, which returns a tuple"
    with pytest.raises(ValueError, match=message), population.route(["student_0"] * len(ids)):
        population.model(ids)


@pytest.mark.parametrize("targets", [r".*\.(q|v)_proj", ["q_proj", "v_proj"], ["self_attn.q_proj", "v_proj"]])
def test_targets_are_patterns_or_ends_of_paths(targets):
    population = Population(two_layers(), lora(target_modules=targets), num_teachers=1, num_students=1)
    assert {path.rpartition(".")[2] for path in population.factors("student_0")} == {"q_proj", "v_proj"}


def test_write_refuses_foreign_and_broken_factors():
    population = tiny_population()
    factors = population.factors("student_0")
    path = next(iter(factors))
    A, B, scaling = factors[path]
    before = [p.clone() for p in population.parameters("student_0")]
    for broken, text in [
        ({**factors, path: Factor(A[:2], B[:, :2], scaling)}, "shapes"),
        ({**factors, path: Factor(A, B, 1.0)}, "scaling"),
        ({**factors, path: Factor(A * torch.nan, B, scaling)}, "not finite"),
        ({k: v for k, v in factors.items() if k != path}, "different modules"),
    ]:
        with pytest.raises(ValueError, match=text):
            population.write("student_0", broken)
    for a, b in zip(before, population.parameters("student_0"), strict=True):
        assert torch.equal(a, b)


@pytest.mark.slow
def test_load_refuses_another_population(tmp_path):
    tiny_population(1, 1).save(tmp_path / "small")
    with pytest.raises(ValueError, match="num_teachers"):
        tiny_population(2, 2).load(tmp_path / "small")
    with pytest.raises(ValueError, match="not a saved population"):
        tiny_population(1, 1).load(tmp_path)
    table = tmp_path / "small" / "population.json"
    saved = json.loads(table.read_text())
    for change in ({"learning_rate": -1e-5}, {"learning_rate": 1e999}, {"temperature": 0.0}, {"temperature": "hot"}):
        table.write_text(json.dumps(saved | {"members": [row | change for row in saved["members"]]}))
        with pytest.raises(ValueError, match="cannot be read: .*(learning_rate|temperature|str)"):
            tiny_population(1, 1).load(tmp_path / "small")
    table.write_text(json.dumps(saved))
    os.remove(tmp_path / "small" / "student_0" / "adapter_model.safetensors")
    with pytest.raises(ValueError, match="incomplete"):
        tiny_population(1, 1).load(tmp_path / "small")
    table.write_text(json.dumps({"format": 99}))
    with pytest.raises(ValueError, match="format 99"):
        tiny_population(1, 1).load(tmp_path / "small")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lora_alpha": 32}, "its scaling is 2, this population's 8. Its own settings are lora_r: 4, lora_alpha: 8, "),
        ({"use_rslora": True}, "its scaling is 2, this population's 4. .* without rank-stabilised scaling"),
        ({"target_modules": ["q_proj"]}, r"it adapts .*v_proj, this population q_proj\."),
        ({"r": 8}, "it has rank 4, this population 8"),
    ],
)
def test_load_refuses_adapters_of_other_lora_settings(tmp_path, changes, words):
    """With another alpha, every update would be rescaled."""
    tiny_population(1, 1, noise=0.3).save(tmp_path)
    settings = {"r": 4, "lora_alpha": 8} | changes
    other = tiny_population(1, 1, lora_config=lora(**settings))
    before = [p.clone() for p in other.parameters("teacher_0")]
    for method in (other.load, other.check_saved):
        with pytest.raises(ValueError, match=f"teacher_0 does not fit this population: {words}"):
            method(tmp_path)
    assert all(map(torch.equal, before, other.parameters("teacher_0")))


def test_saved_adapters_are_pefts_own_files(tmp_path):
    """Byte for byte those of `save_pretrained`, which reads the whole model for every member."""
    population = Population(two_layers(), lora(), num_teachers=1, num_students=2)
    perturb(population, 0.1)
    population.save(str(tmp_path / "ours"))
    population.model.save_pretrained(
        str(tmp_path / "pefts"), selected_adapters=list(population), save_embedding_layers=False
    )
    for name in population:
        for file in ("adapter_model.safetensors", "adapter_config.json"):
            assert (tmp_path / "ours" / name / file).read_bytes() == (tmp_path / "pefts" / name / file).read_bytes()
