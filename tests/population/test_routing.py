"""Routing against PEFT's own path: one adapter, one pass, as the oracle."""

from collections import Counter
from copy import deepcopy

import pytest
import torch
from accelerate import Accelerator
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import OlmoConfig, OlmoForCausalLM

from tests.drawn_examples import examples
from tests.tiny import lora, perturb, tiny_population, two_layers
from trl_populora.generation.transformers_sampler import CACHE
from trl_populora.population import Population
from trl_populora.population.routing import make_plan, member_order


NAMES = ["teacher_0", "teacher_1", "student_0", "student_1"]
BATCHES = {
    "equal": NAMES * 2,
    "equal-in-order": ["teacher_0", "teacher_0", "student_1", "student_1"],
    "unequal": ["student_1", "teacher_0", "teacher_0", "student_0", "student_1", "student_1", "teacher_1"],
    "absent": ["student_0", "teacher_1", "student_0"],
    "single": ["student_0"] * 5,
}


def tokens(rows, width=9, seed=2):
    return torch.randint(3, 200, (rows, width), generator=torch.Generator().manual_seed(seed))


def loss_of(population, ids, weights):
    log_probs = population.model(ids).logits.float().log_softmax(-1)[:, :-1].gather(2, ids[:, 1:, None])
    return (log_probs.mean((1, 2)) * weights).sum()


def gradients(population):
    return {
        name: [None if p.grad is None else p.grad.clone() for p in population.parameters(name)] for name in population
    }


def separate_passes(population, rows, ids, weights):
    """Gradients of every member present by PEFT's own path, nothing of ours in it."""
    layers = population.model.base_model
    for name in sorted(set(rows)):
        own = [i for i, row in enumerate(rows) if row == name]
        layers.enable_adapter_layers()
        layers.set_adapter(name)
        loss_of(population, ids[own], weights[own]).backward()
    population.set_trainable()
    return gradients(population)


def assert_equal(got, want, tolerance):
    for name in want:
        for a, b in zip(got[name], want[name], strict=True):
            if b is None:
                assert a is None, f"{name} has no row in the batch, but a gradient"
            else:
                assert (a - b).norm() <= tolerance * b.norm(), (name, float((a - b).norm() / b.norm()))
                assert b.norm() > 0


