"""Makes recipes/dataset/programs.jsonl, the small dataset of recipes/dataset/programs.yaml.

    python -m recipes.dataset.make > recipes/dataset/programs.jsonl

Each row is a short program with an input, and what the program returns. Equal seeds give equal rows.
"""

import json
import random
import sys

from trl_populora.tasks import task_type_class


FAMILIES = ("add", "keep", "total", "extreme", "reverse", "cut", "branch", "count", "join", "repeat", "pick")
ROWS, SEED = 132, 7


def rows() -> list[dict]:
    """The rows of the dataset: a prompt in chat form and the right answer, as text."""
    rng, kind = random.Random(SEED), task_type_class("code_o")(style="compact")
    made = {}
    while len(made) < ROWS:
        task = kind.generate(rng, families=[FAMILIES[len(made) % len(FAMILIES)]])
        answer = kind.solve_completion(task).splitlines()[1]
        made[task.id] = {"prompt": kind.solve_prompt(task), "answer": answer}
    return list(made.values())


if __name__ == "__main__":
    sys.stdout.writelines(json.dumps(row) + "\n" for row in rows())
