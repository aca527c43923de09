"""The parts of memory that a forecast adds up: a base in 4 bits, and the LM head of an update."""

import math

import pytest
import torch
from transformers import (
    BitsAndBytesConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3MoeConfig,
)

from tests.cli.test_doctor import Live
from tests.tiny import lora
from trl_populora.population import Population
from trl_populora.training.forecast import TILE, Phase, Shapes, disk, lm_head, memory, packed_bytes, phases
from trl_populora.training.stopwatch import Sampling, padded_tokens


SIZES = dict(hidden_size=128, intermediate_size=512, num_hidden_layers=3, vocab_size=TILE[1] + 2000)
CONFIG = LlamaConfig(num_attention_heads=4, num_key_value_heads=2, dtype="bfloat16", **SIZES)
ROUNDS = {"propose": Phase(8, 8, [], 20.0, 20.0, 30.0), "solve": Phase(32, 32, [], 20.0, 20.0, 40.0)}


def test_the_tile_is_that_of_trl():
    from trl.kernels.chunked_logprob import TOKEN_CHUNK_SIZE
    from trl.trainer.utils import _CHUNKED_LOGPROB_CHUNK_SIZE

    assert TILE == (TOKEN_CHUNK_SIZE, _CHUNKED_LOGPROB_CHUNK_SIZE)


@pytest.mark.parametrize(
    ("config", "targets", "words"),
    [
        (CONFIG, ["mlp"], r"lora_target_modules=\['mlp'\] name more than linear layers of the base[.]"),
        (CONFIG, ["embed_tokens"], "model.embed_tokens, an embedding"),
        (Qwen3MoeConfig(num_hidden_layers=1), "all-linear", "model.layers.0.mlp.experts, of a mixture of experts"),
    ],
)
def test_modules_that_a_population_refuses(config, targets, words):
    with pytest.raises(ValueError, match=words):
        Shapes.of(config, targets)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocabulary", [1000, SIZES["vocab_size"]])
def test_the_lm_head_holds_what_is_counted(dtype, vocabulary):
    """Bytes of all tensors alive at once in its forward and backward on a CPU, without Triton."""
    from trl.kernels.chunked_logprob import ChunkedLogProbFunction

    hidden = torch.randn(96, 64, dtype=dtype, requires_grad=True)
    weight, targets, live = torch.randn(vocabulary, 64, dtype=dtype), torch.zeros(96, dtype=torch.long), Live()
    with live:
        outputs = ChunkedLogProbFunction.apply(hidden, weight, None, targets, 1.0, TILE[1], None, 1.0, ("entropy",))
        outputs[0].sum().backward()
    config = LlamaConfig(
        num_attention_heads=4, num_key_value_heads=2, **{**SIZES, "vocab_size": vocabulary, "hidden_size": 64}
    )
    counted = lm_head(Shapes.of(config, "all-linear"), 96, dtype.itemsize, gpu=False)
    assert live.peak == pytest.approx(counted, rel=0.05)


