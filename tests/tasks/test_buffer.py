import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.code_tasks import code_buffer, code_seeds, code_task, code_types
from trl_populora.tasks import Task, TaskBuffer
from trl_populora.tasks.code.keys import task_key


def task(number: int, *, type: str = "code_o", step: int = 0, author: str = "seed") -> Task:
    text = (str(number),)
    return code_task(type, "def f(x):\n    return x", inputs=text, outputs=text, step=step, author=author)


def numbers(tasks) -> list[int]:
    return [int(task.payload.input) for task in tasks]


@given(st.lists(st.tuples(st.sampled_from(["code_o", "code_i"]), st.integers(0, 12))), st.integers(1, 5))
def test_buffer_keeps_the_newest_distinct_tasks_of_each_type(adds, capacity):
    buffer = code_buffer(capacity)
    model: dict[str, list[int]] = {"code_o": [], "code_i": []}
    for type, number in adds:
        new = number not in model[type]
        assert buffer.add(task(number, type=type)) is new
        model[type] = (model[type] + [number] * new)[-capacity:]
        assert task(number, type=type) in buffer
    for type, kept in model.items():
        assert numbers(buffer.tasks(type)) == kept
    assert len(buffer) == sum(map(len, model.values()))


def test_the_author_and_step_do_not_make_a_task_new():
    buffer = code_buffer(tasks=[task(1)])
    assert not buffer.add(task(1, step=5))


