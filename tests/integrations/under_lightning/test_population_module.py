"""The module: each member's update is that of a run with its rows alone; what is logged, saved and refused."""

import contextlib
import csv
import math

import lightning
import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch.plugins import MixedPrecision
from peft import LoraConfig, PeftModel
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification

from tests.integrations.under_lightning import toys
from tests.tiny import lora, tiny_population, two_layers
from trl_populora.integrations.lightning import PopulationModule, causal_lm_loss
from trl_populora.integrations.lightning.random_states import collect_random_states, restore_random_states
from trl_populora.population import Population


def train_alone(folder, steps, *, clip=None, schedule=None, rate=1e-2):
    """One adapter in plain PyTorch: mean loss per token of a step's rows, one row at a time, clipping, AdamW."""
    model = PeftModel.from_pretrained(two_layers(), folder, is_trainable=True)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0)
    for number, rows in enumerate(steps):
        if not rows:
            continue
        total = 0.0
        for row in rows:
            logits = model(torch.tensor([row.ids])).logits[0, row.prompt - 1 : -1]
            total = total + F.cross_entropy(logits, torch.tensor(row.ids[row.prompt :]), reduction="sum")
        optimizer.zero_grad()
        (total / sum(len(row.ids) - row.prompt for row in rows)).backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(parameters, clip)
        for group in optimizer.param_groups:
            group["lr"] = rate * (schedule(number) if schedule else 1.0)
        optimizer.step()
    return {name: value for name, value in model.state_dict().items() if "lora_" in name}


BATCHES = [  # members with other numbers of rows, in any order, and one that is absent from whole steps
    ["student_1", "student_0", "student_1", "student_2"],
    ["student_0", "student_0", "student_0", "student_1"],
    ["student_1", "student_1"],
    ["student_0", "student_2", "student_1", "student_0", "student_0"],
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("accumulate", "clip", "schedule"),
    [
        pytest.param(1, None, None, id="plain"),
        pytest.param(1, 0.3, None, id="clipped"),
        pytest.param(2, 0.3, None, id="accumulated"),
        pytest.param(1, 0.5, lambda step: 1 / (1 + step), id="scheduled"),
    ],
)
def test_update_equals_plain_pytorch_on_the_members_rows_alone(tmp_path, accumulate, clip, schedule):
    members = toys.population()
    members.save(tmp_path / "start")
    before = toys.weights(members)
    drawn = iter(toys.rows(40))
    batches = [[(name, next(drawn)) for name in names] for names in BATCHES]
    module = toys.module(members, schedule=schedule)
    fitting = toys.trainer(tmp_path, max_epochs=1, accumulate_grad_batches=accumulate, gradient_clip_val=clip)
    fitting.fit(module, toys.fixed([toys.batch_of(batch) for batch in batches]))
    assert fitting.global_step == len(BATCHES) / accumulate
    for name in members:
        steps = [
            [row for batch in batches[start : start + accumulate] for own, row in batch if own == name]
            for start in range(0, len(batches), accumulate)
        ]
        alone = train_alone(tmp_path / "start" / name, steps, clip=clip, schedule=schedule)
        moved = 0.0
        for want, got, start in zip(alone.values(), members.parameters(name), before[name], strict=True):
            torch.testing.assert_close(got, want, rtol=1e-3, atol=2e-5)
            moved += float((got - start).detach().abs().sum())
        assert moved > 0.1


def test_a_member_does_not_depend_on_the_others_rows(tmp_path):
    results = []
    for seed in (1, 2):
        members = toys.population()
        own, others = toys.rows(4), toys.rows(4, seed=seed)
        batch = [("student_0", row) for row in own] + [("student_1", row) for row in others]
        toys.trainer(tmp_path, max_epochs=1, gradient_clip_val=1.0).fit(
            toys.module(members), toys.fixed([_wide(batch)] * 2)
        )
        results.append(toys.weights(members))
    assert toys.equal({"": results[0]["student_0"]}, {"": results[1]["student_0"]})
    assert not toys.equal({"": results[0]["student_1"]}, {"": results[1]["student_1"]})
    assert toys.equal({"": results[0]["student_2"]}, {"": results[1]["student_2"]})