@pytest.mark.every(3)
@pytest.mark.parametrize("rows", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("checkpointing", [False, True], ids=["plain", "checkpointing"])
def test_gradients_equal_pefts_own_path(rows, checkpointing):
    ids, weights = tokens(len(rows)), torch.linspace(-1, 1, len(rows)) + 0.05
    population = tiny_population()
    if checkpointing:
        population.model.enable_input_require_grads()
        population.model.gradient_checkpointing_enable({"use_reentrant": False})
        population.model.train()
    with population.route(rows):
        loss_of(population, ids, weights).backward()
    assert_equal(gradients(population), separate_passes(tiny_population(), rows, ids, weights), 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("rows", BATCHES.values(), ids=BATCHES)
def test_under_autocast_it_is_as_near_to_float32_as_peft_is(rows):
    """bfloat16 has 8 bits: both paths round, so neither is the truth. Ours may be at most 1.25 times as far off."""
    ids, weights = tokens(len(rows)), torch.ones(len(rows))
    exact = separate_passes(tiny_population(), rows, ids, weights)
    population = tiny_population()
    with torch.autocast("cpu", torch.bfloat16):
        peft = separate_passes(tiny_population(), rows, ids, weights)
        with population.route(rows):
            loss_of(population, ids, weights).backward()

    def error(values):
        pairs = [(a, b) for name in exact for a, b in zip(values[name], exact[name], strict=True) if b is not None]
        return sum(float((a - b).norm() ** 2) for a, b in pairs) ** 0.5, sum(float(b.norm() ** 2) for _, b in pairs)

    ours, scale = error(gradients(population))
    theirs, _ = error(peft)
    assert 0 < ours <= 1.25 * theirs and ours < 0.05 * scale**0.5


@pytest.mark.slow
def test_accumulation_adds_micro_batches():
    rows = NAMES * 4
    ids, weights = tokens(len(rows)), torch.linspace(-1, 1, len(rows)) + 0.05
    population = tiny_population()
    for part in (slice(0, 8), slice(8, 11), slice(11, 16)):
        with population.route(rows[part]):
            loss_of(population, ids[part], weights[part]).backward()
    assert_equal(gradients(population), separate_passes(tiny_population(), rows, ids, weights), 1e-5)


@pytest.mark.slow
def test_a_reference_pass_amid_a_routed_one_is_the_base():
    rows, population = NAMES, tiny_population()
    ids, weights = tokens(4), torch.ones(4)
    with population.route(rows):
        loss = loss_of(population, ids, weights)
        with population.routing.base(), torch.no_grad():
            reference = population.model(ids).logits
        loss.backward()
    with torch.no_grad():
        assert torch.equal(reference, two_layers()(ids).logits)
    assert_equal(gradients(population), separate_passes(tiny_population(), rows, ids, weights), 1e-5)


def test_rank_stabilised_scaling_is_honoured():
    rows, ids, weights = BATCHES["unequal"], tokens(7), torch.ones(7)
    config = lora(use_rslora=True)
    population = tiny_population(lora_config=config)
    with population.route(rows):
        loss_of(population, ids, weights).backward()
    want = separate_passes(tiny_population(lora_config=config), rows, ids, weights)
    assert_equal(gradients(population), want, 1e-5)


def test_weights_written_or_moved_between_passes_are_seen():
    """There is no second copy that could go stale: not in training, not while sampling, not after a move."""
    population = tiny_population()
    ids = tokens(2)

    def logits():
        with torch.no_grad(), population.route(["student_0", "student_1"]):
            return population.model(ids).logits

    before = logits()
    with torch.no_grad():
        for parameter in population.parameters("student_0"):
            parameter.mul_(1.5)
    after = logits()
    assert not torch.allclose(before[0], after[0]) and torch.equal(before[1], after[1])
    population.model.to(torch.float64)
    torch.testing.assert_close(logits().float(), after, rtol=1e-4, atol=1e-4)
    population.model.to(torch.float32)
    assert all(p.requires_grad for p in population.parameters("student_0"))


def test_stacks_are_made_again_after_an_update_and_in_another_dtype():
    population, rows, ids = tiny_population(), NAMES, tokens(4)
    with population.route(rows):
        with torch.no_grad():
            before = population.model(ids).logits
        loss_of(population, ids, torch.ones(4)).backward()
        torch.optim.SGD([p for name in population for p in population.parameters(name)], lr=0.5).step()
        with torch.no_grad():
            after = population.model(ids).logits
            with torch.autocast("cpu", torch.bfloat16):
                population.model(ids)
            again = population.model(ids).logits
        learned = population.model(ids).logits.detach()
    assert (after - before).abs().max() > 1e-3
    torch.testing.assert_close(after, learned)
    torch.testing.assert_close(again, learned)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [BATCHES["equal-in-order"], BATCHES["unequal"]], ids=["equal", "unequal"])
def test_a_base_may_change_what_an_adapted_layer_returns_in_place(rows):
    sizes = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, vocab_size=259)
    base = OlmoForCausalLM(OlmoConfig(clip_qkv=8.0, pad_token_id=0, eos_token_id=2, bos_token_id=None, **sizes))
    ids, weights = tokens(len(rows)), torch.ones(len(rows))
    together, apart = (Population(deepcopy(base), lora(), num_teachers=2, num_students=2) for _ in range(2))
    for population in (together, apart):
        perturb(population, 0.1)
    with together.route(rows):
        loss_of(together, ids, weights).backward()
    assert_equal(gradients(together), separate_passes(apart, rows, ids, weights), 1e-5)


def saved_bytes(population, rows, width=9):
    """Bytes that a forward keeps for its backward, each storage once, parameters left out."""
    parameters = {p.untyped_storage().data_ptr() for p in population.model.parameters()}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)  # held, or its address would be used again
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t), population.route(rows):
        loss_of(population, tokens(len(rows), width), torch.ones(len(rows))).backward()
    return sum(size for size, _ in kept.values())


