"""A base in 4 bits: members learn on it as on its weights unpacked, in float32, and are evaluated on it."""

import copy
import json
import os
import sys
from types import SimpleNamespace

import pytest
import torch
from transformers import BitsAndBytesConfig, LlamaForCausalLM

from tests.tiny import lora, perturb, tiny_model, tiny_tokenizer
from tests.training.conftest import build_trainer, make_config
from trl_populora.cli import main
from trl_populora.cli.opening import load_base, recorded_quantization
from trl_populora.generation import TransformersSampler
from trl_populora.population import Population
from trl_populora.run_files.run import open_run
from trl_populora.training.quantized import completed, keep_gradients


try:
    import bitsandbytes
except ImportError:
    bitsandbytes = None
needs_bitsandbytes = pytest.mark.skipif(
    bitsandbytes is None, reason="bitsandbytes is not installed: pip install 'trl-populora[quantized]'"
)
NF4 = {"load_in_4bit": True, "bnb_4bit_use_double_quant": True}
SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> str:
    folder = str(tmp_path_factory.mktemp("base"))
    tiny_model(**SIZES).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def packed(base) -> LlamaForCausalLM:
    config = BitsAndBytesConfig(**completed(NF4, dtype="float32"))
    return LlamaForCausalLM.from_pretrained(base, quantization_config=config, dtype=torch.float32)


def unpacked(model, base) -> LlamaForCausalLM:
    """The same weights, each matrix in float32."""
    plain = LlamaForCausalLM.from_pretrained(base, dtype=torch.float32)
    count = 0
    for name, module in model.named_modules():
        if isinstance(module, bitsandbytes.nn.Linear4bit):
            weight = bitsandbytes.functional.dequantize_4bit(module.weight.data, module.weight.quant_state)
            plain.get_submodule(name).weight.data.copy_(weight)
            count += 1
    assert count == 14  # seven in each of two layers
    return plain


def populations(base) -> list[Population]:
    model = packed(base)
    plain = unpacked(model, base)
    assert not torch.equal(
        plain.model.layers[0].mlp.up_proj.weight, tiny_model(**SIZES).model.layers[0].mlp.up_proj.weight
    )
    made = []
    for one in (model, plain):
        keep_gradients(one)
        made.append(Population(one, lora(), num_teachers=2, num_students=2))
        perturb(made[-1], 0.1)
    return made


def gradients(population, *, checkpointing=False, autocast=False) -> dict[str, torch.Tensor]:
    population.model.train()
    if checkpointing:
        population.model.gradient_checkpointing_enable({"use_reentrant": False})
    names = list(population)
    ids = torch.randint(3, 250, (6, 12), generator=torch.Generator().manual_seed(1))
    with population.route([names[i] for i in (0, 1, 1, 2, 2, 2)]):  # the fourth has no row
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logits = population.base_model(ids).logits.float()
        torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
    found = {}
    for name in names:
        parts = [p.grad for p in population.parameters(name)]
        found[name] = None if parts[0] is None else torch.cat([part.flatten() for part in parts])
    return found


@pytest.mark.slow
@needs_bitsandbytes
@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients_are_those_on_the_unpacked_weights(base, checkpointing):
    """Relative to the largest entry, in float32, also after the base has sampled."""
    small, large = populations(base)
    prompts = [[{"role": "user", "content": text}] for text in ("abc", "de", "fghi", "j")]
    drawn = []
    for population in (small, large):
        sampler = TransformersSampler(population, tiny_tokenizer(), max_completion_length=6, temperature=0.0)
        drawn.append([one.ids for one in sampler(prompts, list(population), seed=0)])
    assert drawn[0] == drawn[1]
    ours, wanted = (gradients(population, checkpointing=checkpointing) for population in (small, large))
    for name, gradient in wanted.items():
        if name == "student_1":
            assert gradient is None and ours[name] is None
        else:
            assert gradient.abs().max() > 0
            assert (ours[name] - gradient).abs().max() <= 1e-5 * gradient.abs().max(), name


@needs_bitsandbytes
def test_under_autocast_the_update_is_near_that_in_float32(base):
    """A layer in 4 bits answers in the dtype of its input, so hidden states stay float32 under autocast."""
    small, _ = populations(base)
    wanted = gradients(small)
    small.model.zero_grad()
    ours = gradients(small, autocast=True)
    for name, gradient in wanted.items():
        if gradient is not None:
            assert (ours[name] - gradient).norm() <= 0.05 * gradient.norm(), name


