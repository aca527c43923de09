"""Held-out tasks: the same for all runs, few of a type that has few, and never what a run may learn from."""

import json
import random
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pytest

from tests.code_tasks import code_types
from trl_populora.evaluation import exam_keys, held_out_exam, held_out_tasks, make_exam, reserved_keys, task_keys
from trl_populora.evaluation.held_out import questions_shown, task_exam
from trl_populora.extras import MissingPackageError
from trl_populora.integrations.lightning.seed_examples import SeedExamples
from trl_populora.run_files.layout import STATE_FILE
from trl_populora.tasks import Payload, Task, TaskBuffer, make_task_types
from trl_populora.tasks.base import TaskType
from trl_populora.tasks.code.keys import output_key, pair_key, program_key
from trl_populora.tasks.code.payload import CodePayload
from trl_populora.tasks.countdown import Countdown


@dataclass(frozen=True)
class Number(Payload):
    value: int


@dataclass(frozen=True)
class Numbers(TaskType):
    """A type of `size` different seed tasks, one of which is the simplest."""

    id: ClassVar[str] = "numbers"
    payload: ClassVar[type] = Number
    size: int = 10
    labels: list = field(default_factory=list)

    def generate(self, rng, *, families=None):
        return Task.create(self.id, Number(rng.randrange(self.size)))

    def simplest(self):
        return Task.create(self.id, Number(0))

    def solve_prompt(self, task):
        return [{"role": "user", "content": str(task.payload.value)}]

    def _unused(self, *args, **kwargs):
        raise AssertionError

    propose_prompt = parse_proposal = verify = propose_completion = solve_completion = _unused
    parse_answer = judge = features = _unused


@pytest.mark.parametrize("size, most", [(1, 0), (3, 0), (5, 1), (10, 2), (100, 24), (300, 64), (10**6, 64)])
def test_a_type_with_few_tasks_keeps_most_of_them(size, most):
    """At most a quarter of what there is beside the simplest task."""
    tasks = held_out_tasks(Numbers(size=size))
    values = [task.payload.value for task in tasks]
    assert len(set(values)) == len(values) == most and 0 not in values
    assert held_out_tasks(Numbers(size=size)) == tasks


def test_no_exam_of_types_without_tasks_to_spare():
    with pytest.raises(ValueError, match=r"\['numbers'\] have too few different seed tasks"):
        make_exam("held_out", {"numbers": Numbers(size=3)})
    assert reserved_keys({"numbers": Numbers(size=3)}) == set()


def test_built_in_types_have_enough():
    for name, one in make_task_types(["code_o", "math", "countdown"]).items():
        for level in ("held_out", "held_out_easy"):
            keys = {one.key(task.payload) for task in held_out_tasks(one, level)}
            assert len(keys) == 64, (name, level)
            assert one.key(one.simplest().payload) not in keys
    assert held_out_tasks(Countdown()) == held_out_tasks(Countdown(style="compact"))
    with pytest.raises(ValueError, match="level='hard'"):
        held_out_tasks(Countdown(), "hard")


def test_the_easy_level_has_tasks_of_easy_families_and_the_other_of_all():
    for one in code_types().values():
        easy, every = (held_out_tasks(one, level) for level in ("held_out_easy", "held_out"))
        assert len(easy) == len(every) and easy != every
        assert sum(map(one.size, easy)) < 0.8 * sum(map(one.size, every))


def test_an_exam_is_asked_by_turns_and_its_keys_are_reserved():
    types = code_types("compact", num_function_inputs=4)
    exam = held_out_exam(types)
    assert [question.group for question in exam.questions[:6]] == ["code_o", "code_i", "code_f"] * 2
    tasks = [task.payload for kind in types.values() for task in held_out_tasks(kind)]
    shared = {pair_key(one.program, given) for one in tasks for given in one.inputs}
    shared |= {output_key(task.payload.program, task.payload.output) for task in held_out_tasks(types["code_i"])}
    shared |= {program_key(task.payload.program) for task in held_out_tasks(types["code_f"])}
    keys = task_keys(exam, types)
    assert shared < keys and len(keys) == 3 * 3 * 64 + len(shared) and keys <= reserved_keys(types)
    assert exam.version == held_out_exam(types).version