def _wide(batch):
    """The same width, whoever is in it: the width decides how sums are blocked."""
    padded = toys.batch_of([*batch, ("student_0", toys.Row(tuple(range(3, 23)), 5))])
    return {key: value if isinstance(value, int) else value[:-1] for key, value in padded.items()}


def test_an_absent_member_stays_although_it_has_moments_and_weight_decay(tmp_path):
    members = toys.population()
    present = [(name, row) for name, row in zip(["student_0", "student_1", "student_0"], toys.rows(3))]
    module = toys.module(members, optimizer=lambda groups: torch.optim.AdamW(groups, weight_decay=0.5))
    seen = []
    module.on_train_batch_end = lambda *args: seen.append(toys.weights(members))
    toys.trainer(tmp_path, max_epochs=1).fit(
        module, toys.fixed([toys.batch_of(present), toys.batch_of(present[:1]), toys.batch_of(present)])
    )
    assert toys.equal({"": seen[0]["student_1"]}, {"": seen[1]["student_1"]})
    assert not toys.equal({"": seen[1]["student_1"]}, {"": seen[2]["student_1"]})


def test_every_member_has_its_own_learning_rate_group(tmp_path):
    members = tiny_population(1, 1, lora_config=lora(2), learning_rate={"teacher": 0.0, "student": 1e-2})
    before = toys.weights(members)
    batch = toys.batch_of(list(zip(["teacher_0", "student_0"], toys.rows(2))))
    fitting = toys.trainer(tmp_path, max_epochs=1)
    fitting.fit(toys.module(members), toys.fixed([batch]))
    assert [(g["name"], g["lr"]) for g in fitting.optimizers[0].param_groups] == [
        ("teacher_0", 0.0),
        ("student_0", 1e-2),
    ]
    after = toys.weights(members)
    assert toys.equal({"": before["teacher_0"]}, {"": after["teacher_0"]})
    assert not toys.equal({"": before["student_0"]}, {"": after["student_0"]})


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_a_child_changes_the_rates_of_its_group_as_its_own_has_changed(tmp_path, factor):
    """Also those of an optimizer that does not begin at the rate of the member."""
    members = toys.population(2)

    def halves(groups):
        return torch.optim.SGD([{**group, "lr": group["lr"] / 4, "initial_lr": group["lr"] / 2} for group in groups])

    module = toys.module(members, optimizer=halves)

    def replace(*args):
        child = members.factors("student_1")
        rate = 1e-2 * factor
        members.replace("student_0", child, operator="clone", parents=["student_1"], step=1, learning_rate=rate)
        module.start_over("student_0")

    module.on_train_batch_end = replace
    fitting = toys.trainer(tmp_path, max_epochs=1)
    fitting.fit(module, toys.loader(2, members))
    rates = [(group["lr"], group["initial_lr"]) for group in fitting.optimizers[0].param_groups]
    assert rates == [(2.5e-3 * factor, 5e-3 * factor), (2.5e-3, 5e-3)]


def test_gradient_checkpointing_changes_nothing(tmp_path):
    results = []
    for checkpointing in (False, True):
        members = toys.population()
        members.model.train()
        if checkpointing:
            members.base_model.gradient_checkpointing_enable({"use_reentrant": False})
        batch = toys.batch_of([("student_0", row) for row in toys.rows(3)])
        toys.trainer(tmp_path, max_epochs=1).fit(toys.module(members), toys.fixed([batch]))
        assert members.model.training and toys.is_base(members)
        results.append(toys.weights(members))
    for name in results[0]:
        torch.testing.assert_close(results[0][name], results[1][name])


@pytest.mark.slow
def test_mixed_precision_trains_about_the_same(tmp_path):
    results = []
    for precision in ("32-true", "bf16-mixed"):
        members = toys.population(2)
        batch = toys.batch_of([("student_0", row) for row in toys.rows(4)])
        fitting = toys.trainer(tmp_path, max_epochs=1, precision=precision)
        fitting.fit(toys.module(members), toys.fixed([batch] * 10))
        results.append(float(fitting.callback_metrics["train_loss/student_0"]))
    assert results[1] == pytest.approx(results[0], rel=0.05) and results[0] != results[1]


