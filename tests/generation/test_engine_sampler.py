"""What the sampler decides, with an engine that PEFT plays; the real engine is in tests/vllm_engine."""

import copy
import json
import math
import os
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path

import pytest
import torch

from tests.generation.engine_double import EngineDouble, base_model
from tests.generation.test_transformers_sampler import language_model_of_images
from tests.tiny import lora, perturb, tiny_tokenizer
from trl_populora.evolution import recombine
from trl_populora.generation import EngineSampler, TransformersSampler
from trl_populora.generation.engines import EngineError, EngineSpec, LivenessError, ServerLost
from trl_populora.population import Population


def ask(text):
    return [{"role": "user", "content": text}]


PROMPTS = [ask(text) for text in ("one", "two and more", "three", "4")]
NAMES = ["teacher_0", "teacher_1", "student_0", "student_1"]


def population_of(teachers=2, students=2, *, seed=0, noise=0.3):
    population = Population(base_model(seed), lora(), num_teachers=teachers, num_students=students)
    population.base_model.name_or_path = "a folder"
    perturb(population, noise)
    return population


@pytest.fixture
def make(tmp_path):
    """Samplers on a population of their own, with a double for the engine."""
    made = []

    def make(population=None, *, faults=None, **settings):
        settings = {"max_completion_length": 6, "temperature": 0.0, "adapter_dir": str(tmp_path / "here")} | settings
        engine = EngineDouble(**(faults or {}))
        made.append(EngineSampler(population or population_of(), tiny_tokenizer(), engine=engine, **settings))
        return made[-1]

    yield make
    for sampler in made:
        sampler.close()


def shift(population, name, by=0.2):
    with torch.no_grad():
        population.parameters(name)[1].add_(by)


def loaded(sampler):
    """The version of each member that the engine holds after a sync."""
    return {version.member: version for version in sampler.engine.loaded.values()}


@pytest.mark.parametrize("in_memory", [False, True])
def test_answers_are_those_of_the_transformers_sampler(make, in_memory):
    sampler = make(faults={"in_memory": in_memory, "open": in_memory})
    sampler.sync()
    assert len(sampler.store.weights) == (4 if in_memory else 0), "the probes are gone"
    greedy = TransformersSampler(sampler.population, sampler.tokenizer, max_completion_length=6, temperature=0.0)
    for members in (NAMES, [None] * 4):
        drawn, expected = sampler(PROMPTS, members, seed=0), greedy(PROMPTS, members, seed=0)
        assert [(c.text, c.prompt_ids, list(c.ids)) for c in drawn] == [
            (c.text, c.prompt_ids, list(c.ids)) for c in expected
        ]
        assert all(len(c.logprobs) == len(c.ids) and max(c.logprobs) <= 0 for c in drawn)


@pytest.mark.slow
def test_lengths_are_counted_as_they_are_drawn(make):
    sampler = make()
    sampler.sync()
    drawn = sampler(PROMPTS, NAMES, seed=0)
    assert [sampler.count_tokens(prompt) for prompt in PROMPTS] == [len(one.prompt_ids) for one in drawn]
    assert sampler.count_tokens("abc") == 3 and sampler.max_length == EngineDouble.max_model_length
    alone = TransformersSampler(sampler.population, sampler.tokenizer, max_completion_length=6)
    assert alone.max_length is None and alone.count_tokens("abc") == 3


@pytest.mark.slow
def test_a_row_depends_on_its_stream_alone(make):
    sampler = make(temperature=1.0)
    sampler.sync()
    whole = sampler(PROMPTS, NAMES, seed=3)
    for rank in range(2):
        mine = range(rank, 4, 2)
        assert sampler([PROMPTS[i] for i in mine], [NAMES[i] for i in mine], seed=3, streams=mine) == whole[rank::2]
    assert sampler(PROMPTS, NAMES, seed=4) != whole
    assert sampler([], [], seed=0) == []


def test_only_changed_adapters_travel_under_fresh_names_and_old_files_stay_one_sync(make):
    sampler = make()
    sampler.sync()
    first = loaded(sampler)
    assert sorted(first) == sorted(NAMES)
    sampler.sync()
    assert loaded(sampler) == first
    shift(sampler.population, "student_0")
    sampler.sync()
    second = loaded(sampler)
    assert {name for name in NAMES if second[name] != first[name]} == {"student_0"}
    old, new = first["student_0"], second["student_0"]
    assert not set(old[1:]) & set(new[1:]) and os.path.isdir(old.path) and os.path.isdir(new.path)
    sampler.sync()
    assert not os.path.exists(old.path) and os.path.isdir(new.path)
    versions = sampler.engine.history
    assert all(len({version[i] for version in versions}) == len(versions) for i in (1, 2, 3))


