import json
from dataclasses import fields, replace

import pytest
import yaml
from huggingface_hub import ModelCard

from tests.reporting.conftest import make_round
from tests.reporting.made_run import MadeRun
from trl_populora.hub.pushing import recorded, results
from trl_populora.reporting import model_card
from trl_populora.reporting.history import changes
from trl_populora.reporting.model_card import OF_SELF_PLAY, PAID_TASKS
from trl_populora.run_files.files import write_json
from trl_populora.run_files.run import open_run
from trl_populora.self_play.rewards import TEACHER_REWARDS


def member(name, **changes):
    row = {"id": name, "role": name.split("_")[0], "version": 0, "operator": "founder", "parents": []}
    return row | changes


def table(*members, teachers=1, students=1, shared=False):
    members = members or (member("teacher_0"), member("student_0"), member("student_1"))
    return {"num_teachers": teachers, "num_students": students, "shared_member": shared, "members": list(members)}


def head_of(card):
    return yaml.safe_load(card.split("---\n")[1])


def test_a_population_that_played(rounds):
    child = member("student_1", version=1, operator="dare", parents=["student_0@0"], temperature=1.2)
    members = table(member("teacher_0"), member("student_0"), child)
    settings = {"pairing": "a|b", "task_kwargs": {"code_f": {"num_inputs": 4}}}
    card = model_card(
        members, base_model="org/base", hub_base="org/base", repo_id="me/run", history=rounds, settings=settings
    )
    head = head_of(card)
    assert head["base_model"] == "org/base" and head["base_model_relation"] == "adapter"
    assert head["library_name"] == "peft" and {"populora", "self-play"} <= set(head["tags"])
    assert "1 teacher and 1 student, each" in card and "# run: a PopuLoRA population" in card
    assert '"me/run", subfolder="student_1"' in card  # the strongest
    assert "| `student_1` | student | 1 | dare | student_0@0 |" in card and "run's: `student_1` 1.2;" in card
    rows = {line.split(" | ")[0].strip("| "): line for line in card.splitlines() if line.startswith("| ")}
    assert " | 25% (75%) | " in rows["student_0"] and " | - | " in rows["teacher_0"]
    assert "| `pairing` | `a/b` |" in card and "| `task_kwargs.code_f.num_inputs` | `4` |" in card
    assert "valid tasks, students" in card


@pytest.mark.parametrize(
    "reward, words", [*PAID_TASKS.items(), ("mine:best", "that the reward function `mine:best` pays for")]
)
def test_what_teachers_were_paid_for(reward, words):
    told = model_card(table(), base_model="org/base", settings={"teacher_reward": reward, "task_types": ["sql"]})
    assert f"to propose valid tasks (`sql`) {words}, students to solve them" in told


def test_a_warm_start_is_no_self_play():
    settings = {"task_types": ["sql"], "warm_start_steps": 20}
    card = model_card(table(), base_model="org/base", settings=settings)
    assert "shown seed tasks (`sql`), students their answers, for 20 supervised steps (a warm start)." in card
    assert "sft" in head_of(card)["tags"] and not {"grpo", "self-play"} & set(head_of(card)["tags"])
    assert {"grpo", "self-play"} <= set(head_of(model_card(table(), base_model="org/base"))["tags"])


@pytest.mark.parametrize("teachers, told", [
    (1, "and no model does. Reward functions of the run's own were added: `short`, `mine:b`. Method:"),
    (0, "each by the rewards (`short`, `mine:b`) of its own completions"),
])  # fmt: skip
def test_reward_functions_are_named(teachers, told):
    members = table(teachers=teachers, students=2)
    assert told in model_card(members, base_model="b/b", rewards=["self_play_reward", "short", "mine:b"])
    assert "were added" not in model_card(members, base_model="b/b", rewards=["self_play_reward"])


@pytest.mark.parametrize("teachers", [1, 0])
@pytest.mark.parametrize(("roles", "who"), [("both", "Members of a role"), ("students", "Students")])
def test_recombination_is_told(teachers, roles, who):
    settings = {"recombination_interval": 5, "recombination_roles": roles}
    card = model_card(table(teachers=teachers, students=2), base_model="org/base", settings=settings)
    assert f". {who} moved to their mean update every 5 rounds. " in card
    settings["recombination_interval"] = 0
    assert "mean update" not in model_card(
        table(teachers=teachers, students=2), base_model="org/base", settings=settings
    )


