import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.code_tasks import code_task, code_types
from trl_populora.executor import Execution, Status, Value
from trl_populora.tasks import Refusal, Task, refused_by
from trl_populora.tasks.code.pairs import hidden, visible


def through_json(record):
    return json.loads(json.dumps(record))


def make(**changes) -> Task:
    content = {"program": "def f(x):\n    return x", "inputs": ("1",), "outputs": ("1",)} | changes
    return code_task(changes.pop("type", "code_o"), **{k: v for k, v in content.items() if k != "type"})


TYPES = code_types()


@given(st.text(), st.lists(st.text(), min_size=1, max_size=4), st.text(), st.text())
def test_task_survives_json(program, texts, message, author):
    task = make(
        type="code_f", program=program, inputs=tuple(texts), outputs=tuple(texts), message=message, author=author
    )
    assert TYPES["code_f"].read_task(through_json(task.to_json())) == task


def test_id_depends_on_content_alone():
    assert make().id == make(author="teacher_1", step=9).id
    different = [make(program="def f(y):\n    return y"), make(inputs=("2",)), make(outputs=("2",)), make(message="m")]
    different += [make(type="code_i"), make()]
    assert len({task.id for task in different}) == 6
    assert re.fullmatch("[0-9a-f]{16}", make().id)


def test_an_altered_record_is_refused():
    record = make().to_json()
    for changed in (record | {"payload": record["payload"] | {"outputs": ["2"]}}, record | {"type": "code_i"}):
        with pytest.raises(ValueError, match="altered"):
            TYPES["code_o"].read_task(changed)


@pytest.mark.parametrize("inputs, outputs", [((), ()), (("1",), ()), (("1",), ("1", "2"))])
def test_inputs_and_outputs_must_pair_up(inputs, outputs):
    with pytest.raises(ValueError, match="one output for each"):
        make(inputs=inputs, outputs=outputs)


@pytest.mark.parametrize("n, shown", [(2, 1), (3, 1), (10, 5), (7, 3)])
def test_half_of_the_pairs_is_visible(n, shown):
    texts = tuple(map(str, range(n)))
    task = make(type="code_f", inputs=texts, outputs=texts)
    assert len(visible(task)) == shown
    assert sorted(visible(task) + hidden(task)) == sorted(task.payload.pairs)
    assert (visible(task), hidden(task)) == (visible(TYPES["code_f"].read_task(task.to_json())), hidden(task))


def test_where_an_input_stands_does_not_say_whether_it_is_shown():
    texts = tuple(map(str, range(10)))
    shown = [0] * 10
    for number in range(400):
        task = make(type="code_f", program=f"def f(x):\n    return x + {number}", inputs=texts, outputs=texts)
        for text, _ in visible(task):
            shown[int(text)] += 1
    assert sum(shown) == 2000 and all(150 < count < 250 for count in shown)  # 200 expected, sigma 10


def test_an_execution_that_is_ok_refuses_nothing():
    with pytest.raises(ValueError, match="nothing is refused: read `execution.values`"):
        refused_by(Execution(Status.OK, (), 0.0, 0))
    assert refused_by(Execution(Status.EXCEPTION, (), 0.0, 0, error="KeyError")) == Refusal("exception", "KeyError")
    calls = (Value(Status.OK, b"N"), Value(Status.EXCEPTION, error="TypeError"), Value(Status.OK, b"N"))
    assert refused_by(Execution(Status.EXCEPTION, calls, 0.0, 0)) == Refusal("exception", "TypeError")
