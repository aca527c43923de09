"""One engine for all tests: it takes half a minute to start."""

import os


os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests import tiny
from trl_populora.population import Population


LLM_KWARGS = {"enforce_eager": True}


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent.name == "vllm_engine":
            item.add_marker(pytest.mark.vllm)


@pytest.fixture(scope="session", autouse=True)
def process_group():
    """One that was there before any engine, as a trainer's is."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.barrier()  # it is still there
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="session")
def engine_model(tmp_path_factory) -> str:
    """Folder of the tiny model with heads of a size that vLLM's attention has on the CPU."""
    folder = str(tmp_path_factory.mktemp("engine_model"))
    tiny.tiny_tokenizer().save_pretrained(folder)
    tiny.two_layers(head_dim=32).save_pretrained(folder)
    return folder


def population_on(folder: str, *, teachers: int, students: int, noise: float = 0.3, **adapters) -> Population:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    population = Population(model, tiny.lora(**adapters), num_teachers=teachers, num_students=students)
    tiny.perturb(population, noise)
    return population


@pytest.fixture(scope="session")
def population(engine_model):
    return population_on(engine_model, teachers=4, students=4)


@pytest.fixture(scope="session")
def tokenizer(engine_model):
    return AutoTokenizer.from_pretrained(engine_model)


@pytest.fixture(scope="session")
def sampler(population, tokenizer):
    """Greedy, so that its tokens can be compared; 8 members, of whom 4 fit into one batch."""
    from trl_populora.generation.engines import EngineSampler, VLLMEngine

    engine = VLLMEngine(max_loras=4, max_model_len=512, max_num_seqs=32, **LLM_KWARGS)
    sampler = EngineSampler(population, tokenizer, engine=engine, max_completion_length=16, temperature=0.0)
    yield sampler
    sampler.close()
