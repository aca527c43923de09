"""Large results of programs: nothing in this process reads what is refused, or wrong, in any case."""

from dataclasses import replace

import pytest

from tests.code_tasks import code_task, code_types
from trl_populora.executor import Executor, Limits, Status, canonical, literals
from trl_populora.tasks import Answer, Draft, Refusal, Task
from trl_populora.tasks.code.payload import Proposed
from trl_populora.tasks.math import MathWord, WordProblem


FORGED = "import os\ndef f(x=0):\n    os.write(3, b'R\\5\\0\\0\\0vi01;')\n    return x"
BODIES = (
    "12 + x",
    "[x, 'a', 0.5]",
    "[None] * 60000",
    "[None] * 8192",
    "[None] * 8191",
    "[None] * 70000",
    "'a' * 60000",
    "'`' * 4",
    "('Fraction', 12, 5)",
    "('Fraction', 1 << 13000, 5)",
    "('a',) * 9000",
    "dict.fromkeys(range(3000))",
    "set(range(3000))",
    "b'a' * 9000",
    "1 << 13999",
    "float('nan')",
    "id(object())",
    "[hash('a')] * 3000",
    "x / 0",
    "object()",
    "[None] * 60000 if x else 1 / 0",
    "f(x)",
)
PROGRAMS = (FORGED, *(f"def f(x=0):\n    return {body}" for body in BODIES))
DOUBLES = code_task(
    "code_f", "def f(x):\n    return x * 2", inputs=map(str, range(10)), outputs=[str(2 * x) for x in range(10)]
)


@pytest.fixture
def decoded(monkeypatch):
    """Sizes of the values that are decoded."""
    sizes, decode = [], canonical.decode
    monkeypatch.setattr(canonical, "decode", lambda data: sizes.append(len(data)) or decode(data))
    return sizes


def proposed(program, count=10):
    return Draft(program, Proposed(program, tuple((x,) for x in range(count)), "A message"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "reason", "sizes"),
    [
        ("[None] * 60000", "too_large", []),
        ("[None] * 60000 if x < 7 else x", "too_large", [3, 3, 3]),
        ("[x]", None, [5] * 20),
    ],
)
def test_outputs_are_read_for_one_server_and_only_if_they_are_not_too_large(run, decoded, body, reason, sizes):
    (outcome,) = code_types()["code_f"].verify([proposed(f"def f(x):\n    return {body}")], run)
    assert (outcome.reason if isinstance(outcome, Refusal) else None) == reason
    assert decoded == sizes


@pytest.mark.parametrize("body", ["[None] * 60000", "('a',) * 9000", "dict.fromkeys(range(3000))"])
def test_what_is_no_number_is_not_read(run, decoded, body):
    draft = Draft("", WordProblem("A box holds 12 eggs.", f"def f():\n    return {body}", ""))
    (outcome,) = MathWord().verify([draft], run)
    assert outcome == Refusal("not_a_number", f"a value of type {type(eval(body)).__name__}")
    assert not decoded


def test_wrong_answers_are_not_read_and_hardly_received(run, decoded):
    executions = []

    def watched(jobs):
        executions.extend(run(jobs))
        return executions

    answers = [Answer(f"def f(x):\n    return {body}") for body in ("[True] * 60000", "x + 1", "x + x")]
    assert code_types()["code_f"].judge([DOUBLES] * 3, answers, watched) == [False, False, True]
    assert not decoded
    assert [one.status for one in executions] == [Status.OUTPUT_LIMIT, Status.OK, Status.OK]


def test_right_values_of_any_kind_have_room(run):
    """Of all literals, the imaginary ones need the most bytes in canonical form."""
    value = "[" + ", ".join(["0j"] * 3000) + "]"
    task = code_task("code_f", "def f(x):\n    return [0j] * 3000", inputs=map(str, range(10)), outputs=[value] * 10)
    assert code_types()["code_f"].judge([task], [Answer(task.payload.program)], run) == [True]


def test_settings_allow_larger_inputs_and_outputs_than_usual():
    types = code_types(input_bytes=20_000, output_bytes=200_000)
    texts = [f"{'a' * 9000 + sign!r},  70000" for sign in "0123456789"]
    proposal = Proposed("def f(x, n):\n    return x[-1] * n", tuple(map(literals.parse_literal, texts)), "A message")
    with Executor(2, Limits(result_bytes=1 << 20)) as executor:
        for name, inputs in (("code_f", 10), ("code_o", 1), ("code_i", 1)):
            kind, own = types[name], proposal._replace(inputs=proposal.inputs[:inputs])
            (payload,) = kind.verify([kind.draft(own)], executor.run_many)
            task = Task.create(name, payload)
            assert kind.question_keys(payload) == kind.question_keys(replace(payload, inputs=tuple(texts[:inputs])))
            answer = kind.parse_answer(task, kind.solve_completion(task))
            assert kind.judge([task], [answer], executor.run_many) == [True]


@pytest.mark.slow
def test_outcomes_are_those_of_jobs_whose_values_are_all_checked(run):
    def checked(jobs):
        return run([replace(job, lazy=False, total_bytes=None) for job in jobs])

    code = code_types(max_float_digits=6)["code_f"]
    drafts = [proposed(program, 3) for program in PROGRAMS]
    problems = [Draft("", WordProblem("A box holds 12 eggs.", program, "")) for program in PROGRAMS]
    answers = [Answer(program) for program in PROGRAMS]
    found, expected = (
        [
            *code.verify(drafts, way),
            *MathWord().verify(problems, way),
            *code.judge([DOUBLES] * len(answers), answers, way),
        ]
        for way in (run, checked)
    )
    assert found == expected
    assert found[0] == found[len(drafts)] == Refusal("protocol_violation", "a value that is not canonical")
