"""One test per mistake of the Absolute Zero Reasoner code base that this room must not repeat."""

import random

import pytest

from tests.code_tasks import code_buffer, code_task, code_types
from trl_populora.executor import Execution, Status, Value, canonical
from trl_populora.tasks import Answer, Draft, Refusal, Task, is_spared
from trl_populora.tasks.code.hygiene import check_program
from trl_populora.tasks.code.pairs import hidden, visible
from trl_populora.tasks.parsing import fence


IDENTITY = "def f(x):\n    return x"


def proposal(program: str, text: str = "1") -> str:
    return f"{fence('python', program)}\n{fence('input', text)}"


def induction(inputs, message: str = "Give back what comes in.") -> str:
    return "\n".join([*(fence("input", text) for text in inputs), fence("message", message)])


def reason(outcome) -> str:
    assert isinstance(outcome, Refusal), outcome
    return outcome.reason


def source_task(program: str = IDENTITY) -> Task:
    return code_task("code_o", program, inputs=("1",), outputs=("1",))


@pytest.mark.slow
def test_azr_output_truncation(play):
    """It cut long outputs in the middle, gold ones too: nothing is ever cut here, too large is refused."""
    program = "def f(n):\n    return list(range(n))"
    assert reason(play.propose("code_o", proposal(program, "1000"))) == "too_large"
    wide = "def f(n):\n    return [set() for _ in range(n)]"  # 20 kB, which would take long to write as a literal
    assert "more than" in play.propose("code_o", proposal(wide, "10000")).detail
    task = play.propose("code_o", proposal(program, "180"))
    assert len(task.payload.output) > 600 and "..." not in task.payload.output
    assert play.solved(task, fence("output", str(list(range(180)))))
    text = "'" + "ab" * 300 + "'"
    long_text = play.propose("code_o", proposal(IDENTITY, text))
    assert long_text.payload.output == text
    assert play.solved(long_text, fence("output", text))


def test_azr_overlong_answers_are_refused_and_not_cut(play):
    task = play.propose("code_o", proposal(IDENTITY, "'a'"))
    assert reason(play.types["code_o"].parse_answer(task, fence("output", "'" + "a" * 9000 + "'"))) == "too_large"
    task = play.propose("code_i", proposal(IDENTITY, "'a'"))
    assert reason(play.types["code_i"].parse_answer(task, fence("input", "'" + "a" * 9000 + "'"))) == "too_large"
    answer = fence("python", IDENTITY + "  #" + "a" * 9000)
    assert reason(play.types["code_f"].parse_answer(task, answer)) == "too_large"


@pytest.mark.parametrize("name", ["gold_output", "gold", "agent_output", "answer", "task.output", "self", "value"])
def test_azr_code_o_answer_naming_the_gold_variable(play, name):
    """An answer that named the local variable of the gold output scored 1."""
    task = play.propose("code_o", proposal(IDENTITY, "42"))
    assert reason(play.types["code_o"].parse_answer(task, fence("output", name))) == "not_literal"


def test_azr_code_i_parenthesis_or_true(play):
    """Answers were pasted into a script, so that a closing parenthesis continued the comparison."""
    task = play.propose("code_i", proposal("def f(x):\n    return x * 7 % 1009", "123"))
    for text in ("1) or True or (1", "1) == 7 or f(1", "1) or True #", "1)\nTrue\n("):
        assert reason(play.types["code_i"].parse_answer(task, fence("input", text))) == "not_literal"


def test_azr_code_i_print_mode(play):
    """The text `print(` in an answer switched the executor to captured output."""
    task = play.propose("code_i", proposal("def f(s):\n    return s.count('p')", "'ppp'"))
    assert reason(play.types["code_i"].parse_answer(task, fence("input", "print(3)"))) == "not_literal"
    assert not play.solved(task, fence("input", "'print(3)'"))
    assert play.solved(task, fence("input", "'print(pp)'"))


def test_azr_code_f_proposal_inputs_holding_print(play):
    """A proposed input with `print(` in it made every solver right."""
    inputs = ["'print(1)'", "'print(2)'", "'a'", "'b'", "'c'", "'d'", "'e'", "'print(3)'", "'print(4)'", "'print(5)'"]
    task = play.propose("code_f", induction(inputs), [source_task()])
    assert not play.solved(task, fence("python", "def f(x):\n    return 'print(3)'"))
    assert play.solved(task, fence("python", IDENTITY))


