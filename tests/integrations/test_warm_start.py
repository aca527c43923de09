"""The warm start on a population: who learns, who is copied, who is left alone, and what the rows look like."""

import csv
import math
import os
import random
import signal

import lightning
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities.exceptions import SIGTERMException
from peft import LoraConfig

from tests.code_tasks import code_types
from trl_populora.integrations.lightning import collate, encode, warm_start
from trl_populora.integrations.lightning.seed_examples import SeedExamples
from trl_populora.population import Population
from trl_populora.tasks import Refusal, Task


FAMILIES = ("add", "total")


@pytest.fixture
def types():
    return code_types("compact", num_function_inputs=2)


def populate(model, **sizes) -> Population:
    return Population(model, LoraConfig(r=2, lora_alpha=4, target_modules="all-linear", lora_dropout=0.0), **sizes)


def weights(population: Population, name: str) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in population.parameters(name)]


def equal(one, other) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def run(population, tokenizer, types, **overrides):
    settings = {"families": FAMILIES, "steps": 2, "rows_per_role": 3, "learning_rate": 1e-2} | overrides
    return warm_start(population, tokenizer, types, **settings)


@pytest.mark.slow
def test_trains_one_of_each_role_and_copies_it_to_the_others(model, tokenizer, types):
    population = populate(model, num_teachers=2, num_students=3)
    base = {name: tensor.clone() for name, tensor in model.state_dict().items() if "lora" not in name}
    before = {name: weights(population, name) for name in population}
    (first, second) = run(population, tokenizer, types)
    after = {name: weights(population, name) for name in population}
    assert list(first) == list(second) == ["teacher_0", "student_0"]
    assert not any(equal(before[name], after[name]) for name in population)
    assert equal(after["teacher_0"], after["teacher_1"])
    assert equal(after["student_0"], after["student_1"]) and equal(after["student_0"], after["student_2"])
    assert not equal(after["teacher_0"], after["student_0"])
    for name, tensor in model.state_dict().items():
        assert "lora" in name or torch.equal(tensor, base[name]), name
    assert all(member.version == 0 for member in population.values())


@pytest.mark.slow
def test_roles_do_not_disturb_each_other(model, tokenizer, types, monkeypatch):
    """A teacher ends bit-identical whatever the students' answers were."""
    population = populate(model, num_teachers=1, num_students=1)
    start = {name: population.factors(name) for name in population}
    start = {
        name: {k: f._replace(A=f.A.clone(), B=f.B.clone()) for k, f in own.items()} for name, own in start.items()
    }
    run(population, tokenizer, types)
    first = {name: weights(population, name) for name in population}
    for name in population:
        population.write(name, start[name])
    monkeypatch.setattr(type(types["code_o"]), "solve_completion", lambda self, task: "```output\n0\n```")
    run(population, tokenizer, types)
    assert equal(first["teacher_0"], weights(population, "teacher_0"))
    assert not equal(first["student_0"], weights(population, "student_0"))


@pytest.mark.slow
def test_shared_member_learns_both_roles(model, tokenizer, types, monkeypatch):
    population = populate(model, num_teachers=1, num_students=1, shared_member=True)
    before = weights(population, "agent_0")
    rows = []
    monkeypatch.setitem(warm_start.__globals__, "collate", lambda some, pad: rows.extend(some) or collate(some, pad))
    losses = run(population, tokenizer, types)
    assert [list(step) for step in losses] == [["agent_0"]] * 2
    assert len(rows) == 2 * 2 * 3  # steps, roles, rows per role
    assert not equal(before, weights(population, "agent_0"))


@pytest.mark.slow
def test_loss_falls_and_every_step_is_reported(model, tokenizer, types):
    population = populate(model, num_teachers=1, num_students=1)
    seen = []
    losses = run(population, tokenizer, types, steps=12, on_step=lambda step, losses: seen.append((step, losses)))
    assert seen == list(enumerate(losses, start=1))
    assert all(losses[-1][name] < loss for name, loss in losses[0].items())
    assert len(losses) == 12 and all(step.keys() == {"teacher_0", "student_0"} for step in losses)


def test_a_gpu_is_looked_for_as_without_lightning(model, tokenizer, types, monkeypatch):
    """By the runtime. What Lightning sets at import asks the driver, which counts GPUs that PyTorch cannot use."""
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    run(populate(model, num_teachers=1, num_students=1), tokenizer, types, steps=1, rows_per_role=1)
    assert "PYTORCH_NVML_BASED_CUDA_CHECK" not in os.environ