def test_adapters_in_half_precision_train(tmp_path):
    members = toys.population(2)
    fitting = toys.trainer(tmp_path, max_epochs=1, precision="bf16-true")
    fitting.fit(toys.module(members), toys.fixed([toys.batch_of([("student_0", row) for row in toys.rows(4)])]))
    assert math.isfinite(fitting.callback_metrics["train_loss/student_0"])


def test_a_frozen_member_stays_and_the_others_learn(tmp_path):
    members = toys.population(2)
    for parameter in members.parameters("student_0"):
        parameter.requires_grad_(False)
    before = toys.weights(members)
    toys.trainer(tmp_path, max_epochs=1).fit(toys.module(members), toys.loader(4, members))
    after = toys.weights(members)
    assert toys.equal({"": before["student_0"]}, {"": after["student_0"]})
    assert not toys.equal({"": before["student_1"]}, {"": after["student_1"]})


def test_adapters_left_on_another_device_come_back(tmp_path, monkeypatch):
    """After an exception, Lightning moves the module to the CPU and calls no hook. Without a GPU, only the call before
    the training is seen."""
    members, moved, before = toys.population(2), [], []
    module = toys.module(members)
    monkeypatch.setattr(module.adapters, "to", lambda device: moved.append(device))
    monkeypatch.setattr(module, "on_train_start", lambda: before.extend(moved))
    toys.trainer(tmp_path, max_epochs=1).fit(module, toys.loader(4, members))
    assert before == [torch.device("cpu")]


# Evaluation and logs ------------------------------------------------------------------------------------------------


def test_validation_logs_the_mean_of_each_member_and_of_all(tmp_path):
    members = toys.population(2)
    data = toys.rows(5)
    batches = toys.loader(5, members, shuffle=False)
    result = toys.trainer(tmp_path).validate(toys.module(members), batches, verbose=False)[0]
    expected = {}
    for name in members:
        with members.route([name] * 5), torch.no_grad():
            sums, counts = causal_lm_loss(members.model, toys.collate_rows(data))
        expected[name] = float(sums.sum() / counts.sum())
        assert result[f"val_loss/{name}"] == pytest.approx(expected[name], rel=1e-5)
    assert result["val_loss"] == pytest.approx(sum(expected.values()) / 2, rel=1e-5)


def test_the_mean_of_all_leaves_out_those_that_are_not_finite(tmp_path):
    members, results = toys.population(2), []
    for name in members:
        with torch.no_grad():
            members.parameters(name)[1].fill_(math.nan)
        results += toys.trainer(tmp_path).validate(toys.module(members), toys.loader(2, members), verbose=False)
    first, last = results
    assert first["val_loss"] == first["val_loss/student_1"] and math.isfinite(first["val_loss"])
    assert math.isnan(first["val_loss/student_0"]) and math.isnan(last["val_loss"])


def test_a_validation_without_a_term_logs_nothing(tmp_path):
    members = toys.population(2)
    batch = toys.batch_of([("student_0", row) for row in toys.rows(2)])
    batch["labels"] = torch.full_like(batch["labels"], -100)
    (result,) = toys.trainer(tmp_path).validate(toys.module(members), toys.fixed([batch]), verbose=False)
    assert result == {}


def test_evaluation_is_without_dropout_and_leaves_the_mode(tmp_path):
    members = toys.population(2)
    dropout = torch.nn.Dropout(0.5)
    members.base_model.model.layers[0].extra = dropout
    members.model.train()
    members.base_model.model.layers[1].eval()
    modes = {name: part.training for name, part in members.model.named_modules()}
    seen = []

    def loss(model, batch):
        seen.append(dropout.training)
        return causal_lm_loss(model, batch)

    toys.trainer(tmp_path).validate(PopulationModule(members, loss), toys.loader(2, members), verbose=False)
    assert seen == [False] and modes == {name: part.training for name, part in members.model.named_modules()}


