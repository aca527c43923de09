import pytest
import torch
from accelerate.state import AcceleratorState
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
    StoppingCriteriaList,
    StopStringCriteria,
)
from transformers.cache_utils import DynamicLayer

from tests.drawn_examples import examples
from tests.tiny import SHAPE, begin_texts, lora, perturb, tiny_population, tiny_tokenizer
from trl_populora.generation import TransformersSampler
from trl_populora.generation.transformers_sampler import TOKENS_AT_ONCE, RoomyLayer
from trl_populora.population import Population, routing


NAMES = ["teacher_0", "teacher_1", "student_0", "student_1"]


def ask(text):
    return [{"role": "user", "content": text}]


PROMPTS = [ask(text) for text in ("one", "two and more", "three", "4", "five five", "six")]
ROWS = ["student_1", "teacher_0", "teacher_0", "student_0", "student_1", "teacher_1"]


TWO_LAYERS = SHAPE | {"num_hidden_layers": 2, "head_dim": 8}
LINEAR = dict(linear_num_value_heads=2, linear_num_key_heads=2, linear_key_head_dim=8, linear_value_head_dim=8)
VISION = dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, out_hidden_size=32)


def linear_attention():
    return Qwen3_5ForCausalLM(
        Qwen3_5TextConfig(**TWO_LAYERS, **LINEAR, layer_types=["full_attention", "linear_attention"])
    )


def sliding_window():
    return Gemma2ForCausalLM(Gemma2Config(**TWO_LAYERS, sliding_window=16))


def language_model_of_images():
    text = TWO_LAYERS | {"rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4}}
    return Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=text, vision_config=VISION))


BASES = [linear_attention, sliding_window, language_model_of_images]


@pytest.fixture(scope="module")
def population():
    return tiny_population(noise=0.3)


def sampler(population, **kwargs):
    return TransformersSampler(population, tiny_tokenizer(), **({"max_completion_length": 12} | kwargs))


@pytest.mark.slow
def test_same_seed_same_completions(population):
    draw = sampler(population)
    assert draw(PROMPTS, ROWS, seed=1) == draw(PROMPTS, ROWS, seed=1)
    assert draw(PROMPTS, ROWS, seed=1) != draw(PROMPTS, ROWS, seed=2)


def test_a_tokenizer_that_ends_nothing_is_refused(population):
    tokenizer = tiny_tokenizer()
    tokenizer.eos_token = None
    with pytest.raises(ValueError, match=r"no eos_token, so no completion could end. Set one .*tokenizer.eos_token ="):
        TransformersSampler(population, tokenizer, max_completion_length=12)


@pytest.mark.parametrize("declared", [0, [0], 5, None])
def test_tokens_that_the_base_declares_end_a_row(declared):
    population = tiny_population()
    population.base_model.generation_config.eos_token_id = declared
    draw = sampler(population)
    own = [] if declared is None else [declared] if isinstance(declared, int) else declared
    assert draw.eos_ids == sorted({*own, draw.tokenizer.eos_token_id})
    assert population.base_model.generation_config.eos_token_id == (own or None)


def test_a_pad_token_of_the_model_ends_no_row(population):
    draw = sampler(population)
    draw.eos_ids = [2]
    pad = draw.tokenizer.pad_token_id
    assert draw._trim([5, pad, 6, 2, pad, pad]) == [5, pad, 6, 2]
    assert draw._trim([5, pad, 6]) == [5, pad, 6]
    draw.stop_strings = [draw.tokenizer.decode([6])]
    assert draw._trim([5, pad, 6, pad, pad]) == [5, pad, 6]


def trim(draw, ids):
    """Where a row is cut, looked for token by token."""
    for i, token in enumerate(ids):
        ends = token in draw.eos_ids
        if not ends and token != draw.tokenizer.pad_token_id:
            continue
        if i and any(stop in draw.tokenizer.decode(ids[:i]) for stop in draw.stop_strings):
            return ids[:i]
        if ends:
            return ids[: i + 1]
    return ids


PAD = tiny_tokenizer().pad_token_id
TOKENS = st.sampled_from([PAD, PAD, 2, 5, 6, 200, 233]) | st.integers(0, 255)


@given(st.lists(TOKENS, max_size=24), st.lists(st.lists(TOKENS, min_size=1, max_size=3), max_size=2), st.booleans())
@examples(200)
def test_rows_are_cut_where_a_search_token_by_token_cuts_them(population, ids, stops, pad_ends):
    draw = sampler(population)
    draw.eos_ids = [2, PAD] if pad_ends else [2]
    draw.stop_strings = [draw.tokenizer.decode(stop) for stop in stops]
    assert draw._trim(ids) == trim(draw, ids)