def test_azr_code_f_eq_always_true(play):
    """Comparison ran in the solver's process and trusted the solver's objects."""
    task = play.propose("code_f", induction(map(str, range(10))), [source_task()])
    cheat = (
        "class A(int):\n    def __eq__(self, o):\n        return True\n    __hash__ = None\ndef f(x):\n    return A(0)"
    )
    assert not play.solved(task, fence("python", cheat))
    assert not play.solved(task, fence("python", cheat.replace("A(int)", "A").replace("A(0)", "A()")))


EMPTY_GOLD = {
    "nan": ("import math\ndef f(x):\n    return math.nan", "not_literal"),
    "inf": ("def f(x):\n    return [x * 1e308 * 10]", "not_literal"),
    "object": ("class A:\n    pass\ndef f(x):\n    return A()", "unplain"),
    "stop_iteration": ("def f(x):\n    return next(iter([]))", "exception"),
    "system_exit": ("def f(x):\n    raise SystemExit", "base_exception"),
    "own_exception": ("class Done(Exception):\n    pass\ndef f(x):\n    raise Done('all\\nfine')", "exception"),
    "none": ("def f(x):\n    x + 1", "no_value"),
    "generator": ("def f(x):\n    yield x", "unplain"),
    "function": ("def f(x):\n    return f", "unplain"),
}


@pytest.mark.parametrize("program, why", EMPTY_GOLD.values(), ids=EMPTY_GOLD)
@pytest.mark.parametrize("type", ["code_o", "code_i"])
def test_azr_empty_gold(play, program, why, type):
    """Programs whose failure was not named an error were accepted with an empty gold output."""
    assert reason(play.propose(type, proposal(program))) == why


def test_azr_status_read_from_text(play):
    """A result that says error is a result, and an exception that does not is an exception."""
    task = play.propose("code_o", proposal("def f(x):\n    return 'SyntaxError: error'"))
    assert task.payload.output == "'SyntaxError: error'"
    assert reason(play.propose("code_o", proposal("def f(x):\n    raise ValueError('Done')"))) == "exception"


def test_azr_nondeterministic_accepted(play):
    """The check called f twice in one process, and its message was not recognised as an error."""
    hash_order = "def f(x):\n    return list({'red', 'green', 'blue', 'sun', 'moon', str(x)})"
    address = "def f(x):\n    return repr(object())"
    assert reason(play.propose("code_o", proposal(hash_order))) == "nondeterministic"
    assert reason(play.propose("code_i", proposal(address))) == "nondeterministic"
    state = "N = []\ndef f(x):\n    N.append(x)\n    return len(N)"
    assert reason(play.propose("code_f", induction(map(str, range(10))), [source_task(state)])) == "nondeterministic"


def test_azr_double_eval_of_strings(play):
    """The gold '1+1' was evaluated until it equalled the answer '2'."""
    task = play.propose("code_o", proposal(IDENTITY, "'1+1'"))
    assert not play.solved(task, fence("output", "'2'"))
    assert not play.solved(task, fence("output", "2"))
    assert play.solved(task, fence("output", '"1+1"'))


@pytest.mark.parametrize("answer", ["1.0", "True", "'1'", "[1]", "(1,)", "1+0j"])
def test_azr_equal_is_not_the_same(play, answer):
    task = play.propose("code_o", proposal(IDENTITY, "1"))
    assert not play.solved(task, fence("output", answer))


@pytest.mark.parametrize(
    "answer",
    ["f(1)", "2 - 1", "1 if True else 0", "int('1')", "[x for x in [1]][0]", "lambda: 1", "9**9**9**9", "()()"],
)
def test_azr_literal_only_answers(play, answer):
    """Answers could be any expression, evaluated in the trainer's own process without a time limit."""
    for type, label in (("code_o", "output"), ("code_i", "input")):
        task = play.propose(type, proposal(IDENTITY, "1"))
        assert reason(play.types[type].parse_answer(task, fence(label, answer))) == "not_literal"
    assert reason(play.propose("code_o", proposal(IDENTITY, answer))) == "not_literal"


def test_azr_swapped_difficulty_hints(style):
    """Proposers were told to make the wrong half hard."""
    for type, right, wrong in (("code_o", "output", "input"), ("code_i", "input", "output")):
        (message,) = code_types(style)[type].propose_prompt([], random.Random(0))
        text = message["content"].lower()
        assert f"the {right} hard to" in text or f"the {right} should be hard to" in text
        assert f"the {wrong} hard to" not in text and f"the {wrong} should be hard to" not in text


