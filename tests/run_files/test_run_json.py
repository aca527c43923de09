"""`run.json` and `population.json` by another hand: entries of other types are told by name."""

import json
from typing import get_origin, get_type_hints

import pytest

from trl_populora.run_files.run import SETTINGS, read_record, read_table
from trl_populora.settings import alternatives, holds


@pytest.fixture
def read(tmp_path):
    def read(record):
        (tmp_path / "run.json").write_text(json.dumps(record))
        return read_record(str(tmp_path))

    return read


@pytest.mark.parametrize(
    "record, told",
    [
        ({"settings": 5}, r"settings is 5 and not a mapping"),
        ({"model": ["tiny"]}, r"model is \['tiny'\] and not text"),
        ({"processes": True}, r"processes is True and not a whole number"),
        ({"reward_funcs": [1]}, r"reward_funcs is \[1\] and not a list of texts"),
        ({"resumed": ["later"]}, r"resumed is \['later'\] and not a list"),
        ({"settings": {"executor_kwargs": 5}}, r"settings.executor_kwargs is 5 and not a mapping"),
        ({"settings": {"task_types": "code_o"}}, r"settings.task_types is 'code_o' and not a list of texts"),
        ({"settings": {"temperature": "1"}}, r"settings.temperature is '1' and not a number"),
        ({"resumed": [{"changed": {}}]}, r"resumed.step is missing and not a whole number"),
        ({"resumed": [{"step": 2, "changed": {"seed": 5}}]}, r"resumed.changed is {'seed': 5} and not a mapping"),
        ({"other_settings": {"chat_template_kwargs": "x"}}, r"other_settings.chat_template_kwargs is 'x' and .*"),
        ({"settings": {"max_steps": 2.5}}, r"settings.max_steps is 2.5 and not a whole number"),
    ],
)
def test_what_has_another_type_is_told(read, record, told):
    with pytest.raises(ValueError, match=rf"run.json is damaged \({told}\). Restore the file."):
        read(record)


def test_what_is_unset_or_not_known_is_kept_out_of_the_way(read):
    record = {"model": None, "git": None, "settings": {"executor_kwargs": None, "temperature": 1}, "later": [1]}
    assert read(record) == {"settings": record["settings"], "later": [1]}


@pytest.mark.parametrize(
    "change, told",
    [
        ({"num_teachers": "1"}, "num_teachers is '1' and not a whole number"),
        ({"shared_member": None}, "shared_member is None and not true or false"),
        ({"num_students": 2}, "it lists 1 members of 2"),
        ({"role": None}, "student_0: role is None and not text"),
        ({"parents": [1]}, "student_0: parents is .1. and not a list"),
    ],
)
def test_a_table_by_another_hand(tmp_path, change, told):
    row = {"id": "student_0", "role": "student", "version": 0, "operator": "founder", "parents": []}
    table = {"format": 1, "num_teachers": 0, "num_students": 1, "shared_member": False}
    row, table = (one | {name: value for name, value in change.items() if name in one} for one in (row, table))
    (tmp_path / "population.json").write_text(json.dumps(table | {"members": [row]}))
    with pytest.raises(ValueError, match=rf"population.json is damaged \({told}"):
        read_table(tmp_path)


def test_types_of_settings_are_those_of_the_config():
    from trl_populora import PopulationSelfPlayConfig

    hints, settings = get_type_hints(PopulationSelfPlayConfig), PopulationSelfPlayConfig(use_cpu=True).settings()
    for name, kind in SETTINGS.items():
        kinds = {get_origin(one) or one for one in alternatives(hints[name])}
        assert (get_origin(kind) or kind) in kinds, name
        assert settings[name] is None or holds(settings[name], kind), name
