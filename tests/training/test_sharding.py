"""A sharded base computes what a whole one does; run as a script, this file is one process of that comparison."""

import json
import math
import os
import subprocess
import sys
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from tests.tiny import lora, perturb, tiny_model, tiny_population, tiny_tokenizer
from tests.training.conftest import hash_reward
from trl_populora.generation import TransformersSampler
from trl_populora.generation.transformers_sampler import TOKENS_AT_ONCE
from trl_populora.training import PopulationSelfPlayConfig, PopulationSelfPlayTrainer, ranks
from trl_populora.training.ranks import Ranks
from trl_populora.training.sharding import average_gradients, load_sharded, machine_mesh, shard_base


ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROWS = {0: ["teacher_0", "student_0", "student_0"], 1: ["student_0", "student_1", "teacher_0"]}  # teacher_1 nowhere
PRESENT = {"teacher_0", "student_0", "student_1"}


def run(folder, what, *, processes, machines=1):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(processes), "--standalone"]
    done = subprocess.run(
        [*command, os.path.abspath(__file__), what, str(folder), str(machines)],
        env={**os.environ, "PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(processes)]


@pytest.mark.slow
@pytest.mark.parametrize("processes, machines", [(2, 1), (4, 2)])
def test_sharded_base_equals_whole_base(tmp_path, processes, machines):
    records = run(tmp_path, "compare", processes=processes, machines=machines)
    for record in records:
        assert record["losses"]["sharded"] == pytest.approx(record["losses"]["whole"], rel=1e-6)
        assert record["base"]["sharded"] == pytest.approx(record["base"]["whole"], rel=1e-6)
        assert set(record["gradient_errors"]) == PRESENT  # one of them on one rank only, one member nowhere
        assert max(record["gradient_errors"].values()) <= 1e-6
        assert record["texts"]["sharded"] == record["texts"]["whole"]
        assert record["layers_sharded"] and record["adapters_whole"]
        assert record["share"] == pytest.approx(machines / processes, abs=0.02)
        assert record["gradients"] == records[0]["gradients"]  # the same bits on every rank
        assert record["loaded_from_files"] == 0.0
    lengths = [max(map(len, record["texts"]["whole"])) for record in records]
    assert (
        len({-(-length // TOKENS_AT_ONCE) for length in lengths}) > 1
    )  # some rank would make fewer calls of `generate`


@pytest.mark.slow
@pytest.mark.parametrize("what", ["train", "share"])
def test_a_sharded_run_equals_a_whole_one(tmp_path, what):
    """Rounds, KL term, evolution and checkpoints; in 3 and 9 rows, which two processes cannot share evenly."""
    for record in run(tmp_path, what, processes=2):
        assert record["weight_errors"]["sharded"] <= 1e-6
        assert record["weight_errors"]["sharded, resumed from whole"] <= 1e-6
        assert record["base_is_sharded"] and record["lineage"]["whole"]
        for name in ("sharded", "sharded, resumed from whole"):
            assert record["lineage"][name] == record["lineage"]["whole"]
            assert record["texts"][name] == record["texts"]["whole"]


@given(st.integers(0, 40), st.integers(1, 8), st.integers(1, 9))
def test_evenly_shared_work(items, processes, group):
    done, shares = [], []

    def gather(own):
        done.extend(own)
        return [(i, i) for i in range(items)]

    with patch.object(ranks, "gather_object", gather):
        for index in range(processes):
            of_all = Ranks(SimpleNamespace(process_index=index, num_processes=processes))
            of_all.share(range(items), lambda own, places: shares.append(places) or own, evenly=True, group=group)
    assert [len(places) for places in shares] == [math.ceil(items / processes)] * processes
    assert sorted(done) == [(i, i) for i in range(items)]  # what was done twice is handed in once
    if items % (processes * group) == 0:  # then whole groups are possible
        assert all({i // group * group + j for i in own for j in range(group)} == set(own) for own in shares)


def test_a_process_that_slurm_gave_its_own_cores_uses_all_of_them(monkeypatch):
    of_all = Ranks(SimpleNamespace(process_index=0, num_processes=8))
    monkeypatch.setattr(ranks.os, "sched_getaffinity", lambda _: set(range(16)))
    for name, value in {"LOCAL_WORLD_SIZE": "8", "SLURM_NTASKS_PER_NODE": "8", "SLURM_CPUS_PER_TASK": "16"}.items():
        monkeypatch.setenv(name, value)
    assert of_all.cores == 16
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "2")  # the cores are those of all tasks
    assert of_all.cores == 2
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "16")
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "1")  # the processes were started by another launcher inside a task
    assert of_all.cores == 2


def test_server_whose_check_runs_on_one_process_is_refused(config):
    with pytest.raises(ValueError, match="shard_base=true with vllm_mode='server'"):
        config(shard_base=True, use_vllm=True, vllm_mode="server")


@pytest.mark.parametrize("engine", ["DEEPSPEED", "FSDP"])
def test_other_sharding_by_the_launcher_is_refused(config, monkeypatch, engine):
    monkeypatch.setenv(f"ACCELERATE_USE_{engine}", "true")
    with pytest.raises(ValueError, match="MULTI_GPU.*shard_base=true"):
        config()


def test_one_process_is_refused(config):
    with pytest.raises(ValueError, match="only one.*accelerate launch"):
        PopulationSelfPlayTrainer(tiny_model(), hash_reward, config(shard_base=True), peft_config=lora())


def test_quantised_base_is_refused():
    population = tiny_population()
    population.base_model.is_quantized = True
    population.base_model.config.quantization_config = "nf4"
    with pytest.raises(ValueError, match="quantised base .nf4.*quantization_config"):
        shard_base(population, None, device=torch.device("cpu"))


def test_base_without_known_layers_is_refused():
    population = tiny_population()
    population.base_model._no_split_modules = None
    with pytest.raises(ValueError, match="LlamaForCausalLM names no layers"):
        shard_base(population, None, device=torch.device("cpu"))


# One process of the comparison ---------------------------------------------------------------------------------------


def micro_batches(rank):
    """Two of three rows each; the second has the rows of one member less on the odd ranks."""
    generator = torch.Generator().manual_seed(rank)
    return [(torch.randint(3, 250, (3, 12 + 2 * i + rank), generator=generator), ROWS[rank % 2]) for i in range(2)]


def loss_of(model, population, ids, names):
    with population.route(names):
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
    return loss.item()


def train_whole(population, rank):
    """Losses, with gradients averaged by DDP at the last micro-batch, as accelerate does it."""
    model = DistributedDataParallel(population.model, find_unused_parameters=True)
    (first, second) = micro_batches(rank)
    with model.no_sync():
        losses = [loss_of(model, population, *first)]
    return [*losses, loss_of(model, population, *second)]


def train_sharded(population, rank):
    losses = [loss_of(population.model, population, *batch) for batch in micro_batches(rank)]
    average_gradients(population)
    return losses


@torch.no_grad()
def base_loss(population, rank):
    ids, _ = micro_batches(rank)[0]
    return population.model(input_ids=ids, labels=ids).loss.item()


def draw(population, rank):
    """Completions that end at some tokens, early and late, so that ranks finish at different times."""
    sampler = TransformersSampler(population, tiny_tokenizer(), max_completion_length=40, batch_size=2)
    sampler.eos_ids = list(range(2, 20))
    prompts = [[5 + rank, 6, 7][: 1 + i] for i in range(3)]
    return [completion.ids for completion in sampler.draw(prompts, ROWS[rank % 2], [10 * rank + i for i in range(3)])]


def gradient_errors(whole, sharded):
    """Largest relative error of each member's gradients; members without any are left out."""
    errors = {}
    for name in whole:
        pairs = [(p.grad, q.grad) for p, q in zip(whole.parameters(name), sharded.parameters(name), strict=True)]
        if any(a is not None or b is not None for a, b in pairs):
            errors[name] = max(((a - b).norm() / a.norm()).item() for a, b in pairs)
    return errors


def trained(folder, *, shard_base, share_prompts, resume=None):
    """A trainer after three rounds of one teacher and three students, evolution after the second."""
    args = PopulationSelfPlayConfig(
        output_dir=folder,
        num_teachers=1,
        num_students=3,
        prompts_per_teacher=3,
        num_generations=3,
        per_device_train_batch_size=2,
        generation_rows=2,
        max_completion_length=8,
        prompt_style="compact",
        num_references=1,
        task_kwargs={"code_f": {"num_inputs": 4}},
        seed_tasks=8,
        max_steps=3,
        learning_rate=1e-2,
        beta=0.1,
        gradient_checkpointing=True,
        evolution_interval=2,
        evolution_kwargs={"operators": ["clone"]},
        executor_kwargs={"workers": 1},
        use_cpu=True,
        bf16=False,
        save_steps=2,
        report_to="none",
        disable_tqdm=True,
        overwrite_output_dir=True,
        shard_base=shard_base,
        share_prompts=share_prompts,
    )
    trainer = PopulationSelfPlayTrainer(
        tiny_model(), hash_reward, args, processing_class=tiny_tokenizer(), peft_config=lora()
    )
    if resume is None:
        perturb(trainer.population, 0.1)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def train(folder, *, share_prompts):
    whole = trained(os.path.join(folder, "whole"), shard_base=False, share_prompts=share_prompts)
    checkpoint, how = (
        os.path.join(folder, "whole", "checkpoint-2"),
        {"shard_base": True, "share_prompts": share_prompts},
    )
    runs = {
        "whole": whole,
        "sharded": trained(os.path.join(folder, "sharded"), **how),
        "sharded, resumed from whole": trained(os.path.join(folder, "resumed"), **how, resume=checkpoint),
    }
    weights = {
        name: [p.detach() for m in run.population for p in run.population.parameters(m)] for name, run in runs.items()
    }
    record = {
        "weight_errors": {
            name: max(((a - b).norm() / a.norm()).item() for a, b in zip(weights["whole"], own, strict=True))
            for name, own in weights.items()
        },
        "lineage": {name: [event.to_json() for event in run.lineage] for name, run in runs.items()},
        "texts": {name: [row.completion.text for row in run.source.played.rows] for name, run in runs.items()},
        "base_is_sharded": all(
            isinstance(parameter, DTensor)
            for name, parameter in runs["sharded"].population.base_model.named_parameters()
            if "lora_" not in name
        ),
    }
    with open(os.path.join(folder, f"rank{dist.get_rank()}.json"), "w", encoding="utf-8") as file:
        json.dump(record, file)


def compare(folder, machines):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    os.environ["LOCAL_WORLD_SIZE"] = str(world // machines)
    assert machine_mesh(torch.device("cpu")).size() == world // machines
    whole, sharded = tiny_population(), load_sharded(tiny_population, torch.device("cpu"))
    for population in (whole, sharded):
        population.model.gradient_checkpointing_enable({"use_reentrant": False})
        population.model.train()
    record = {
        "texts": {"whole": draw(whole, rank), "sharded": draw(sharded, rank)},
        "base": {"whole": base_loss(whole, rank), "sharded": base_loss(sharded, rank)},
        "losses": {"whole": train_whole(whole, rank), "sharded": train_sharded(sharded, rank)},
        "gradient_errors": gradient_errors(whole, sharded),
    }
    record["gradients"] = [
        parameter.grad.double().sum().item() for name in sorted(PRESENT) for parameter in sharded.parameters(name)
    ]
    base = [p for n, p in sharded.base_model.named_parameters() if "lora_" not in n]
    record["layers_sharded"] = all(isinstance(parameter, DTensor) for parameter in base)
    record["adapters_whole"] = not any(isinstance(p, DTensor) for name in sharded for p in sharded.parameters(name))
    record["share"] = sum(p.to_local().numel() for p in base) / sum(p.numel() for p in base)
    if rank == 0:
        sharded.save(os.path.join(folder, "saved"))
    dist.barrier()
    again = tiny_population(noise=0.0)
    again.load(os.path.join(folder, "saved"))
    record["loaded_from_files"] = max(
        (p - q).abs().max().item()
        for name in again
        for p, q in zip(again.parameters(name), whole.parameters(name), strict=True)
    )
    with open(os.path.join(folder, f"rank{rank}.json"), "w", encoding="utf-8") as file:
        json.dump(record, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1] in ("train", "share"):
        train(sys.argv[2], share_prompts=sys.argv[1] == "share")
    else:
        compare(sys.argv[2], int(sys.argv[3]))
