"""The committed list of degenerate tasks, each through a real round: parsed, run, matched, attempted, rewarded."""

import ast
import random
from pathlib import Path

import pytest

from tests.code_tasks import code_buffer, code_seeds, code_task, code_types
from tests.self_play.degenerate_tasks import DEGENERATE, FEW, HONEST, PAID, SCRAMBLE, UNPAID, Case, proposal
from tests.self_play.solvers import STRONG, WEAK, few_outputs, run, solve
from trl_populora.self_play import Completion, Ratings, RewardSettings, RoundSettings, SelfPlay, TokenLimits
from trl_populora.tasks.parsing import fence


G = 2
DOCS = Path(__file__).parents[2] / "docs" / "deviations.md"


def count(text) -> int:
    """A toy tokenizer: three characters a token."""
    return len(text if isinstance(text, str) else text[0]["content"]) // 3


def play(executor, case: Case, reward: str = "solvable"):
    """Plays the case: `student_0`, who sees only the obvious, gets it; `student_1` works things out by hand."""
    shown = code_task("code_o", case.program, inputs=("0",), outputs=("0",))
    fillers = code_seeds(4, type=case.type, families=["steps"])
    buffer = code_buffer(99, [*fillers, shown] if case.type == "code_f" else fillers)
    types = code_types("compact")
    game = SelfPlay(
        task_types={case.type: types[case.type]},
        run_many=executor.run_many,
        buffer=buffer,
        ratings=Ratings(["teacher_0", "teacher_1"], ["student_0", "student_1"]),
        settings=RoundSettings(num_generations=G, pairing="fixed", rewards=RewardSettings(teacher=reward)),
        lengths=TokenLimits(count, prompt=1200, answer=256),
    )
    asked, luck = {}, random.Random(4)  # all three tasks with few outputs are guessed

    def remember(prompt_of):
        def wrapped(task):
            prompt = prompt_of(task)
            asked[prompt[0]["content"]] = task
            return prompt

        return wrapped

    for task_type in game.task_types.values():
        object.__setattr__(task_type, "solve_prompt", remember(task_type.solve_prompt))

    def sampler_of(texts):
        def sample(prompts, members, *, seed):
            written = iter([*texts, *["nothing"] * (G - len(texts))])
            answers = {"student_0": WEAK, "student_1": STRONG}
            return [
                Completion(
                    solve(asked[prompt[0]["content"]], answers[member], luck)
                    if member in answers
                    else next(written)
                    if member == "teacher_0"
                    else "nothing"
                )
                for prompt, member in zip(prompts, members)
            ]

        return sample

    if case.earlier:
        game.play(sampler_of(case.earlier), round=0, step=0)
    message = case.message.replace("{pairs}", _pairs(case))
    completion = case._replace(message=message).completion
    record = game.play(sampler_of([completion]), round=1, step=1).record
    return record, [text for text, task in asked.items() if task.author == "teacher_0"]


def _pairs(case: Case) -> str:
    results = ((text, run(case.program, ast.literal_eval(f"({text},)"), 10**6)) for text in case.inputs)
    return ", ".join(f"f({given}) = {result}" for given, result in results)


@pytest.mark.parametrize("case", [*DEGENERATE, *HONEST], ids=lambda case: case.name)
def test_what_becomes_of_it(executor, case):
    record, prompts = play(executor, case)
    proposal = record.proposals[0]
    if case.fate not in (UNPAID, PAID):
        assert proposal.refusal is not None, proposal.reward
        assert proposal.refusal.reason == case.fate, proposal.refusal
        assert proposal.reward == -1.0
        return
    assert proposal.valid, proposal.refusal
    if case in HONEST or case.fate == UNPAID:
        assert proposal.reward == (1.0 if case.fate == PAID else 0.0)
    else:
        assert proposal.reward > 0  # somebody guessed it: see `test_what_a_guess_earns`
    words = ("Important", "write nothing", "right answer is", "Do not answer")
    assert prompts and not any(word in text for word in words for text in prompts)


def test_the_list_is_long_and_mixed():
    assert len(DEGENERATE) >= 30 and len({case.name for case in DEGENERATE}) == len(DEGENERATE)
    assert len({case.fate for case in DEGENERATE}) >= 10
    assert {case.type for case in HONEST} == {"code_o", "code_i", "code_f"}


def test_under_the_papers_reward_impossible_tasks_earn_the_most(executor):
    """The mistake that the list is about: 1 - s pays 1 for what nobody can do."""
    case = next(case for case in DEGENERATE if case.program == SCRAMBLE.strip("\n") and case.type == "code_i")
    assert play(executor, case, reward="adversarial")[0].proposals[0].reward == 1.0
    assert play(executor, case)[0].proposals[0].reward == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        (2, 0.50),
        (5, 0.73),
        (10, 0.62),
        (20, 0.41),
    ],
)
def test_what_a_guess_earns(executor, outputs, expected):
    """What `solvable` does not catch. Nobody can follow the task, everybody guesses one of m outputs.

    With p = 1 / m, G attempts and n extra ones, the teacher earns (1 - p) - (1 - p)^(G + n) on average: its
    student fails, and not everybody does.
    """
    attempts, extra, missed = 8, 4, 1 - 1 / outputs
    assert missed - missed ** (attempts + extra) == pytest.approx(expected, abs=0.006)
    rng, program = random.Random(outputs), FEW.format(outputs=outputs).strip("\n")
    game = SelfPlay(
        task_types={"code_o": code_types("compact")["code_o"]},
        run_many=executor.run_many,
        buffer=code_buffer(999, code_seeds(8)),
        ratings=Ratings(["teacher_0", "teacher_1"], ["student_0", "student_1"]),
        settings=RoundSettings(
            num_generations=attempts, solvable_attempts=extra, rewards=RewardSettings(teacher="solvable")
        ),
    )
    fresh = iter(range(1, 10**6))

    def sample(prompts, members, *, seed):
        return [
            Completion(
                proposal(program, str(next(fresh)))
                if member.startswith("teacher")
                else fence("output", str(rng.randrange(few_outputs(program))))
            )
            for member in members
        ]

    rewards = [p.reward for round in range(8) for p in game.play(sample, round=round, step=round).record.proposals]
    assert len(rewards) == 8 * 2 * attempts and min(rewards) >= 0.0
    assert sum(rewards) / len(rewards) == pytest.approx(expected, abs=0.1)  # more than two standard errors


def test_the_documentation_has_the_same_table():
    rows = [f"| {case.name} | `{case.type}` | {_shown(case.fate)} |" for case in DEGENERATE]
    text = DOCS.read_text()
    assert "\n".join(rows) in text, "\n".join(rows)


def _shown(fate: str) -> str:
    return fate if fate == UNPAID else f"**{PAID}**: guessed" if fate == PAID else f"refused, `{fate}`"
