"""The registry of metrics against real runs: it knows all that is logged, and what it knows is logged."""

import pytest
from datasets import Dataset

from tests.tiny import lora, tiny_model, tiny_tokenizer
from tests.training.conftest import Altered, build_trainer, hash_reward, make_config
from tests.training.test_probes import play_plausibly
from trl_populora.diagnostics import round_metrics
from trl_populora.diagnostics.metrics import METRICS, matching
from trl_populora.training import PopulationSelfPlayTrainer


PROMPTS = Dataset.from_dict({"prompt": [f"say {i}" for i in range(4)]})
ELSEWHERE = {
    "rating/residual": "needs 32 games of a pair; tests/self_play/test_ratings.py",
    "sampling/sampling_logp_difference/{kind}": "needs an engine; tests/training/test_sampler_argument.py",
    "sampling/importance_sampling_ratio/{kind}": "needs an engine; tests/training/test_sampler_argument.py",
    "sampling/cut/{member}": "needs an engine; tests/training/test_importance.py",
}
"""What the runs below do not log, and why."""
MIXED = ("reward", "reward_std", "frac_reward_zero_std", "rewards/self_play_reward/mean", "rewards/hash_reward/mean")


def self_play(folder) -> tuple:
    """Trainer and summaries of a run with everything."""
    summaries = []
    config = make_config(
        folder,
        max_steps=4,
        logging_steps=2,
        evolution_interval=1,
        weight_metrics_interval=1,
        hall_of_fame_probability=0.7,
        beta=0.05,
        teacher_reward="solvable",
        task_types=["code_o", "code_i"],
        eval_strategy="steps",
        eval_steps=4,
        probe_kwargs={"exams": ["held_out[:4]"], "founders": 1},
        include_num_input_tokens_seen="all",
    )
    return play_plausibly(build_trainer(config, on_round=summaries.append)), summaries


def one_agent(folder):
    shape = dict(shared_member=True, num_teachers=1, num_students=1, per_device_train_batch_size=3)
    return play_plausibly(build_trainer(make_config(folder, **shape, max_steps=1), rewards=None))