@pytest.mark.slow
def test_memory_is_bounded_by_the_micro_batch():
    """Four rows keep as much in a population of 24 as in one of 4: of each member, a copy of its adapter. With
    gradient checkpointing, of four adapters as much as of one."""
    small, large = (Population(two_layers(), lora(), num_teachers=n, num_students=n) for n in (2, 12))
    four, adapter = NAMES, sum(p.nbytes for p in small.parameters("student_0"))
    adapter -= sum(p.nbytes for p in small.parameters("student_0")[:6:2])  # A of q, k and v: embeddings learn nothing
    assert saved_bytes(large, four) == saved_bytes(small, four)
    assert saved_bytes(small, four) == saved_bytes(small, ["student_0"] * 4) + 3 * adapter
    assert all(p.grad is None for p in large.parameters("student_11"))
    for population in (small, large):
        population.model.train()
        population.model.gradient_checkpointing_enable({"use_reentrant": False})
    assert saved_bytes(large, four) == saved_bytes(small, four) == saved_bytes(small, ["student_0"] * 4)


@pytest.mark.slow
def test_the_number_of_matmuls_does_not_grow_with_the_members():
    calls = []

    class Count(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            calls.append(function.overloadpacket.__name__)
            return function(*args, **kwargs or {})

    counts = {}
    population = Population(two_layers(), lora(), num_teachers=12, num_students=12)
    perturb(population, 0.1)
    for members in (1, 4, 24):
        rows = [name for name in list(population)[:members] for _ in range(24 // members)]
        calls.clear()
        with population.route(rows), Count():
            loss_of(population, tokens(24), torch.ones(24)).backward()
        counts[members] = Counter(calls)
    assert counts[1]["bmm"] == counts[4]["bmm"] == counts[24]["bmm"]
    assert counts[24]["cat"] == counts[1]["cat"] >= 2 * len(population.routing.layers)  # A and B
    assert counts[24]["clone"] + counts[24]["copy_"] == counts[4]["clone"] + counts[4]["copy_"]


UNEQUAL = ["student_1", *["teacher_0"] * 3, "student_0", "student_1", "student_1", "teacher_1", "teacher_1"]


@pytest.mark.slow
@pytest.mark.parametrize("rows", [BATCHES["equal-in-order"], UNEQUAL], ids=["equal", "unequal"])
def test_decoding_adds_few_kernels_to_each_linear(rows):
    """Counted by the profiler in bfloat16: two products, and for unequal members two gathers and a sum, not 2 each."""
    population = tiny_population()
    population.model.to(torch.bfloat16)
    for name in population:  # as in training: the base in bfloat16, the adapters in float32
        for parameter in population.parameters(name):
            parameter.data = parameter.data.float()
    counts, ids = {}, tokens(len(rows), width=1)
    for key, members in (("routed", rows), ("base", None)):
        with torch.no_grad(), population.route(members) if members else population.routing.base():
            population.model(ids)  # stacks once
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
                population.model(ids)
        counts[key] = Counter(event.name for event in profile.events() if event.cpu_parent is None)
    layers = len(population.routing.layers)
    added = {name: n / layers for name, n in (counts["routed"] - counts["base"]).items() if name in KERNELS}
    if rows is UNEQUAL:
        assert added == {"aten::bmm": 2, "aten::index": 2, "aten::add": 1}
    else:
        assert added == {"aten::bmm": 1, "aten::baddbmm_": 1}


KERNELS = {f"aten::{name}" for name in "add add_ mul mul_ copy_ bmm baddbmm baddbmm_ cat index index_select".split()}


@pytest.mark.slow
@pytest.mark.parametrize("rows", [BATCHES["equal"], BATCHES["unequal"], UNEQUAL, [*UNEQUAL, *["teacher_0"] * 20]])
def test_a_token_at_a_time_is_the_whole_pass(rows):
    """Decoding has short cuts of its own; a pass over the whole text, with gradients, has none of them."""
    population, ids = tiny_population(), tokens(len(rows))
    with population.route(rows):
        whole = population.model(ids).logits.detach()
        with torch.no_grad():
            start = population.model(ids[:, :-1], use_cache=True)
            last = population.model(ids[:, -1:], **{CACHE: getattr(start, CACHE)}).logits
    torch.testing.assert_close(torch.cat([start.logits, last], dim=1), whole, rtol=1e-4, atol=1e-5)


@examples(200)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=40))
def test_a_plan_puts_every_row_into_its_members_block(members):
    plan = make_plan(members, torch.device("cpu"))
    assert set(plan.members) == set(members) and plan.rows == len(members)
    order = list(range(len(members))) if plan.order is None else plan.order.tolist()
    blocks = [member for member in plan.members for _ in range(members.count(member))]
    assert [members[row] for row in order] == blocks
    sizes = [rows for n, rows in plan.groups for _ in range(n)]
    assert sizes == [members.count(member) for member in plan.members]
    assert len(plan.groups) == len(set(sizes)) and len(plan.groups) ** 2 <= 2 * len(members)
    if plan.padded is not None:
        assert torch.equal(plan.padded.flatten()[plan.places], torch.arange(len(members)))
        assert [{members[row] for row in rows} for rows in plan.padded.tolist()] == [{one} for one in plan.members]
    if plan.order is not None:
        assert torch.equal(plan.order[plan.inverse], torch.arange(len(members)))
    sorted_rows = [members[row] for row in member_order(members)]
    assert make_plan(sorted_rows, torch.device("cpu")).order is None


class Operations(TorchDispatchMode):
    """Counts operations, also those of autograd itself."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.counts[operation._schema.name.removeprefix("aten::")] += 1
        return operation(*args, **kwargs or {})


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [False, True])
def test_what_an_update_launches_does_not_grow_with_the_members(checkpointing):
    """In bfloat16, gradients are cast for all members at once: autograd would do it one by one."""
    found = []
    for members in (1, 4):
        population = tiny_population(members, members)
        population.model.train()
        if checkpointing:
            population.model.gradient_checkpointing_enable({"use_reentrant": False})
        rows = [name for name in population for _ in range(8 // (2 * members))]
        with torch.autocast("cpu", torch.bfloat16), population.route(rows):
            loss = loss_of(population, tokens(8), torch.ones(8))
            with Operations() as operations:
                loss.backward()
        found.append({name: operations.counts[name] for name in KERNELS_OF_UPDATES})
    assert found[0] == found[1] and found[0]["_to_copy"] > 0


KERNELS_OF_UPDATES = "_to_copy copy_ add add_ mul bmm baddbmm cat stack clone".split()


def test_a_step_between_a_forward_and_its_backward_does_not_change_its_gradients():
    """They are those of the weights of the forward. (Gradient checkpointing runs it again, with the new ones.)"""
    found = []
    for stepped in (False, True):
        population, rows = tiny_population(), NAMES
        with population.route(rows):
            loss = loss_of(population, tokens(len(rows)), torch.ones(len(rows)))
            if stepped:
                with torch.no_grad():
                    population.parameters("teacher_1")[-1].add_(1.0)
            loss.backward()
        found.append(gradients(population))
    assert_equal(*found, 0)


def test_new_data_of_a_parameter_is_used_at_once():
    """Also within a context: the parameters are the only storage."""
    population, other, ids = tiny_population(), tiny_population(), tokens(len(NAMES))
    with torch.no_grad(), population.route(NAMES):
        before = population.model(ids).logits
    with population.route(NAMES):
        for name in NAMES:
            for parameter in population.parameters(name):
                parameter.data = 2 * parameter.data
        got = population.model(ids).logits.detach()
    with torch.no_grad():
        for name in NAMES:
            for parameter in other.parameters(name):
                parameter.mul_(2)
        with other.route(NAMES):
            wanted = other.model(ids).logits
    assert torch.equal(got, wanted) and not torch.allclose(got, before)


def test_accelerate_saves_and_loads_all_adapters(tmp_path):
    """It takes tensors of one storage for tied ones, and would keep one of them."""
    population, accelerator = tiny_population(), Accelerator(cpu=True)
    accelerator.prepare(population.model)
    wanted = {name: [p.detach().clone() for p in population.parameters(name)] for name in population}
    accelerator.save_state(str(tmp_path))
    with torch.no_grad():
        for name in population:
            for parameter in population.parameters(name):
                parameter.zero_()
    accelerator.load_state(str(tmp_path))
    for name, values in wanted.items():
        assert all(torch.equal(a, b) for a, b in zip(population.parameters(name), values, strict=True))
