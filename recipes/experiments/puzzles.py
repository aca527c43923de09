"""An exam for small models: `recipes.experiments.puzzles:puzzles`, from the folder that holds `recipes/`."""

from functools import cache

from trl_populora.evaluation import Exam
from trl_populora.evaluation.held_out import held_out_tasks, task_exam
from trl_populora.tasks import make_task_types


QUESTIONS = 384
SEED = 3_000_017
SIZES = {"max_numbers": 3, "largest_number": 20, "largest_target": 100}  # those of smollm2_learning.yaml


@cache  # a run asks for it several times
def puzzles() -> Exam:
    """Arithmetic puzzles (`countdown`) of three numbers, none of them in `held_out`."""
    types = make_task_types(["countdown"], style="compact", kwargs={"countdown": SIZES})
    countdown = types["countdown"]
    taken = {countdown.key(task.payload) for task in held_out_tasks(countdown)}
    drawn = countdown.seeds(2 * QUESTIONS, seed=SEED, families=["three_numbers"])
    tasks = {countdown.key(task.payload): task for task in drawn}
    new = [task for key, task in tasks.items() if key not in taken]
    return task_exam("puzzles", new[:QUESTIONS], types)