def test_a_warm_start_shows_no_reserved_task():
    kind = Countdown()
    all_keys = {kind.key(task.payload) for task in kind.seeds(200, families=["two_numbers"])}
    rng = random.Random(0)
    free = {"countdown": kind}
    seen = {kind.key(SeedExamples(free, rng=rng, families=["two_numbers"], references=8).task("countdown").payload)}
    assert seen and not seen & reserved_keys(free)
    examples = SeedExamples(free, rng=rng, families=["two_numbers"], references=8, reserved=all_keys)
    assert not all_keys & {kind.key(examples.task("countdown").payload) for _ in range(50)}
    assert not all_keys & {kind.key(task.payload) for task in examples.references.tasks("countdown")}


def test_a_warm_start_of_reserved_tasks_only_is_refused():
    kind = Numbers(size=10)
    examples = SeedExamples(
        {"numbers": kind}, rng=random.Random(0), references=1, reserved={kind.key(Number(i)) for i in range(10)}
    )
    with pytest.raises(ValueError, match="200 numbers tasks of these families all belong to exams"):
        examples.task("numbers")


def test_keys_of_an_exam_of_another_run(tmp_path):
    types = {"countdown": Countdown()}
    tasks = types["countdown"].seeds(5)
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps(task.to_json()) + "\n" for task in tasks))
    keys = task_keys(make_exam(f"tasks:{path}", types), types)
    assert keys == {types["countdown"].key(task.payload) for task in tasks}


def test_an_exam_of_a_run_has_the_tasks_of_its_members_and_no_seeds(tmp_path):
    types = code_types()
    seed, other = types["code_o"].seeds(2, seed=7)
    own = Task.create("code_o", other.payload, author="teacher_0", step=3)
    state = {"source": {"buffer": {"tasks": [seed.to_json(), own.to_json()]}}}
    (tmp_path / STATE_FILE).write_text(json.dumps(state))
    assert [question.id for question in make_exam(f"tasks:{tmp_path}", types).questions] == [own.id]


@pytest.mark.slow
def test_another_input_with_the_same_output_is_kept_too():
    """It would show the question of a `code_i` exam word for word, with an answer that solves it."""
    types = code_types("compact")
    buffer = TaskBuffer(types, reserved=reserved_keys(types))
    asked = held_out_tasks(types["code_i"])[0]
    other = CodePayload(asked.payload.program, ("'another'",), asked.payload.outputs)
    for kind in ("code_i", "code_o"):
        task = Task.create(kind, other)
        assert types[kind].key(other) not in buffer.reserved
        assert buffer.reserves(task) and not buffer.add(task)
    assert types["code_i"].solve_prompt(Task.create("code_i", other)) == types["code_i"].solve_prompt(asked)
    only = TaskBuffer(types, reserved=reserved_keys({"code_o": types["code_o"]}))
    (question,) = held_out_tasks(types["code_o"])[:1]
    same_output = CodePayload(question.payload.program, ("'another'",), question.payload.outputs)
    assert only.add(Task.create("code_o", same_output))  # which asks something else


def test_a_pair_of_an_exam_is_kept_as_a_task_of_any_type():
    """A `code_f` task has several pairs, and each is a `code_o` task with its answer."""
    types = code_types("compact", num_function_inputs=4)
    (several,) = [task.payload for task in held_out_tasks(types["code_f"])][:1]
    buffer = TaskBuffer(types, reserved=reserved_keys({"code_f": types["code_f"]}))
    for given, output in several.pairs:
        for kind in ("code_o", "code_i"):
            assert buffer.reserves(Task.create(kind, CodePayload(several.program, (given,), (output,))))
    assert not buffer.reserves(
        Task.create("code_o", CodePayload(several.program, ("'another'",), several.outputs[:1]))
    )
    (one,) = [task.payload for task in held_out_tasks(types["code_o"])][:1]
    buffer = TaskBuffer(types, reserved=reserved_keys({"code_o": types["code_o"]}))
    shows = CodePayload(one.program, ("'another'", one.input), ("1", one.output), "a hint")
    assert buffer.reserves(Task.create("code_f", shows))
    assert not buffer.reserves(Task.create("code_f", CodePayload(one.program, ("'another'",), ("1",), "a hint")))


