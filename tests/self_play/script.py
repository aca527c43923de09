"""A game with a scripted sampler: who proposes knows the format, who solves knows the gold answers."""

import random

from tests.code_tasks import TYPES, code_buffer, code_draw, code_seeds, code_types
from trl_populora.self_play import Completion, Ratings, RoundSettings, SelfPlay


G = 4


def self_play(executor, *, teachers=2, students=2, types=("code_o", "code_i"), settings=None, buffer=None):
    buffer = buffer or code_buffer(
        1000, [t for name in TYPES for t in code_seeds(16, type=name, num_function_inputs=4)]
    )
    ratings = Ratings([f"teacher_{i}" for i in range(teachers)], [f"student_{i}" for i in range(students)])
    all_types = code_types("compact", num_function_inputs=4)
    return SelfPlay(
        task_types={name: all_types[name] for name in types},
        run_many=executor.run_many,
        buffer=buffer,
        ratings=ratings,
        settings=settings or RoundSettings(num_generations=G, num_references=1),
    )


def scripted(game, *, valid=1.0, solved=0.5, seed=0, guest_teacher=None):
    """A sampler for one game: it proposes tasks of the asked type, and knows the gold answers of what was proposed."""
    rng = random.Random(seed)
    teachers = {*game.ratings.teachers, guest_teacher}
    calls = []
    family_of = {}

    def sample(prompts, members, *, seed):
        calls.append((list(prompts), list(members), seed))
        return [Completion(propose(p) if m in teachers else answer(p), [1], [2, 3]) for p, m in zip(prompts, members)]

    asked = {}
    for task_type in game.task_types.values():
        make = task_type.propose_prompt

        def remember(references, rng, make=make, task_type=task_type):
            prompt = make(references, rng)
            asked[prompt[0]["content"]] = (task_type, references)
            return prompt

        object.__setattr__(task_type, "propose_prompt", remember)
        solve = task_type.solve_prompt

        def record(task, solve=solve, task_type=task_type):
            prompt = solve(task)
            asked[prompt[0]["content"]] = (task_type, task)
            return prompt

        object.__setattr__(task_type, "solve_prompt", record)

    def propose(prompt):
        task_type, references = asked[prompt[0]["content"]]
        if rng.random() >= valid:
            return "no blocks here"
        if task_type.id == "code_f":
            source = references[0]
            family = [family_of.get(source.payload.program, source.author.removeprefix("seed:"))]
            for _ in range(2000):
                task = code_draw("code_f", rng, families=family, num_function_inputs=4)
                if task.payload.program == source.payload.program:
                    return task_type.propose_completion(task)
            return "no blocks here"
        if task_type.id not in TYPES:
            return task_type.propose_completion(task_type.generate(rng))
        task = code_draw(task_type.id, rng)
        family_of[task.payload.program] = task.author.removeprefix("seed:")
        return task_type.propose_completion(task)

    def answer(prompt):
        task_type, task = asked[prompt[0]["content"]]
        if rng.random() < solved:
            return task_type.solve_completion(task)
        return "```output\n'no'\n```\n```input\n'no'\n```\n```python\ndef f(*a):\n    return 'no'\n```"

    sample.calls = calls
    return sample
