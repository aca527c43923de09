import random
from collections import Counter
from dataclasses import replace

import pytest
from test_replacement import played
from toy_adapters import assert_same_bits, make_factors

from trl_populora.evolution import Champion, HallOfFame


def filled(steps, *, capacity: int = 4) -> HallOfFame:
    hall = HallOfFame(capacity)
    for step in steps:
        hall.add(Champion("student_0", "student", step // 10, step, step / 3, make_factors(step)))
    return hall


def test_champions_are_copies():
    live = make_factors(0)
    hall = HallOfFame()
    hall.add(Champion("teacher_1", "teacher", 2, 40, 1.5, live))
    live["head"].A.zero_()
    (champion,) = hall
    assert_same_bits(champion.factors, make_factors(0))
    assert hall.of("teacher") == [champion] and hall.of("student") == []


def test_a_full_hall_stays_spread_over_the_run():
    hall = filled(range(0, 170, 10))
    steps = [champion.step for champion in hall.of("student")]
    assert len(steps) == 4 and (steps[0], steps[-1]) == (0, 160)
    assert min(after - before for before, after in zip(steps[:-1], steps[1:])) >= 20


def test_roles_have_their_own_places():
    hall = filled([0, 10, 20, 30], capacity=2)
    hall.add(Champion("teacher_0", "teacher", 0, 5, 0.0, make_factors(1)))
    assert [champion.step for champion in hall.of("student")] == [0, 30] and len(hall.of("teacher")) == 1
    assert len(hall) == len(list(hall)) == 3


def test_sampling_is_even_and_reproducible():
    hall = filled([0, 10, 20])
    draws = [hall.sample("student", random.Random(seed)).step for seed in range(300)]
    assert min(Counter(draws).values()) > 60 and set(draws) == {0, 10, 20}
    assert draws == [hall.sample("student", random.Random(seed)).step for seed in range(300)]
    assert hall.sample("teacher", random.Random(0)) is None


def test_round_trip(tmp_path):
    hall = filled([0, 10, 20])
    hall.save(tmp_path)
    again = HallOfFame.load(tmp_path)
    assert again.capacity == hall.capacity
    for one, other in zip(hall, again, strict=True):
        assert_same_bits(one.factors, other.factors)
        assert {k: v for k, v in vars(one).items() if k != "factors"} == {
            k: v for k, v in vars(other).items() if k != "factors"
        }


def test_a_smaller_hall_keeps_the_first_and_the_newest(tmp_path):
    filled(range(0, 80, 10), capacity=8).save(tmp_path)
    smaller = HallOfFame.load(tmp_path, capacity=3)
    steps = [champion.step for champion in smaller]
    assert smaller.capacity == len(steps) == 3 and (steps[0], steps[-1]) == (0, 70)
    assert len(HallOfFame.load(tmp_path, capacity=20)) == 8


def test_a_folder_written_again_holds_the_present_champions_only(tmp_path):
    hall = filled([0, 10, 20], capacity=3)
    hall.save(tmp_path)
    hall.add(Champion("student_0", "student", 3, 30, 1.0, make_factors(30)))
    hall.save(tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) == 3
    assert [champion.step for champion in HallOfFame.load(tmp_path)] == [champion.step for champion in hall]


def test_the_best_of_each_role_enters():
    table, ratings = played(3, 2)
    table.members["teacher_0"] = replace(table["teacher_0"], version=3, temperature=0.8)
    hall = HallOfFame()
    hall.enter(table, ratings, step=20)
    teacher, student = hall
    assert (teacher.title, teacher.step, teacher.temperature) == ("teacher_0@3", 20, 0.8)
    assert (student.name, student.role, student.fitness) == ("student_0", "student", ratings.fitness("student_0"))
    table.weights["teacher_0"]["head"].A.zero_()
    assert_same_bits(hall.of("teacher")[0].factors, make_factors(0))
    hall.enter(table, ratings, step=40)
    assert [champion.step for champion in hall.of("student")] == [20, 40]


def test_bad_input_is_named(tmp_path):
    with pytest.raises(ValueError, match="capacity.*1"):
        HallOfFame(1)
    with pytest.raises(ValueError, match="step 20; got one of step 20"):
        filled([20, 20])
    with pytest.raises(ValueError, match="holds no hall_of_fame.json"):
        HallOfFame.load(tmp_path)
