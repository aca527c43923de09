import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.cli.conftest import write_recipe
from tests.tiny import tiny_population
from trl_populora import cli, retention
from trl_populora.evolution import OPERATORS, Operator
from trl_populora.generation import TransformersSampler
from trl_populora.retention import RetentionCurve, _Phase, measure_retention
from trl_populora.training import PopulationSelfPlayTrainer
from trl_populora.training.stopping import StopCallback


class EngineLike(TransformersSampler):
    """Refuses to sample with other weights than those of the last `sync`, which an engine would serve."""

    served: dict = {}
    closed = 0

    def sync(self):
        self.served = {name: self.weights(name) for name in self.population}

    def weights(self, name):
        return [parameter.detach().clone() for parameter in self.population.parameters(name)]

    def draw(self, prompt_ids, members, row_seeds):
        for name in filter(None, set(members)):
            assert all(map(torch.equal, self.served[name], self.weights(name))), f"{name} is stale"
        return super().draw(prompt_ids, members, row_seeds)

    def close(self):
        super().close()
        EngineLike.closed += 1


def curve(*exams, clone=(1, 1, 0, 1)):
    own = RetentionCurve("gaussian", 0, 0.75)
    for step, child in exams:
        own.add(step, np.array(child, dtype=float), np.array(clone, dtype=float))
    return own


def test_differences_are_paired_by_task():
    own = curve((0, (0, 0, 0, 1)), (2, (1, 1, 0, 1)))
    assert own.difference == [-0.5, 0.0]
    # differences -1, -1, 0, 0 have standard deviation 0.577 over 4 tasks; equal answers leave none
    assert own.standard_error == [pytest.approx(0.57735 / 2, rel=1e-4), 0.0]
    assert own.pass_at_1 == [0.25, 1.0 - 0.25]


def test_level_means_within_one_standard_error_of_the_clone_or_above():
    assert curve((0, (1, 1, 0, 1))).steps_to_recover == 0  # the same answers
    assert curve((0, (0, 0, 0, 0)), (2, (0, 1, 0, 1)), (4, (1, 1, 1, 1))).steps_to_recover == 2  # -0.25 against 0.25
    assert curve((0, (0, 0, 0, 0)), (2, (0, 0, 0, 0))).steps_to_recover is None


def test_answers_that_nobody_could_judge_are_left_out_of_the_pairs():
    nan = float("nan")
    own = curve((0, (0, nan, 0, 1)), clone=(1, 1, nan, 1))
    assert own.difference == [-0.5] and own.pass_at_1 == [0.5] and own.spared == [2]
    with pytest.raises(ValueError, match="all but 1 of 4 tasks"):
        curve((0, (0, nan, nan, nan)))


def test_a_penalty_towards_the_base_is_refused(tmp_path, tiny_model):
    recipe = write_recipe(tmp_path, tiny_model, evolution_interval="leave out", num_teachers="leave out")
    with pytest.raises(ValueError, match="beta=0.1: its penalty pulls members towards the base"):
        measure_retention([*recipe, "--beta", "0.1"], ["gaussian"], folder=str(tmp_path / "retention"))


def test_a_recipe_of_a_single_agent_is_one_of_students_here(tmp_path, tiny_model):
    phase = _Phase(write_recipe(tmp_path, tiny_model, shared_member=True), str(tmp_path / "parents"), 2, 1, seed=0)
    phase.close()
    assert list(phase.trainer.population) == ["teacher_0", "student_0", "student_1"]


def test_a_recipe_without_teachers_is_refused(tmp_path, tiny_model):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "One?"}\n' * 4)
    recipe = write_recipe(tmp_path, tiny_model, num_teachers=0, dataset_name=str(rows), evolution_interval="leave out")
    with pytest.raises(ValueError, match="num_teachers=0: in this test, a teacher writes the tasks"):
        measure_retention(recipe, ["gaussian"], folder=str(tmp_path / "retention"))