def test_azr_helper_functions_rejected():
    """Its prompt invited helpers and classes, its parser rejected every second `def`."""
    assert (
        check_program(
            "def g(x):\n    return x\nclass A:\n    def m(self):\n        return 1\ndef f(x):\n    return g(x)"
        )
        is None
    )


def test_azr_input_fence_read_as_the_program(play):
    """An unlabelled or input fence in first place was taken for the program."""
    text = f"```\nscratch\n```\n{fence('input', '3')}\n{fence('python', IDENTITY)}"
    assert play.propose("code_o", text).payload.input == "3"


@pytest.mark.parametrize("module", ["os", "os.path", "sys", "socket", "shutil", "secrets", "uuid", "random", "time"])
def test_azr_ban_list_with_holes(module):
    assert check_program(f"import {module}\n{IDENTITY}").reason == "banned_import"
    assert check_program(f"def f(x):\n    return __import__('{module}')").reason == "dunder"


def test_azr_supplied_outputs(play):
    """An output that a proposer writes changes nothing."""
    task = play.propose("code_o", proposal("def f(x):\n    return x + 1", "1") + "\n" + fence("output", "7"))
    assert task.payload.output == "2"


def test_azr_oldest_kept_buffer():
    """Once full, its buffer kept the oldest tasks for ever."""
    tasks = [code_task("code_o", IDENTITY, inputs=(str(n),), outputs=(str(n),), step=n) for n in range(9)]
    assert code_buffer(3, tasks).tasks("code_o") == tasks[-3:]


def test_azr_no_dedup():
    task = source_task()
    assert len(code_buffer(9, [task, task, code_types()["code_o"].read_task(task.to_json())])) == 1


def test_azr_unseeded_sampling():
    buffer = code_buffer(99, [code_task("code_o", IDENTITY, inputs=(str(n),), outputs=(str(n),)) for n in range(50)])
    for draw in (buffer.references, buffer.fill):
        assert draw("code_o", 6, random.Random(3)) == draw("code_o", 6, random.Random(3))
        assert draw("code_o", 6, random.Random(3)) != draw("code_o", 6, random.Random(4))


def test_azr_repeated_answer(play):
    """The same answer given twice to one task crashed the solve rate."""
    task = play.propose("code_i", proposal("def f(x):\n    return 1 // x", "1"))
    good, bad = fence("input", "1"), fence("input", "0")
    assert play.solved_all([(task, good), (task, bad), (task, bad), (task, good)]) == [True, False, False, True]


def test_azr_failed_attempts_left_out_of_the_mean(play):
    """Attempts without a result were dropped; here each one is a verdict."""
    task = play.propose("code_i", proposal("def f(n):\n    while n:\n        pass\n    return 'end'", "0"))
    assert play.solved_all([(task, fence("input", "0")), (task, fence("input", "5"))]) == [True, False]
    lost = Execution(Status.INFRA_ERROR, (), 0.0, 0)
    (verdict,) = play.types["code_i"].judge([task], [Answer((0,))], lambda jobs: [lost for _ in jobs])
    assert is_spared(verdict)


def test_azr_any_input_with_the_output_counts(play):
    task = play.propose("code_i", proposal("def f(x, y):\n    return x * y", "3, 4"))
    assert play.solved(task, fence("input", "2, 6"))
    assert not play.solved(task, fence("input", "2, 6.0"))


def test_azr_no_author_or_step_stored(play):
    task = play.propose("code_o", proposal(IDENTITY))
    assert (task.author, task.step) == ("teacher", 3)


def test_azr_number_of_inputs_in_two_places(play_with):
    """The prompt could ask for another number of inputs than the parser wanted."""
    play = play_with(num_function_inputs=4)
    (message,) = play.types["code_f"].propose_prompt([source_task()], random.Random(0))
    assert "4 different inputs" in message["content"]
    assert reason(play.propose("code_f", induction("123"), [source_task()])) == "too_few_inputs"
    task = play.propose("code_f", induction("1234"), [source_task()])
    assert len(visible(task)) == len(hidden(task)) == 2


def test_azr_repeated_inputs_in_code_f(play):
    inputs = ["[1, 2]", "[1,2]", *"34567890"]
    assert reason(play.propose("code_f", induction(inputs), [source_task()])) == "duplicate_inputs"
    tables = ["{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}", *"34567890"]
    assert reason(play.propose("code_f", induction(tables), [source_task()])) == "duplicate_inputs"


def test_azr_constant_outputs_in_code_f(play):
    constant = source_task("def f(x):\n    return 5")
    assert reason(play.propose("code_f", induction(map(str, range(10))), [constant])) == "constant_outputs"


