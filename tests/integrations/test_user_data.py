"""Prompts from a file or a saved dataset: the split is taken, and a configuration refused."""

import pytest
from datasets import Dataset, DatasetDict

from trl_populora.integrations.user_data import is_missing_file, load_prompts


@pytest.fixture(params=["file", "saved", "splits"])
def place(request, tmp_path, monkeypatch):
    """A dataset of five rows as a file, a saved dataset, or one with splits."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    rows = Dataset.from_dict({"prompt": [f"say {i}" for i in range(5)]})
    path = tmp_path / ("rows.jsonl" if request.param == "file" else "rows")
    if request.param == "file":
        rows.to_json(path)
    else:
        (rows if request.param == "saved" else DatasetDict(train=rows, test=rows.select([0]))).save_to_disk(path)
    return str(path)


def test_a_split_is_taken(place):
    assert load_prompts(place)["prompt"][:] == [f"say {i}" for i in range(5)]
    part = load_prompts(place, split="train[1:3]")
    assert part["prompt"][:] == ["say 1", "say 2"]
    assert str(part.split) == "train[1:3]", "run.json has it"
    assert str(load_prompts(place, split="train[:20%]+train[4:]").split) == "train[:20%]+train[4:]"


def test_a_name_may_begin_with_the_home_folder(place, tmp_path, monkeypatch):
    name = place.replace(str(tmp_path), "~")
    assert is_missing_file(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not is_missing_file(name) and len(load_prompts(name)) == 5


def test_a_split_that_is_not_there_is_named(place):
    with pytest.raises(ValueError, match=r"cannot be loaded: Unknown split \"mine\".*'train'.*\(dataset_split='mine'"):
        load_prompts(place, split="mine")


def test_a_split_without_rows_is_refused(place):
    with pytest.raises(ValueError, match=r"cannot be loaded: .* no (rows|data).*\(dataset_split='train\[7:9\]'"):
        load_prompts(place, split="train[7:9]")


def test_a_configuration_is_refused(place):
    with pytest.raises(ValueError, match="dataset_config='main' is for datasets of the Hub.*Leave dataset_config out"):
        load_prompts(place, config="main")


def test_a_cache_that_cannot_be_written_is_told_with_the_fix(monkeypatch):
    def denied(*args, **kwargs):
        raise PermissionError(13, "Permission denied", "/nonexistent")

    monkeypatch.setattr("trl_populora.integrations.user_data.load_dataset", denied)
    with pytest.raises(
        ValueError, match="'user/prompts' cannot be loaded: .*Permission denied.* Set HF_HOME to a fol"
    ):
        load_prompts("user/prompts")
    with pytest.raises(ValueError, match="Permission denied: '/nonexistent'$"):
        load_prompts("mine.jsonl")  # a file of the user's, which is not kept there


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json"])
def test_an_empty_file_is_told(name, tmp_path):
    (tmp_path / name).touch()
    with pytest.raises(ValueError, match=f"{name}' cannot be loaded: the file is empty$"):
        load_prompts(str(tmp_path / name))


@pytest.mark.parametrize("name", ["rows.tsv", "rows.jsonl.gz", "ROWS.JSONL"])
def test_a_file_of_another_kind_is_not_looked_for_on_the_hub(name, tmp_path):
    (tmp_path / name).touch()
    with pytest.raises(ValueError, match=f"{name}' is a file of another kind than .jsonl, .json, .parquet, .csv. Con"):
        load_prompts(str(tmp_path / name))
