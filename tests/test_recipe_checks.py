"""What is told before anything is imported: names, types and numbers, by the sources of the settings' classes."""

from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from trl_populora.recipe import RunArguments
from trl_populora.recipe_checks import CONFIGS, PLAIN, check_call, read_settings


ROOT = Path(__file__).resolve().parents[1]


def test_settings_are_read_as_python_reads_them():
    from trl_populora.training import PopulationSelfPlayConfig

    found = read_settings()
    own = {f.name: f for cls in (PopulationSelfPlayConfig, RunArguments) for f in fields(cls) if f.init}
    assert len(CONFIGS) == 5 and set(own) <= set(found)
    assert {name for name in set(found) - set(own) if not name.startswith("_")} <= {"place_model_on_device"}
    for name, field in own.items():
        if found[name].default is not ...:
            assert found[name].default == field.default, name
        if isinstance(field.default, int | float | str) and found[name].kinds <= PLAIN:
            kinds = {"int", "float"} if type(field.default) is int else {type(field.default).__name__}
            assert kinds & found[name].kinds, name


@pytest.mark.slow
def test_recipes_pass():
    found = [yaml.safe_load(path.read_text()) for path in ROOT.glob("recipes/*/*.yaml")]
    recipes = [recipe for recipe in found if "model_name_or_path" in recipe]  # of runs, that is
    assert len(recipes) >= 28
    for recipe in recipes:
        check_call([], recipe)
        with pytest.raises(ValueError, match="num_students=0"):
            check_call([], recipe | {"num_students": 0})  # its numbers were read


@pytest.mark.parametrize(
    "argv, recipe",
    [
        ([], {}),
        (["--num-teachers=2", "--num_students=2", "--no_plots", "--use_cpu", "--learning_rate", "1e-3"], {"env": {}}),
        (["--use_cpu", "False", "--max_prompt_tokens", "None", "--max_steps", "+4"], {"learning_rate": "1e-3"}),
        (["--num_teachers", "0", "--max_steps", "-1"], {"task_types": ["my_module:MyType"]}),
        (["--num_students", "4"], {"num_students": 0}),  # the command line wins
        (["--include_num_input_tokens_seen", "true"], {}),  # true, false or a text
    ],
)
def test_what_a_command_line_may_say_passes(argv, recipe):
    check_call(argv, recipe)
    with pytest.raises(ValueError, match="num_generations=1 must"):
        check_call([*argv, "--num_generations", "1"], recipe)  # the checks went on to the last ones


@pytest.mark.parametrize(
    "argv, recipe, told",
    [
        ([], {"num_teacher": 2}, "Unknown setting 'num_teacher' in the recipe. Did you mean 'num_teachers'"),
        (["--num_teacherz", "2"], {}, "Unknown option '--num_teacherz'. Did you mean '--num_teachers'"),
        (["my.yaml"], {}, "Unknown argument 'my.yaml'. If it is a recipe, write --config my.yaml"),
        ([], {"max_steps": 2.5}, "max_steps=2.5 in the recipe must be a whole number"),
        ([], {"max_steps": True}, "max_steps=True in the recipe must be a whole number"),
        ([], {"max_steps": None}, "max_steps is empty in the recipe"),
        ([], {"lr_scheduler_type": None}, "lr_scheduler_type is empty in the recipe"),
        ([], {"learning_rate": "fast"}, "learning_rate='fast' in the recipe must be a number"),
        ([], {"use_cpu": "maybe"}, "use_cpu='maybe' in the recipe must be true or false"),
        ([], {"reward_weights": 1.0}, "reward_weights=1.0 in the recipe must be a list: [1.0]."),
        ([], {"output_dir": 3}, "output_dir=3 in the recipe must be text: put it in quotes"),
        (["--max_steps=some"], {}, "--max_steps some must be a whole number"),
        (["--max_steps=+-5"], {}, "--max_steps +-5 must be a whole number"),
        (["--max_steps=²"], {}, "--max_steps ² must be a whole number"),
        (["--learning_rate", "fast"], {}, "--learning_rate fast must be a number"),
        (["--use_cpu", "maybe"], {}, "--use_cpu maybe must be true or false"),
        (["--num_stud", "0"], {}, "num_students=0: self-play needs at least one of each"),
        (
            ["--teacher_reward", "best"],
            {"teacher_reward": "frontier"},
            "teacher_reward='best' is unknown. Choose from",
        ),
        ([], {"num_generations": 1}, "num_generations=1 must be at least 2"),
        (
            [],
            {"num_teachers": 3, "num_students": 4},
            "prompts_per_teacher=1 does not fit: with num_teachers=3 and num_students=4, each teacher meets 4 "
            "students in a round. All proposals of one prompt go to one student. Set prompts_per_teacher to a "
            "multiple of 4.",
        ),
        ([], {"lora_r": 0}, "lora_r=0 must be at least 1"),
        ([], {"answer_share": 1.5}, "answer_share=1.5 of max_completion_length"),
        ([], {"task_types": ["code_x"]}, "task type 'code_x' is unknown. Did you mean 'code_o'"),
    ],
)
def test_mistakes_are_told(argv, recipe, told):
    with pytest.raises(ValueError) as caught:
        check_call(argv, recipe)
    assert told in str(caught.value)