def test_a_start_that_fails_leaves_no_folder(tmp_path, tiny_model, capsys):
    recipe = write_recipe(tmp_path, tiny_model, evolution_interval="leave out", num_teachers="leave out")
    output = tmp_path / "new" / "retention"
    assert cli.main(["retention", *recipe, "--exam", "unheard", "--output", str(output)]) == 2
    assert "exam 'unheard' is unknown" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


class PhaseWithoutTraining:
    """All students solve both tasks."""

    buffer = SimpleNamespace(reserved=frozenset())

    def __init__(self, recipe, folder, students, rounds, seed, exam, *, children=False):
        self.args, self.solved = SimpleNamespace(rounds=rounds), np.ones((students, 2))

    def exam(self, count, name):
        return SimpleNamespace(questions=["a", "b"])

    def take_exam(self, exam):
        return self.solved

    def train(self, after_round=lambda step: None):
        after_round(self.args.rounds)

    def factors(self, name):
        return {}

    def take_over(self, teacher, ways, factors, seed):
        pass

    def close(self):
        pass


def test_curves_are_not_lost_on_a_full_disk(tmp_path, tiny_model, monkeypatch, capsys):
    """They are printed, and the next seed writes those of the seeds before it, too."""

    def write(path, data):
        attempts.append([own["seed"] for own in data])
        if len(attempts) != 2:
            raise OSError("No space left on device")

    attempts = []
    monkeypatch.setattr(retention, "write_json", write)
    monkeypatch.setattr(retention, "_Phase", PhaseWithoutTraining)
    recipe = write_recipe(tmp_path, tiny_model)
    options = ["--operators", "clone", "--seeds", "0", "1", "--output", str(tmp_path / "retention")]
    assert cli.main(["retention", *recipe, *options]) == 1
    assert attempts == [[0], [0, 1], [0, 1]]
    printed = capsys.readouterr()
    assert (
        "retention.json is not written: No space left on device. The curves of seed 0 stay in memory." in printed.out
    )
    assert "First parents: pass@1 100.0%" in printed.out and "seed 1 stay" not in printed.out
    assert "populora: error: No space left on device" in printed.err


@pytest.mark.slow
def test_children_differ_in_their_weights_only(tmp_path, tiny_model):
    """Whatever a recipe says of evolution, learning rates, probes, the Hub, or where its members start."""
    changes = {"learning_rate_spread": 4.0, "hall_of_fame_probability": 0.2, "evolution_interval": 5}
    changes |= {"push_to_hub": True, "eval_strategy": "steps", "eval_steps": 1, "num_teachers": "leave out"}
    tiny_population().save(str(tmp_path / "two"))
    adapters = ["--initial_adapters", str(tmp_path / "two"), "--lora_r", "4", "--lora_alpha", "8"]
    recipe = write_recipe(tmp_path, tiny_model, **changes) + adapters
    phase = _Phase(recipe, str(tmp_path / "children"), 3, 2, seed=0, children=True)
    try:
        assert len({phase.trainer.population[name].learning_rate for name in phase.students}) == 1
        assert phase.args.initial_adapters is None and not phase.args.push_to_hub
        assert phase.args.eval_strategy == "no"
    finally:
        phase.close()


def test_a_benchmark_is_read_from_the_folder_that_the_recipe_names(tmp_path, tiny_model, caplog):
    lines = [json.dumps({"question": f"What is {i} plus 1?", "answer": f"#### {i + 1}"}) for i in range(3)]
    (tmp_path / "gsm8k.jsonl").write_text("\n".join(lines) + "\n")
    changes = {
        "evolution_interval": "leave out",
        "num_teachers": "leave out",
        "eval_strategy": "steps",
        "eval_steps": 1,
    }
    recipe = write_recipe(tmp_path, tiny_model, probe_kwargs={"data": str(tmp_path), "founders": 1}, **changes)
    phase = _Phase(recipe, str(tmp_path / "parents"), 2, 1, seed=0, exam="gsm8k[:2]")
    try:
        assert len(phase.exam(0, "gsm8k[:2]").questions) == 2
        assert "probe_kwargs" not in caplog.text  # of probes, which these runs do not have
    finally:
        phase.close()


