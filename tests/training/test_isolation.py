"""Invariants 1, 3 and 6: members are isolated, the base never changes, the same seed gives the same run."""

import hashlib

import pytest
import torch

from tests.tiny import tiny_model, two_layers
from tests.training.conftest import Altered, build_trainer, finished, hash_reward, make_config, text_of


def checksum(tensors):
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


def member_state(trainer, name):
    parameters = trainer.population.parameters(name)
    states = [trainer.optimizer.state.get(p, {}) for p in parameters]  # a member just born has none
    return checksum(
        parameters + [state[key] for state in states for key in sorted(state) if torch.is_tensor(state[key])]
    )


def swap_rows_of(trainer, victim):
    """Replace one member's completions by other tokens; all members' have one length, in every round.

    A round's loss is divided by its tokens and multiplied again for each member: with another number of tokens all
    members' bits would change, though not their updates.
    """
    length = trainer.args.max_completion_length

    def swap(drawn, members):
        full = [c._replace(ids=([t % 250 + 5 for t in c.ids] * length)[:length]) for c in drawn]
        return [
            c._replace(ids=[(t + 11) % 250 + 5 for t in c.ids], text="other") if m == victim else c
            for c, m in zip(full, members, strict=True)
        ]

    trainer.source.sampler = Altered(trainer.source.sampler, swap)


@pytest.mark.parametrize(
    "settings",
    [pytest.param({}, marks=pytest.mark.slow), {"beta": 0.1, "num_iterations": 2}],  # the second has all of the first
    ids=["plain", "beta-iterations"],
)
def test_isolation_of_members(make_trainer, settings):
    def run(victim):
        trainer = make_trainer(
            model=two_layers(), rewards=only_text_reward, max_steps=2, gradient_checkpointing=True, **settings
        )
        swap_rows_of(trainer, victim)
        trainer.train()
        return {name: member_state(trainer, name) for name in trainer.population}

    plain = run(None)
    for victim in ("teacher_1", "student_0"):
        swapped = run(victim)
        assert {name for name in plain if plain[name] != swapped[name]} == {victim}


@pytest.mark.slow
def test_isolation_with_more_members_than_rows_in_a_micro_batch(make_trainer):
    def run(swapped):
        trainer = make_trainer(
            rewards=only_text_reward, num_teachers=4, num_students=4, per_device_train_batch_size=3, max_steps=1
        )
        swap_rows_of(trainer, "student_2" if swapped else None)
        trainer.train()
        return {name: member_state(trainer, name) for name in trainer.population}

    plain, swapped = run(False), run(True)
    assert {name for name in plain if plain[name] != swapped[name]} == {"student_2"}


def only_text_reward(completions, player, **kwargs):
    return hash_reward(completions)


@pytest.fixture(scope="module")
def with_reference(tmp_path_factory):
    """A trainer after two rounds with a reference, and the checksums of its members before, between and after them."""
    seen = []

    def look(_=None):
        seen.append({name: checksum(trainer.population.parameters(name)) for name in trainer.population})

    trainer = build_trainer(make_config(tmp_path_factory.mktemp("reference"), beta=0.1, max_steps=2), on_round=look)
    look()
    trainer.train()
    trainer.close()
    return trainer, seen


def test_base_never_changes(with_reference):
    trainer, _ = with_reference
    own = {id(p) for name in trainer.population for p in trainer.population.parameters(name)}
    base = [p for p in trainer.population.base_model.parameters() if id(p) not in own]
    assert checksum(base) == checksum(tiny_model().parameters())


def test_every_member_learns_also_with_a_reference(with_reference):
    """PEFT re-freezes idle adapters when a reference pass disables them; here none may stop learning."""
    trainer, seen = with_reference
    assert len(seen) == 3
    for before, after in zip(seen, seen[1:]):
        assert all(before[name] != after[name] for name in trainer.population)
    assert all(p.requires_grad for name in trainer.population for p in trainer.population.parameters(name))


@pytest.fixture(scope="module")
def one_round(tmp_path_factory):
    """A trainer after one round."""
    return finished(tmp_path_factory.mktemp("one"), max_steps=1)


@pytest.mark.slow
def test_same_seed_same_run(one_round, make_trainer):
    trainer = make_trainer(max_steps=1)
    trainer.train()
    for name in trainer.population:
        assert member_state(trainer, name) == member_state(one_round, name)


@pytest.mark.slow
def test_other_seed_other_run(one_round, make_trainer):
    trainer = make_trainer(max_steps=1, seed=1)
    trainer.train()
    assert member_state(trainer, "student_0") != member_state(one_round, "student_0")


@pytest.mark.slow
def test_nothing_a_model_writes_is_evaluated_here(make_trainer, tmp_path, monkeypatch):
    """Invariant 7: completions that would act if evaluated in this process leave no trace."""
    import builtins

    flag = tmp_path / "evaluated"
    attack = f"open({str(flag)!r}, 'w').close()"
    texts = [
        f"```python\n{attack}\ndef f(x):\n    {attack}\n    return x\n```\n```input\n1\n```",
        f"```output\n{attack}\n```\n```input\n{attack}\n```\n```python\ndef f(*a):\n    return {attack}\n```",
    ]
    real = builtins.exec
    trainer = make_trainer(max_steps=1)
    trainer.source.sampler = Altered(
        trainer.source.sampler, lambda drawn, members: [c._replace(text=texts[i % 2]) for i, c in enumerate(drawn)]
    )
    monkeypatch.setattr(builtins, "eval", _refuse)
    trainer.train()
    assert builtins.exec is real and not flag.exists()
    assert not any(attempt.solved for attempt in trainer.source.played.record.attempts)


def _refuse(*args, **kwargs):
    raise AssertionError("eval was called in the trainer's process")


def test_shared_member_trains_both_roles(make_trainer):
    trainer = make_trainer(
        num_teachers=1, num_students=1, shared_member=True, max_steps=1, per_device_train_batch_size=6
    )
    trainer.train()
    assert list(trainer.population) == ["agent_0"]
    assert {row.role for row in trainer.source.played.rows} == {"teacher", "student"}
    assert set(trainer.updates.grad_norms) == {"agent_0"} and trainer.updates.grad_norms["agent_0"] > 0


def test_text_survives_in_records(one_round):
    record = one_round.source.played.record
    assert [row.completion.text for row in one_round.source.played.rows] == [
        item.completion for item in (*record.proposals, *record.attempts)
    ]
    assert text_of([{"role": "assistant", "content": "x"}]) == "x"


def test_routing_is_cleared_after_training(one_round):
    ids = torch.randint(3, 200, (3, 5))
    with torch.no_grad():
        one_round.population.model.eval()
        assert torch.equal(one_round.population.model(ids).logits, tiny_model().eval()(ids).logits)
