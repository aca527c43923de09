"""The contract suite passes what keeps the contract, and fails what breaks it in one place."""

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from tests.testing.broken_types import BROKEN, OneVerdictTooFew
from trl_populora.tasks import Features, Referee, features_of, make_task_types
from trl_populora.tasks.countdown import Countdown
from trl_populora.tasks.registry import BUILT_IN
from trl_populora.testing import check_task_type
from trl_populora.testing.hostile import corpus
from trl_populora.testing.task_type import check_form


def nothing_runs(jobs):
    assert not jobs


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"style": "compact", "max_numbers": 2, "largest_number": 9}])
def test_countdown_keeps_the_contract_without_an_executor(settings):
    def run(jobs):
        raise AssertionError("countdown runs nothing")

    check_task_type(Countdown(**settings), run=run)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_the_types_of_this_package_keep_the_contract(name):
    check_task_type(make_task_types([name])[name])


FAST = ("ReadsTheFence", "GivesAway", "AlwaysRight")


@pytest.mark.parametrize(
    "broken",
    [pytest.param(one, id=one.__name__, marks=() if one.__name__ in FAST else pytest.mark.slow) for one in BROKEN],
)
def test_each_broken_contract_is_found(broken):
    with pytest.raises(AssertionError, match=BROKEN[broken]):
        check_task_type(broken())


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("HalfOfTheFeatures", "features must be .measures, space, point. or None, got {'a': 1}"),
        ("NotANumber", "measures must be numbers by name, got {'hardness': nan}"),
        ("ReasonsAsList", "reasons must map each reason to its meaning"),
        ("FamiliesAsText", "families must be a tuple of names, got 'two_numbers'"),
        ("UnknownEasyFamily", "default_families and easy_families name .'easy'., which `families` does not have"),
        ("RandomTasks", "generate with equal states of rng must be equal"),
        ("SeedOfAMember", "generate: author must be 'seed' or 'seed:<family>', got 'me'"),
    ],
)
def test_what_no_run_can_do_without_is_checked_before_it(broken, said):
    kind = next(one for one in BROKEN if one.__name__ == broken)
    with pytest.raises(ValueError, match=f"task type {broken}: .*{said}.*check_task_type"):
        check_form(kind())


@pytest.mark.parametrize(
    ("method", "value", "said"),
    [
        ("propose_prompt", "W", "propose_prompt must give a list of messages, got 'W'"),
        ("solve_prompt", "W", "solve_prompt must give a list of messages, got 'W'"),
        ("solve_completion", None, "completion must give text, got None"),
        ("simplest", None, "simplest must give a Task, got None"),
        ("generate", None, "generate must give a Task, got None"),
        ("key", [], "key"),
        ("features", {"a": 1}, "features must be"),
        ("question_keys", "abc", "question_keys must give a tuple or set of str, got 'abc'"),
        ("reference_keys", None, "reference_keys must give a tuple or set of str, got None"),
        ("size", None, "size must give a number above 0, got None"),
        ("describe", None, "describe must give text, got None"),
    ],
)
def test_results_of_the_wrong_kind_are_named(monkeypatch, method, value, said):
    monkeypatch.setattr(Countdown, method, lambda self, *args, **kwargs: value)
    with pytest.raises(ValueError, match=f"task type Countdown: .*{said}"):
        check_form(Countdown())


@dataclass(frozen=True)
class NeedsOne(Countdown):
    min_references: ClassVar[int] = 1

    def propose_prompt(self, references, rng):
        return super().propose_prompt([rng.choice(list(references))], rng)


def test_a_prompt_that_needs_references_is_not_asked_for_without():
    check_form(NeedsOne())


@pytest.mark.parametrize("point", [[0.0, 0.5, 0.5, 1.0], tuple(np.float32([0, 0.5, 0.5, 1]))])
def test_numbers_of_any_library_are_features(monkeypatch, point):
    monkeypatch.setattr(Countdown, "features", lambda self, task: ({"n": np.int64(3)}, "own", point))
    found = features_of(Countdown(), Countdown().simplest())
    assert found == Features({"n": 3.0}, "own", (0.0, 0.5, 0.5, 1.0)) and type(found.measures["n"]) is float


def test_whole_types_pass():
    for task_type in make_task_types(list(BUILT_IN)).values():
        check_form(task_type)


class Hangs(Countdown):
    def parse_answer(self, task, completion):
        while "SystemExit" in completion:
            pass
        return super().parse_answer(task, completion)