@pytest.mark.slow
def test_sigterm_ends_it_without_curves_of_a_seed_that_was_cut_short(tmp_path, tiny_model, monkeypatch, capfd):
    recipe = write_recipe(tmp_path, tiny_model, evolution_interval="leave out", num_teachers="leave out")

    def on_step_end(self, args, state, control, **kwargs):
        if len(ended) == 2:
            self.stopped = control.should_training_stop = True

    ended = []
    train = PopulationSelfPlayTrainer.train

    def counted(self, *given, **named):
        output = train(self, *given, **named)
        ended.append(self.args.seed)
        return output

    monkeypatch.setattr(PopulationSelfPlayTrainer, "train", counted)
    monkeypatch.setattr(StopCallback, "on_step_end", on_step_end)
    output = tmp_path / "retention"
    options = ["--operators", "gaussian", "--seeds", "3", "4", "--parent-rounds", "2", "--rounds", "1", "--tasks", "2"]
    assert cli.main(["retention", *recipe, *options, "--output", str(output)]) == 1
    told = capfd.readouterr().err
    assert "populora: error: SIGTERM ended the training for seed 4: its curves are not written." in told
    assert "goes on from" not in told
    assert {own["seed"] for own in json.loads((output / "retention.json").read_text())} == {3}


@pytest.mark.slow
@pytest.mark.parametrize(("questions", "count"), [(["--tasks", "4"], 4), (["--exam", "held_out[:3]"], 3)])
def test_children_of_every_named_operator_train_on_together(tmp_path, tiny_model, capsys, questions, count):
    recipe = write_recipe(tmp_path, tiny_model, evolution_interval="leave out", num_teachers="leave out")
    output = tmp_path / "retention"
    options = [
        "--operators",
        "dare:p=0.5,space=factors",
        "gaussian",
        "--seeds",
        "3",
        "--parent-rounds",
        "1",
        "--rounds",
        "3",
    ]
    options += ["--every", "2", *questions, "--output", str(output)]
    assert cli.main(["retention", *recipe, *options]) == 0
    printed = capsys.readouterr().out
    assert "rounds until level" in printed and "First parents: pass@1" in printed and "dare" in printed
    curves = json.loads((output / "retention.json").read_text())
    assert [(own["operator"], own["seed"], own["rounds"]) for own in curves] == [
        (name, 3, [0, 2, 3]) for name in ("clone", "dare:p=0.5,space=factors", "gaussian")
    ]
    clone = curves[0]  # added, though nobody asked for it; what the others are measured against, round by round
    assert clone["difference"] == [0.0] * 3 and clone["standard_error"] == [0.0] * 3 and clone["steps_to_recover"] == 0
    assert clone["pass_at_1"][0] == clone["parent_pass_at_1"]  # at birth it answers as its parent
    assert all((count * rate).is_integer() for own in curves for rate in own["pass_at_1"])
    for own in curves[1:]:
        assert own["difference"] == pytest.approx([a - b for a, b in zip(own["pass_at_1"], clone["pass_at_1"])])
    assert (output / "retention.png").stat().st_size > 10_000
    assert cli.main(["retention", *recipe, *options]) == 2
    assert f"{output}/retention.json exists and would be replaced" in capsys.readouterr().err


@pytest.mark.slow
def test_finished_seeds_are_kept_when_a_later_one_is_interrupted(tmp_path, tiny_model):
    def report(line):
        if line.startswith("seed 4"):
            raise KeyboardInterrupt

    recipe = write_recipe(tmp_path, tiny_model, evolution_interval="leave out", num_teachers="leave out")
    counts = {"parent_rounds": 1, "rounds": 1, "tasks": 2}
    with pytest.raises(KeyboardInterrupt):
        measure_retention(recipe, ["clone"], folder=str(tmp_path / "out"), seeds=[3, 4], report=report, **counts)
    assert [own["seed"] for own in json.loads((tmp_path / "out" / "retention.json").read_text())] == [3]


