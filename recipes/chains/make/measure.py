"""What a model can do in the world of chains: answers by depth, other types, and what it proposes.

python -m recipes.chains.make.measure recipes/chains/base
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence

from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from recipes.chains.exams import MAX_COMPLETION_LENGTH, chain_tasks
from recipes.chains.make.rows import KIND_SHARES, TASK_KWARGS, families
from trl_populora.executor import Executor
from trl_populora.generation import TransformersSampler
from trl_populora.population import Population
from trl_populora.self_play.sampling import SampleFunc
from trl_populora.tasks import Referee, Refusal, Run, Task, TaskBuffer, TaskType, make_task_types
from trl_populora.tasks.code.families.chains import KINDS, depth


logger = logging.getLogger(__name__)

SEED = 424_242  # apart from the seeds of trainings and exams


def measure(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    per_depth: int = 48,
    tasks: int = 96,
    kinds: Sequence[str] = tuple(KIND_SHARES),
    task_types: Sequence[str] = ("code_o", "code_i", "code_f"),
) -> dict[str, object]:
    """
    Shares of right answers and of valid proposals, of the model without any adapter.

    Args:
        model ([`~transformers.PreTrainedModel`]): The model. It must not hold adapters.
        tokenizer ([`~transformers.PreTrainedTokenizerBase`]): Its tokenizer.
        per_depth (`int`, *optional*, defaults to 48): Tasks of each depth.
        tasks (`int`, *optional*, defaults to 96): Proposals of each type, and tasks of each type beside `code_o`.
        kinds (`Sequence[str]`, *optional*): Names of the kinds of state; all by default.
        task_types (`Sequence[str]`, *optional*): Ids of task types; all that the world has by default.

    Returns:
        `dict`: `greedy`, `sampled` and `held_out` (sampled): depth -> share of `code_o` tasks solved. `others`: type
        -> share solved, sampled. `proposing`: type -> share of valid ones, mean and greatest depth, and reasons for
        refusals. `tasks_per_depth`, and `error`, the largest standard error of a share of that many.
    """
    lora = LoraConfig(r=1, target_modules="all-linear", lora_dropout=0.0)
    population = Population(model, lora, num_teachers=1, num_students=1)
    types = make_task_types(task_types, style="compact", kwargs=TASK_KWARGS)
    chosen = [kind for kind in KINDS if kind.name in kinds]
    settings = {"max_completion_length": MAX_COMPLETION_LENGTH, "batch_size": 144}
    greedy, sampled = (TransformersSampler(population, tokenizer, temperature=t, **settings) for t in (0.0, 1.0))
    known, held_out = (
        chain_tasks(held_out=one, per_kind=per_depth // len(chosen), seed=SEED, kinds=chosen) for one in (False, True)
    )
    seeds = {name: one.seeds(tasks, seed=SEED, families=families(kinds)) for name, one in types.items()}
    with Executor() as executor:
        run = executor.run_many
        return {
            "greedy": _by_depth(known, types, greedy, run),
            "sampled": _by_depth(known, types, sampled, run),
            "held_out": _by_depth(held_out, types, sampled, run),
            "others": {name: _others(drawn, types, sampled, run) for name, drawn in seeds.items() if name != "code_o"},
            "proposing": {name: _proposing(types[name], seeds, types, sampled, run) for name in types},
            "tasks_per_depth": per_depth,
            "error": round(math.sqrt(0.25 / per_depth), 3),
        }


def _by_depth(
    tasks: Mapping[int, Sequence[Task]], types: Mapping[str, TaskType], sampler: SampleFunc, run: Run
) -> dict[str, float]:
    every = [task for group in tasks.values() for task in group]
    solved = dict(zip([task.id for task in every], _solved(every, types, sampler, run), strict=True))
    return {str(level): _share([solved[task.id] for task in group]) for level, group in tasks.items()}


def _others(drawn: Sequence[Task], types: Mapping[str, TaskType], sampler: SampleFunc, run: Run) -> dict[str, float]:
    solved = _solved(drawn, types, sampler, run)
    depths = [min(depth(task.payload.program), 7) for task in drawn]
    levels = {"1 to 2": (1, 2), "3 to 6": (3, 6), "7 to 12": (7,)}
    return {name: _share([s for s, d in zip(solved, depths, strict=True) if d in ds]) for name, ds in levels.items()}


def _solved(tasks: Sequence[Task], types: Mapping[str, TaskType], sampler: SampleFunc, run: Run) -> list[bool]:
    prompts = [types[task.type].solve_prompt(task) for task in tasks]
    texts = [one.text for one in sampler(prompts, [None] * len(prompts), seed=SEED)]
    return [verdict.solved for verdict in Referee(types, run).judge(tasks, texts)]


def _proposing(
    task_type: TaskType,
    seeds: Mapping[str, Sequence[Task]],
    types: Mapping[str, TaskType],
    sampler: SampleFunc,
    run: Run,
) -> dict[str, object]:
    rng, stock, count = random.Random(SEED), TaskBuffer(types), len(seeds[task_type.id])
    for task in (task for drawn in seeds.values() for task in drawn):
        stock.add(task)
    shown = [stock.references(task_type.id, max(1, task_type.max_references), rng) for _ in range(count)]
    prompts = [task_type.propose_prompt(known, rng) for known in shown]
    texts = [one.text for one in sampler(prompts, [None] * len(prompts), seed=SEED)]
    referee, names = Referee(types, run), [task_type.id] * count
    outcomes = referee.verify(names, referee.parse(names, texts, shown))
    valid = [one for one in outcomes if not isinstance(one, Refusal)]
    depths = [found for found in (depth(one.program) for one in valid) if found is not None]
    return {
        "valid": _share([not isinstance(one, Refusal) for one in outcomes]),
        "distinct": round(len({task_type.key(one) for one in valid}) / count, 3),
        "chains": round(len(depths) / count, 3),
        "mean_depth": round(sum(depths) / max(1, len(depths)), 2),
        "greatest_depth": max(depths, default=0),
        "refused": dict(Counter(one.reason for one in outcomes if isinstance(one, Refusal)).most_common()),
    }


def _share(flags: Sequence[bool]) -> float | None:
    return round(sum(flags) / len(flags), 3) if flags else None


def main(arguments: Sequence[str] | None = None) -> None:
    """Log the measurements of a folder as JSON."""
    parser = argparse.ArgumentParser(description="Measure a model in the world of chains.")
    parser.add_argument("model", help="folder of the model")
    parser.add_argument("--per-depth", type=int, default=48, help="tasks of each depth")
    parser.add_argument("--kinds", nargs="+", default=list(KIND_SHARES), help="kinds of state")
    parser.add_argument("--types", nargs="+", default=["code_o", "code_i", "code_f"], help="task types")
    options = parser.parse_args(arguments)
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(options.model),
        AutoTokenizer.from_pretrained(options.model),
    )
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    asked = {"per_depth": options.per_depth, "kinds": options.kinds, "task_types": options.types}
    logger.info("%s", json.dumps(measure(model, tokenizer, **asked), indent=2))


if __name__ == "__main__":
    main()