def test_the_weights_themselves_say_what_changed(make):
    """Not a version, not a flag, not autograd's counter."""
    sampler = make()
    sampler.sync()
    before = loaded(sampler)
    sampler.population.parameters("teacher_1")[0].data[0, 0] += 0.5
    sampler.sync()
    assert [name for name in NAMES if loaded(sampler)[name] != before[name]] == ["teacher_1"]
    drawn = sampler(PROMPTS[:1], ["teacher_1"], seed=0)
    greedy = TransformersSampler(sampler.population, sampler.tokenizer, max_completion_length=6, temperature=0.0)
    assert list(drawn[0].ids) == list(greedy(PROMPTS[:1], ["teacher_1"], seed=0)[0].ids)


def test_base_and_members_never_meet_in_a_call(make):
    sampler = make()
    sampler.sync()
    with pytest.raises(ValueError, match="in one call"):
        sampler(PROMPTS, [*NAMES[:3], None], seed=0)
    assert all(len({row.adapter is None for row in rows}) == 1 for rows in sampler.engine.calls)


@pytest.mark.slow
def test_nobody_is_sampled_before_the_first_sync_or_after_a_failed_one(make):
    sampler = make()
    with pytest.raises(EngineError, match=r"teacher_0.*Call sync\(\) first"):
        sampler(PROMPTS, NAMES, seed=0)
    sampler.sync()
    sampler.engine.stale = True
    shift(sampler.population, "student_0")
    with pytest.raises(LivenessError, match="student_0"):
        sampler.sync()
    with pytest.raises(EngineError, match="student_1"):
        sampler(PROMPTS, ["student_1"] * 4, seed=0)
    sampler.engine.stale, before = False, loaded(sampler)
    sampler.sync()
    assert not {version.name for version in before.values()} & sampler.engine.loaded.keys(), "all under new names"
    assert sorted(loaded(sampler)) == sorted(NAMES) and len(sampler.engine.loaded) == len(NAMES)
    greedy = TransformersSampler(sampler.population, sampler.tokenizer, max_completion_length=6, temperature=0.0)
    assert [c.text for c in sampler(PROMPTS, NAMES, seed=0)] == [c.text for c in greedy(PROMPTS, NAMES, seed=0)]


@pytest.mark.slow
def test_a_sync_that_could_not_write_is_repeated(make, monkeypatch):
    sampler = make()
    sampler.sync()
    shift(sampler.population, "teacher_0")
    shift(sampler.population, "student_1")
    keep = sampler.store.keep
    with monkeypatch.context() as patch:
        patch.setattr(
            sampler.store, "keep", lambda new, *rest: keep(new, *rest) if new.member == "teacher_0" else 1 / 0
        )
        with pytest.raises(ZeroDivisionError):
            sampler.sync()
    with pytest.raises(EngineError, match="student_1"):
        sampler(PROMPTS, NAMES, seed=0)
    sampler.sync()
    greedy = TransformersSampler(sampler.population, sampler.tokenizer, max_completion_length=6, temperature=0.0)
    assert [c.text for c in sampler(PROMPTS, NAMES, seed=0)] == [c.text for c in greedy(PROMPTS, NAMES, seed=0)]
    assert len(sampler.engine.loaded) == len(NAMES)


@pytest.mark.parametrize(
    "faults, said",
    [
        ({"swapped": {"teacher_1": "student_0"}}, "'teacher_1' from its current.* looks like 'student_0'"),
        ({"swapped": {"probe_b": "probe_a"}}, "does not keep adapters apart: probe 1"),
        ({"deaf": True}, "does not keep adapters apart: probe 0"),
        ({"stale": True}, "does not keep adapters apart: probe 2"),
    ],
)
def test_wrong_weights_are_named(make, faults, said):
    with pytest.raises(LivenessError, match=said):
        make(faults=faults).sync()


