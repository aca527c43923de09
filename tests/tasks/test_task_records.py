import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import trl_populora.tasks
from tests.code_tasks import code_task
from trl_populora.tasks import REASONS, Answer, Draft, Refusal, Task
from trl_populora.tasks.code.pairs import hidden, visible


def through_json(record):
    return json.loads(json.dumps(record))


def make(**changes) -> Task:
    content = {"program": "def f(x):\n    return x", "inputs": ("1",), "outputs": ("1",)} | changes
    return code_task(changes.pop("type", "code_o"), **{k: v for k, v in content.items() if k != "type"})


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.binary()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.text(), st.lists(st.text(), min_size=1, max_size=4), st.text(), st.text())
def test_task_survives_json(program, texts, message, author):
    task = make(
        type="code_f", program=program, inputs=tuple(texts), outputs=tuple(texts), message=message, author=author
    )
    assert Task.from_json(through_json(task.to_json())) == task


@given(st.lists(st.lists(plain, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3), plain)
def test_draft_and_answer_survive_json(inputs, value):
    draft = Draft("code_f", "def f(x): ...", tuple(inputs), "hint")
    assert Draft.from_json(through_json(draft.to_json())) == draft
    assert Answer.from_json(through_json(Answer(value).to_json())) == Answer(value)
    assert Refusal.from_json(through_json(Refusal("no_input", "why").to_json())) == Refusal("no_input", "why")


def test_id_depends_on_content_alone():
    assert make().id == make(author="teacher_1", step=9).id
    different = [make(program="def f(y):\n    return y"), make(inputs=("2",)), make(outputs=("2",)), make(message="m")]
    different += [make(type="code_i"), make()]
    assert len({task.id for task in different}) == 6
    assert re.fullmatch("[0-9a-f]{16}", make().id)


def test_an_altered_record_is_refused():
    with pytest.raises(ValueError, match="altered"):
        Task.from_json(make().to_json() | {"outputs": ["2"]})


@pytest.mark.parametrize("inputs, outputs", [((), ()), (("1",), ()), (("1",), ("1", "2"))])
def test_inputs_and_outputs_must_pair_up(inputs, outputs):
    with pytest.raises(ValueError, match="one output for each"):
        make(inputs=inputs, outputs=outputs)


@pytest.mark.parametrize("n, visible", [(2, 1), (3, 1), (10, 5), (7, 3)])
def test_half_of_the_pairs_is_visible(n, visible):
    texts = tuple(map(str, range(n)))
    task = make(type="code_f", inputs=texts, outputs=texts)
    assert len(visible(task)) == visible
    assert sorted(visible(task) + hidden(task)) == sorted(task.payload.pairs)
    assert (visible(task), hidden(task)) == (Task.from_json(task.to_json()).visible, hidden(task))


def test_where_an_input_stands_does_not_say_whether_it_is_shown():
    texts = tuple(map(str, range(10)))
    shown = [0] * 10
    for number in range(400):
        task = make(type="code_f", program=f"def f(x):\n    return x + {number}", inputs=texts, outputs=texts)
        for text, _ in visible(task):
            shown[int(text)] += 1
    assert sum(shown) == 2000 and all(150 < count < 250 for count in shown)  # 200 expected, sigma 10


def test_every_reason_in_the_source_is_documented():
    sources = "".join(path.read_text() for path in Path(trl_populora.tasks.__file__).parent.glob("*.py"))
    used = set(re.findall(r'Refusal\(\s*"(\w+)"', sources))
    assert len(used) > 15
    assert used <= REASONS
