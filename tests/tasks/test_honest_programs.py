"""Honest programs become tasks: through parsing, the rules, the executor and the last checks, as in a round."""

import honest_programs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trl_populora.executor import canonical, literals
from trl_populora.tasks import Refusal, Task
from trl_populora.tasks.code.arguments import read_arguments
from trl_populora.tasks.parsing import fence


def proposal(program, given):
    return fence("python", program.strip("\n")) + "\n" + fence("input", given)


@pytest.mark.slow
def test_honest_programs_become_tasks(play):
    texts = [proposal(*case) for case in honest_programs.ACCEPTED.values()]
    outcomes = dict(zip(honest_programs.ACCEPTED, play.propose_all("code_o", [(text, ()) for text in texts])))
    assert {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, Refusal)} == {}
    solved = play.solved_all([(task, play.types["code_o"].solve_completion(task)) for task in outcomes.values()])
    assert all(solved)


def test_the_honest_programs_that_are_refused_are_two(play):
    cases = honest_programs.REFUSED
    outcomes = play.propose_all("code_o", [(proposal(program, given), ()) for program, given, _ in cases.values()])
    assert [outcome.reason for outcome in outcomes] == [reason for _, _, reason in cases.values()]
    assert len(cases) <= 2
    assert len(cases) + len(honest_programs.ACCEPTED) >= 60


@pytest.mark.parametrize("text, stored", honest_programs.INPUTS.values(), ids=honest_programs.INPUTS)
def test_honest_inputs_are_stored_as_positional_arguments(play, text, stored):
    task = play.propose("code_o", proposal(honest_programs.SORT, text))
    assert isinstance(task, Task)
    assert task.payload.input == stored


STYLES = {
    "test that is printed": ("def f(n):\n    return n * 2\n\nprint(f(3))", "4", "8"),
    "test that is asserted": ("def f(n):\n    return n * 2\n\nassert f(2) == 4", "4", "8"),
    "table of its own results": ("def f(n):\n    return n * 2\n\nTABLE = [f(i) for i in range(5)]", "4", "8"),
    "amount of money": ("def f(n):\n    return round(n * 1.08, 2)", "19999.99", "21599.99"),
    "exports": ("__all__ = ['f']\ndef f(n):\n    return n", "4", "4"),
    "bytes": ("import struct\ndef f(n):\n    return struct.pack('>I', n).hex()", "258", "'00000102'"),
    "array": ("from array import array\ndef f(n):\n    return list(array('i', [n] * 3))", "4", "[4, 4, 4]"),
    "comment in the input": ("def f(xs, k):\n    return sorted(xs)[:k]", "[3, 1, 2], 2  # smallest two", "[1, 2]"),
}


def test_honest_styles_become_tasks(play):
    outcomes = play.propose_all("code_o", [(proposal(program, given), ()) for program, given, _ in STYLES.values()])
    found = {name: getattr(outcome, "payload", outcome) for name, outcome in zip(STYLES, outcomes)}
    assert {name: getattr(one, "output", one) for name, one in found.items()} == {
        name: output for name, (_, _, output) in STYLES.items()
    }


def test_answers_and_code_f_inputs_may_name_parameters_too(play):
    task = play.propose("code_i", proposal(honest_programs.SORT, "[3, 1, 2], 1"))
    assert play.solved(task, fence("input", "k = 1\nitems = [5, 1]"))
    assert not play.solved(task, fence("input", "k = 1\nitems = [5, 2]"))
    assert not play.solved(task, fence("input", "k = 1\nthings = [5, 1]"))
    given = "\n".join(fence("input", f"k={n}, items={[n, 7]}") for n in range(10)) + fence("message", "sorts")
    induction = play.propose("code_f", given, [task])
    assert induction.payload.inputs[3] == "[3, 7], 3"


AMBIGUOUS = {
    "no parameter of f": "x=3",
    "keyword only": "[1], last=1",
    "in the star": "[1], rest=1",
    "twice": "[1], items=[2]",
    "twice by name": "items=[1], items=[2]",
    "positional after a name": "items=[1], 3",
    "a tuple or two arguments": "items = 1, 2",
    "a tuple or one argument": "items = 1,",
    "nothing for items": "k=3",
    "a default that is computed": "[1], reverse=True",
    "no value": "items=",
    "no comma": "[1] k=2",
    "a line break after a positional value": "[1]\nk = 2",
    "no comma between names": "items=[1] k=2",
    "expression": "items = [1] * 3",
    "another name": "items = [1]\nk = items",
    "call": "items = list((1, 2))",
    "comprehension": "items = [i for i in (1, 2)]",
    "chain": "items = k = [1]",
    "unpacked": "items, k = [1], 2",
    "augmented": "items = [1]\nk += 2",
    "walrus": "(items := [1])",
    "comparison": "items == [1]",
    "annotated": "items: list = [1]",
    "attribute": "items.x = [1]",
    "subscript": "items[0] = [1]",
    "import": "import os\nitems = [1]",
    "statement": "items = [1]\ndel items",
    "name of another script": "\u0456tems = [1]",
    "inside a bracket": "(items=[1])",
    "the call itself": "f(items=[1])",
    "two lines": "[1]\n2",
    "comment between values": "[1]  # and\n2",
    "text that is not closed": "['a]  # '",
    "double star": "**{'items': [1]}",
    "f-string": "items = f'{3}'",
    "semicolon after a value": "[1]; k = 2",
}


@pytest.mark.parametrize("text", AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_inputs_that_are_ambiguous_or_no_literals_are_refused(play, text):
    program = "TWO = 2\ndef f(items, k=TWO, reverse=False, *rest, last=0):\n    return items"
    assert play.propose("code_o", proposal(program, text)).reason == "not_literal"


values = st.recursive(
    st.integers() | st.text(max_size=5) | st.booleans() | st.none(), lambda inner: st.lists(inner, max_size=3)
)


@given(st.lists(values, min_size=1, max_size=4), st.integers(0, 4), st.randoms(), st.sampled_from([", ", "\n", "; "]))
def test_names_are_mapped_to_places(arguments, positional, random, separator):
    positional = min(positional, len(arguments) - 1) if separator == ", " else 0
    program = f"def f({', '.join('abcd'[: len(arguments)])}):\n    return 1"
    named = [f"{'abcd'[i]} = {arguments[i]!r}" for i in range(positional, len(arguments))]
    random.shuffle(named)
    text = separator.join([*(repr(value) for value in arguments[:positional]), *named])
    read = read_arguments(text, program, max_bytes=1 << 16)
    assert canonical.encode(read, max_bytes=None) == canonical.encode(tuple(arguments), max_bytes=None)


@given(st.text(max_size=60) | st.text(alphabet="ab=,;\n [](){}'\"\\1:-#.", max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        plain = literals.parse_arguments(text)
    except literals.NotLiteral:
        plain = None
    try:
        values, named = literals.parse_named_arguments(text)
    except literals.NotLiteral:
        assert plain is None  # what was accepted without names still is
    else:
        assert named or canonical.encode(values) == canonical.encode(plain)