@pytest.mark.parametrize("stop", ["never", "\n# Task"])
def test_a_row_of_pad_tokens_is_decoded_a_few_times(population, monkeypatch, stop):
    draw, decoded = sampler(population), []
    draw.eos_ids, draw.stop_strings = [2], [stop]
    ids = [PAD] * 2000 + draw.tokenizer.encode("\n# Task") + [PAD] * 2000
    want = ids if stop == "never" else ids[:-2000]
    decode = draw.tokenizer.decode
    monkeypatch.setattr(draw.tokenizer, "decode", lambda ids: decoded.append(len(ids)) or decode(ids))
    assert draw._trim(ids) == want
    assert len(decoded) <= 13


def test_sampling_is_in_the_mixed_precision_of_learning(population):
    from accelerate import Accelerator

    seen = []
    handle = population.base_model.register_forward_hook(lambda *_: seen.append(torch.is_autocast_enabled("cpu")))
    try:
        for precision in ("no", "bf16"):
            AcceleratorState._reset_state(True)
            accelerator = Accelerator(cpu=True, mixed_precision=precision)
            sampler(population, max_completion_length=2, accelerator=accelerator)(PROMPTS[:1], ROWS[:1], seed=0)
    finally:
        handle.remove()
        AcceleratorState._reset_state(True)
    assert seen == [False, False, True, True]


def test_variables_of_the_chat_template(population):
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{{ greeting }}" + tokenizer.chat_template
    settings = {"max_completion_length": 2, "temperature": 0.0}
    plain, greets = (
        TransformersSampler(population, tokenizer, **settings, chat_template_kwargs=kwargs)
        for kwargs in (None, {"greeting": "Hi! "})
    )
    (one,), (other,) = (draw(PROMPTS[:1], ROWS[:1], seed=0) for draw in (plain, greets))
    assert tokenizer.decode(other.prompt_ids) == "Hi! " + tokenizer.decode(one.prompt_ids)
    assert greets.count_tokens(PROMPTS[0]) == len(other.prompt_ids)


@pytest.mark.parametrize("template", ["base", "chat"])
def test_a_transcript_begins_as_the_tokenizer_begins_a_text(population, template):
    """With the beginning of sequence of Llama and Gemma, once. A chat template writes it itself."""
    tokenizer = tiny_tokenizer()
    settings = {"max_completion_length": 2, "template": template}
    (one,) = TransformersSampler(population, tokenizer, **settings)(PROMPTS[:1], ROWS[:1], seed=0)
    begin = begin_texts(tokenizer)
    draw = TransformersSampler(population, tokenizer, **settings)
    (other,) = draw(PROMPTS[:1], ROWS[:1], seed=0)
    assert other.prompt_ids == ([begin, *one.prompt_ids] if template == "base" else one.prompt_ids)
    assert draw.count_tokens(PROMPTS[0]) == len(other.prompt_ids)


def test_greedy_equals_generate_of_each_member_alone(population):
    """Over several cuts of the batch, and where the last one is short."""
    limit = 2 * TOKENS_AT_ONCE + 3
    draw = sampler(population, temperature=0.0, max_completion_length=limit)
    together = draw(PROMPTS, ROWS, seed=0)
    for name, got in zip(ROWS, together, strict=True):
        ids = torch.tensor([got.prompt_ids])
        with population.route([name]):
            want = population.base_model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=limit, do_sample=False
            )
        assert want[0, ids.shape[1] :].tolist() == list(got.ids)
    assert max(len(one.ids) for one in together) == limit


@pytest.mark.slow
@pytest.mark.parametrize("make", BASES)
def test_bases_of_other_kinds_draw_what_each_row_draws_alone(make):
    """Rows of a group share their prompt, and rows that have ended leave, where the cache can select rows or not."""
    torch.manual_seed(0)
    population = Population(make(), lora(target_modules=["q_proj", "o_proj"]), num_teachers=2, num_students=2)
    perturb(population, 0.3)
    draw = sampler(population, temperature=0.0, max_completion_length=2 * TOKENS_AT_ONCE + 3)
    prompts, rows = [*PROMPTS, *PROMPTS], [*ROWS, *ROWS]
    ids = [draw._tokenize([prompt])[0] for prompt in prompts]
    population.base_model.generation_config.eos_token_id = 2  # `sampler` has set it; the oracle reads it
    together = [list(one.ids) for one in draw(prompts, rows, seed=0)]
    for name, prompt, got in zip(rows, ids, together, strict=True):
        one = torch.tensor([prompt])
        for module in draw.offset:
            module.rope_deltas = None
        with population.route([name]):
            want = population.base_model.generate(
                input_ids=one,
                attention_mask=torch.ones_like(one),
                max_new_tokens=draw.max_completion_length,
                do_sample=False,
            )
        assert want[0, one.shape[1] :].tolist() == got


