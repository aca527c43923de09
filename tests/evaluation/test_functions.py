import json

import pytest

from trl_populora.evaluation.benchmarks.hub_tests import read_tests
from trl_populora.evaluation.benchmarks.humaneval_plus import HUMANEVAL_PLUS
from trl_populora.evaluation.benchmarks.mbpp_plus import ALSO_RIGHT, MBPP_PLUS
from trl_populora.evaluation.graders.code import read_code
from trl_populora.evaluation.graders.functions import FunctionTests, function_reference
from trl_populora.evaluation.graders.plain_json import from_json, to_json
from trl_populora.executor import Execution, Status, canonical


DOUBLE = function_reference("double", [[1], [2.5], [[1, 2]]], solution="def double(x): return x * 2")


@pytest.fixture(scope="module")
def grader(run):
    return FunctionTests(run)


def verdicts(grader: FunctionTests, reference: str, *completions: str) -> list[str]:
    return [one.verdict for one in grader.grade(completions, [reference] * len(completions))]


def fenced(code: str) -> str:
    return f"```python\n{code}\n```"


def test_only_all_right_values_solve(grader):
    right = [
        "def double(x): return x + x",
        "import sys, queue\nfrom operator import mul\ndouble = lambda x: mul(x, 2)",
    ]
    wrong = [
        "def double(x): return 2",  # right for the first call only
        "def double(x): return x * 3",
        "def double(x): return None",
        "def double(x): print(x * 2)",
        "def double(x, y): return x * 2",
        "def twice(x): return x * 2",
        "double = 2",
        "def double(x): raise ValueError",
        "import numpy_does_not_exist\ndef double(x): return x * 2",
        "def double(x):\n    yield x * 2",
        "def double(x):\n    x = [x]\n    x.append(x)\n    return x",
    ]
    assert verdicts(grader, DOUBLE, *map(fenced, right)) == ["solved"] * len(right)
    assert verdicts(grader, DOUBLE, *map(fenced, wrong)) == ["wrong"] * len(wrong)


def test_a_grade_shows_the_call(grader):
    (grade,) = grader.grade([fenced("def double(x): return 2")], [DOUBLE])
    assert grade.detail == "double(2.5) is 2, expected 5.0" and grade.answer == "def double(x): return 2"
    assert grade.seconds > 0


@pytest.mark.parametrize(
    "code",
    [
        # an object that says it equals everything
        "class Yes:\n    __eq__ = lambda self, other: True\n    __hash__ = None\ndef double(x): return Yes()",
        "class Yes(int):\n    __eq__ = lambda self, other: True\n    __hash__ = None\ndef double(x): return Yes(7)",
        "class Yes(list):\n    __eq__ = lambda self, other: True\n    __hash__ = None\ndef double(x): return Yes()",
        "import sys\nsys.exit(0)",
        "import sys\ndef double(x): sys.exit(0)",
        "import os\ndef double(x): os._exit(0)",
        # the harness, replaced; whatever it then says is compared all the same
        "import program\nprogram.report = lambda value: True\ndef double(x): return 3",
        "import program\nprogram.report = lambda value: b'0' * 32\ndef double(x): return 3",
        "import program\nprogram.f = lambda *a: True\ndef double(x): return 3",
        "import sys\nsys.modules['program'].__dict__.clear()\ndef double(x): return 3",
        "import builtins\nbuiltins.isinstance = lambda *a: True\nbuiltins.type = int\ndef double(x): return 3",
        # forged frames: the call returned, everything is well
        "import os\ndef double(x):\n    os.write(3, b'R\\x05\\0\\0\\0v(i2;)' + b'Z\\0\\0\\0\\0')\n    os._exit(0)",
        "import os\nos.write(3, b'F\\0\\0\\0\\0')\ndef double(x): return 3",
        # what the right answers are is not there to be found
        "import gc\ndef double(x): return [o for o in gc.get_objects() if 'x * 2' in str(o)][0]",
        "def double(x):\n    import sys\n    return sys._getframe(1).f_locals.get('expected')",
    ],
)
def test_cheating_fails(grader, code):
    assert verdicts(grader, DOUBLE, fenced(code), fenced("def double(x): return x * 2")) == ["wrong", "solved"]