def test_every_reward_has_words():
    assert PAID_TASKS.keys() == TEACHER_REWARDS.keys()


def test_settings_of_self_play_are_settings():
    from trl_populora.training import PopulationSelfPlayConfig

    assert {field.name for field in fields(PopulationSelfPlayConfig)} >= OF_SELF_PLAY


def test_a_population_on_a_dataset_had_no_teachers(rounds):
    students = (member("student_0"), member("student_1"))
    last = replace(rounds[-1], teachers=(), members=rounds[-1].members[2:], window_attempts=(), window_solved=())
    settings = {"teacher_reward": "adversarial", "task_types": ["code_o"], "evolution_interval": 5}
    about = {"base_model": "org/base", "history": [last], "settings": settings}
    card = model_card(table(*students, teachers=0, students=2), dataset="org/prompts", **about)
    assert "2 students, each a LoRA adapter" in card and "eachers" not in card and "solved" not in card
    assert "| `evolution_interval` | `5` |" in card and "task_types" not in card
    assert "GRPO on the prompts of [`org/prompts`](https://huggingface.co/datasets/org/prompts)" in card
    assert "`running reward`: mean of the last rounds" in card
    assert head_of(card)["datasets"] == ["org/prompts"] and "self-play" not in head_of(card)["tags"]
    local = model_card(table(*students, teachers=0, students=2), dataset="/home/me/prompts.jsonl", **about)
    assert "the prompts of `prompts.jsonl`" in local and "/home/me" not in local and "datasets" not in head_of(local)


def test_a_run_that_began_elsewhere_counts_what_it_knows():
    """Its record has only the rounds after the resume."""
    rounds = [make_round(n) for n in range(4)]
    assert changes(rounds) == "0 replacements"
    assert changes(rounds[3:]) == "0 replacements in the last 1 round; others are not recorded here"
    assert changes([*rounds[:1], *rounds[2:]]) == "0 replacements in 3 of 4 rounds; others are not recorded here"