@pytest.mark.parametrize(
    "spoil, got",
    [(lambda drawn: drawn[1:], r"\d\.$"), (lambda drawn: None, "None"), (lambda drawn: [()] * len(drawn), r"\[\(\)")],
)
def test_what_an_engine_must_not_return_is_named_at_the_start_and_in_a_draw(make, spoil, got):
    said = rf"EngineDouble.generate must return a list of \d Drawn, one per row, got {got}"

    def wrong(rows, sampling):
        return spoil(generate(rows, sampling))

    sampler = make()
    sampler.sync()
    generate, sampler.engine.generate = sampler.engine.generate, wrong
    with pytest.raises(ValueError, match=said):
        sampler(PROMPTS, NAMES, seed=0)
    with pytest.raises(ValueError, match=said):
        sampler.canary.check_base()


@pytest.mark.slow
def test_a_deaf_engine_is_told_from_members_that_do_nothing_yet(make):
    """All B are zero: members say what the base says, and only the probes can tell."""
    population = population_of(1, 1, noise=0.0)
    with pytest.raises(LivenessError, match="probe 0"):
        make(population, faults={"deaf": True})
    sampler = make(population)
    base = sampler(PROMPTS[:2], [None, None], seed=0)
    sampler.sync()
    assert sampler(PROMPTS[:2], [*population], seed=0) == base
    perturb(population, 0.3)
    sampler.sync()
    assert sampler(PROMPTS[:2], [*population], seed=0) != base


@pytest.mark.slow
def test_stale_and_tampered_weights_are_named_after_the_start(make, monkeypatch):
    sampler = make()
    sampler.sync()
    sampler.engine.stale = True
    shift(sampler.population, "student_1")
    with pytest.raises(LivenessError, match="'student_1' .* nobody's current weights: older ones"):
        sampler.sync()
    sampler = make()
    keep, teachers = sampler.store.keep, Future()

    def swap(version, tensors, config):  # by several threads, in any order
        if version.member == "teacher_0":
            teachers.set_result(tensors)
        keep(version, teachers.result(60) if version.member == "student_1" else tensors, config)

    monkeypatch.setattr(sampler.store, "keep", swap)
    with pytest.raises(LivenessError, match="'student_1' .* looks like 'teacher_0'"):
        sampler.sync()


@pytest.mark.slow
def test_a_member_that_rounding_moves_is_asked_again_and_goes_on(make, caplog):
    """The base shows how much this machine rounds. More than the tolerance is no proof while the own are nearest."""
    sampler = make(faults={"rounding": (1e-3, 3e-3)})
    assert sampler.canary.base_error == pytest.approx(1e-3, rel=0.01)
    sampler.sync()
    assert all(2e-3 < error < 8e-3 for error in sampler.liveness.values())
    assert len(caplog.messages) == 4 and "'student_1' (tolerance 0.002). Its own weights are the neare" in caplog.text
    first, again = sampler.engine.calls[-2:]
    assert len(first) == len(again) == 4
    short, long = (rows[0].prompt_ids for rows in (first, again))
    assert len(long) > 2 * len(short) and long[: len(short)] == short, "a wrongly cached prefix is under both"
    with pytest.raises(LivenessError, match="differ from the trainer's by 0.009"):
        make(faults={"rounding": (1e-3, 9e-3)}).sync()


@pytest.mark.slow
def test_a_second_answer_without_numbers_is_refused(make, monkeypatch):
    sampler = make(faults={"rounding": (1e-3, 3e-3)})
    generate, looks = sampler.engine.generate, []

    def without_numbers(rows, sampling):
        looks.append(len(rows[0].prompt_ids))
        if looks[-1] > looks[0]:  # the second look has longer prompts
            sampler.engine.rounding = (1e-3, math.nan)
        return generate(rows, sampling)

    monkeypatch.setattr(sampler.engine, "generate", without_numbers)
    with pytest.raises(LivenessError, match="differ from the trainer's by nan"):
        sampler.sync()


@pytest.mark.slow
def test_members_that_recombined_are_not_confused_by_rounding(make, caplog):
    """They have the same update in frames of their own, so which weights are the nearest is chance."""
    sampler = make(population_of(1, 6), faults={"rounding": (1e-3, 3e-3)})
    assert len(recombine(sampler.population, roles=["student"])) == 6
    sampler.sync()
    assert caplog.text.count("Its own weights are the nearest") == len(sampler.population)