@pytest.mark.slow
def test_an_update_with_its_head_holds_what_is_counted():
    """Four rows of four members, scored as TRL does. Of a layer and the head only one is computed with at a time."""
    from trl.trainer.utils import add_fused_lm_head

    model, live, shapes = LlamaForCausalLM(CONFIG).to(torch.bfloat16), Live(), Shapes.of(CONFIG, "all-linear")
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    population, ids = trained(model, checkpointing=True), torch.ones(4, 64, dtype=torch.long)
    with live, torch.autocast("cpu", torch.bfloat16), population.route(list(population)):
        outputs = population.model(ids, attention_mask=torch.ones_like(ids), labels=ids, fused_lm_head=True)
        outputs.log_probs.sum().backward()
    kept = ids.numel() * shapes.layers * shapes.hidden * 2
    assert live.peak == pytest.approx(kept + lm_head(shapes, ids.numel(), 2, gpu=False), rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing, layers", [(True, 6), (False, 3)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_an_update_without_its_head_holds_what_is_counted(config, dtype, checkpointing, layers):
    sizes = {**SIZES, "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": layers, "vocab_size": 300}
    told = LlamaConfig(num_attention_heads=8, num_key_value_heads=2, dtype=dtype, **sizes)
    model, live, shapes = LlamaForCausalLM(told).to(getattr(torch, dtype)), Live(), Shapes.of(told, "all-linear")
    population, ids = trained(model, checkpointing=checkpointing), torch.ones(4, 512, dtype=torch.long)
    with live, torch.autocast("cpu", torch.bfloat16), population.route(list(population)):
        population.base_model.model(ids, use_cache=False).last_hidden_state.sum().backward()
    settings = {"gradient_checkpointing": checkpointing, "max_completion_length": 512, "bf16": True}
    args = config(**settings, model_init_kwargs={"dtype": dtype})
    parts = memory(shapes, args, {"solve": Phase(32, 32, [], 0.0, 512.0, 0.0)})
    assert live.peak == pytest.approx(parts["activations"] + parts.get("half weights", 0.0), rel=0.1)
    whole = 2 * shapes.linear / (layers if checkpointing else 1)
    assert parts.get("half weights") == (whole if dtype == "float32" else None)


@pytest.mark.slow
def test_a_forward_keeps_the_adapters_that_are_counted(config):
    """What rank 33 keeps more than rank 1, without gradient checkpointing: the stacks of members of both roles."""
    model, ids, kept = LlamaForCausalLM(CONFIG).to(torch.bfloat16), torch.ones(4, 4, dtype=torch.long), []
    shapes = Shapes.of(CONFIG, "all-linear")
    for rank in (1, 33):
        live, population = Live(), trained(model, checkpointing=False, rank=rank)
        with live, torch.autocast("cpu", torch.bfloat16), population.route(list(population)):
            hidden = population.base_model.model(ids, use_cache=False).last_hidden_state
            del hidden
        kept.append(live.peak)
        model = population.model.unload()
    settings = {"gradient_checkpointing": False, "bf16": True, "model_init_kwargs": {"dtype": "bfloat16"}}
    args = [config(lora_r=rank, num_teachers=2, num_students=2, **settings) for rank in (1, 33)]
    rounds = {"solve": Phase(32, 32, [], 0.0, 4.0, 0.0)}
    told = [memory(shapes, one, rounds)["stacks in updates"] for one in args]
    assert kept[1] - kept[0] == pytest.approx(told[1] - told[0], rel=0.1)


def test_tables_of_a_run_on_a_dataset_take_space_too(config):
    args = config(num_teachers=0, num_students=2, per_device_train_batch_size=4, max_steps=10)
    one = args.generation_batch_size * (4 * args.max_completion_length + 200)
    assert disk(Shapes.of(CONFIG, "all-linear"), args, phases(args, None))["rounds"] == 10 * one > 0


def test_completions_as_long_as_seed_tasks_are_no_longer_than_the_limit(config):
    longest, cut = (phases(config(max_completion_length=limit), len) for limit in (10_000, 20))
    assert all(phase.completion > 20 for phase in longest.values())  # characters, counted by len
    assert cut["propose"].completion == 20 >= cut["solve"].completion


def test_champions_take_memory_too(config):
    shapes = Shapes.of(CONFIG, "all-linear")
    alone, guests = (
        memory(shapes, config(hall_of_fame_probability=p, evolution_interval=1), ROUNDS) for p in (0.0, 0.5)
    )
    assert guests["adapters"] == alone["adapters"] * 6 / 4  # two champions beside four members
    same = alone.keys() - {"adapters", "learning", "sampling"}
    assert {name: alone[name] for name in same} == {name: guests[name] for name in same}


def test_two_versions_of_each_adapter_wait_for_an_engine(config):
    """On a GPU in page-locked memory, which PyTorch takes in blocks of a power of two."""
    args, shapes = config(use_vllm=True, vllm_mode="colocate"), Shapes.of(CONFIG, "all-linear")
    parts, name = memory(shapes, args, ROUNDS, gpu=False), "adapters for vLLM (host)"
    assert parts[name] == 2 * parts["adapters"] and name not in memory(shapes, config(), ROUNDS)
    one = parts["adapters"] / (args.num_teachers + args.num_students)
    count = memory(shapes, args, ROUNDS, gpu=True)[name] / 2 / (args.num_teachers + args.num_students)
    assert one <= count < 2 * one and count == 2 ** round(math.log2(count))
    server = config(use_vllm=True, vllm_mode="server", vllm_server_base_url="http://localhost:1")
    assert name not in memory(shapes, server, ROUNDS)


@pytest.mark.parametrize("every, limit, kept", [(4, None, 3), (5, None, 2), (4, 1, 2), (0.25, None, 4)])
def test_checkpoints_take_space(config, every, limit, kept):
    """One more than the limit, while the next one is written."""
    settings = dict(save_strategy="steps", save_steps=every, save_total_limit=limit, max_steps=10)
    space = disk(Shapes.of(CONFIG, "all-linear"), config(**settings), ROUNDS)
    assert space["checkpoints"] == kept * space["adapters"] * 3  # weights and two moments
    assert disk(Shapes.of(CONFIG, "all-linear"), config(max_steps=10), ROUNDS)["checkpoints"] == 0


@pytest.mark.parametrize("targets", ["all-linear", ["c_attn"]])
def test_the_layers_of_gpt2_count(targets):
    """They are no `nn.Linear`."""
    sizes = GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=300)
    population = Population(GPT2LMHeadModel(sizes), lora(target_modules=targets), num_teachers=1, num_students=1)
    weights = sum(p.numel() for p in population.parameters("student_0"))
    assert Shapes.of(sizes, targets).adapted * 4 == weights


def test_a_base_that_names_no_heads_of_keys_has_one_for_each_head():
    sizes = dict(hidden_size=64, intermediate_size=256, num_hidden_layers=3, vocab_size=300)
    assert Shapes.of(GPTNeoXConfig(num_attention_heads=4, **sizes), "all-linear").cached == 2 * 3 * 64