@pytest.mark.slow
def test_a_parser_that_never_ends_is_found():
    with pytest.raises(AssertionError, match="not done after 1"):
        check_task_type(dataclass(frozen=True)(Hangs)(), timeout=1.0)


def test_a_class_that_other_processes_cannot_import_is_named():
    @dataclass(frozen=True)
    class Local(Countdown):
        pass

    with pytest.raises(AssertionError, match="Local cannot be sent .* top level of a module"):
        check_task_type(Local())


def test_a_method_without_an_argument_is_named(monkeypatch):
    monkeypatch.setattr(Countdown, "generate", lambda self, rng: self.simplest())
    with pytest.raises(ValueError, match="Countdown: calling it raised .*unexpected keyword argument 'families'"):
        check_form(Countdown())


def test_more_than_one_seed_is_needed():
    with pytest.raises(ValueError, match="count must be at least 2, got 1"):
        check_task_type(Countdown(), count=1)


SCRIPT = """
from dataclasses import dataclass
from trl_populora.tasks import Referee, make_task_types
from trl_populora.tasks.countdown import Countdown
from trl_populora.tasks.registry import BUILT_IN
from trl_populora.testing import check_task_type

@dataclass(frozen=True)
class Mine(Countdown):
    pass

if __name__ == "__main__":
    check_task_type(Mine())
    print("kept")
"""


@pytest.mark.slow
def test_a_type_in_a_script_can_be_checked_there(tmp_path):
    (tmp_path / "mine.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "mine.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "kept\n", done.stderr


@pytest.mark.slow
def test_nothing_of_the_watch_stays_in_this_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_task_type(Countdown(), run=nothing_runs)
    assert eval("1 + 1") == 2 and (tmp_path / "populora_hostile").write_text("") == 0


def test_the_corpus_is_large_and_always_the_same():
    right = "```expression\n1 + 2\n```"
    texts = corpus([right])
    assert texts == corpus([right]) and len(texts) == len(set(texts)) > 90
    assert max(map(len, texts)) >= 100_000 and right not in texts


def test_the_referee_names_a_type_that_breaks_its_contract():
    kind, run = Countdown(), lambda jobs: [None for _ in jobs]
    tasks = kind.seeds(3)
    texts = [kind.solve_completion(task) for task in tasks]
    with pytest.raises(TypeError, match="countdown: `judge` gave 2 results for 3: give one for each"):
        Referee({"countdown": OneVerdictTooFew()}, run).judge(tasks, texts)
    with pytest.raises(TypeError, match="countdown: a completion was read as None: give Draft or Refusal"):
        Referee({"countdown": kind}, run).verify(["countdown"], [None])


@pytest.mark.parametrize(
    ("method", "given", "said"),
    [
        ("judge", [0.3] * 3, "`judge` gave 0.3: give True, False or a Refusal"),
        ("judge", [None] * 3, "`judge` gave None: give True"),
        ("judge", None, "`judge` gave None: give a list"),
        ("judge", iter([True] * 2), "`judge` gave 2 results for 3: give one for each"),
        ("judge", "yes", "`judge` gave 'yes': give a list"),
        ("verify", [True] * 3, "`verify` gave True: give a payload of the type, or a Refusal"),
        ("verify", None, "`verify` gave None: give a list"),
    ],
)
def test_the_referee_names_results_of_a_wrong_kind(method, given, said):
    kind = Countdown()
    tasks = kind.seeds(3)
    drafts = [kind.parse_proposal(kind.propose_completion(task), []) for task in tasks]
    broken = type("Broken", (Countdown,), {method: lambda *_: given})()
    referee = Referee({"countdown": broken}, lambda jobs: [None for _ in jobs])
    with pytest.raises(TypeError, match=f"countdown: {said}"):
        referee.verify(["countdown"] * 3, drafts)
        referee.judge(tasks, [kind.solve_completion(task) for task in tasks])


def test_numpys_bools_are_bools():
    kind = type("Vectorised", (Countdown,), {"judge": lambda *_: np.array([True, False])})()
    tasks = kind.seeds(2)
    verdicts = Referee({"countdown": kind}, lambda jobs: []).judge(tasks, [kind.solve_completion(t) for t in tasks])
    assert [verdict.solved for verdict in verdicts] == [True, False] and type(verdicts[0].solved) is bool