@pytest.mark.slow
def test_the_recipe_keeps_its_sampler_rewards_and_iterations(tmp_path, tiny_model, monkeypatch):
    monkeypatch.setattr(EngineLike, "closed", 0)
    changes = {"num_iterations": 2, "balance_rows": True, "per_device_train_batch_size": 4}
    changes |= {"sampler": f"{__name__}:EngineLike"}
    recipe = write_recipe(
        tmp_path, tiny_model, evolution_interval="leave out", num_teachers=1, num_students=1, **changes
    )
    where, counts = {"folder": str(tmp_path / "out"), "seeds": [0]}, {"parent_rounds": 2, "rounds": 2, "tasks": 2}
    curves = measure_retention(recipe, ["gaussian"], every=1, **where, **counts)
    assert [own.rounds for own in curves] == [[0, 1, 2]] * 2
    assert EngineLike.closed == 2  # the parents' engine ends before the children's begins
    for phase in ("parents", "children"):
        lines = (tmp_path / "out/seed-0" / phase / "history.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == [0, 2]
    where["folder"] = str(tmp_path / "other")
    with pytest.raises(ValueError, match="reward_funcs: 'nosuch.reward'"):
        measure_retention([*recipe, "--reward_funcs", "nosuch.reward"], ["gaussian"], **where, **counts)


def test_the_exam_is_reserved_and_an_unknown_one_is_told_before_training(tmp_path, tiny_model):
    recipe = write_recipe(tmp_path, tiny_model, evolution_interval="leave out", num_teachers="leave out")
    where = {"folder": str(tmp_path / "out"), "seeds": [0]}
    with pytest.raises(ValueError, match="reserved_exams: exam 'held_ou' is unknown. Did you mean 'held_out'"):
        measure_retention(recipe, ["gaussian"], exam="held_ou", **where)
    with pytest.raises(ValueError, match=r"exam='held_out\[:1\]' has one question"):
        measure_retention(recipe, ["gaussian"], exam="held_out[:1]", **where)
    assert not list(tmp_path.glob("out/**/history.jsonl"))


def test_neither_parents_nor_children_learn_from_the_held_out_tasks(tmp_path, tiny_model, monkeypatch):
    recipe = write_recipe(tmp_path, tiny_model, evolution_interval="leave out", num_teachers="leave out")
    asked = []

    def take_exam(phase, exam):
        buffer, types = phase.trainer.source.buffer, phase.trainer.source.task_types
        tasks = [types["code_o"].read_task(json.loads(question.reference)) for question in exam.questions]
        asked.append([buffer.reserves(task) for task in tasks])
        return np.ones((len(phase.students), len(tasks)))

    monkeypatch.setattr(_Phase, "take_exam", take_exam)
    monkeypatch.setattr(_Phase, "train", lambda phase, after_round=None: None)
    measure_retention(recipe, ["clone"], folder=str(tmp_path / "out"), seeds=[0], tasks=80)  # `held_out` has 64
    assert asked == [[True] * 80] * 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"operators": ["graft"]}, "graft"),
        ({"operators": []}, "at least one"),
        ({"operators": ["dare:q=0.5"]}, "parameter of 'dare': 'q'"),
        ({"operators": ["dare:p=half"]}, "NAME=NUMBER"),
        ({"rounds": 0}, "rounds=0"),
        ({"tasks": 1}, "tasks=1"),
        ({"seeds": ()}, "seed"),
        ({"seeds": (1, 0, 1)}, "seeds names 1 twice"),
        ({"seeds": (0, -1)}, r"seeds=\[0, -1\]: -1 must be from 0 to 4294967295"),
        ({"operators": ["clone", "gaussian", "clone"]}, "operators names 'clone' twice"),
    ],
)
def test_mistakes_are_told_before_anything_runs(tmp_path, changes, words):
    arguments = {"operators": ["clone"], "folder": str(tmp_path / "out")} | changes
    with pytest.raises(ValueError, match=words):
        measure_retention(["--config", "missing.yaml"], arguments.pop("operators"), **arguments)
    assert not (tmp_path / "out").exists()


def test_an_operator_of_more_than_two_parents_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(OPERATORS, "three", Operator(lambda parents, rng: parents[2], 3))
    with pytest.raises(ValueError, match="operators names 'three', which needs more than two parents"):
        measure_retention(["--config", "none.yaml"], ["three"], folder=str(tmp_path / "out"))
