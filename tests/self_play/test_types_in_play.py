"""A type of a user in a round: alone, and together with those of the package."""

import json
import random
from dataclasses import replace

import pytest

from tests.adding import Adding
from tests.code_tasks import code_types
from tests.tiny import tiny_population
from trl_populora.diagnostics import Observer
from trl_populora.executor import Execution, Status
from trl_populora.self_play import Completion, Ratings, RoundSettings, SelfPlay
from trl_populora.self_play.requests import Request
from trl_populora.self_play.verification import verify
from trl_populora.tasks import INFRASTRUCTURE, Answer, Draft, Referee, Task, TaskBuffer, is_spared
from trl_populora.tasks.code.payload import CodePayload
from trl_populora.tasks.parsing import fence


G = 2


def play(types, run, *, rounds=1, prompts=1):
    """A game whose members write what the type calls right."""
    buffer = TaskBuffer(types, tasks=[task for one in types.values() for task in one.seeds(8)])
    game = SelfPlay(
        task_types=types,
        run_many=run,
        buffer=buffer,
        ratings=Ratings(["teacher_0"], ["student_0"]),
        settings=RoundSettings(num_generations=G, num_references=1, prompts_per_teacher=prompts),
    )
    answers = {}
    for one in types.values():
        for seed in range(8):
            for task in one.seeds(8, seed=seed):
                answers[one.solve_prompt(task)[0]["content"]] = one.solve_completion(task)
    rng, fresh = random.Random(0), {name: iter(one.seeds(40, seed=1)) for name, one in types.items()}
    kinds = {
        one.propose_prompt(buffer.references(name, 1, rng), rng)[0]["content"][:12]: name
        for name, one in types.items()
    }

    def sampler(prompts, members, *, seed):
        texts = []
        for prompt, member in zip(prompts, members, strict=True):
            content = prompt[0]["content"]
            if member == "teacher_0":
                name = kinds[content[:12]]
                texts.append(types[name].propose_completion(next(fresh[name])))
            else:
                texts.append(answers.get(content, "no answer"))
        return [Completion(text, [1], [2]) for text in texts]

    return game, [game.play(sampler, round=r, step=r).record for r in range(rounds)]


def no_run(jobs):
    raise AssertionError("nothing of this type runs")


def test_a_proposal_that_shows_a_question_of_an_exam_is_refused(executor):
    """Another input with the same output is seen only after it has run. As a `code_o` task it gives it away, too."""
    types = code_types("compact")
    program = "def f(x):\n    return x % 2"
    asked = Task.create("code_i", CodePayload(program, ("3",), ("1",)))
    buffer = TaskBuffer(types, reserved=types["code_i"].question_keys(asked.payload))
    texts = [f"{fence('python', program)}\n{fence('input', given)}" for given in ("3", "5", "4")]
    for kind in (types["code_o"], types["code_i"]):
        requests = [Request("teacher_0", kind, []) for _ in texts]
        written = [Completion(text, [1], [2]) for text in texts]
        referee = Referee(types, executor.run_many)
        found = verify(requests, written, referee=referee, buffer=buffer, lengths=None, group_size=1, step=0)
        assert [one.refusal and one.refusal.reason for one in found] == ["held_out", "held_out", None]


def test_a_type_without_programs_plays_alone_and_runs_nothing():
    game, (record, *_) = play({"adding": Adding()}, no_run, rounds=2)
    assert all(one.valid and one.task.type == "adding" for one in record.proposals)
    assert all(one.solved for one in record.attempts) and len(record.attempts) == G * G
    assert [one.reward for one in record.proposals] == [0.0] * G
    copy = TaskBuffer(game.task_types)
    copy.load_state_dict(game.buffer.state_dict())
    assert copy.tasks("adding") == game.buffer.tasks("adding")


def test_types_of_a_user_and_of_the_package_play_together(executor):
    types = {"adding": Adding(), "code_o": code_types("compact")["code_o"]}
    game, records = play(types, executor.run_many, rounds=2, prompts=2)
    for record in records:
        assert {one.type for one in record.proposals} == set(types) and all(one.valid for one in record.proposals)
        assert {one.task.type for one in record.attempts} == set(types)
    observer = Observer(types)
    members = tiny_population(1, 1)
    summaries = [observer.observe(record, ratings=game.ratings, population=members) for record in records]
    assert set(observer.archives) == {"numbers", "python"}
    assert {"largest", "ast_nodes"} <= set(summaries[-1].complexity)
    assert summaries[-1].coverage["filled"] == sum(one.filled for one in observer.archives.values()) >= 3
    copy = Observer(types)
    copy.load_state_dict(json.loads(json.dumps(observer.state_dict())))
    assert copy.state_dict() == observer.state_dict()


def test_one_run_per_type_and_phase():
    calls = []

    def run(jobs):
        calls.append(len(jobs))
        return [Execution(Status.INFRA_ERROR, (), 0.0, 0, "gone")] * len(jobs)

    types = code_types("compact", num_function_inputs=2)
    referee = Referee(types, run)
    tasks = [task for one in types.values() for task in one.seeds(3)]
    names = [task.type for task in tasks]
    shown = [types[task.type].example_references(task, ()) for task in tasks]
    drafts = referee.parse(names, [types[task.type].propose_completion(task) for task in tasks], shown)
    assert all(isinstance(draft, Draft) for draft in drafts) and calls == []
    assert [draft.key for draft in drafts] == [types[task.type].key(task.payload) for task in tasks]
    assert referee.verify(names, drafts) == [INFRASTRUCTURE] * 9 and calls == [3, 3, 3]
    calls.clear()
    verdicts = referee.judge(tasks, [types[task.type].solve_completion(task) for task in tasks])
    assert calls == [3, 3], "code_o is judged by values"
    assert [verdict.spared for verdict in verdicts] == [False] * 3 + [True] * 6
    assert [verdict.solved for verdict in verdicts] == [True] * 3 + [False] * 6


def test_a_type_that_reports_a_failed_executor_in_its_own_words_is_spared():
    class Failing(Adding):
        def judge(self, tasks, answers, run):
            return [replace(INFRASTRUCTURE, detail="no cable")] * len(tasks)

    (verdict,) = Referee({"adding": Failing()}, no_run).judge([Adding().simplest()], ["2"])
    assert verdict.spared and verdict.refusal == INFRASTRUCTURE and is_spared(verdict.refusal)
    assert Adding().judge([Adding().simplest()], [Answer(3)], no_run) == [False]


def test_the_referee_wants_one_completion_per_task_and_knows_its_types():
    referee = Referee({"adding": Adding()}, no_run)
    with pytest.raises(ValueError, match="1 tasks and 2 completions"):
        referee.judge([Adding().simplest()], ["2", "3"])
    with pytest.raises(ValueError, match="known types are .'adding'"):
        referee.judge([code_types()["code_o"].simplest()], ["2"])