@pytest.mark.slow
def test_leaves_modes_gradients_and_trainability_as_found(model, tokenizer, types):
    population = populate(model, num_teachers=1, num_students=2)
    population.model.eval()
    trainable = {name: p.requires_grad for name, p in population.model.named_parameters()}
    run(population, tokenizer, types)
    assert not population.model.training
    assert {name: p.requires_grad for name, p in population.model.named_parameters()} == trainable
    assert all(parameter.grad is None for parameter in population.model.parameters())


@pytest.mark.slow
def test_same_seed_same_weights(model, tokenizer, types):
    population = populate(model, num_teachers=1, num_students=1)
    start = {name: [w.clone() for w in weights(population, name)] for name in population}
    results = []
    for seed in (1, 1, 2):
        for name in population:
            for parameter, value in zip(population.parameters(name), start[name], strict=True):
                parameter.data.copy_(value)
        run(population, tokenizer, types, seed=seed)
        results.append(weights(population, "teacher_0"))
    assert equal(results[0], results[1])
    assert not equal(results[0], results[2])


@pytest.mark.parametrize("bad", [{"steps": 0}, {"rows_per_role": 0}, {"max_length": 0}, {"rows_per_pass": 0}])
def test_numbers_out_of_range_are_named(model, tokenizer, types, bad):
    population = populate(model, num_teachers=1, num_students=1)
    with pytest.raises(ValueError, match=f"{next(iter(bad))}=0"):
        run(population, tokenizer, types, **bad)


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_a_learning_rate_out_of_range_is_named(model, tokenizer, types, rate):
    population = populate(model, num_teachers=1, num_students=1)
    before = weights(population, "student_0")
    with pytest.raises(ValueError, match=f"learning_rate={rate} must be positive and finite"):
        run(population, tokenizer, types, learning_rate=rate)
    assert equal(before, weights(population, "student_0"))


@pytest.mark.slow
def test_weights_that_are_not_finite_are_told(model, tokenizer, types):
    population = populate(model, num_teachers=1, num_students=1)
    with torch.no_grad():
        population.parameters("student_0")[0].fill_(math.nan)
    with pytest.raises(ValueError, match="diverged: weights of student_0 are not finite. Lower its learning rate"):
        run(population, tokenizer, types)


def test_rows_that_cannot_fit_are_refused_with_the_fix(model, tokenizer, types):
    population = populate(model, num_teachers=1, num_students=1)
    with pytest.raises(ValueError, match="max_length=20 tokens is too short.*larger max_length"):
        run(population, tokenizer, types, max_length=20)


@pytest.mark.slow
@pytest.mark.parametrize("style", ["compact", "full"])
def test_examples_are_valid_proposals_and_right_answers(style, tokenizer):
    """Read back by the task types themselves; outputs come from the task, without running anything."""
    types = code_types(style, num_function_inputs=4)
    examples = SeedExamples(types, rng=random.Random(0), families=FAMILIES)
    shown = []
    for type_id, kind in types.items():
        for _ in range(10):
            drawn = _recorded(examples, type_id)
            example, task = drawn("solve")
            answer = kind.parse_answer(task, example.completion)
            assert not isinstance(answer, Refusal)
            if type_id == "code_o":
                assert kind.judge([task], [answer], list) == [True]
            example, task = drawn("propose")
            draft = kind.parse_proposal(example.completion, [task] if type_id == "code_f" else [])
            assert not isinstance(draft, Refusal), draft
            assert draft.content.program == task.payload.program
            text = example.messages[-1]["content"]
            shown.append((task.payload.program in text) == (type_id == "code_f") or type_id != "code_f")
            assert "def f" in text  # a reference, or the program that a code_f proposal is about
    assert all(shown)


def _recorded(examples: SeedExamples, type_id: str):
    """Draw an example together with the task behind it."""

    def draw(role: str) -> tuple:
        tasks: list[Task] = []
        original = examples.task
        examples.task = lambda name: tasks.append(original(name)) or tasks[-1]
        try:
            return getattr(examples, role)(type_id), tasks[0]
        finally:
            del examples.task

    return draw


