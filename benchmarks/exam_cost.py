"""What more members cost in an exam: the same questions answered by one member, by N in one batch, and by N in turn.

    python benchmarks/exam_cost.py --base HuggingFaceTB/SmolLM2-135M-Instruct --data FOLDER --exam "gsm8k[:16]"

Members are fresh adapters (their update is zero), so all write the same texts and only the number of rows differs.
Each turn measures all three, in alternating order. Prints, last, one line of JSON: medians over turns of the time of N
members in one batch against that of one member, and against that of N members asked one after the other.
"""

import argparse
import json
import statistics
import time
from functools import partial

import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer

from trl_populora.evaluation import make_exam
from trl_populora.evaluation.answering import collect_answers
from trl_populora.generation import TransformersSampler
from trl_populora.integrations.base_models import resolve_base
from trl_populora.population import Population
from trl_populora.tasks import make_task_types


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="HuggingFaceTB/SmolLM2-135M-Instruct")
    parser.add_argument("--exam", default="held_out[:16]")
    parser.add_argument("--data", help="folder with the files of benchmarks")
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64, help="most tokens of an answer")
    parser.add_argument("--rows", type=int, default=64, help="rows decoded at once")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()

    path = resolve_base(options.base)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    config = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    population = Population(model, config, num_teachers=1, num_students=options.members)
    template = "chat" if tokenizer.chat_template else "base"
    sampler = TransformersSampler(
        population, tokenizer, max_completion_length=options.tokens, temperature=0.0, template=template,
        batch_size=options.rows,
    )  # fmt: skip
    exam = make_exam(options.exam, make_task_types(), data=options.data)
    names = list(population.students)
    answer = partial(collect_answers, exam, sampler=sampler, base=False, rows_per_call=options.rows)
    ways = {
        "one": lambda: answer(names[:1]),
        "together": lambda: answer(names),
        "in turn": lambda: [answer([name]) for name in names],
    }
    times = []
    for turn in range(options.turns):
        seconds = {}
        for way in list(ways) if turn % 2 == 0 else list(ways)[::-1]:
            start = time.perf_counter()
            ways[way]()
            seconds[way] = time.perf_counter() - start
        times.append(seconds)
        print(turn, {way: round(value, 1) for way, value in seconds.items()}, flush=True)
    ratios = {other: statistics.median(one["together"] / one[other] for one in times) for other in ("one", "in turn")}
    result = {
        "exam": exam.name,
        "questions": len(exam.questions),
        "members": options.members,
        "together / one": round(ratios["one"], 3),
        "together / in turn": round(ratios["in turn"], 3),
        "turns": options.turns,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