@pytest.mark.slow
def test_a_program_that_an_exam_asks_for_is_asked_for_nowhere_else():
    types = code_types("compact", num_function_inputs=4)
    asked = held_out_tasks(types["code_f"], "held_out_easy")[0].payload
    other = replace(asked, inputs=("'one'", "'two'"), outputs=("1", "2"), message="another hint")
    simple = Task.create("code_o", CodePayload(asked.program, ("'one'",), ("1",)))
    buffer = TaskBuffer(types, reserved=reserved_keys(types))
    assert buffer.reserves(Task.create("code_f", other))
    assert buffer.add(simple)  # in which the program is not the answer
    assert buffer.references("code_o", 1, random.Random(0)) == [simple]
    assert buffer.references("code_f", 1, random.Random(0)) == [simple]  # there is no other
    for task in types["code_o"].seeds(40, families=["add", "each"]):
        buffer.add(task)
    shown = [one for seed in range(50) for one in buffer.references("code_f", 6, random.Random(seed))]
    assert shown and simple not in shown and simple not in buffer.shortest("code_f", 99)
    asked_for = {program_key(task.payload.program) for task in held_out_tasks(types["code_f"], "held_out_easy")}
    assert asked_for.isdisjoint(program_key(task.payload.program) for task in shown)
    examples = SeedExamples(types, rng=random.Random(0), families=[*types["code_f"].easy_families])
    assert asked_for.isdisjoint(program_key(examples.task("code_f").payload.program) for _ in range(300))


def test_an_exam_that_was_written_by_hand_is_recognised(tmp_path):
    """Proposals have the literals as the executor writes them."""
    types = {"code_o": code_types("compact")["code_o"]}
    program = "def f(xs, n):\n    return [x * n for x in xs]"
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps(Task.create("code_o", CodePayload(program, ("[1,2,3],2",), ("[2,4,6]",))).to_json()))
    buffer = TaskBuffer(types, reserved=task_keys(make_exam(f"tasks:{path}", types), types))
    assert buffer.reserves(Task.create("code_o", CodePayload(program, ("[1, 2, 3], 2",), ("[2, 4, 6]",))))
    assert not buffer.reserves(Task.create("code_o", CodePayload(program, ("[1, 2, 3], 1",), ("[1, 2, 3]",))))


def test_a_file_of_tasks_keeps_those_of_types_that_are_not_in_play(tmp_path):
    types = code_types("compact")
    tasks = types["code_i"].seeds(3)
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps(task.to_json()) + "\n" for task in tasks))
    only = {"code_o": types["code_o"]}
    buffer = TaskBuffer(only, reserved=exam_keys([f"tasks:{path}"], only))
    assert all(buffer.reserves(Task.create("code_o", task.payload)) for task in tasks)


def test_types_whose_packages_are_missing_are_not_needed_for_exams_of_others(tmp_path, monkeypatch):
    types = code_types("compact")
    path = tmp_path / "tasks.jsonl"
    tasks = [*types["code_o"].seeds(2), *make_task_types(["math"])["math"].seeds(1)]
    path.write_text("".join(json.dumps(task.to_json()) + "\n" for task in tasks))
    monkeypatch.setattr("trl_populora.extras.is_installed", lambda module: False)
    with pytest.raises(MissingPackageError, match="^task type 'math' needs math-verify"):
        make_task_types(["math"])
    assert len(exam_keys(["held_out"], types)) > 100
    buffer = TaskBuffer(types, reserved=exam_keys([f"tasks:{path}"], types))
    assert all(map(buffer.reserves, tasks[:2]))


@dataclass(frozen=True)
class OwnCountdown(Countdown):
    id: ClassVar[str] = "own"


