"""The settings of vLLM: what is refused, what its engine gets, and whether it is in the trainer's process."""

import os
import sys
from types import SimpleNamespace

import pytest
import torch

from tests.generation.engine_double import base_model
from tests.generation.test_engine_sampler import population_of
from tests.tiny import tiny_tokenizer
from trl_populora.generation import EngineSampler, vllm_sampler
from trl_populora.generation.engines import EngineSpec, VLLMEngine
from trl_populora.generation.engines.vllm_engine import log_version


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"vllm_mode": "inline"}, "vllm_mode='inline' is unknown"),
        ({"vllm_enable_sleep_mode": True}, "vllm_enable_sleep_mode"),
        ({"vllm_enable_sleep_mode": True, "vllm_mode": "server"}, "vllm_enable_sleep_mode"),
        ({"vllm_max_loras": 0}, "vllm_max_loras=0 must be at least 1"),
        ({"vllm_adapter_dir": "/proc/nowhere"}, "adapter_dir='/proc/nowhere' cannot be written"),
        ({"vllm_mode": "server", "shard_base": True}, "shard_base=true with a server"),
        ({"vllm_engine_kwargs": {"seed": 1, "dtype": "half"}}, "vllm_engine_kwargs must leave dtype, seed out"),
        ({"vllm_mode": "server", "vllm_engine_kwargs": {"max_num_seqs": 1}}, "the server's command"),
    ],
)
def test_bad_settings_are_refused(settings, said, monkeypatch):
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")  # tests with vLLM set it to 0
    with pytest.raises(ValueError, match=said):
        vllm_sampler(population_of(1, 1), tiny_tokenizer(), None, settings_of(**settings))


def test_engines_on_several_machines_need_a_folder_that_all_see(monkeypatch):
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    accelerator = SimpleNamespace(num_processes=4)
    with pytest.raises(ValueError, match="2 of 4 processes on this machine.* Set vllm_adapter_dir"):
        vllm_sampler(population_of(1, 1), tiny_tokenizer(), accelerator, settings_of())


def test_engines_that_take_weights_from_memory_need_no_folder(monkeypatch):
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    with pytest.raises(ValueError, match="vllm_adapter_dir='/shared' is for servers.*Leave it out"):
        vllm_sampler(population_of(1, 1), tiny_tokenizer(), None, settings_of(vllm_adapter_dir="/shared"))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setattr(EngineSampler, "__init__", lambda self, *_, engine, **__: setattr(self, "engine", engine))
    accelerator = SimpleNamespace(num_processes=4)
    assert vllm_sampler(population_of(1, 1), tiny_tokenizer(), accelerator, settings_of()).engine.in_memory


@pytest.mark.parametrize(
    ("gpu", "variable", "backend", "in_memory"),
    [
        (True, None, None, True),
        (True, None, "mp", False),
        (True, None, "uni", False),
        (False, None, None, False),
        (False, "1", None, False),
        (False, "0", None, True),
        (False, "0", "mp", False),
        (True, None, "none", False),
        (False, "0", "none", True),
    ],
)
def test_which_engines_are_in_this_process(monkeypatch, gpu, variable, backend, in_memory):
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    monkeypatch.delenv("VLLM_ENABLE_V1_MULTIPROCESSING", raising=False)
    if variable:
        monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", variable)
    settings = {} if backend is None else {"distributed_executor_backend": {"none": None}.get(backend, backend)}
    assert VLLMEngine(**settings).in_memory is in_memory
    for size in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
        assert VLLMEngine(**settings, **{size: 2}).in_memory is (gpu and backend is None), "workers elsewhere"