def test_metrics_reach_logger_progress_bar_and_test_loop(tmp_path):
    members = toys.population(2)
    fitting = toys.trainer(tmp_path, max_epochs=1)
    module = toys.module(members)
    fitting.fit(module, toys.loader(4, members), toys.loader(2, members))
    assert {"train_loss", "val_loss"} <= fitting.progress_bar_metrics.keys()
    with open(tmp_path / "lightning_logs" / "version_0" / "metrics.csv", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    losses = [line for line in lines if line["train_loss"]]
    assert len(losses) == 2
    for line in losses:
        mean = sum(float(line[f"train_loss/{name}"]) for name in members) / 2
        assert float(line["train_loss"]) == pytest.approx(mean, rel=1e-5)
    assert any(line["val_loss/student_1"] for line in lines)
    assert fitting.test(module, toys.loader(2, members), verbose=False)[0]["test_loss"] > 0


# Any module ---------------------------------------------------------------------------------------------------------


class Classifier(PopulationModule):
    """A subclass with batches, a loss and a metric of its own."""

    def members_of(self, batch):
        return ["student_0" if name == "a" else "student_1" for name in batch[2]]

    def row_losses(self, batch):
        return F.cross_entropy(self.population.model(input_ids=batch[0]).logits, batch[1], reduction="none")

    def validation_step(self, batch, batch_idx):
        members = self.members_of(batch)
        with self.population.route(members):
            right = self.population.model(input_ids=batch[0]).logits.argmax(dim=1) == batch[1]
        self.log_rows("accuracy", right.float(), members)


@pytest.mark.slow
def test_a_classifier_with_its_own_loader_learns(tmp_path):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        initializer_range=0.1,
    )
    settings = LoraConfig(r=4, target_modules=["query", "value", "dense"], task_type="FEATURE_EXTRACTION")
    members = Population(
        BertForSequenceClassification(config), settings, num_teachers=0, num_students=2, learning_rate=1e-2
    )
    low = torch.randint(3, 10, (16, 5), generator=torch.Generator().manual_seed(0))
    data = [(x + 9 * label, label, "ab"[i % 2]) for i, x in enumerate(low) for label in (0, 1)]
    data = [(x, 1 - label if name == "b" else label, name) for x, label, name in data]  # b learns the contrary
    batches = DataLoader(data, batch_size=16, shuffle=False)
    fitting = toys.trainer(tmp_path, max_epochs=20)
    fitting.fit(Classifier(members), batches, batches)
    assert fitting.callback_metrics["accuracy/student_0"] > 0.9
    assert fitting.callback_metrics["accuracy/student_1"] > 0.9


# Checkpoints --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_checkpoint_holds_adapters_and_table_and_loads_into_another_population(tmp_path):
    members = toys.population(2)
    fitting = toys.trainer(tmp_path, max_epochs=1)
    fitting.fit(toys.module(members), toys.loader(4, members))
    members.replace(
        "student_1",
        members.factors("student_0"),
        operator="clone",
        parents=["student_0"],
        step=2,
        learning_rate=0.5,
        temperature=0.5,
    )
    fitting.save_checkpoint(tmp_path / "a.ckpt")
    checkpoint = torch.load(tmp_path / "a.ckpt", weights_only=True)
    own = {name for name, _ in toys.module(members).named_parameters()}
    assert checkpoint["state_dict"].keys() == own | {"_extra_state"}
    other = toys.population(2, noise=0.0)
    PopulationModule.load_from_checkpoint(tmp_path / "a.ckpt", population=other, loss=causal_lm_loss)
    assert toys.equal(toys.weights(members), toys.weights(other))
    assert dict(members) == dict(other) and other.routing.temperatures == {"student_1": 0.5}
    three = toys.population(3)
    with pytest.raises(ValueError, match=r"holds the members \['student_0', 'student_1'\], but.*student_2"):
        PopulationModule.load_from_checkpoint(tmp_path / "a.ckpt", population=three, loss=causal_lm_loss)
    few = tiny_population(0, 2, lora_config=lora(2, target_modules=["q_proj"]))
    with pytest.raises(ValueError, match="cover other modules"):
        PopulationModule.load_from_checkpoint(tmp_path / "a.ckpt", population=few, loss=causal_lm_loss)
    strong = tiny_population(0, 2, lora_config=lora(2, lora_alpha=32))
    before = toys.weights(strong)
    with pytest.raises(ValueError, match="have scaling 2 at .*this population's have 16.*lora_alpha"):
        PopulationModule.load_from_checkpoint(tmp_path / "a.ckpt", population=strong, loss=causal_lm_loss)
    assert toys.equal(before, toys.weights(strong))