@pytest.mark.slow
def test_small_steps_that_the_engine_never_took_are_seen_before_they_are_large(make):
    """Between tolerance and limit the member's weights of the sync before are nearer than its own."""
    sampler, by = make(faults={"rounding": (9.9e-4, 9.9e-4), "unsteady": True}), 1e-5
    sampler.sync()
    sampler.engine.stale = True
    with pytest.raises(LivenessError, match="does not sample 'student_1'") as caught:
        while by < 1:
            shift(sampler.population, "student_1", by)
            sampler.sync()
            by *= 1.5
    error = float(str(caught.value).split("trainer's by ")[1].split()[0])
    assert 2e-3 < error < sampler.canary.limit("student_1") == pytest.approx(8e-3, rel=0.01)


@pytest.mark.slow
def test_a_step_far_below_the_tolerance_that_the_engine_never_took_is_seen(make):
    sampler = make()
    sampler.sync()
    shift(sampler.population, "student_1", 1e-6)
    sampler.sync()
    sampler.engine.stale = True
    shift(sampler.population, "student_1", 1e-6)
    with pytest.raises(LivenessError, match="does not sample 'student_1' .* bit for bit as with those before"):
        sampler.sync()


@pytest.mark.slow
def test_steps_are_asked_alone_and_by_a_prompt_that_is_in_no_cache(make):
    sampler = make()
    sampler.sync()
    asked = len(sampler.engine.calls)
    for name in ("student_0", "student_1"):
        shift(sampler.population, name, 1e-6)
    sampler.sync()
    mixed, *alone = sampler.engine.calls[asked:]
    assert len(mixed) == 4 and [len(rows) for rows in alone] == [1] * 4
    (old,), (new,), (old_too,), (new_too,) = alone
    assert [row.adapter.member for row in (old, new, old_too, new_too)] == ["student_0"] * 2 + ["student_1"] * 2
    assert old.adapter.id < new.adapter.id and old._replace(adapter=None) == new._replace(adapter=None)
    assert old.prompt_ids != old_too.prompt_ids and len(old.prompt_ids) == 64


@pytest.mark.slow
def test_versions_that_answer_alike_are_no_error(make):
    """Other factors of the same product, and a step that is too small to change a rounding."""
    population = population_of(1, 1, noise=0.0)
    sampler = make(population)
    sampler.sync()
    with torch.no_grad():
        population.parameters("student_0")[0].add_(0.1)  # A, while B is 0
    sampler.sync()
    sampler.engine.stale = True
    shift(population, "student_0", 1e-12)
    sampler.sync()
    assert len(sampler.engine.loaded) == 2


@pytest.mark.slow
def test_a_version_that_a_restarted_server_lost_is_not_asked(make):
    sampler = make()
    sampler.sync()
    sampler.engine.stale, sampler.engine.lost = True, [loaded(sampler)["student_1"].name]
    shift(sampler.population, "student_1", 1e-6)
    sampler.sync()
    assert all(len(rows) == 4 for rows in sampler.engine.calls[-2:])


@pytest.mark.slow
def test_an_engine_that_does_not_repeat_itself_is_told(make, caplog):
    """Then no answer shows a small step, and none is asked for."""
    make()
    make(faults={"unsteady": True, "open": True})
    assert not caplog.messages
    sampler = make(faults={"unsteady": True})
    assert "does not repeat its answers bit for bit" in caplog.text and "more than 0.002 nats" in caplog.text
    sampler.sync()
    shift(sampler.population, "student_1", 1e-6)
    before = len(sampler.engine.calls)
    sampler.sync()
    assert len(sampler.engine.calls) == before + 1


@pytest.mark.slow
@pytest.mark.parametrize("unsteady", [False, True])
def test_old_weights_in_a_memory_that_can_be_read_are_caught(make, unsteady):
    """Far below what answers can show, for members that were changed and for others; no further call is needed."""
    sampler = make(faults={"open": True, "unsteady": unsteady})
    sampler.sync()
    shift(sampler.population, "student_1", 1e-7)
    before = len(sampler.engine.calls)
    sampler.sync()
    assert len(sampler.engine.calls) == before + 1
    sampler.engine.stale = True
    shift(sampler.population, "student_1", 1e-7)
    with pytest.raises(LivenessError, match="'student_1' .* those in its memory are others"):
        sampler.sync()
    sampler.engine.stale = False
    sampler.sync()
    kept = loaded(sampler)["teacher_0"]
    next(iter(sampler.engine.adapters[kept.name].values())).A[0, 0] += 1e-7
    shift(sampler.population, "student_1", 1e-7)
    with pytest.raises(LivenessError, match="'teacher_0' .* those in its memory are others"):
        sampler.sync()