@pytest.mark.parametrize(
    "message",
    [
        "It is def f(xs):\n    return sorted(xs)[::-1]",
        "Write def  f(xs): and so on",
        "The body is: return   sorted(xs) [::-1]",
    ],
)
def test_azr_message_with_the_program(play, message):
    task = source_task("def f(xs):\n    return sorted(xs)[::-1]")
    inputs = [f"[{n}, 9]" for n in range(10)]
    assert reason(play.propose("code_f", induction(inputs, message), [task])) == "message_leaks_program"
    assert isinstance(play.propose("code_f", induction(inputs, "Return the list sorted downwards."), [task]), Task)


def test_azr_missing_message(play):
    inputs = "\n".join(fence("input", str(n)) for n in range(10))
    assert reason(play.propose("code_f", inputs, [source_task()])) == "missing_message"


def test_azr_transcript_words_inside_a_program(play):
    """A completion was cut at the second `Assistant:`, wherever it stood."""
    program = "def f(x):\n    return f'User: {x} Assistant: ok'"
    task = play.propose("code_o", "User: hm\nAssistant: " + proposal(program, "'a'"))
    assert task.payload.program == program
    assert play.solved(task, "Assistant: sure\n" + fence("output", task.payload.output))


@pytest.mark.parametrize("marker", ["```", "</think>", "<answer>", "<|im_end|>", "</s>"])
def test_azr_markers_smuggled_into_a_prompt(play, marker):
    """Program, input, output and message are all checked; an output may be computed from harmless parts."""
    written = play.propose("code_o", proposal(f"def f(x):\n    return '{marker}' + x", "'a'"))
    assert isinstance(written, Refusal)
    head, tail = marker[:1], marker[1:]
    built = play.propose("code_o", proposal(f"def f(x):\n    return {head!r} + x", repr(tail)))
    assert reason(built) == "reserved_text"
    if marker.startswith("<|") or marker == "</s>":
        assert reason(play.propose("code_o", proposal(IDENTITY, repr(marker)))) == "reserved_text"
        text = induction(map(str, range(10)), f"Hint {marker} end")
        assert reason(play.propose("code_f", text, [source_task()])) == "reserved_text"


def test_azr_set_outputs_have_one_text(play):
    """A gold output of unsorted set text differed between processes."""
    task = play.propose("code_o", proposal("def f(x):\n    return {'b', 'a', 'c', x}", "'d'"))
    assert task.payload.output == "{'a', 'b', 'c', 'd'}"
    assert play.solved(task, fence("output", "{'d', 'c', 'b', 'a'}"))


def test_azr_copied_reference(play):
    task = play.propose("code_o", proposal(IDENTITY, "[1, 2]"))
    assert reason(play.propose("code_o", proposal(IDENTITY, "[1,2]"), [task])) == "duplicate"
    assert isinstance(play.propose("code_o", proposal(IDENTITY, "[1, 3]"), [task]), Task)


def test_verdicts_need_exactly_the_values_that_were_asked_for():
    types = code_types("compact", num_function_inputs=4)
    task = code_task("code_f", IDENTITY, inputs=tuple("1234"), outputs=tuple("1234"), message="m")
    answer = types["code_f"].parse_answer(task, fence("python", IDENTITY))
    first, second = (int(given) for given, _ in hidden(task))

    def judged(*values, status=Status.OK):
        def run(jobs):
            assert [job.inputs for job in jobs] == [((first,), (second,))]
            return [Execution(status, tuple(Value(status, canonical.encode(v)) for v in values), 0.0, 0)]

        (verdict,) = types["code_f"].judge([task], [answer], run)
        return verdict

    assert judged(first, second) is True
    for values in [(), (first,), (second, first), (first, second, second), (first, 5)]:
        assert judged(*values) is False
    assert judged(first, second, status=Status.KILLED) is False


def test_drafts_are_run_deterministically():
    for type, text in (("code_o", proposal(IDENTITY)), ("code_f", induction(map(str, range(10))))):
        task_type = code_types()[type]
        draft = task_type.parse_proposal(text, [source_task(IDENTITY + " ")])
        assert isinstance(draft, Draft)
        ran = []

        def run(jobs, ran=ran):
            ran.extend(jobs)
            return [Execution(Status.EXCEPTION, (), 0.0, 0) for _ in jobs]

        assert reason(*task_type.verify([draft], run)) == "exception"
        assert [job.deterministic for job in ran] == [True]