def test_questions_that_a_run_shows_are_counted(tmp_path):
    kind, own = Countdown(), OwnCountdown()
    tasks = kind.seeds(4)
    exam = task_exam("mine", tasks, {"countdown": kind})
    with pytest.raises(
        ValueError, match=r"'mine' has tasks of the type 'countdown', and types are given for \['code_o'"
    ):
        task_exam("mine", tasks, code_types())
    assert questions_shown(exam, str(tmp_path), {"countdown": kind}) == 0  # as after a warm start, without a buffer
    for one in (kind, own):  # the same records as tasks of another type
        buffer = TaskBuffer({one.id: one}, tasks=[Task.create(one.id, task.payload) for task in tasks[:3]])
        (tmp_path / "self_play.json").write_text(json.dumps({"source": {"buffer": buffer.state_dict()}}))
        assert questions_shown(exam, str(tmp_path), {one.id: one}) == 3


def test_a_problem_about_other_things_is_the_same_question():
    kind = make_task_types(["math"])["math"]
    texts = {
        "Anna has 3 pens and gets 4 nuts. How many pens has Anna?": True,
        "Ben has 3 nuts and gets 4 eggs . How many nuts has Ben ?": True,
        "Ben has 3 nuts and gets 4 nuts. How many nuts has Ben?": False,
        "Anna has 3 pens and gets 5 nuts. How many pens has Anna?": False,
        "Anna has 3 pens and gets 4 nuts. How many nuts has Anna?": False,
    }
    tasks = [kind.payload(problem, "def f():\n    return 3", "3") for problem in texts]
    buffer = TaskBuffer({"math": kind}, reserved=kind.question_keys(tasks[0]))
    assert [buffer.reserves(Task.create("math", task)) for task in tasks] == list(texts.values())
    reserved = TaskBuffer({"math": kind}, reserved=reserved_keys({"math": kind}))
    assert not any(map(reserved.reserves, [kind.simplest()]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["code_o", "code_i", "code_f"])
def test_a_warm_start_shows_no_pair_of_an_exam(kind):
    types = code_types("compact", num_function_inputs=4)
    tasks = [task.payload for one in types.values() for task in held_out_tasks(one, "held_out_easy")]
    asked = {(task.program, given) for task in tasks for given in task.inputs}
    examples = SeedExamples(types, rng=random.Random(0), families=[*types[kind].easy_families])
    shown = [examples.task(kind).payload for _ in range(300)]
    assert asked.isdisjoint((task.program, given) for task in shown for given in task.inputs)


def test_a_warm_start_shows_no_question_of_an_exam():
    types = code_types("compact")
    asked = {question.prompt[0]["content"] for question in held_out_exam(types, "held_out_easy").questions}
    families = [name for one in types.values() for name in one.easy_families]
    examples = SeedExamples(types, rng=random.Random(0), families=families)
    shown = [examples.solve(kind).messages[0]["content"] for kind in ("code_i", "code_o") for _ in range(500)]
    assert asked.isdisjoint(shown)


@pytest.mark.slow
def test_a_warm_start_needs_no_more_references_than_there_are():
    examples = SeedExamples({"numbers": Numbers(size=20)}, rng=random.Random(0))
    assert 10 <= len(examples.references) <= 20


@pytest.mark.parametrize(
    "content", [b'{"type": "countdown", "payload": []}\n', b'{"type": "countdown"}\n', b"\xff\xfe"]
)
def test_a_damaged_file_of_tasks_is_named(tmp_path, content):
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"tasks.jsonl(: record 1 is no task|, line 1, is not JSON) \("):
        make_exam(f"tasks:{path}", {"countdown": Countdown()})


@pytest.mark.slow
def test_types_of_the_same_record_keep_each_others_tasks():
    types = make_task_types(["code_o", "code_i", "code_f"])
    reserved = reserved_keys(types)
    for task in held_out_tasks(types["code_o"], "held_out_easy"):
        assert types["code_i"].key(task.payload) in reserved
    assert reserved > reserved_keys({"code_o": types["code_o"]})