@pytest.mark.slow
def test_an_engine_sleeps_once_a_round_and_is_checked_when_it_wakes(make):
    sampler = make()
    sampler.sync()
    calls = sampler.engine.calls
    for _ in range(2):  # two draws of a round, one after the other
        sampler(PROMPTS, NAMES, seed=0)
        assert not sampler.engine.asleep
    sampler.rest()
    assert sampler.engine.asleep
    before = len(calls)
    sampler.sync()  # nothing has changed
    assert len(calls) == before + 1 and not sampler.engine.asleep
    sampler.rest()
    sampler(PROMPTS, NAMES, seed=0)
    assert len(calls) == before + 3


@pytest.mark.slow
def test_an_engine_that_wakes_without_its_adapters_is_found_out(make):
    sampler = make()
    sampler.sync()
    sampler.engine.forgetful = True
    sampler.rest()
    with pytest.raises(LivenessError, match="looks like the frozen base"):
        sampler(PROMPTS, NAMES, seed=0)
    with pytest.raises(EngineError, match=r"Call sync\(\) first"):
        sampler(PROMPTS, NAMES, seed=0)


def test_another_base_and_raw_log_probabilities_are_refused_at_the_start(make):
    with pytest.raises(LivenessError, match="frozen base.*Serve the same model"):
        make(population_of(1, 1, seed=1))
    with pytest.raises(LivenessError, match="--logprobs-mode processed_logprobs"):
        make(faults={"raw": True})


@pytest.mark.slow
def test_two_tokens_of_equal_probability_are_no_missing_filter(make, monkeypatch):
    token, ties = EngineDouble.token, []

    def tied(self, logits, row, noise, sampling):
        pick, reported = token(self, logits, row, noise, sampling)
        if sampling.get("top_k") == 1:
            reported = dict.fromkeys((pick, pick ^ 1), math.log(0.5)) | {2: -math.inf}
            ties.append(reported)
        return pick, reported

    monkeypatch.setattr(EngineDouble, "token", tied)
    sampler = make()
    sampler.sync()
    assert ties and set(sampler.liveness) == set(NAMES)
    assert all(error < 1e-4 for error in sampler.liveness.values())


@pytest.mark.slow
def test_members_draw_at_their_own_temperature(make):
    sampler = make(temperature=0.8)
    sampler.population.routing.set_temperature("teacher_1", 0.5)
    sampler.sync()
    sampler(PROMPTS, NAMES, seed=0)
    assert [row.temperature for row in sampler.engine.calls[-1]] == pytest.approx([0.8, 0.4, 0.8, 0.8])
    assert sampler.liveness["teacher_1"] < 1e-4


@pytest.mark.slow
def test_a_restarted_server_gets_its_adapters_back(make):
    sampler = make()
    sampler.sync()
    expected = sampler(PROMPTS, NAMES, seed=0)
    name = loaded(sampler)["teacher_0"].name
    del sampler.engine.loaded[name], sampler.engine.adapters[name]
    sampler.engine.lost = [name]
    generate, failures = sampler.engine.generate, iter([ServerLost("gone")])

    def once(rows, sampling):
        for error in failures:
            raise error
        return generate(rows, sampling)

    sampler.engine.generate = once
    assert sampler(PROMPTS, NAMES, seed=0) == expected
    sampler.engine.generate = lambda rows, sampling: (_ for _ in ()).throw(ServerLost("gone for good"))
    with pytest.raises(ServerLost, match="for good"):
        sampler(PROMPTS, NAMES, seed=0)


@pytest.mark.slow
def test_a_server_that_is_gone_is_told_once_to_unload(make):
    """Each time could cost as long as a server is waited for."""
    sampler, asked = make(), []
    sampler.sync()

    def unload(version):
        asked.append(version)
        raise ServerLost("silent")

    sampler.engine.unload, sampler.engine.everywhere = unload, False
    sampler.close()
    assert len(asked) == 1


def test_a_server_keeps_no_adapter_after_a_failed_sync(make):
    sampler = make()
    sampler.sync()
    sampler.engine.stale = True
    shift(sampler.population, "student_0")
    with pytest.raises(LivenessError, match="student_0"):
        sampler.sync()
    assert len(sampler.engine.loaded) == len(NAMES) + 1
    sampler.engine.everywhere, sampler.engine.close = False, lambda: None
    sampler.close()
    assert sampler.engine.loaded == {}
    sampler.engine.unload = None
    sampler.close()


