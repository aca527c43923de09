"""Run by test_engine_sampler.py under torch.distributed: a sampler on each of two ranks, and what each saw."""

import json
import os
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from tests.generation.engine_double import EngineDouble
from tests.generation.test_engine_sampler import PROMPTS, population_of
from tests.tiny import tiny_tokenizer
from trl_populora.generation import EngineSampler, TransformersSampler
from trl_populora.generation.engines import EngineError
from trl_populora.training.sharding import machine_mesh, shard_base


def drawing_together(engine):
    """As with tensor parallelism: no rank's call returns before the other rank has made it, too."""
    generate = engine.generate

    def together(rows, sampling):
        assert len(set(gather_object([len(rows)]))) == 1
        return generate(rows, sampling)

    engine.generate = together


def change(population):
    with torch.no_grad():
        population.parameters("student_0")[1].add_(0.2)


def refuses(*_):
    raise EngineError("out of memory")


def failure_of(sampler):
    try:
        sampler.sync()
    except EngineError as error:
        return f"{type(error).__name__}: {error}"
    return None


def make(population, accelerator, folder, **attributes):
    engine = EngineDouble()
    for name, value in attributes.items():
        setattr(engine, name, value)
    return EngineSampler(
        population,
        tiny_tokenizer(),
        engine=engine,
        accelerator=accelerator,
        max_completion_length=4,
        temperature=0.0,
        adapter_dir=folder,
    )


def main(folder: str) -> None:
    accelerator = Accelerator(cpu=True)
    rank, files = accelerator.process_index, os.path.join(folder, "adapters")
    os.makedirs(files, exist_ok=True)
    population = population_of(1, 1)
    sampler = make(population, accelerator, files)
    sampler.sync()
    greedy = TransformersSampler(population, tiny_tokenizer(), max_completion_length=4, temperature=0.0)
    names = ["teacher_0", "student_0"]
    record = {"loaded": [[version.name, version.path] for version in sampler.engine.history]}
    share = slice(0, 2) if rank == 0 else slice(0, 0)
    record["drawn"] = [list(c.ids) for c in sampler(PROMPTS[share], names[share], seed=0)]
    record["own"] = [list(c.ids) for c in sampler(PROMPTS[:2], names, seed=0)]
    record["expected"] = [list(c.ids) for c in greedy(PROMPTS[:2], names, seed=0)]
    change(population)
    if rank == 1:
        sampler.engine.generate = refuses
    record["refusal"] = failure_of(sampler)
    sampler.close()

    sampler = make(population, accelerator, files)
    drawing_together(sampler.engine)
    sampler.sync()
    sampler.canary.base_error, calls = 0.0015, len(sampler.engine.calls)
    change(population)
    sampler.engine.rounding = (0, 0.01 * rank)
    record["doubt"] = [failure_of(sampler), len(sampler.engine.calls) - calls]
    sampler.engine.rounding, sampler.engine.stale = (0, 0), rank == 1
    change(population)
    record["failure"] = failure_of(sampler)
    sampler.close()
    sharded = population_of(1, 1)
    shard_base(sharded, machine_mesh(torch.device("cpu")), device=torch.device("cpu"))
    record["sharded"] = []
    for broken in ({}, {"generate": refuses}, {"load": refuses}, {"stale": True}):
        sampler = make(sharded, accelerator, files)
        sampler.sync()
        for name, value in broken.items() if rank == 1 else ():
            setattr(sampler.engine, name, value)
        change(sharded)
        record["sharded"].append(failure_of(sampler))
        sampler.close()
    sampler = make(population, accelerator, files, in_memory=True)
    drawing_together(sampler.engine)
    change(population)
    record["in memory"] = [failure_of(sampler), [[version.name, version.id] for version in sampler.serving.values()]]
    if rank == 1:
        change(population)
    record["apart"] = failure_of(sampler)
    if rank == 0:
        change(population)
    record["together"] = failure_of(sampler)
    sampler.close()
    server = make(population, accelerator, files, everywhere=False, rounding=(1e-3, 1e-3))
    record["base_error"] = server.canary.base_error
    server.sync()
    record["server"] = len(server.engine.history)
    server.close()
    accelerator.wait_for_everyone()
    record["folders"] = len(os.listdir(files))
    with open(os.path.join(folder, f"rank{rank}.json"), "w", encoding="utf-8") as file:
        json.dump(record, file)


if __name__ == "__main__":
    main(sys.argv[1])