def test_fill_takes_the_newest_step_first(rng):
    buffer = code_buffer(tasks=[task(n, step=n // 10) for n in range(40)])
    assert set(numbers(buffer.fill("code_o", 10, rng))) == set(range(30, 40))
    filled = numbers(buffer.fill("code_o", 15, rng))
    assert set(filled[:10]) == set(range(30, 40))
    assert len(set(filled)) == 15
    assert filled[:10] != sorted(filled[:10])


def test_fill_takes_the_first_proposals_before_seed_tasks(rng):
    seeds = [task(n, author="seed:any") for n in range(20)]
    buffer = code_buffer(tasks=[*seeds, *(task(n, author="teacher_0") for n in (20, 21))])
    filled = numbers(buffer.fill("code_o", 5, rng))
    assert set(filled[:2]) == {20, 21} and len(set(filled)) == 5 and max(filled[2:]) < 20


def test_fill_is_uniform_over_the_older_tasks(rng):
    buffer = code_buffer(tasks=[task(n, step=int(n == 4)) for n in range(5)])
    drawn = [numbers(buffer.fill("code_o", 2, rng))[1] for _ in range(400)]
    assert all(60 < drawn.count(n) < 140 for n in range(4))


@given(st.integers(1, 6), st.integers(0, 20), st.sets(st.integers(0, 5)), st.integers(0, 3))
def test_fill_returns_exactly_n_and_avoids_the_excluded(size, n, excluded, seed):
    buffer = code_buffer(tasks=[task(i, step=i % 2) for i in range(size)])
    filled = numbers(buffer.fill("code_o", n, random.Random(seed), exclude={task(i).id for i in excluded}))
    allowed = set(range(size)) - excluded or set(range(size))
    assert len(filled) == n
    assert set(filled) <= allowed
    assert len(set(filled)) == min(n, len(allowed))


def test_an_empty_type_cannot_fill(rng):
    buffer = code_buffer(tasks=[task(1)])
    assert buffer.fill("code_i", 0, rng) == []
    with pytest.raises(ValueError, match="no code_i task"):
        buffer.fill("code_i", 1, rng)


def test_references_are_different_tasks_of_the_type(rng):
    buffer = code_buffer(tasks=[*(task(n) for n in range(8)), task(9, type="code_i")])
    shown = numbers(buffer.references("code_o", 6, rng))
    assert len(set(shown)) == 6
    assert set(shown) <= set(range(8))
    assert numbers(buffer.references("code_i", 6, rng)) == [9]


def test_code_f_builds_on_the_programs_of_the_other_types(rng):
    induction = task(5, type="code_f")
    buffer = code_buffer(tasks=[task(1), task(2, type="code_i"), induction])
    assert {t.type for _ in range(50) for t in buffer.references("code_f", 1, rng)} == {"code_o", "code_i"}
    assert code_buffer(tasks=[induction]).references("code_f", 1, rng) == [induction]


def test_a_buffer_holds_tasks_of_its_types_only(rng):
    types = {"code_o": code_types()["code_o"]}
    with pytest.raises(ValueError, match="cannot hold a code_i task"):
        TaskBuffer(types, tasks=[task(1, type="code_i")])
    with pytest.raises(ValueError, match="cannot hold a code_i task"):
        TaskBuffer(types).load_state_dict(code_buffer(tasks=[task(1, type="code_i")]).state_dict())


def test_state_survives_json_in_order_and_continues_identically():
    buffer = code_buffer(64, code_seeds(40) + code_seeds(40, type="code_f"))
    copy = code_buffer(64, [task(1)])
    copy.load_state_dict(json.loads(json.dumps(buffer.state_dict())))
    assert copy.tasks("code_o") == buffer.tasks("code_o")
    assert copy.tasks("code_f") == buffer.tasks("code_f")
    assert copy.fill("code_f", 9, random.Random(1)) == buffer.fill("code_f", 9, random.Random(1))


def tried(buffer, one, attempts, solved=0):
    for k in range(attempts):
        buffer.count(one, solved=k < solved)


def test_never_solved_tasks_leave_play_after_a_number_of_tries(rng):
    hopeless, hard, new = (task(n, author="teacher_0") for n in range(3))
    buffer = code_buffer(tasks=[hopeless, hard, new], max_unsolved_tries=4)
    tried(buffer, hopeless, 4), tried(buffer, hard, 9, solved=1), tried(buffer, new, 3)
    assert numbers(buffer.in_play("code_o")) == [1, 2] and buffer.given_up == 1
    assert set(numbers(buffer.fill("code_o", 50, rng))) == {1, 2}
    assert set(numbers(buffer.references("code_o", 9, rng))) == {1, 2}
    assert hopeless in buffer and buffer.knows(task_key("code_o", hopeless.payload.program, hopeless.payload.inputs))
    assert buffer.tries(hopeless) == (4, 0) and buffer.tries(hard) == (9, 1)
    buffer.count(hopeless, solved=True)  # somebody did: it comes back
    assert numbers(buffer.in_play("code_o")) == [0, 1, 2]
    copy = code_buffer(max_unsolved_tries=3)
    copy.load_state_dict(json.loads(json.dumps(buffer.state_dict())))
    assert numbers(copy.in_play("code_o")) == [0, 1] and copy.state_dict() == buffer.state_dict()


def test_seeds_and_the_last_tasks_of_a_type_stay_in_play(rng):
    seed, only = task(1, author="seed:add"), task(2, type="code_i", author="teacher_0")
    buffer = code_buffer(tasks=[seed, task(3, author="teacher_0"), only], max_unsolved_tries=1)
    for one in buffer.tasks("code_o") + [only]:
        buffer.count(one, solved=False)
    assert numbers(buffer.in_play("code_o")) == [1]
    assert buffer.fill("code_i", 3, rng) == [only] * 3, "filling never fails"
    with pytest.raises(ValueError, match="max_unsolved_tries"):
        code_buffer(max_unsolved_tries=-1)


def test_what_a_full_buffer_forgets_it_no_longer_knows():
    keys = [task_key("code_o", task(n).payload.program, task(n).payload.inputs) for n in range(4)]
    buffer = code_buffer(2, [task(n) for n in range(3)])
    buffer.count(task(0), solved=True)
    assert [buffer.knows(key) for key in keys] == [False, True, True, False]
    assert buffer.tries(task(0)) == (0, 0), "tasks that are not here are not counted"


def test_a_task_that_comes_back_starts_its_tries_again():
    buffer = code_buffer(1, [task(0, author="teacher_0")], max_unsolved_tries=2)
    tried(buffer, task(0), 1)
    buffer.add(task(1)), buffer.add(task(0, author="teacher_1"))
    assert buffer.tries(task(0)) == (0, 0)
    tried(buffer, task(0), 1)
    assert buffer.given_up == 0


def test_loading_into_a_smaller_buffer_keeps_the_newest():
    small = code_buffer(2)
    small.load_state_dict(code_buffer(9, [task(n) for n in range(5)]).state_dict())
    assert numbers(small.tasks("code_o")) == [3, 4]


def test_capacity_must_be_positive():
    with pytest.raises(ValueError, match="capacity"):
        code_buffer(0)


def test_reserved_tasks_never_enter():
    buffer = code_buffer(tasks=[task(1), task(2)])
    state = buffer.state_dict()
    kept = TaskBuffer(buffer.types, reserved={buffer.types["code_o"].key(task(1).payload)}, tasks=[task(1), task(2)])
    assert numbers(kept.tasks("code_o")) == [2] and not kept.add(task(1))
    assert buffer.load_state_dict(state) == 0 and kept.load_state_dict(state) == 1 and len(kept) == 1
    with pytest.raises(ValueError, match="all 1 code_o tasks of the checkpoint show questions of exams"):
        kept.load_state_dict(code_buffer(tasks=[task(1)]).state_dict())
    kept.load_state_dict(state)
    assert numbers(kept.tasks("code_o")) == [2]