def test_a_base_is_on_the_hub_if_it_was_when_the_run_began(tmp_path, monkeypatch):
    """Whatever has its name where the card is written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org" / "base").mkdir(parents=True)
    assert head_of(model_card(table(), base_model="org/base", hub_base="org/base"))["base_model"] == "org/base"
    assert "base_model" not in head_of(model_card(table(), base_model="models/base", repo_id="me/run"))


@pytest.mark.parametrize("on_hub", [True, False])
def test_a_dataset_is_on_the_hub_if_it_was_when_the_run_began(tmp_path, on_hub):
    folder = MadeRun(tmp_path / "run").make(2).folder
    record = json.loads((folder / "run.json").read_text())
    write_json(folder / "run.json", record | {"dataset": "org/prompts", "dataset_on_hub": on_hub})
    card = model_card(table(teachers=0), base_model="b/b", **recorded(open_run(str(folder))))
    assert head_of(card).get("datasets") == (["org/prompts"] if on_hub else None)
    assert f"on the prompts of {'[`org/prompts`](' if on_hub else '`prompts`,'}" in card


@pytest.mark.parametrize("base, words", [
    ("tiny", "comes with trl-populora (`populora recipes copy tiny`)"),
    ("recipes/chains/base", "`recipes/chains/base`, which is not on the Hub but comes with trl-populora"),
    ("/home/me/recipes/chains/base/", 'base = "recipes/chains/base"  # after `populora recipes copy chains`'),
    ("/home/me/recipes/chains/mine", "`mine`, a local model that is not on the Hub"),
    ("/home/me/models/mine", "`mine`, a local model that is not on the Hub"),
])  # fmt: skip
def test_a_base_that_is_not_on_the_hub(base, words):  # and the card of a repository tells no path
    card = model_card(table(), base_model=base, repo_id="me/run")
    assert words in card and "/home/me" not in card
    assert "base_model" not in head_of(card) and "base_model_relation" not in head_of(card)


def test_the_tiny_base_is_that_of_the_package_whatever_is_here(tmp_path, monkeypatch):
    (tmp_path / "recipes/tiny/base").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert "`populora recipes copy tiny`" in model_card(table(), base_model="tiny", repo_id="me/run")


def test_the_card_of_a_run_loads_a_local_base_from_its_path(tmp_path, monkeypatch):
    (tmp_path / "models" / "base").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    card = model_card(table(), base_model="models/base")
    assert f'\nbase = "{tmp_path}/models/base"  # where the base model was when this was written\n' in card


def test_the_card_of_a_run_loads_a_shipped_base_from_its_path_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    card = model_card(table(), base_model="recipes/chains/base")
    assert f'base = "{tmp_path}/recipes/chains/base"  # where' in card and "`populora recipes copy chains`" in card


def test_a_card_that_stands_in_a_folder_loads_from_it():
    card = model_card(table(), base_model="org/base")
    assert 'from_pretrained(base), "student_1")' in card and "# A PopuLoRA population" in card
    alone = model_card(table(), base_model="org/base", member="student_0")
    assert 'from_pretrained(base), ".")' in alone and "| `student_0` |" in alone and "| `teacher_0` |" not in alone


def test_metadata_scores_and_pictures():
    half = {"accuracy": 0.5, "low": 0.2, "high": 0.8}
    exam = {"exam": "gsm8k", "version": "1", "questions": 8, "source": {"hub": "openai/gsm8k"}, "summaries": {}}
    drawn = {"temperature": 0.0, "samples": 1, "max_completion_length": 64}
    evaluation = {"exams": [exam | {"decoding": drawn, "scores": {"student_0": half, "teacher_0": half}}]}
    card = model_card(
        table(),
        base_model="org/base",
        hub_base="org/base",
        repo_id="me/run",
        tags=["mine"],
        metadata={"license": "mit", "base_model": "other/base", "library_name": "other"},
        pictures=["plots/solve_rates.png"],
        evaluation=evaluation,
    )
    data = ModelCard(card).data  # as the Hub's own library reads it
    assert data.license == "mit" and data.base_model == "org/base" and data.library_name == "peft"
    assert data.model_name == "run" and len(data.eval_results) == 2 and "mine" in data.tags
    assert "![solve rates](plots/solve_rates.png)" in card
    assert "![" not in model_card(table(), base_model="b/b", member="student_0", pictures=["plots/solve_rates.png"])
    alone = ModelCard(model_card(table(), base_model="b/b", member="student_0", evaluation=evaluation))
    assert [one.dataset_type for one in alone.data.eval_results] == ["openai/gsm8k"]
    assert "teacher_0 |" not in alone.text and "| student_0 | 50.0% (20.0 to 80.0) |" in alone.text


def evaluated(**scores):
    half = {"accuracy": 0.5, "low": 0.2, "high": 0.8}
    drawn = {"temperature": 0.0, "samples": 1, "max_completion_length": 64}
    exam = {"exam": "gsm8k", "version": "1", "questions": 8, "source": {}, "decoding": drawn, "summaries": {}}
    return {"exams": [exam | {"scores": dict.fromkeys(("student_0", "student_1", "base"), half)} | scores]}


def test_a_member_that_took_no_exam_has_no_evaluation():
    card = model_card(table(), base_model="b/b", member="teacher_0", evaluation=evaluated())
    assert "## Evaluation" not in card and "model-index" not in head_of(card)


def test_how_the_best_is_chosen_is_told_where_there_is_one():
    half = {"accuracy": 0.5, "low": 0.2, "high": 0.8}
    both = evaluated(summaries=dict.fromkeys(("mean", "best", "weakest"), half))
    told = "The best and the weakest are chosen on other questions"
    assert told in model_card(table(), base_model="b/b", evaluation=both)
    assert told not in model_card(table(), base_model="b/b", member="student_0", evaluation=both)


def test_a_checkpoint_has_the_results_before_it(tmp_path):
    folder = MadeRun(tmp_path / "run").make(6).folder
    write_json(folder / "checkpoint-3" / "population.json", {"format": 1} | table(member("student_0"), teachers=0))
    write_json(folder / "checkpoint-3" / "self_play.json", {"step": 3})
    (folder / "plots").mkdir()
    (folder / "plots" / "ratings.png").touch()
    whole, part = results(open_run(str(folder))), results(open_run(str(folder / "checkpoint-3")))
    assert len(whole["history"]) == 6 and whole["pictures"] == ["plots/ratings.png"]
    assert [summary.round for summary in part["history"]] == [0, 1, 2] and "pictures" not in part
    card = model_card(table(), base_model="b/b", **part)
    assert "After 3 rounds" in card and "After 6 rounds" in model_card(table(), base_model="b/b", **whole)
