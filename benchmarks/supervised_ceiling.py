"""How much an adapter of the chain recipes gains from right answers, with as many rows and updates as in a run.

    python -m benchmarks.supervised_ceiling --json benchmarks/results/chains_certainty/supervised.json

A reward tells a row apart from others of its group; a worked answer tells every token. So what a LoRA adapter gains
from supervised rows, at the recipes' rank and number of rows, says how much a run of that length can be expected to
gain in a world, before anybody compares rewards or populations in it. It is no strict bound. Tasks are fresh, of all
three kinds of state and of all depths of the exam up to `--deepest`; none of them is in the exam. The exam is given
greedily and at temperature 1, before and after.
"""

import argparse
import json
import random
import time
from pathlib import Path

import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from recipes.chains.exams import EXAM_DEPTHS, chains
from recipes.chains.make.worked import worked_output
from recipes.chains.trial import compare
from trl_populora.evaluation import Exam, task_keys
from trl_populora.evaluation.answering import collect_answers, grade
from trl_populora.evaluation.results import ExamResult
from trl_populora.executor import Executor
from trl_populora.generation import TransformersSampler
from trl_populora.integrations.lightning import Example, causal_lm_loss, collate, encode
from trl_populora.population import Population
from trl_populora.tasks import Task, TaskType, make_task_types
from trl_populora.tasks.code.families.chains import DEPTHS, KINDS, depth


STUDENT = "student_0"
ROWS_PER_PASS = 32
SEED = 7


def main() -> None:
    parser = argparse.ArgumentParser(description="Gain of an adapter from supervised rows in the world of chains.")
    parser.add_argument("--base", default="recipes/chains/base")
    parser.add_argument("--updates", type=int, default=200, help="as many as rounds of the recipes")
    parser.add_argument("--rows", type=int, default=64, help="rows of an update, as a student has in a round")
    parser.add_argument("--learning-rates", type=float, nargs="+", default=[1e-3, 4e-3])
    parser.add_argument("--deepest", type=int, default=8)
    parser.add_argument("--questions", type=int, default=432, help="first questions of the exam")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {"base": options.base, "updates": options.updates, "rows": options.rows, "deepest": options.deepest}
    for rate in options.learning_rates:
        began = time.process_time()
        found[f"learning_rate={rate:g}"] = ceiling(options, rate) | {"seconds": round(time.process_time() - began)}
        print(json.dumps(found, indent=1), flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def ceiling(options: argparse.Namespace, rate: float) -> dict:
    """Scores of the base and of the adapter by depth, with the error of the gain, for each temperature."""
    torch.manual_seed(SEED)
    tokenizer = AutoTokenizer.from_pretrained(options.base)
    model = AutoModelForCausalLM.from_pretrained(options.base)
    lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", lora_dropout=0.0)  # the recipes'
    population = Population(model, lora, num_teachers=1, num_students=1)
    exam = chains().first(options.questions)
    before = {one: answers(population, tokenizer, exam, one, base=True) for one in (0.0, 1.0)}
    losses = practise(population, tokenizer, exam, options, rate)
    after = {one: answers(population, tokenizer, exam, one, base=False) for one in before}
    scores = {f"temperature={one:g}": compare(before[one], after[one]) for one in before}
    return {"loss": losses, **scores}


def practise(
    population: Population, tokenizer: PreTrainedTokenizerBase, exam: Exam, options: argparse.Namespace, rate: float
) -> list[float]:
    """Updates the student; returns its mean loss per token in the first and the last ten updates."""
    types = make_task_types(["code_o"], style="compact")
    code_o, reserved, parameters = types["code_o"], task_keys(exam, types), population.parameters(STUDENT)
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0)
    population.set_trainable()
    losses = []
    for step in range(options.updates):
        rng = random.Random(f"{SEED}/{step}")
        tasks = [draw(code_o, rng, options.deepest, reserved) for _ in range(options.rows)]
        rows = encode(tokenizer, [Example(tuple(code_o.solve_prompt(one)), worked_output(one)) for one in tasks])
        rows.sort(key=lambda row: len(row.ids))
        tokens, total = sum(len(row.ids) - row.prompt for row in rows), 0.0
        for first in range(0, len(rows), ROWS_PER_PASS):
            part = rows[first : first + ROWS_PER_PASS]
            with population.route([STUDENT] * len(part)):
                sums, _ = causal_lm_loss(population.model, collate(part, tokenizer.pad_token_id))
                loss = sums.sum() / tokens
                loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return [round(sum(part) / len(part), 4) for part in (losses[:10], losses[-10:])]


def draw(code_o: TaskType, rng: random.Random, deepest: int, reserved: set[str]) -> Task:
    """A task of any kind of state, whose depth is that of the exam's, all equally often."""
    wanted, kind = rng.choice([one for one in EXAM_DEPTHS if one <= deepest]), rng.choice(KINDS)
    level = next(name for name, (least, most) in DEPTHS.items() if least <= wanted <= most)
    while True:
        task = code_o.generate(rng, families=[f"{kind.name}_{level}"])
        if depth(task.payload.program) == wanted and code_o.key(task.payload) not in reserved:
            return task


def answers(
    population: Population, tokenizer: PreTrainedTokenizerBase, exam: Exam, temperature: float, *, base: bool
) -> ExamResult:
    """One answer to each question, of the base or of the student."""
    length = exam.max_completion_length
    sampler = TransformersSampler(
        population, tokenizer, max_completion_length=length, temperature=temperature, batch_size=256
    )
    written = collect_answers(exam, [] if base else [STUDENT], sampler, base=base, seed=SEED, rows_per_call=256)
    with Executor() as executor:
        return ExamResult(exam, grade(exam, written, exam.grader(executor.run_many)))


if __name__ == "__main__":
    main()