def trained(folder, base, **changes):
    config = make_config(folder, model_init_kwargs={"quantization_config": NF4}, **changes)
    return build_trainer(config, model=base, noise=0.1)


def weights(trainer) -> dict[str, list[torch.Tensor]]:
    return {name: copy.deepcopy(trainer.population.parameters(name)) for name in trainer.population}


@needs_bitsandbytes
@pytest.mark.slow
def test_a_run_with_evolution_and_its_continuation(tmp_path, base):
    changes = dict(max_steps=3, save_strategy="steps", save_steps=1, evolution_interval=2, gradient_checkpointing=True)
    trainer = trained(tmp_path, base, **changes)
    try:
        before = weights(trainer)
        frozen = {n: p.clone() for n, p in trainer.population.base_model.named_parameters() if ".lora_" not in n}
        assert sum(p.dtype == torch.uint8 for p in frozen.values()) == 14
        trainer.train()
        after = weights(trainer)
        assert len(trainer.lineage) > 0
        trainer.save_model()
    finally:
        trainer.close()
    for name, own in after.items():
        assert {p.dtype for p in own} == {torch.float32}
        assert any(not torch.equal(p, q) for p, q in zip(own, before[name], strict=True)), name
    kept = dict(trainer.population.base_model.named_parameters())
    assert all(torch.equal(kept[name], p) for name, p in frozen.items())
    again = trained(tmp_path, base, **changes)
    try:
        again.train(resume_from_checkpoint=os.path.join(again.args.output_dir, "checkpoint-1"))
        for name, own in weights(again).items():
            assert all(torch.equal(p, q) for p, q in zip(own, after[name], strict=True)), name
    finally:
        again.close()


@pytest.mark.slow
@needs_bitsandbytes
def test_evaluation_uses_the_base_as_it_was_trained_on(tmp_path, base):
    trainer = trained(tmp_path, base, max_steps=1)
    try:
        trainer.train()
        trainer.save_model()
    finally:
        trainer.close()
    run = open_run(trainer.args.output_dir)
    model, _ = load_base(run.base, quantization=recorded_quantization(run))
    assert model.is_quantized and model.config.quantization_config.bnb_4bit_quant_type == "nf4"
    assert recorded_quantization(open_run(trainer.args.output_dir, base=str(tmp_path))) is None
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["quantization"]["load_in_4bit"] is True


@needs_bitsandbytes
def test_an_adapter_is_not_merged_into_a_base_that_is_quantised_on_disk(tmp_path, base, capsys):
    packed(base).save_pretrained(tmp_path / "packed")
    population = Population(tiny_model(**SIZES), lora(), num_teachers=1, num_students=1)
    population.name_base(str(tmp_path / "packed"))
    population.save(str(tmp_path / "run"))
    argv = ["export", str(tmp_path / "run"), "--member", "student_0", "--merge", "--output", str(tmp_path / "merged")]
    assert main(argv) == 2 and "in full precision with --base" in capsys.readouterr().err
    assert main([*argv, "--base", base]) == 0


def test_settings_are_completed_like_those_of_trl(monkeypatch):
    monkeypatch.setattr("trl_populora.training.quantized.require", lambda module, user: None)
    assert completed({"load_in_4bit": True}, dtype="bfloat16") == {
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_compute_dtype": "bfloat16",
    }
    chosen = {"load_in_4bit": True, "bnb_4bit_quant_type": "fp4", "bnb_4bit_compute_dtype": "float16"}
    assert completed(chosen, dtype="bfloat16") == chosen
    assert completed({"load_in_4bit": True}, dtype="auto")["bnb_4bit_compute_dtype"] == "bfloat16"
    for other in (None, {"load_in_8bit": True}, BitsAndBytesConfig(load_in_4bit=True)):
        assert completed(other, dtype="float32") is other


@pytest.mark.parametrize("given", [{"load_in_4bit": True}, BitsAndBytesConfig(load_in_4bit=True)])
def test_a_missing_package_is_named(monkeypatch, given):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(ValueError, match=r"needs bitsandbytes.*trl-populora\[quantized\]"):
        completed(given, dtype="float32")


def test_weights_that_let_no_gradient_through_are_refused():
    model = tiny_model()
    keep_gradients(model)
    layer = model.model.layers[0].mlp.up_proj
    layer.support_avx512bf16_for_cpu = True
    keep_gradients(model)
    assert layer.support_avx512bf16_for_cpu is False
    layer.weight.quant_state = SimpleNamespace(packing_format_for_cpu=True)
    with pytest.raises(ValueError, match="up_proj.*lets no gradient through. Load it again"):
        keep_gradients(model)
