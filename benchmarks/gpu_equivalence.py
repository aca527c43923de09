"""Is routing right on this device? The stage "equivalence" of `gpu.py`: the tests' properties, in bfloat16 too."""

import copy
import json
import os

import torch
import torch.nn.functional as F
from base_shapes import load
from gpu_report import ROOT, Report
from peft import LoraConfig

from trl_populora.evolution import OPERATORS, breed, delta_norm
from trl_populora.population import Factor, Population


ROWS = (0, 1, 1, 2, 2, 2)  # members of the rows; the fourth has none
Gradients = dict[str, list[torch.Tensor]]


def population_of(model: torch.nn.Module) -> Population:
    """Two teachers and two students with an effect, the same for every model of these shapes."""
    lora = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear")
    population = Population(copy.deepcopy(model), lora, num_teachers=2, num_students=2)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name in population:
            for B in population.parameters(name)[1::2]:
                B.copy_(0.02 * torch.randn(B.shape, generator=generator))
    population.model.train()
    population.model.gradient_checkpointing_enable({"use_reentrant": False})
    return population


def backward(population: Population, rows: tuple[int, ...], *, autocast: bool) -> None:
    """Adds the gradients of these rows: the sum of their tokens' losses."""
    names, device = list(population), population.base_model.device
    ids = torch.randint(10, 250, (len(ROWS), 96), generator=torch.Generator().manual_seed(1)).to(device)
    ids = ids[list(rows)]
    with (
        torch.autocast(device.type, torch.bfloat16, enabled=autocast),
        population.route([names[ROWS[i]] for i in rows]),
    ):
        logits = population.base_model(input_ids=ids, use_cache=False).logits[:, :-1]
        F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten(), reduction="sum").backward()


def gathered(population: Population) -> Gradients:
    """Gradients of each member that has some, which are then cleared."""
    found = {}
    for name in population:
        parameters = population.parameters(name)
        if parameters[0].grad is not None:
            found[name] = [p.grad.float() for p in parameters]
        for parameter in parameters:
            parameter.grad = None
    return found


def mixed(population: Population, *, autocast: bool) -> Gradients:
    backward(population, tuple(range(len(ROWS))), autocast=autocast)
    return gathered(population)


def one_by_one(population: Population, *, autocast: bool) -> Gradients:
    for member in sorted(set(ROWS)):
        backward(population, tuple(i for i, own in enumerate(ROWS) if own == member), autocast=autocast)
    return gathered(population)


def distance(found: Gradients, wanted: Gradients) -> float:
    """Largest relative distance of a member's whole gradient (Euclidean); infinite if other members have one."""
    if found.keys() != wanted.keys():
        return float("inf")

    def flat(parts):
        return torch.cat([part.flatten() for part in parts])

    return max(float((flat(found[n]) - flat(wanted[n])).norm() / flat(wanted[n]).norm()) for n in wanted)


def models(report: Report) -> tuple[torch.nn.Module, torch.nn.Module]:
    """A random base in bfloat16, and its weights in float32."""
    torch.manual_seed(0)
    small, _ = load("tiny" if report.toy else "small", report.device, torch.bfloat16)
    return small, copy.deepcopy(small).float()


def gradients(report: Report) -> None:
    """Routed members in one pass against one pass per member."""
    half, full = models(report)
    exact = population_of(full)
    wanted = one_by_one(exact, autocast=False)
    found = distance(mixed(exact, autocast=False), wanted)
    report.number("float32: gradients of mixed members against one pass each, relative", found, most=1e-5)
    population = population_of(half)
    apart = distance(one_by_one(population, autocast=True), wanted)
    together = distance(mixed(population, autocast=True), wanted)
    report.detail("bfloat16 against float32", {"one pass each": apart, "mixed": together})
    what = "bfloat16: error of mixed members (against float32) over that of one pass each"
    report.number(what, together / apart, shown=f"{together / apart:.2f} ({together:.1e} over {apart:.1e})", most=1.25)
    first, second = (mixed(population, autocast=True) for _ in range(2))
    report.number("bfloat16: the same pass twice, by the usual kernels, relative", distance(second, first))


def deterministic(report: Report) -> None:
    """Kernels that add in one order. The usual ones of attention do not, in a backward on a GPU."""
    if report.device.type == "cuda":
        torch.backends.cuda.enable_flash_sdp(False)
        torch.backends.cuda.enable_mem_efficient_sdp(False)
        torch.backends.cuda.enable_cudnn_sdp(False)
        torch.use_deterministic_algorithms(True, warn_only=True)