def trained(model, *, checkpointing, rank=1) -> Population:
    population = Population(model, lora(rank), num_teachers=2, num_students=2)
    population.model.train()
    if checkpointing:
        population.model.gradient_checkpointing_enable({"use_reentrant": False})
    return population


def test_a_packed_base(config):
    """Its part is smaller, one matrix is unpacked beside it, and everything else is as without."""
    wanted = {"load_in_4bit": True, "bnb_4bit_use_double_quant": True}
    assert packed_bytes(None) is None
    assert packed_bytes({"load_in_4bit": True}) == 0.5 + 4 / 64
    assert packed_bytes(wanted) == packed_bytes(BitsAndBytesConfig(**wanted)) == 0.5 + (1 + 4 / 256) / 64
    assert packed_bytes({"load_in_8bit": True}) == 1.0
    with pytest.raises(ValueError, match="gptq.*is not known"):
        packed_bytes({"quant_method": "gptq"})
    shapes = Shapes.of(CONFIG, ["q_proj"])
    layer = 2 * 128 * 128 + 2 * 128 * 64 + 3 * 128 * 512
    assert (shapes.linear, shapes.widest) == (3 * layer, 128 * 512)
    plain = memory(shapes, config(model_init_kwargs={"dtype": "bfloat16"}), ROUNDS)
    packed = memory(shapes, config(model_init_kwargs={"dtype": "bfloat16", "quantization_config": wanted}), ROUNDS)
    assert packed.pop("unpacked weights") == 2 * shapes.widest
    saved = shapes.linear * (2 - packed_bytes(wanted))
    assert plain["base"] - packed["base"] == pytest.approx(saved)
    for peak in ("learning", "sampling"):
        assert plain[peak] - packed[peak] == pytest.approx(saved - 2 * shapes.widest)
    same = plain.keys() - {"base", "learning", "sampling"}
    assert {name: plain[name] for name in same} == {name: packed[name] for name in same}


def test_a_divided_base_is_not_only_its_share(config):
    """Embeddings, LM head and two layers are whole on each process, as docs/scaling.md has it."""
    shapes, four = Shapes.of(CONFIG, ["q_proj"]), {"processes": 4}
    whole, divided = (memory(shapes, config(shard_base=shard), ROUNDS, **four) for shard in (False, True))
    model = LlamaForCausalLM(CONFIG)
    ends = [model.lm_head, model.model.embed_tokens, model.model.norm, *model.model.layers[:2]]
    gathered = sum(p.numel() for part in ends for p in part.parameters())
    assert divided["base"] == whole["base"] / 4 + 4 * gathered


@pytest.mark.parametrize(
    ("optim", "moments"), [("adamw_8bit", 0.5), ("ademamix", 3.0), ("ademamix_8bit", 0.75), ("lion_8bit", 0.25)]
)
def test_moments_of_optimizers(config, optim, moments):
    """In float32 weights, as counted in bitsandbytes 0.50, without the scales of its blocks."""
    parts = memory(Shapes.of(CONFIG, ["q_proj"]), config(optim=optim), ROUNDS)
    assert parts["optimizer"] == moments * parts["adapters"]


@pytest.mark.slow
@pytest.mark.parametrize("nested", [True, False])
def test_a_packed_base_is_as_large_as_counted(tmp_path, nested):
    bitsandbytes = pytest.importorskip("bitsandbytes", reason="pip install 'trl-populora[quantized]'")
    LlamaForCausalLM(CONFIG).to(torch.bfloat16).save_pretrained(tmp_path)
    settings = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": nested}
    model = LlamaForCausalLM.from_pretrained(
        tmp_path, quantization_config=BitsAndBytesConfig(**settings), dtype=torch.bfloat16
    )
    size = 0
    for module in model.modules():
        for own in module.parameters(recurse=False):
            size += own.nbytes
        if isinstance(module, bitsandbytes.nn.Linear4bit):
            state = module.weight.quant_state
            size += state.absmax.nbytes + (state.state2.absmax.nbytes if state.nested else 0)
    shapes = Shapes.of(CONFIG, "all-linear")
    counted = (shapes.parameters - shapes.linear) * 2 + shapes.linear * packed_bytes(settings)
    assert size == pytest.approx(counted, rel=1e-3)


@pytest.mark.parametrize("unlimited", [64.0, 512.0, 2048.0, math.inf])
def test_a_round_is_expected_to_learn_from_as_many_tokens_as_it_samples(config, unlimited):
    """Without padding. Most rows that end late are cut at the limit, once."""
    args = config(per_device_train_batch_size=1, max_completion_length=256)
    rounds = {"solve": Phase(4000, 4000, [], 20.0, 20.0, 40.0)}
    sampled = Sampling(start=1.0, step=0.1, rows=64, batches=1, unlimited=unlimited, limit=256)
    assert padded_tokens(args, rounds, {"solve": unlimited}) / 4000 == pytest.approx(20 + sampled.mean, rel=0.02)


def test_a_type_with_few_seed_tasks_is_forecast(config):
    few = config(task_types=["tests.adding:Adding"], task_kwargs={"adding": {"largest": 1}}, seed_tasks=2)
    assert [phase.rows for phase in phases(few, len).values()] == [4, 8]