def on_a_dataset(folder, **settings):
    return PopulationSelfPlayTrainer(
        tiny_model(),
        hash_reward,
        make_config(folder, num_teachers=0, num_students=2, max_steps=1, weight_metrics_interval=1, **settings),
        train_dataset=PROMPTS,
        eval_dataset=PROMPTS.select(range(2)) if "eval_strategy" in settings else None,
        processing_class=tiny_tokenizer(),
        peft_config=lora(),
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """What five runs logged, by name, and the summaries of the first."""
    folder = tmp_path_factory.mktemp("logged")
    trainer, summaries = self_play(folder / "self-play")
    evaluated = dict(eval_strategy="steps", eval_steps=1, per_device_eval_batch_size=4)
    logged = {
        "self-play": trained(trainer),
        "one agent": trained(one_agent(folder / "one agent")),
        "dataset": trained(on_a_dataset(folder / "dataset", **evaluated)),
    }
    logged |= {name: trained(on_a_dataset(folder / name, loss_type=name)) for name in ("cispo", "vespo")}
    return logged, summaries


def trained(trainer) -> list[dict]:
    trainer.train()
    trainer.close()
    return trainer.state.log_history


def names(logs) -> set[str]:
    return {name for log in logs for name in log}


@pytest.mark.slow
def test_self_play_with_everything(runs):
    logged, summaries = runs
    own = names(logged["self-play"])
    assert not own & set(MIXED)  # nothing averages both sides of a zero-sum game
    assert {"reward/teacher_0", "teachers/rewards/hash_reward/mean", "pairs/solve_rate/teacher_0/student_0"} <= own
    # every number of an interval is what the registry says of the rounds in it
    logs = [log for log in logged["self-play"] if "loss" in log]
    for log, pair in zip(logs, (summaries[:2], summaries[2:]), strict=True):
        rounds = [round_metrics(summary) for summary in pair]
        for name in rounds[0] | rounds[1]:
            values = [one[name] for one in rounds if name in one]
            about = matching(name)[0]
            mean = sum(values) / (len(rounds) if about.zero else len(values))
            expected = {"last": values[-1], "sum": sum(values), "mean": mean}[about.combine]
            assert log[name] == pytest.approx(expected), name
    assert logs[0]["round"] == 1 and logs[0]["evolution/replaced"] == 4  # two of each role, twice


def test_one_agent_in_both_roles(runs):
    own = names(runs[0]["one agent"])
    assert {"reward/agent_0", "validity/agent_0", "teachers/validity"} <= own and "students/validity" not in own


def test_a_dataset(runs):
    own = names(runs[0]["dataset"])
    assert {"reward", "rewards/hash_reward/mean", "reward/student_0", "eval_reward/student_0"} <= own
    assert not [name for name in own if name.startswith(("teachers/", "matches/", "pairs/", "tasks/"))]


@pytest.mark.parametrize("loss_type, metric", [("cispo", "cispo_clip_ratio"), ("vespo", "vespo/phi_seq_mean")])
def test_losses_with_numbers_of_their_own(runs, loss_type, metric):
    assert [name for name, logs in runs[0].items() if metric in names(logs)] == [loss_type]


def test_the_registry_is_complete(runs):
    seen = set().union(*map(names, runs[0].values()))
    found = {name: matching(name) for name in seen}
    assert not {name: entries for name, entries in found.items() if len(entries) != 1}
    logged = {entries[0].name for entries in found.values()}
    assert {metric.name for metric in METRICS} - logged == set(ELSEWHERE)


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 12])
def test_means_over_tokens_leave_out_truncated_rows(make_trainer, size):
    """Also where no row of a micro-batch has more than one token: TRL takes one column for one number of each row."""

    def cut(drawn, members):
        ids = [[5, 6, 2], [2], [5, 6, 7], [5, 6, 7]]  # the last two are truncated
        return [one._replace(ids=ids[i % 4], text="") for i, one in enumerate(drawn)]

    trainer = make_trainer(
        max_steps=1, loss_type="grpo", mask_truncated_completions=True, per_device_train_batch_size=size
    )
    trainer.source.sampler = Altered(trainer.source.sampler, cut)
    sums, score = [], trainer._get_per_token_logps_and_entropies

    def noted(model, ids, mask, kept, *args, **kwargs):
        scored = score(model, ids, mask, kept, *args, **kwargs)
        sums.append(((scored[1] * mask[:, -kept:]).sum().item(), mask[:, -kept:].sum().item()))
        return scored

    trainer._get_per_token_logps_and_entropies = noted
    trainer.train()
    total, tokens = map(sum, zip(*sums, strict=True))
    assert tokens == 12 / 4 * (3 + 1)
    assert trainer.state.log_history[0]["entropy"] == pytest.approx(total / tokens, rel=1e-5)


@pytest.mark.slow
def test_what_no_row_of_a_log_has_is_not_logged(make_trainer):
    trainer = make_trainer(max_steps=1, mask_truncated_completions=True)
    trainer.source.sampler = Altered(
        trainer.source.sampler, lambda drawn, members: [one._replace(ids=[5, 6, 7]) for one in drawn]
    )
    trainer.train()
    log = trainer.state.log_history[0]
    assert log["entropy"] == 0 and "clip_ratio/low_min" not in log and None not in log.values()


def test_a_reward_function_may_log_a_number_of_a_name_that_is_taken(tmp_path):
    """The numbers of a log are those of its own rounds."""

    def rewards(completions, log_metric, **columns):
        log_metric("round", 9.0)
        return hash_reward(completions)

    summaries = []
    trainer = PopulationSelfPlayTrainer(
        tiny_model(),
        rewards,
        make_config(tmp_path, num_teachers=0, num_students=2, max_steps=4, logging_steps=2),
        train_dataset=PROMPTS,
        processing_class=tiny_tokenizer(),
        peft_config=lora(),
        on_round=summaries.append,
    )
    trainer.train()
    means = [sum(summary.members[0].reward for summary in summaries[i : i + 2]) / 2 for i in (0, 2)]
    logged = [log for log in trainer.state.log_history if "loss" in log]
    assert [log["reward/student_0"] for log in logged] == pytest.approx(means) and means[0] != means[1]
    assert [log["round"] for log in logged] == [1, 3]