@pytest.mark.slow
def test_files_end_with_the_sampler(make, tmp_path):
    sampler = make()
    (folder,) = (tmp_path / "here").iterdir()
    assert not list(folder.iterdir())  # the probes have done their part
    sampler.sync()
    assert len(list(folder.iterdir())) == len(NAMES)
    sampler.close()
    assert os.listdir(tmp_path / "here") == []


@pytest.mark.slow
def test_filters_are_refused_where_the_engine_reports_before_them(make, tmp_path):
    class Unfiltered(EngineDouble):
        filtered_logprobs = False

    settings = {"max_completion_length": 6, "adapter_dir": str(tmp_path)}
    for filters in ({"top_p": 0.9}, {"top_k": 5}, {"min_p": 0.1}):
        with pytest.raises(ValueError, match=f"{next(iter(filters))}={next(iter(filters.values()))}.*Leave them out"):
            EngineSampler(population_of(1, 1), tiny_tokenizer(), engine=Unfiltered(), **settings, **filters)
    EngineSampler(population_of(1, 1), tiny_tokenizer(), engine=Unfiltered(raw=True), **settings).close()


@pytest.mark.slow
def test_a_prompt_that_does_not_fit_is_refused(make):
    sampler = make()
    sampler.sync()
    with pytest.raises(ValueError, match="300 tokens and max_completion_length=6 exceed the 256"):
        sampler.draw([[5] * 300], ["teacher_0"], [0])


@pytest.mark.slow
def test_the_engine_is_told_what_to_serve(make):
    spec = make(dtype=torch.float32).engine.spec
    tokenizer, layers = tiny_tokenizer().name_or_path or "a folder", ("down_proj", "gate_proj", "k_proj", "o_proj")
    layers += ("q_proj", "up_proj", "v_proj")
    assert spec == EngineSpec("a folder", tokenizer, torch.float32, 4, 4, None, layers, packed=False)


def test_a_base_that_also_reads_images_is_served(make):
    base = language_model_of_images().eval()
    population = Population(copy.deepcopy(base), lora(target_modules=["q_proj"]), num_teachers=0, num_students=2)
    perturb(population, 0.3)
    sampler = make(population, faults={"base": base})
    sampler.sync()
    assert all(error < 1e-4 for error in sampler.liveness.values())


def test_an_engine_sleeps_until_it_is_needed(make):
    """A warm start learns before the first round, and needs the memory."""
    sampler = make()
    assert sampler.engine.asleep
    sampler.sync()
    assert not sampler.engine.asleep


@pytest.mark.slow
def test_two_ranks_share_files_and_failures(tmp_path):
    """Rank 0 writes, both load; rank 1 draws nothing once. Where ranks draw together, what rank 1 doubts is asked
    again on both, and its broken engine stops both: nobody waits for calls that the other does not make."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone"]
    done = subprocess.run(
        [*command, str(root / "tests" / "generation" / "two_ranks.py"), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2))
    assert first["loaded"] == second["loaded"] and len({path for _, path in first["loaded"]}) == 6
    assert first["drawn"] == first["expected"] and second["drawn"] == [] and second["own"] == second["expected"]
    assert (
        first["refusal"] == "EngineError: rank 1: out of memory" and second["refusal"] == "EngineError: out of memory"
    )
    assert first["doubt"] == second["doubt"] == [None, 4]  # all members, again, and a member's two versions
    assert first["failure"].startswith("EngineError: rank 1: the double does not sample 'student_0'")
    assert second["failure"].startswith("LivenessError: the double does not sample 'student_0'")
    told = ["out of memory", "out of memory", "the double does not sample 'student_0'"]
    for record, said in ((first, "EngineError: rank 1: "), (second, "")):
        fine, *failures = record["sharded"]
        assert fine is None
        assert all(said + part in failure for part, failure in zip(told, failures, strict=True)), failures
    assert first["in memory"] == second["in memory"] and first["in memory"][0] is None, "the same names on both"
    assert "EngineError: rank 1: The adapters 'student_0' differ from those of the main process" in first["apart"]
    assert "'student_0' differ from those of the main process" in second["apart"]
    assert first["together"] is second["together"] is None
    assert first["server"] == 6 and second["server"] == 0
    assert first["base_error"] == second["base_error"] > 0  # measured by the first: both check after a restart
    assert first["folders"] == second["folders"] == 0
