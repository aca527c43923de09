"""Task types in the trainer: given by name or made by the user, recorded, and made again by the commands."""

import json
import os
import sys
from dataclasses import dataclass

import pytest

from tests.adding import Adding
from tests.tiny import lora, tiny_model, tiny_tokenizer
from trl_populora.cli.opening import make_task_types
from trl_populora.run_files.run import open_run
from trl_populora.tasks import make_task_types as make
from trl_populora.tasks.registry import task_type_class
from trl_populora.training import PopulationSelfPlayTrainer
from trl_populora.training.first_tasks import types_in_play


@dataclass(frozen=True)
class Weighed(Adding):
    id = "weighed"

    by: object = None


def trainer_with(config, task_types, **overrides):
    return PopulationSelfPlayTrainer(
        tiny_model(),
        args=config(**overrides),
        processing_class=tiny_tokenizer(),
        peft_config=lora(),
        task_types=task_types,
    )


def saved(trainer):
    try:
        trainer.train()
        trainer.save_model()
    finally:
        trainer.close()
    return open_run(trainer.args.output_dir, base="tiny")


def test_types_of_a_user_train_and_can_be_made_again_from_the_run(config):
    trainer = trainer_with(config, [Adding(largest=7), "code_o"], max_steps=2)
    assert trainer.args.task_types == ["tests.adding:Adding", "code_o"]
    assert trainer.args.task_kwargs["adding"]["largest"] == 7
    assert {task.type for name in ("adding", "code_o") for task in trainer.source.buffer.tasks(name)} == {
        "adding",
        "code_o",
    }
    types = trainer.source.task_types
    opened = saved(trainer)
    assert make_task_types(opened) == types == {"adding": Adding(largest=7), "code_o": types["code_o"]}
    assert types["code_o"].style == "compact"


def test_names_in_the_settings_make_the_same_types(config):
    args = config(task_types=["tests.adding:Adding"], task_kwargs={"adding": {"largest": 7}})
    assert args.task_kwargs["adding"] == {"largest": 7}
    assert make(args.task_types, kwargs=args.task_kwargs)["adding"] == Adding(largest=7)
    with pytest.raises(ValueError, match="names 'tests.adding:Adding' by its place. Write its id, 'adding'"):
        config(task_types=["tests.adding:Adding"], task_kwargs={"tests.adding:Adding": {"largest": 7}})


@pytest.mark.slow
def test_what_cannot_be_written_down_is_said_when_the_run_is_opened(config):
    opened = saved(trainer_with(config, [Weighed(by=object())], max_steps=1))
    with open(os.path.join(opened.folder, "self_play.json"), encoding="utf-8") as file:
        assert json.load(file)["source"]["task_types"]["kwargs"] == {"weighed": None}
    for style in (None, "full"):
        with pytest.raises(
            ValueError, match=r"could not be recorded. Make it there again: task_types=\[Weighed\(...\)\]"
        ):
            make_task_types(opened, style=style)


def test_an_object_may_stand_for_a_type_of_the_settings(config):
    """The settings have the defaults of their types, and after a first trainer those of its objects."""
    args, small = config(), task_type_class("code_o")(program_bytes=512)
    for _ in range(2):  # as in a notebook, where a cell is run again
        types = types_in_play(args, [small, Adding(largest=7)])
        assert types["code_o"].program_bytes == 512 and types["adding"].largest == 7
    assert types_in_play(args, [Adding(largest=9)])["adding"].largest == 9  # the cell was changed
    assert list(types_in_play(args, ["code_i"])) == args.task_types == ["code_i"]
    args = config(task_kwargs={"code_o": {"program_bytes": 300}})
    with pytest.raises(ValueError, match="settings of 'code_o' are not used: it was passed as an object"):
        types_in_play(args, [small])


def test_a_type_of_the_script_is_told_also_by_name(config, monkeypatch, caplog):
    kind = dataclass(frozen=True)(type("Own", (Adding,), {"__module__": "__main__", "id": "own"}))
    monkeypatch.setattr(sys.modules["__main__"], "Own", kind, raising=False)
    types_in_play(config(task_types=["__main__:Own"]), None)
    assert "The task types Own are defined in the script itself" in caplog.text
    monkeypatch.delattr(sys.modules["__main__"], "Own")
    with pytest.raises(ValueError, match="has no 'Own'.* A script is '__main__' only while it runs"):
        make(["__main__:Own"])


class Unmeasured(Adding):
    id = "unmeasured"

    def features(self, task):
        return {"size": 1}


class CodeOfOnesOwn(Adding):
    id = "code_o"


@pytest.mark.parametrize(
    ("types", "said"),
    [
        ([Adding], r"must be a list of names or objects.* Adding is a class: write Adding\(\)"),
        ([dict], r"must be a list of names or objects of subclasses of TaskType\.$"),
        ([Unmeasured()], "task type Unmeasured: .*"),
        ([CodeOfOnesOwn()], "CodeOfOnesOwn has the id 'code_o' of a type of this package: give it another"),
    ],
)
def test_what_a_run_cannot_play_is_refused_at_construction(config, types, said):
    with pytest.raises(ValueError, match=said):
        trainer_with(config, types)


def test_more_seed_tasks_than_there_are_name_the_setting(config):
    with pytest.raises(ValueError, match="seed_tasks=9: adding has only 4 different ones.*Set seed_tasks to at most"):
        trainer_with(config, [Adding(largest=1)], seed_tasks=9)


def test_types_without_teachers_are_refused(config):
    with pytest.raises(ValueError, match="task_types needs teachers"):
        trainer_with(config, [Adding()], num_teachers=0)
