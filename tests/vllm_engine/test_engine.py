"""A real engine in this process: whose weights answer, before and after they change, and what the canary sees."""

import contextlib
import gc
import os
import shutil
import weakref

import pytest
import torch
from transformers import StoppingCriteriaList, StopStringCriteria

from tests.vllm_engine.conftest import LLM_KWARGS, population_on
from trl_populora.generation import EngineSampler, TransformersSampler
from trl_populora.generation.engines import EngineError, EngineSpec, LivenessError, VLLMEngine


def ask(text):
    return [{"role": "user", "content": text}]


PROMPTS = [ask(text) for text in ("one", "two and more", "three", "4", "five five", "six", "7", "eight or so")]


def ids(completions):
    return [list(completion.ids) for completion in completions]


def expected(sampler, prompts, members):
    greedy = TransformersSampler(sampler.population, sampler.tokenizer, max_completion_length=16, temperature=0.0)
    return ids(greedy(prompts, members, seed=0))


def change(population, name, *, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for B in population.parameters(name)[1::2]:
            B.copy_(0.3 * torch.randn(B.shape, generator=generator))


def test_mixed_members_answer_as_the_transformers_sampler_token_by_token(sampler):
    """8 members in one call of an engine that holds 4 at a time."""
    sampler.sync()
    members = list(sampler.population) * 2
    prompts = PROMPTS + PROMPTS[::-1]
    drawn = sampler(prompts, members, seed=0)
    assert ids(drawn) == expected(sampler, prompts, members)
    assert len({tuple(row) for row in ids(drawn)}) == len(drawn)
    assert all(error < 1e-4 for error in sampler.liveness.values()), sampler.liveness


def test_the_base_answers_alone(sampler):
    sampler.sync()
    sampler(PROMPTS, list(sampler.population), seed=0)  # every slot is taken now
    assert ids(sampler(PROMPTS, [None] * 8, seed=0)) == expected(sampler, PROMPTS, [None] * 8)
    with pytest.raises(ValueError, match="in one call"):
        sampler(PROMPTS[:2], [None, "teacher_0"], seed=0)


def test_new_weights_answer_after_a_sync_also_where_the_prefix_was_cached(sampler):
    sampler.sync()
    long = ask("the same words over and over " * 10)  # several blocks of the prefix cache
    members = list(sampler.population)
    for seed in (1, 2):
        before = ids(sampler([long] * 8, members, seed=0))
        change(sampler.population, "student_1", seed=seed)
        change(sampler.population, "teacher_3", seed=seed + 10)
        sampler.sync()
        after = ids(sampler([long] * 8, members, seed=0))
        assert after == expected(sampler, [long] * 8, members)
        changed = {name for name, old, new in zip(members, before, after) if old != new}
        assert changed == {"student_1", "teacher_3"}


def test_log_probabilities_are_those_of_the_sampling_policy_and_seeds_repeat(sampler, monkeypatch):
    sampler.sync()
    monkeypatch.setattr(sampler, "temperature", 0.7)
    members = list(sampler.population)
    drawn = sampler(PROMPTS, members, seed=5)
    assert drawn == sampler(PROMPTS, members, seed=5)
    assert ids(drawn) != ids(sampler(PROMPTS, members, seed=6))
    assert len({tuple(c.ids) for c in sampler([PROMPTS[0]] * 4, ["student_0"] * 4, seed=7)}) == 4
    for name, completion in zip(members, drawn, strict=True):
        tokens = torch.tensor([[*completion.prompt_ids, *completion.ids]])
        with torch.no_grad(), sampler.population.route([name]):
            logits = sampler.population.base_model(tokens).logits[0, len(completion.prompt_ids) - 1 : -1]
        policy = torch.log_softmax(logits / 0.7, dim=-1)
        mine = policy[range(len(completion.ids)), list(completion.ids)]
        torch.testing.assert_close(torch.tensor(completion.logprobs), mine, atol=1e-4, rtol=0)


def test_seeded_prompts_that_do_not_fit_into_one_pass(sampler, monkeypatch):
    """vLLM would read one of them in two parts, and wind back its generator, which one of a CPU cannot."""
    sampler.sync()
    monkeypatch.setattr(sampler, "temperature", 1.0)
    long = [[10 + (i + j) % 90 for j in range(400)] for i in range(12)]  # 4,800 tokens, of which a pass takes 4,096
    members = list(sampler.population)[:4] * 3  # all fit into one batch
    assert sampler.engine.llm.llm_engine.vllm_config.scheduler_config.max_num_batched_tokens == 4096
    drawn = sampler.draw(long, members, range(12))
    assert drawn[-1].ids == sampler.draw(long[-1:], members[-1:], [11])[0].ids


def test_filters_are_part_of_the_policy(sampler, monkeypatch):
    sampler.sync()
    monkeypatch.setattr(sampler, "temperature", 1.0)
    monkeypatch.setattr(sampler, "top_k", 1)
    drawn = sampler(PROMPTS, list(sampler.population), seed=5)
    assert ids(drawn) == expected(sampler, PROMPTS, list(sampler.population))
    assert all(value == 0.0 for completion in drawn for value in completion.logprobs)


def test_stop_strings_end_a_row_as_in_the_transformers_sampler(sampler, monkeypatch):
    sampler.sync()
    members = list(sampler.population)
    free = sampler(PROMPTS, members, seed=0)
    stop = sampler.tokenizer.decode(free[0].ids[4:6])
    other = TransformersSampler(sampler.population, sampler.tokenizer, max_completion_length=16, temperature=0.0)
    other.stop_strings, other.stopping = [stop], StoppingCriteriaList([StopStringCriteria(sampler.tokenizer, [stop])])
    monkeypatch.setattr(sampler, "stop_strings", [stop])
    stopped = sampler(PROMPTS, members, seed=0)
    assert ids(stopped) == ids(other(PROMPTS, members, seed=0))
    assert len(stopped[0].ids) < len(free[0].ids)


@contextlib.contextmanager
def recovering(sampler):
    """What a refused sync leaves behind must not reach the next test: everything is written and loaded again."""
    try:
        yield
    finally:
        for seed, member in enumerate(sampler.population):
            change(sampler.population, member, seed=100 + seed)
        sampler.sync()


def test_weights_reach_the_engine_in_memory_and_stay_as_they_are(sampler):
    """vLLM multiplies B by the scaling in place: here B has it, and vLLM must multiply by 1."""
    change(sampler.population, "student_3", seed=19)
    sampler.sync()
    for name, version in sampler.serving.items():
        assert os.listdir(version.path) == ["adapter_config.json"]
        factors, weights = sampler.population.factors(name), sampler.store.weights[version.name]
        assert all(torch.equal(weights[f"{path}.lora_B.weight"], f.B * f.scaling) for path, f in factors.items())
    assert len(sampler.store.weights) <= 2 * len(sampler.serving)


def test_a_layer_for_which_vllm_has_no_adapters_is_refused(sampler):
    sampler.sync()
    name, matrices = next(iter(sampler.store.weights.items()))
    other = {key.replace("down_proj", "gate"): matrix for key, matrix in matrices.items()}
    version = sampler.store.new_version("student_0")
    sampler.store.keep(version, other, sampler.store.config_of("student_0"))
    with pytest.raises(EngineError, match="vLLM has no adapters for gate in this model"):
        sampler.engine.load(version)
    sampler.store.remove([version])


def test_swapped_weights_are_caught(sampler, monkeypatch):
    sampler.sync()
    keep, other = sampler.store.keep, sampler.store.weights[sampler.serving["student_2"].name]
    with recovering(sampler):
        change(sampler.population, "student_0", seed=20)
        with monkeypatch.context() as patch:
            patch.setattr(sampler.store, "keep", lambda version, _, config: keep(version, other, config))
            with pytest.raises(LivenessError, match="'student_0' .* looks like 'student_2'"):
                sampler.sync()
        with pytest.raises(EngineError, match=r"Call sync\(\) first"):
            sampler(PROMPTS[:1], ["student_0"], seed=0)


@contextlib.contextmanager
def old_weights_under_a_new_name(sampler, member, monkeypatch):
    """A member's next version gets the id of the one before. vLLM goes on with the old weights, without a word."""
    request, old, engine = sampler.engine.request, sampler.serving[member], sampler.engine.llm.llm_engine
    with monkeypatch.context() as patch:
        patch.setattr(sampler.engine, "request", lambda v: request(v._replace(id=old.id) if v.member == member else v))
        patch.setattr(engine, "add_lora", lambda request: True)
        yield


def test_a_reused_id_is_caught(sampler, monkeypatch):
    sampler.sync()
    with recovering(sampler), old_weights_under_a_new_name(sampler, "teacher_2", monkeypatch):
        change(sampler.population, "teacher_2", seed=21)
        with pytest.raises(LivenessError, match="'teacher_2' .* nobody's current weights: older ones"):
            sampler.sync()


def test_a_reused_id_is_caught_after_a_step_far_below_the_tolerance(sampler, monkeypatch):
    sampler.sync()
    B = sampler.population.parameters("teacher_2")[1]
    with torch.no_grad():
        B.add_(1e-5)
    sampler.sync()  # taken, and nothing is wrong
    assert all(error < 1e-4 for error in sampler.liveness.values()), sampler.liveness
    with recovering(sampler), old_weights_under_a_new_name(sampler, "teacher_2", monkeypatch):
        with torch.no_grad():
            B.add_(1e-5)
        with pytest.raises(LivenessError, match="'teacher_2' .* those in its memory are others"):
            sampler.sync()


def test_its_memory_has_the_trainers_weights_also_of_members_that_wait_for_a_place(sampler):
    """Half of the members are in the slots that the kernels read, the others are not."""
    sampler.sync()
    versions = list(sampler.serving.values())
    held = sampler.engine.held(versions)
    assert held == [sampler.canary.sums(version.member) for version in versions]
    assert len({tuple(sums) for sums in held}) == len(versions) == 8
    assert sampler.engine.held([versions[0]._replace(id=10_000)]) == [None]
    manager = sampler.engine.llm.collective_rpc(lambda worker: worker.model_runner.lora_manager._adapter_manager)[0]
    slots = manager.lora_index_to_id
    here, waiting = (next(one for one in versions if (one.id in slots) is is_here) for is_here in (True, False))
    layer = next(one for name, one in manager.modules.items() if name.endswith("qkv_proj"))
    slot = layer.lora_b_stacked[0][slots.index(here.id)]
    matrix = next(iter(manager.list_adapters()[waiting.id].loras.values())).lora_a[0]
    for version, weights in ((here, slot), (waiting, matrix)):
        kept, flat = weights.clone(), weights.view(-1)
        flat[0] = torch.nextafter(flat[0], torch.tensor(torch.inf))  # the least change there is
        assert sampler.engine.held([version]) != [sampler.canary.sums(version.member)]
        weights.copy_(kept)
        assert sampler.engine.held([version]) == [sampler.canary.sums(version.member)]


def test_a_stale_prefix_is_caught(sampler, monkeypatch):
    """New weights under the old name and path, whose blocks are in the cache: only the prefix is old."""
    sampler.sync()
    old, new_version = sampler.serving["teacher_1"], sampler.store.new_version
    shutil.rmtree(old.path)

    def under_the_old_name(member):
        version = new_version(member)
        return version._replace(name=old.name, path=old.path) if member == old.member else version

    with recovering(sampler):
        change(sampler.population, "teacher_1", seed=22)
        with monkeypatch.context() as patch:
            patch.setattr(sampler.store, "new_version", under_the_old_name)
            with pytest.raises(LivenessError, match="'teacher_1' .* a cached prefix"):
                sampler.sync()


def test_in_bfloat16_a_small_step_that_the_engine_never_took_is_seen(engine_model, tokenizer, monkeypatch):
    """The step is a hundredth of the tolerance. `test_a_reused_id_is_caught` explains what goes wrong."""
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    population = population_on(engine_model, teachers=1, students=1, lora_alpha=5)  # a scaling that rounds
    sampler = EngineSampler(
        population,
        tokenizer,
        engine=VLLMEngine(max_model_len=256, max_num_seqs=8, **LLM_KWARGS),
        dtype=torch.bfloat16,
        max_completion_length=16,
    )

    def step():
        with torch.no_grad():
            for B in population.parameters("student_0")[1::2]:
                B.mul_(1.004)  # about a unit in the last place
        sampler.sync()

    try:
        for read, message in ((True, "those in its memory are others"), (False, "bit for bit as with those before")):
            if not read:
                monkeypatch.setattr(sampler.engine, "held", lambda versions: [None] * len(versions))
            sampler.sync()
            step()
            stale = old_weights_under_a_new_name(sampler, "student_0", monkeypatch)
            with stale, pytest.raises(LivenessError, match=f"'student_0' .* {message}"):
                step()
    finally:
        sampler.close()


def test_an_engine_that_is_dropped_without_close_leaves_the_process_group(sampler, engine_model):
    spec = EngineSpec(engine_model, engine_model, torch.float32, 8, 2)
    engine = VLLMEngine(max_model_len=256, max_num_seqs=8, **LLM_KWARGS)
    engine.start(spec)
    ended = weakref.ref(engine.llm)
    del engine
    gc.collect()
    assert ended() is None
    torch.distributed.barrier()


def test_smollm2_in_a_process_of_its_own(monkeypatch):
    """A real model with a real tokenizer, and the engine where vLLM puts it by itself."""
    from transformers import AutoTokenizer

    from trl_populora.integrations.base_models import SMOLLM2, resolve_base

    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    folder = resolve_base(SMOLLM2)
    population = population_on(folder, teachers=1, students=2, noise=0.05)
    sampler = EngineSampler(
        population,
        AutoTokenizer.from_pretrained(folder),
        engine=VLLMEngine(max_model_len=256, max_num_seqs=8, block_size=32, **LLM_KWARGS),
        max_completion_length=16,
        temperature=0.0,
    )
    try:
        sampler.sync()
        prompts, members = PROMPTS[:6], ["teacher_0", "student_0", "student_1"] * 2
        assert ids(sampler(prompts, members, seed=0)) == expected(sampler, prompts, members)
        assert ids(sampler(prompts, [None] * 6, seed=0)) == expected(sampler, prompts, [None] * 6)
        change(population, "student_1", seed=3)
        sampler.sync()
        assert ids(sampler(prompts, members, seed=0)) == expected(sampler, prompts, members)
        assert all(error < 1e-3 for error in sampler.liveness.values()), sampler.liveness
    finally:
        sampler.close()