def test_random_states_of_another_number_of_processes_are_left_alone(monkeypatch):
    one = collect_random_states(1)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    restore_random_states(one * 2)
    assert torch.equal(torch.get_rng_state(), before)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    restore_random_states(one)
    assert torch.equal(torch.get_rng_state(), before)
    restore_random_states(collect_random_states(1) + one)
    assert torch.equal(torch.get_rng_state(), one[0]["torch"])


# Refusals -----------------------------------------------------------------------------------------------------------


def test_what_is_no_population_or_has_no_loss_is_refused():
    with pytest.raises(ValueError, match="needs a Population, got dict"):
        PopulationModule({}, causal_lm_loss)
    with pytest.raises(ValueError, match="pass loss=.*or override row_losses"):
        PopulationModule(toys.population())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda batch: batch.pop("members"), "does not say which member.*'attention_mask'.*MemberLoader"),
        (lambda batch: batch.update(members=["student_9"] * 3), "Cannot route rows to .*student_9.*the members are"),
        (lambda batch: batch.update(members=["student_0"] * 2), "batch of 3 rows while 2 rows are routed"),
    ],
    ids=["no members", "unknown member", "too few names"],
)
def test_batches_that_cannot_be_routed_are_refused(tmp_path, change, message):
    batch = toys.batch_of([("student_0", row) for row in toys.rows(3)])
    change(batch)
    members = toys.population()
    with pytest.raises(ValueError, match=message):
        toys.trainer(tmp_path, max_epochs=1).fit(toys.module(members), toys.fixed([batch]))
    assert toys.is_base(members)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda model, batch: causal_lm_loss(model, batch)[0].mean(), r"has shape \(\)"),
        (lambda model, batch: None, "is a NoneType"),
        (lambda model, batch: (causal_lm_loss(model, batch)[0], [1, 1, 1]), "is a list"),
    ],
)
def test_a_loss_that_is_not_one_of_each_row_is_refused(tmp_path, loss, message):
    batch = toys.batch_of([("student_0", row) for row in toys.rows(3)])
    with pytest.raises(ValueError, match=f"The loss {message}, but the batch has 3 rows.*not their mean"):
        toys.trainer(tmp_path, max_epochs=1).fit(PopulationModule(toys.population(), loss), toys.fixed([batch]))


def test_a_batch_that_is_no_mapping_is_refused(tmp_path):
    with pytest.raises(ValueError, match="it is a list"):
        toys.trainer(tmp_path, max_epochs=1).fit(toys.module(toys.population()), toys.fixed([[torch.zeros(2)]]))


def test_sharded_strategies_are_refused(tmp_path):
    module = toys.module(toys.population())
    module._trainer = fitting = lightning.Trainer(accelerator="cpu", devices=1, logger=False)
    with contextlib.suppress(AttributeError):
        fitting.strategy.connect(module)
    fitting._accelerator_connector.strategy = type("FSDPStrategy", (), {})()
    with pytest.raises(ValueError, match="strategy='ddp', not with FSDPStrategy"):
        module.setup("fit")


def test_a_scale_for_the_gradients_of_all_members_is_refused(tmp_path):
    members = toys.population(2)
    precision = MixedPrecision("16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu"))
    fitting = toys.trainer(tmp_path, max_epochs=1, plugins=[precision])
    with pytest.raises(ValueError, match="precision='16-mixed' scales the gradients.*'bf16-mixed'"):
        fitting.fit(toys.module(members), toys.loader(4, members))


def test_a_diverged_member_does_not_touch_the_others(tmp_path):
    members = toys.population(2)
    with torch.no_grad():
        members.parameters("student_1")[0].fill_(math.nan)
    before = toys.weights(members)
    fitting = toys.trainer(tmp_path, max_epochs=1, gradient_clip_val=1.0)
    fitting.fit(toys.module(members), toys.loader(4, members))
    assert all(torch.isfinite(p).all() for p in members.parameters("student_0"))
    assert not toys.equal({"": before["student_0"]}, {"": toys.weights(members)["student_0"]})