@pytest.fixture
def read_bytes(monkeypatch):
    """Sizes of the values that this process reads. The long ones took a minute and more."""
    sizes, decode = [], canonical.decode
    monkeypatch.setattr(canonical, "decode", lambda data: sizes.append(len(data)) or decode(data))
    return sizes


FLOOD = """
import os
def {name}(n):
    if n == 0: return 0
    body = b"v[" + b"N" * 200_000 + b"]"
    data = (b"R" + len(body).to_bytes(4, "little") + body) * {calls} + b"Z\\0\\0\\0\\0"
    while data: data = data[os.write(3, data):]
    os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("large", [1, 20])
def test_results_after_the_first_wrong_one_are_not_read(run, read_bytes, large):
    """One large expected value is no leave to send large values for all calls."""
    solution = f"def g(n): return [0.5] * 16000 if 0 < n <= {large} else n"
    reference = function_reference("g", [[n] for n in range(21)], solution=solution)
    grader = FunctionTests(run)
    assert verdicts(grader, reference, fenced(solution)) == ["solved"]
    read_bytes.clear()
    assert verdicts(grader, reference, fenced(FLOOD.format(name="g", calls=20))) == ["wrong"]
    assert sum(read_bytes) < 600_000


def test_results_in_another_form_are_wrong(grader):
    code = "import os\ndef double(x):\n    os.write(3, b'R\\x07\\0\\0\\0v(i02;)' + b'Z\\0\\0\\0\\0')\n    os._exit(0)"
    (grade,) = grader.grade([fenced(code)], [DOUBLE])
    assert (grade.verdict, grade.detail) == ("wrong", "double(1): protocol_violation")


@pytest.mark.parametrize(
    "code",
    [
        "def double(x):\n    while True: pass",
        "while True: pass",
        "def double(x): return [0] * 10**12",
        "def double(x):\n    text = 'a'\n    while True: text += text",
        "import os\ndef double(x):\n    while True: os.fork()",
        "def double(x): return double(x)",
        "def double(x): return 'a' * 10**7",
        "def double(x): return eval('(' * 10000)",
        "def double(x):\n    import ctypes",
        "def double(x): return open('/etc/passwd').read()",
    ],
)
def test_bombs_are_wrong_answers(run, code):
    impatient = FunctionTests(run, seconds=0.5, memory_mb=256)
    assert verdicts(impatient, DOUBLE, fenced(code), fenced("def double(x): return x * 2")) == ["wrong", "solved"]


def test_what_cannot_be_read_is_refused(grader):
    texts = ["", "I do not know.", "```python\n```", "```", "```python\ndef double(x) return x\n```", "a" * 100_000]
    texts += [
        "```python\n" + "(" * 50_000 + "\n```",
        "```python\n\0\n```",
        "\ud800",
        "<think>def double(x): return x * 2",
    ]
    assert verdicts(grader, DOUBLE, *texts) == ["refused"] * len(texts)


def test_which_block_is_read():
    block = "def double(x): return x * 2"
    assert read_code(f"Use this.\n{fenced(block)}\nExample:\n```python\nprint(double(2))\n```\n", "double") == block
    assert read_code(f"```python\nfirst\n```\n{fenced('second')}\n```\n4\n```") == "second"
    assert read_code(f"```\n{block}\n```", "double") == block
    assert read_code(f"```python\n{block}", "double") == block  # cut off
    assert read_code(f'```c++\nx++;\n```\n```python title="a.py"\n{block}\n```') == block
    assert read_code(f"<think>\n{fenced('def double(x): pass')}\n</think>\n{fenced(block)}", "double") == block
    assert read_code(block, "double") == block
    assert read_code("```python\n    return x * 2\n```", "double") == "    return x * 2"


def test_examples_beside_the_function_do_not_count(grader):
    function = "from math import prod\ndef double(x): return prod([2, x]) if not isinstance(x, list) else x * 2\n"
    extras = ["assert double(1) == 3", "print(double(int(input())))", "raise SystemExit", "double(1, 2, 3)"]
    extras += ["n = int(input())\nprint(double(n))", "result = double(1, 2)"]
    extras += ["if __name__ == '__main__':\n    1 / 0"]
    assert verdicts(grader, DOUBLE, *(fenced(function + one) for one in extras)) == ["solved"] * len(extras)
    future = "from __future__ import annotations\ndef double(x: Unknown): return x * 2\nn = 1 / 0\n"
    assert verdicts(grader, DOUBLE, fenced(future), fenced("double = 1 / 0")) == ["solved", "wrong"]


def test_the_header_helps_and_gives_nothing_away(grader):
    header = "from typing import List\ndef one(): return 1\ndef up(x: int) -> int:\n    '''x + 1'''\n"
    reference = function_reference("up", [[1], [2]], solution=f"{header}    return x + 1", header=header)
    right = [
        "def up(x: List) -> int: return x + one()",
        "    return x + one()",
        "def one(): return 2\ndef up(x): return x + 1",
    ]
    right += ["from __future__ import annotations\ndef up(x: int) -> int: return x + 1"]
    assert verdicts(grader, reference, *map(fenced, right)) == ["solved"] * len(right)
    assert verdicts(grader, reference, fenced("x = 1"), fenced("    pass")) == ["wrong", "wrong"]
    nothing = function_reference("up", [[1]], solution=f"{header}    return None", header=header)
    assert verdicts(grader, nothing, fenced("x = 1")) == ["wrong"]  # the stub would return None


def test_a_call_cannot_spoil_the_next(grader):
    reference = function_reference("last", [[[1, 2]], [[1, 2]], [[1, 2]]], solution="def last(x): return x[-1]")
    assert verdicts(grader, reference, fenced("def last(x): return x.pop()")) == ["solved"]


def returns(value: str) -> str:
    return fenced(f"def f(): return {value}")


def test_floats_are_compared_within_a_tolerance(grader):
    def expecting(value: str, atol: float = 0) -> str:
        return function_reference("f", [[]], solution=f"def f(): return {value}", atol=atol)

    close = [
        ("0.3", "0.1 + 0.2"),
        ("[0.3, 1.0]", "[0.1 + 0.2, 1.0]"),
        ("(1e9,)", "(1e9 + 1,)"),
        ("1.0", "1"),
        ("1", "True"),
    ]
    close += [("float('inf')", "float('inf')"), ("[1, 2]", "[1.0, 2]"), ("1 + 0j", "1")]
    far = [
        ("0.3", "0.31"),
        ("[0.3, 1.0]", "(0.1 + 0.2, 1.0)"),
        ("[0.3]", "[0.1 + 0.2, 1.0]"),
        ("'a'", "'b'"),
        ("[1, 2]", "(1, 2)"),
    ]
    far += [
        ("float('inf')", "1e308"),
        ("1.0", "float('nan')"),
        ("[1]", "[1.0000000001]"),
        ("1.0", "10**400"),
        ("1.0", "None"),
    ]
    far += [("float('nan')", "float('nan')"), ("[0.5]", "['0.5']")]
    for pairs, verdict in ((close, "solved"), (far, "wrong")):
        grades = grader.grade([returns(out) for _, out in pairs], [expecting(right) for right, _ in pairs])
        assert [(*pair, one.verdict) for pair, one in zip(pairs, grades, strict=True)] == [
            (*pair, verdict) for pair in pairs
        ]
    near = [("[1, 2.0]", "[1, 2.00005]"), ("[[0.5]]", "[[0.50005]]"), ("1 + 1j", "1.00005 + 1j")]
    off = [("[1, 2.0]", "[1, 2.01]"), ("{'a': 0.5}", "{'a': 0.50005}"), ("2", "2.0001"), ("[0.5]", "[None]")]
    grades = grader.grade([returns(out) for _, out in near + off], [expecting(one, 1e-4) for one, _ in near + off])
    assert [one.verdict for one in grades] == ["solved"] * len(near) + ["wrong"] * len(off)


def test_subclasses_of_plain_types_count_as_these(grader):
    cases = [
        ("{'a': 2}", "__import__('collections').Counter('aa')"),
        ("(1, 2)", "__import__('collections').namedtuple('P', 'x y')(1, 2)"),
    ]
    cases += [
        ("3", "__import__('enum').IntEnum('E', {'three': 3}).three"),
        ("{1: [1]}", "__import__('collections').OrderedDict({1: [1]})"),
    ]
    references = [function_reference("f", [[]], solution=f"def f(): return {right}") for right, _ in cases]
    assert [one.verdict for one in grader.grade([returns(out) for _, out in cases], references)] == ["solved"] * 4


@pytest.mark.slow
def test_large_values_are_compared_by_digest(grader):
    cases = [
        ("list(range(100000))", "[float(i) for i in range(100000)]", "list(range(99999)) + [0]"),
        ("'ab' * 50000", "'ab' * 50000", "'ab' * 49999 + 'ba'"),
        ("7 ** 9999", "7 ** 9999", "7 ** 9999 + 1"),
        ("[('a', 'b')] * 50000", "[('a', 'b')] * 50000", "[('a\\0b',)] * 50000"),
        (
            "[{i: {i}} for i in range(9000)]",
            "[{i: {float(i)}} for i in range(9000)]",
            "[{i: [i]} for i in range(9000)]",
        ),
        ("[1.5, None, 1j] * 9000", "[1.5, None, 1j] * 9000", "(1.5, None, 1j) * 9000"),
    ]
    references = [function_reference("f", [[]], solution=f"def f(): return {right}") for right, _, _ in cases]
    grades = grader.grade([returns(one) for _, one, _ in cases], references)
    assert [one.verdict for one in grades] == ["solved"] * len(cases)
    grades = grader.grade([returns(one) for _, _, one in cases], references)
    assert [one.verdict for one in grades] == ["wrong"] * len(cases)


def test_oracles(grader):
    same_set = function_reference("f", [[]], solution="def f(): return (1, 2)", oracle="set")
    assert verdicts(grader, same_set, *map(returns, ["[2, 1, 1]", "{1, 2}", "[1, 2, 3]", "3", "[[1], [2]]"])) == [
        *["solved"] * 2,
        *["wrong"] * 3,
    ]
    match = function_reference(
        "f", [["a"], ["b"]], solution="import re\ndef f(t): return re.search('a', t)", oracle="not_none"
    )
    codes = [
        "import re\ndef f(t): return re.match('a', t)",
        "def f(t): return 'a' in t",
        "def f(t): return 0",
        "def f(t): return t",
    ]
    assert verdicts(grader, match, *map(fenced, codes)) == ["solved", "solved", "wrong", "wrong"]
    root = function_reference("f", [[[-4, 0, 1]]], solution="def f(c): return 2", atol=1e-4, oracle="root")
    codes = [
        f"def f(c): return {one}"
        for one in ("2", "-2.0000001", "3", "'2'", "None", "2 + 0j", "10**400", "float('nan')")
    ]
    assert verdicts(grader, root, *map(fenced, codes)) == ["solved"] * 2 + ["wrong"] * 6
    either = function_reference("f", [[]], solution="def f(): return 1", also="def f(): return 2")
    assert verdicts(grader, either, *map(returns, "123")) == ["solved", "solved", "wrong"]


def test_a_solution_that_does_not_run_blames_nobody(grader):
    broken = function_reference("f", [[1]], solution="def f(x): return x / 0")
    (grade,) = grader.grade([fenced("def f(x): return 1")], [broken])
    assert grade.verdict == "failed" and "ZeroDivisionError" in grade.detail
    odd = function_reference("f", [[1]], solution="def f(x): return object()")
    (grade,) = grader.grade([fenced("def f(x): return object()")], [odd])
    assert grade.verdict == "failed" and "object is not plain" in grade.detail
    failing = FunctionTests(lambda jobs: [Execution(Status.INFRA_ERROR, (), 0.0, 0) for _ in jobs])
    assert verdicts(failing, DOUBLE, fenced("def double(x): return x * 2")) == ["spared"]


def test_solutions_run_once(run):
    programs = []

    def noted(jobs):
        programs.extend(job.program for job in jobs)
        return run(jobs)

    counting = FunctionTests(noted)
    for _ in range(2):
        assert verdicts(counting, DOUBLE, fenced("def double(x): return x + x")) == ["solved"]
    assert sum("x * 2" in program for program in programs) == 2  # two parts
    assert sum("x + x" in program for program in programs) == 4


@pytest.mark.parametrize("failure", ["start", "reference"])
def test_nothing_is_kept_of_solutions_that_were_not_learned(run, failure):
    references = [function_reference(f"f{i}", [[1], [2]], solution=f"def f{i}(x): return 2 * x") for i in range(3)]
    calls = []

    def flaky(jobs):
        calls.append(jobs)
        if failure == "start" and len(calls) == 1:
            raise OSError("the sandbox cannot start")
        return run(jobs)

    if failure == "reference":
        bad = json.loads(references[1])
        references[1] = json.dumps(bad | {"inputs": [[{"tuple": [1], "x": 2}]]})  # a value of two kinds
    grades = FunctionTests(flaky).grade([fenced(f"def f{i}(x): return -1") for i in range(3)], references)
    wanted = ["wrong", "failed", "wrong"] if failure == "reference" else ["wrong"] * 3
    assert [grade.verdict for grade in grades] == wanted


def test_a_metric(grader):
    shares = grader.compute(
        predictions=[fenced("def double(x): return x * 2"), "I do not know."], references=[DOUBLE] * 2
    )
    assert shares == {"accuracy": 0.5, "well_formed": 0.5, "spared": 0}


def test_references_refuse_what_cannot_be_judged():
    with pytest.raises(ValueError, match="there are no inputs"):
        function_reference("f", [], solution="")
    with pytest.raises(ValueError, match=r"oracle='eq' must be one of \['equal'"):
        function_reference("f", [[1]], solution="", oracle="eq")
    with pytest.raises(TypeError, match="object is no type"):
        to_json([object()])


def test_values_travel_as_json():
    value = [1, 1.5, "a", None, True, (1, (2,)), {3}, {(1, 2): [{}]}, 1 + 2j, float("inf")]
    assert repr(from_json(json.loads(json.dumps(to_json(value))))) == repr(value)


HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": 'from typing import List\n\n\ndef total(x: List[int]) -> int:\n    """Sum."""\n',
    "entry_point": "total",
    "canonical_solution": "    return sum(x)\n",
    "base_input": [[[1, 2]], [[]]],
    "plus_input": [[[5]]],
    "atol": 0,
}
MBPP = {
    "task_id": "Mbpp/2",
    "prompt": '"""\nShared elements of two tuples.\nassert set(similar_elements((3, 4), (4, 5))) == {4}\n"""\n',
    "entry_point": "similar_elements",
    "canonical_solution": "\ndef similar_elements(a, b):\n    return tuple(set(a) & set(b))\n",
    "base_input": [[[3, 4], [4, 5]]],
    "plus_input": [[[], []]],
    "atol": 0,
}
HUB_HUMANEVAL = {name: HUMANEVAL[name] for name in ("task_id", "prompt", "entry_point", "canonical_solution")} | {
    "test": "import numpy as np\n\ndef assertion(out, exp, atol):\n    assert out == exp\n\ndef check(candidate):\n"
    "    inputs = [[[1, 2]], [[]], [[5]]]\n    results = [3, 0, 5]\n"
    "    for i, (inp, exp) in enumerate(zip(inputs, results)):\n        assertion(candidate(*inp), exp, 0)\n\n\n"
    "check(total)"
}
HUB_MBPP = {
    "task_id": 2,
    "code": MBPP["canonical_solution"],
    "prompt": "Shared elements of two tuples.",
    "test_list": ["assert set(similar_elements((3, 4), (4, 5))) == {4}"],
    "test": "def assertion(out, exp, atol):\n    assert out == exp\n\n"
    "inputs = [[(3, 4), (4, 5)], [(), ()]]\nresults = [(4,), ()]\n"
    "for i, (inp, exp) in enumerate(zip(inputs, results)):\n    assertion(similar_elements(*inp), exp, 0)\n",
}


@pytest.mark.parametrize(
    ("benchmark", "record", "other"),
    [(HUMANEVAL_PLUS, HUMANEVAL, HUB_HUMANEVAL), (MBPP_PLUS, MBPP, HUB_MBPP)],
    ids=["humaneval", "mbpp"],
)
def test_both_published_forms_give_the_same_question(grader, benchmark, record, other):
    question = benchmark.question(record, 0)
    assert benchmark.question(other, 0) == question
    assert question.id == record["task_id"] and "```python\n" in question.prompt[0]["content"]
    assert verdicts(grader, question.reference, benchmark.gold(record), benchmark.gold(other)) == ["solved", "solved"]
    for secret in (record["canonical_solution"].strip(), "[5]", "plus"):
        assert secret not in question.prompt[0]["content"]


def test_mbpp_arguments_have_their_types():
    def typed(number, arguments):
        record = MBPP | {"task_id": f"Mbpp/{number}", "base_input": [arguments], "plus_input": {}}
        return from_json(json.loads(MBPP_PLUS.question(record, 0).reference)["inputs"])[0]

    assert typed(2, [[3], [4]]) == [(3,), (4,)]
    assert typed(63, [[[1, 2]]]) == [[(1, 2)]]
    assert typed(75, [[[6, 24]], 6]) == [[(6, 24)], 6]
    assert typed(106, [[5], [9]]) == [[5], (9,)]
    assert typed(250, [[10, 8], 4]) == [(10, 8), 4]
    assert typed(259, [[[1]], [[6]]]) == [((1,),), ((6,),)]
    assert typed(580, [[4, [7]]]) == [(4, (7,))]
    assert typed(115, [[[1], []]]) == [[{1}, {}]]
    assert typed(124, ["0", "1j"]) == [0.0, 1j]
    assert typed(252, ["(1+2j)"]) == [1 + 2j]
    assert typed(278, [[[1], 2]]) == [((1,), 2)]
    assert typed(722, [{"a": [6.2, 70]}, 6.0]) == [{"a": (6.2, 70)}, 6.0]
    assert typed(3, [[1], [2]]) == [[1], [2]]


@pytest.mark.parametrize("name", ALSO_RIGHT)
def test_second_readings_run(grader, name):
    reference = function_reference(name, [[12, 5]], solution=ALSO_RIGHT[name])
    assert verdicts(grader, reference, fenced(ALSO_RIGHT[name])) == ["solved"]


def test_hub_literals_hold_infinities_and_sets():
    text = (
        "inputs = [[-inf, nan, float('inf')], [{1}, set(), {2: (1,)}, -1j, 1 + 2j, -3]]\nassertion(f(*inp), exp, 1e-6)"
    )
    tests = read_tests({"task_id": 1, "test": text})
    assert repr(tests.inputs) == repr(
        [[float("-inf"), float("nan"), float("inf")], [{1}, set(), {2: (1,)}, -1j, 1 + 2j, -3]]
    )
    assert (tests.name, tests.atol, tests.typed) == ("f", 1e-6, True)


@pytest.mark.parametrize(
    "test",
    [
        None,
        "",
        "inputs = [[1]]",
        "assertion(f(*inp), exp, 0)",
        "inputs = [[open('x')]]\nassertion(f(*inp), exp, 0)",
        "inputs = [",
        "inputs = [[1]]\nassertion(exp, exp, 0)",
    ],
)
def test_records_without_readable_tests_are_refused(test):
    record = {"task_id": "HumanEval/0", "prompt": "", "entry_point": "f", "canonical_solution": ""}
    with pytest.raises(ValueError, match="HumanEval/0 has no tests that can be read .* EvalPlus release"):
        HUMANEVAL_PLUS.question(record if test is None else record | {"test": test}, 0)