def isolation(report: Report) -> None:
    """A step changes members with rows only, and a member's gradient does not depend on the weights of others."""
    for autocast, model in zip((True, False), models(report), strict=True):
        name = "bfloat16" if autocast else "float32"
        population = population_of(model)
        before = {n: p.clone() for n, p in population.model.named_parameters()}
        first = next(iter(population))
        alone = mixed(population, autocast=autocast)[first]
        backward(population, tuple(range(len(ROWS))), autocast=autocast)
        torch.optim.AdamW([{"params": population.parameters(n)} for n in population], lr=1e-2).step()
        changed = {n for n, p in population.model.named_parameters() if not torch.equal(p, before[n])}
        allowed = {list(population)[i] for i in ROWS}
        others = [n for n in changed if not any(f".{member}." in n for member in allowed)]
        report.number(f"{name}: tensors changed of members without rows, and of the base", len(others), most=0)
        gathered(population)
        for path, parameter in population.model.named_parameters():
            if f".{first}." in path:
                parameter.data.copy_(before[path])
        again = mixed(population, autocast=autocast)[first]
        largest = max(float((a - b).abs().max()) for a, b in zip(alone, again, strict=True))
        report.number(f"{name}: change of a member's gradient when others have changed", largest, most=0)


@torch.no_grad()
def operators(report: Report) -> None:
    """One child of each operator, of parents on this device and of the same parents on the CPU."""
    population = population_of(models(report)[1])
    here = [population.factors(name) for name in list(population)[:2]]
    there = [{path: Factor(A.cpu(), B.cpu(), scaling) for path, (A, B, scaling) in one.items()} for one in here]
    apart = {}
    for name, operator in OPERATORS.items():
        child, wanted = (breed(name, parents[: operator.num_parents], seed=0) for parents in (here, there))
        difference = {
            path: Factor(torch.cat([C, A.cpu()]), torch.cat([other * D, -scaling * B.cpu()], dim=1), 1.0)
            for (path, (A, B, scaling)), (C, D, other) in zip(child.items(), wanted.values(), strict=True)
        }
        apart[name] = delta_norm(difference) / delta_norm(wanted)
    report.detail("children of the operators", apart)
    worst = max(apart, key=apart.__getitem__)
    what = f"float32: children of {len(apart)} operators against the CPU's, relative"
    report.number(what, apart[worst], shown=f"{apart[worst]:.1e} ({worst})", most=1e-5)


def resume(report: Report) -> None:
    """A run of four rounds with evolution against its continuation from the second, bit for bit.

    With temperatures that evolve, a hall of fame, and a KL term.
    """
    from trl_populora import train

    for bf16 in ("false",) if report.toy else ("true", "false"):
        folder = str(report.path.with_suffix("")) + f"-{bf16}"
        options = ["--num_teachers", "2", "--num_students", "2", "--num_generations", "2", "--max_steps", "4"]
        options += ["--per_device_train_batch_size", "6", "--save_steps", "2", "--evolution_interval", "2"]
        options += ["--eval_strategy", "no", "--seed_tasks", "24", "--max_completion_length", "24", "--bf16", bf16]
        options += ["--evolution_kwargs", json.dumps({"mutate_temperature": True}), "--beta", "0.01"]
        options += ["--hall_of_fame_probability", "0.5"]
        options += [
            "--output_dir",
            folder,
            "--use_cpu",
            str(report.device.type == "cpu").lower(),
            "--disable_tqdm",
            "true",
        ]
        if bf16 == "true":
            options += ["--model_init_kwargs", json.dumps({"dtype": "bfloat16"})]
        weights = []
        for checkpoint in (None, os.path.join(folder, "checkpoint-2")):
            run, args = train.parse(["--config", str(ROOT / "recipes" / "tiny" / "4t4s.yaml"), *options])
            os.makedirs(folder, exist_ok=True)
            _, trainer = train.build(run, args)
            try:
                trainer.train(resume_from_checkpoint=checkpoint)
                population = trainer.population
                weights.append([p.detach().clone() for name in population for p in population.parameters(name)])
                found = {
                    "replacements": len(trainer.lineage),
                    "champions": len(trainer.source.hall),
                    "temperatures": [population[name].temperature for name in population],
                }
            finally:
                trainer.close()
        largest = max(float((a - b).abs().max()) for a, b in zip(*weights, strict=True))
        name = "bfloat16" if bf16 == "true" else "float32"
        report.detail(f"run in {name}", found)
        report.number(f"{name}: adapters of a resumed run against one without a stop", largest, most=0)