def settings_of(**settings):
    common = dict(
        max_completion_length=6, temperature=1.0, top_p=1.0, top_k=0, min_p=None, prompt_template="chat",
        chat_template_kwargs=None,
        completions_per_round=8, trust_remote_code=False, shard_base=False, vllm_mode="colocate", vllm_max_loras=None,
        vllm_adapter_dir=None, vllm_server_base_url="http://localhost:9", vllm_server_base_urls=None,
        vllm_server_timeout=0.1,
        vllm_tensor_parallel_size=1, vllm_gpu_memory_utilization=0.3, vllm_max_model_length=None,
        vllm_enable_sleep_mode=False, vllm_model_impl="auto", vllm_engine_kwargs=None, max_row_tokens=100,
        model_init_kwargs=None,
    )  # fmt: skip
    return SimpleNamespace(**(common | settings))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"max_num_seqs": 8, "max_model_len": 100, "gpu_memory_utilization": 0.3}),
        ({"completions_per_round": 1728}, {"max_num_seqs": 256}),
        ({"max_row_tokens": 10**6}, {"max_model_len": base_model().config.max_position_embeddings}),
        ({"max_row_tokens": None}, {"max_model_len": None}),
        ({"vllm_max_model_length": 77}, {"max_model_len": 77}),
        ({"vllm_engine_kwargs": {"max_num_seqs": 3, "swap_space": 1}}, {"max_num_seqs": 3, "swap_space": 1}),
        ({"model_init_kwargs": {"revision": "v1"}}, {"revision": "v1", "tokenizer_revision": "v1"}),
    ],
)
def test_an_engine_is_as_large_as_the_rows_and_can_be_tuned(monkeypatch, settings, expected):
    monkeypatch.setattr(EngineSampler, "from_args", lambda *_, engine, **__: engine)
    engine = vllm_sampler(population_of(1, 1), tiny_tokenizer(), None, settings_of(**settings))
    assert engine.engine_kwargs.items() >= expected.items()


@pytest.mark.parametrize(
    ("version", "second_runner", "level"),
    [("0.31.0+cpu", False, "INFO"), ("0.31.0", True, "WARNING"), ("0.30.0", False, "WARNING")],
)
def test_which_vllm_answers_is_told(caplog, version, second_runner, level):
    with caplog.at_level("INFO"):
        log_version(version, second_runner=second_runner)
    (record,) = caplog.records
    assert record.levelname == level
    tested = "0.25.1 by model runner V1, 0.31.0 by model runner V1"
    told = f"vLLM {version} by model runner V{1 + second_runner}; tested: {tested}."
    assert record.getMessage() == told


def test_a_base_without_a_folder_is_refused():
    with pytest.raises(ValueError, match="made in memory; vLLM needs a folder"):
        VLLMEngine().start(EngineSpec("", "", torch.float32, 4, 2))


def test_adapters_in_float32_on_a_gpu_are_refused(monkeypatch):
    """vLLM's kernels for LoRA on a GPU would end with an assertion that names nothing."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    with pytest.raises(ValueError, match="base in float32: on a GPU.*bf16=true"):
        VLLMEngine().start(EngineSpec("a folder", "", torch.float32, 4, 2))


def test_vllm_serves_the_adapted_layers_and_changes_nothing_else(monkeypatch):
    given = {}

    class Stub:
        def __init__(self, **settings):
            given.update(settings, ranks={name: os.environ.get(name) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")})
            torch.manual_seed(settings["seed"])
            raise RuntimeError("no engine here")

    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=Stub))
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    before, drawn = dict(os.environ), torch.random.get_rng_state()
    spec = EngineSpec("a folder", "", torch.bfloat16, 4, 2, targets=("q_proj", "v_proj"), packed=True)
    with pytest.raises(ValueError, match="base in 4 or 8 bits.*'quantization': 'bitsandbytes'"):
        VLLMEngine().start(spec)
    with pytest.raises(RuntimeError, match="no engine here"):
        VLLMEngine(lora_target_modules=["q_proj"], quantization="bitsandbytes").start(spec)
    assert given["lora_target_modules"] == ["q_proj"] and given["quantization"] == "bitsandbytes"  # given by hand
    given.clear()
    with pytest.raises(RuntimeError, match="no engine here"):
        VLLMEngine().start(spec._replace(packed=False))
    assert given["lora_target_modules"] == ["q_proj", "v_proj"] and "quantization" not in given
    assert given["ranks"] == {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    assert dict(os.environ) == before and torch.equal(torch.random.get_rng_state(), drawn)