@pytest.mark.slow
def test_task_types_take_equal_turns(model, tokenizer, types, monkeypatch):
    population = populate(model, num_teachers=1, num_students=1)
    drawn = []
    original = SeedExamples.propose
    monkeypatch.setattr(
        SeedExamples, "propose", lambda self, type_id: drawn.append(type_id) or original(self, type_id)
    )
    run(population, tokenizer, types, steps=3, rows_per_role=4)
    assert [drawn.count(name) for name in types] == [4, 4, 4]


@pytest.mark.slow
def test_template_decides_the_prompt(tokenizer):
    examples = SeedExamples(code_types("compact"), rng=random.Random(0), families=FAMILIES)
    example = examples.solve("code_o")
    (chat,) = encode(tokenizer, [example])
    (base,) = encode(tokenizer, [example], template="base")
    assert tokenizer.decode(chat.ids).startswith("<|im_start|>")
    assert tokenizer.decode(base.ids[: base.prompt]).endswith("Assistant:")
    assert tokenizer.decode(base.ids[base.prompt :]) == tokenizer.decode(chat.ids[chat.prompt :])


@pytest.mark.slow
def test_lightnings_loggers_and_callbacks_are_in_use(model, tokenizer, types, tmp_path):
    class Counter(lightning.Callback):
        steps = 0

        def on_train_batch_end(self, trainer, *args):
            self.steps = trainer.global_step

    population, counter = populate(model, num_teachers=1, num_students=1), Counter()
    settings = {"logger": CSVLogger(tmp_path), "log_every_n_steps": 1, "callbacks": [counter]}
    steps = run(population, tokenizer, types, rows_per_pass=2, **settings)
    assert counter.steps == 2
    with open(tmp_path / "lightning_logs" / "version_0" / "metrics.csv", encoding="utf-8") as file:
        logged = [float(line["train_loss/student_0"]) for line in csv.DictReader(file)]
    assert logged == pytest.approx([losses["student_0"] for losses in steps])


class Ends(lightning.Callback):
    """Raises where Lightning calls this hook."""

    def __init__(self, error, hook="on_train_batch_end"):
        self.error = error
        setattr(self, hook, self.end)

    def end(self, *args, **kwargs):
        raise self.error


@pytest.fixture
def handler():
    """A handler of SIGINT of the caller's own."""

    def own(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, own)
    yield own
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.parametrize(
    "hook", ["setup", "on_train_batch_end"]
)  # before and after Lightning sets handlers of its own
def test_an_interrupt_reaches_the_caller(model, tokenizer, types, handler, capfd, hook):
    population = populate(model, num_teachers=1, num_students=1)
    with pytest.raises(KeyboardInterrupt):
        run(population, tokenizer, types, callbacks=[Ends(KeyboardInterrupt(), hook)])
    assert signal.getsignal(signal.SIGINT) is handler
    assert all(parameter.grad is None for parameter in population.model.parameters())
    assert capfd.readouterr() == ("", "")


def test_sigterm_is_no_success(model, tokenizer, types, handler):
    """Lightning would end the process with the code 0."""
    population = populate(model, num_teachers=1, num_students=1)
    with pytest.raises(KeyboardInterrupt):
        run(population, tokenizer, types, callbacks=[Ends(SIGTERMException())])
    assert signal.getsignal(signal.SIGINT) is handler


def test_another_exit_stays_one(model, tokenizer, types, handler):
    population = populate(model, num_teachers=1, num_students=1)
    with pytest.raises(SystemExit, match="3"):
        run(population, tokenizer, types, callbacks=[Ends(SystemExit(3))])
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.slow
def test_passes_of_a_step_change_nothing(model, tokenizer, types):
    """Whatever share of a step's rows is in memory at once: the same losses and, to rounding, the same weights."""
    population = populate(model, num_teachers=1, num_students=1)
    start = {name: weights(population, name) for name in population}
    found = []
    for rows_per_pass in (1, 4, 100):
        for name in population:
            for parameter, value in zip(population.parameters(name), start[name], strict=True):
                parameter.data.copy_(value)
        losses = run(population, tokenizer, types, rows_per_pass=rows_per_pass)
        found.append((losses, weights(population, "student_0")))
    for losses, own in found[1:]:
        assert losses[1] == pytest.approx(found[0][0][1], rel=1e-4)
        torch.testing.assert_close(own, found[0][1], rtol=1e-2, atol=1e-4)