@pytest.mark.slow
def test_rows_that_have_ended_leave_the_batch(population):
    """No forward is made for them, and what the others draw is what they draw without any cut."""
    sizes, draw = [], sampler(population, max_completion_length=96)
    handle = population.base_model.register_forward_pre_hook(
        lambda _model, _args, kwargs: sizes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    lengths = [len(one.ids) for one in draw(PROMPTS, ROWS, seed=0)]
    handle.remove()
    assert TOKENS_AT_ONCE < min(lengths) < max(lengths) - TOKENS_AT_ONCE
    alive = [sum(length > start for length in lengths) for start in range(0, max(lengths), TOKENS_AT_ONCE)]
    steps = [min(TOKENS_AT_ONCE, max(lengths) - start) for start in range(0, max(lengths), TOKENS_AT_ONCE)]
    assert [rows for rows, _ in sizes] == [rows for rows, n in zip(alive, steps, strict=True) for _ in range(n)]
    assert {tokens for _, tokens in sizes[1:]} == {1}  # the prompt runs once: the cache goes on


def test_a_member_does_not_depend_on_the_others(population):
    """Invariant 1: with other rows replaced by others of the same shape, a member's tokens are the same."""
    draw = sampler(population)
    before = draw(PROMPTS, ROWS, seed=3)
    other = ["teacher_1" if name == "student_1" else name for name in ROWS]
    after = draw([ask("uno"), *PROMPTS[1:4], ask("cinq cinq"[:9]), PROMPTS[5]], other, seed=3)
    for i, name in enumerate(ROWS):
        assert (before[i] == after[i]) == (name != "student_1")


def test_a_share_of_the_rows_draws_what_one_process_would(population):
    draw = sampler(population)
    whole = draw(PROMPTS, ROWS, seed=5)
    for rank in range(2):
        mine = range(rank, len(PROMPTS), 2)
        share = draw([PROMPTS[i] for i in mine], [ROWS[i] for i in mine], seed=5, streams=mine)
        assert [c.ids for c in share] == [whole[i].ids for i in mine]


@pytest.mark.slow
@pytest.mark.parametrize("rows", [ROWS, [*NAMES, "student_0"] * 2, ["teacher_1"] * 7 + ["student_0"] * 2])
def test_a_members_tokens_are_those_it_draws_alone(population, rows):
    """Invariant 1, the hard way: nobody else in the batch, other padding, other neighbours, another order."""
    draw = sampler(population)
    prompts = [PROMPTS[i % len(PROMPTS)] for i in range(len(rows))]
    together = draw(prompts, rows, seed=8)
    for name in set(rows):
        own = [i for i, row in enumerate(rows) if row == name]
        alone = draw([prompts[i] for i in own], [name] * len(own), seed=8, streams=own)
        assert [c.ids for c in alone] == [together[i].ids for i in own]
    turned = list(reversed(range(len(rows))))
    other_way = draw([prompts[i] for i in turned], [rows[i] for i in turned], seed=8, streams=turned)
    assert [c.ids for c in reversed(other_way)] == [c.ids for c in together]


@pytest.fixture
def plans(monkeypatch):
    """How rows are routed, batch by batch, as it is decided."""
    made, plan = [], routing.make_plan
    monkeypatch.setattr(routing, "make_plan", lambda *given: made.append(plan(*given)) or made[-1])
    return made


def test_no_row_is_moved_while_decoding(population, plans):
    """Rows reach the model in blocks of their members, whatever their order and lengths in the call."""
    sampler(population, batch_size=4)(PROMPTS, ROWS, seed=0)
    assert plans and all(plan.order is None for plan in plans)


def test_batches_hold_as_many_rows_of_each_member(population, plans):
    """Also where some members' prompts are all shorter than the others': sorted by length alone they would not."""
    members = [name for name in NAMES for _ in range(4)]
    prompts = [ask("long " * (1 + i + 6 * (name > "t"))) for i, name in enumerate(members)]
    sampler(population, batch_size=8)(prompts, members, seed=0)
    assert [plan.groups for plan in plans] == [((4, 2),)] * 2


@pytest.mark.slow
def test_small_batches_draw_the_same(population):
    assert sampler(population)(PROMPTS, ROWS, seed=4) == sampler(population, batch_size=2)(PROMPTS, ROWS, seed=4)


def test_members_differ_and_none_is_the_base(population):
    greedy = sampler(population, temperature=0.0)
    texts = [greedy([PROMPTS[0]], [name], seed=0)[0].ids for name in (*NAMES, None)]
    assert len({tuple(ids) for ids in texts}) > 1
    assert greedy([PROMPTS[0]], [None], seed=0)[0].ids == texts[-1]


def test_leaves_the_mode_as_found_and_takes_no_rows(population):
    population.model.train()
    assert sampler(population)([], [], seed=0) == []
    sampler(population)(PROMPTS[:1], ROWS[:1], seed=0)
    assert population.model.training and population.base_model.training


@pytest.mark.slow
def test_the_mode_changes_once_for_all_batches_of_a_call(population, monkeypatch):
    """Each change visits every module of every adapter."""
    modes, train = [], type(population.base_model).train

    def noted(model, mode=True):
        modes.append(mode)
        return train(model, mode)

    monkeypatch.setattr(type(population.base_model), "train", noted)
    population.base_model.train()
    modes.clear()
    sampler(population, max_completion_length=2 * TOKENS_AT_ONCE, batch_size=2)(PROMPTS, ROWS, seed=1)
    assert modes == [False, True]


@pytest.mark.slow
def test_ends_with_eos_or_at_the_limit(population):
    for completion in sampler(population, max_completion_length=40)(PROMPTS, ROWS, seed=0):
        assert (completion.ids[-1] == 2 or len(completion.ids) == 40) and 2 not in completion.ids[:-1]


@pytest.mark.slow
def test_warpers_are_honoured(population):
    greedy = sampler(population, temperature=0.0)(PROMPTS, ROWS, seed=0)
    for setting in ({"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-4}, {"min_p": 1.0}):
        assert [c.ids for c in sampler(population, **setting)(PROMPTS, ROWS, seed=9)] == [c.ids for c in greedy]


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, TOKENS_AT_ONCE + 3])
def test_rows_with_one_prompt_and_member_run_it_once(population, limit):
    """The completions of a group share its prompt, but the last token; members and prompts do not mix."""
    sizes, draw = [], sampler(population, max_completion_length=limit)
    prompts = [PROMPTS[i] for i in (0, 0, 0, 1, 1, 0, 0, 1)]
    rows = ["student_0"] * 5 + ["teacher_1"] * 3
    alone = [
        draw([prompt], [name], seed=6, streams=[i])[0]
        for i, (prompt, name) in enumerate(zip(prompts, rows, strict=True))
    ]
    handle = population.base_model.register_forward_pre_hook(
        lambda _model, _args, kwargs: sizes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    together = draw(prompts, rows, seed=6)
    handle.remove()
    assert [one.ids for one in together] == [one.ids for one in alone]
    longest = max(len(one.prompt_ids) for one in together)
    assert sizes[:2] == [(4, longest - 1), (8, 1)] and all(tokens == 1 for _, tokens in sizes[2:])


@pytest.mark.slow
def test_a_prompt_of_one_token_is_not_run_before_the_others(population):
    """Without its last token it would be padding alone, whose attention is not a number."""
    draw = sampler(population)
    prompt_ids = [[5], [5], [5, 6, 7], [5, 6, 7]]
    together = draw.checked_draw(prompt_ids, ["student_0"] * 4, [1, 2, 3, 4])
    alone = [
        draw.checked_draw([ids], ["student_0"], [seed])[0] for ids, seed in zip(prompt_ids, [1, 2, 3, 4], strict=True)
    ]
    assert [one.ids for one in together] == [one.ids for one in alone]


def test_a_layer_with_room_holds_what_a_dynamic_layer_holds():
    """Also beyond its room, and after rows were chosen again."""
    draw = torch.Generator().manual_seed(0)
    plain, rows, other = DynamicLayer(), torch.tensor([2, 0, 0]), torch.tensor([1])
    plain.update(*torch.randn(2, 3, 2, 4, 5, generator=draw))
    roomy = RoomyLayer(plain, rows, 2)
    plain.batch_select_indices(rows)
    for tokens in (1, 1, 1, 2):
        new = torch.randn(2, 3, 2, tokens, 5, generator=draw)
        assert all(torch.equal(a, b) for a, b in zip(plain.update(*new), roomy.update(*new), strict=True))
        assert roomy.get_seq_length() == plain.get_seq_length() and roomy.get_mask_sizes(1) == plain.get_mask_sizes(1)
    roomy = RoomyLayer(roomy, other, 1)
    plain.batch_select_indices(other)
    assert torch.equal(roomy.keys, plain.keys) and torch.equal(roomy.values, plain.values)


def test_a_row_ends_with_a_stop_string(population):
    """As it would have been without, up to there; the others go on."""
    free, draw = sampler(population)(PROMPTS, ROWS, seed=2), sampler(population)
    stop = draw.tokenizer.decode(free[0].ids[1:3])
    draw.stop_strings, draw.stopping = [stop], StoppingCriteriaList([StopStringCriteria(draw.tokenizer, [stop])])
    stopped = draw(PROMPTS, ROWS, seed=2)
    for before, after in zip(free, stopped, strict=True):
        assert after.ids == before.ids[: len(after.ids)]
        assert len(after.ids) == len(before.ids) or stop in draw.tokenizer.decode(after.ids)
    assert len(stopped[0].ids) == 3 < len(free[0].ids)
