"""`run.json`: every run leaves it, whoever starts it, and the commands can open the run by it."""

import json
import platform
import sqlite3
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import torch
from datasets import Dataset

from tests.tiny import lora, tiny_model, tiny_tokenizer
from tests.training.conftest import hash_reward
from trl_populora.cli.opening import make_task_types
from trl_populora.generation import TransformersSampler
from trl_populora.run_files.git import git_state
from trl_populora.run_files.layout import STATE_FILE
from trl_populora.run_files.run import Run, open_run
from trl_populora.run_files.secrets import HIDDEN
from trl_populora.tasks.countdown import Countdown
from trl_populora.training import PopulationSelfPlayConfig, PopulationSelfPlayTrainer
from trl_populora.training.run_record import base_revision, hardware, run_record
from trl_populora.training.saving import save_run
from trl_populora.training.uploading import card_facts


PROMPTS = Dataset.from_dict({"prompt": [f"say {word}" for word in "one two three four five six".split()]})


def record_of(trainer):
    return json.loads((Path(trainer.args.output_dir) / "run.json").read_text())


def test_the_commit_of_a_base_is_read_from_its_place_in_the_cache(tmp_path):
    args = PopulationSelfPlayConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False)
    commit = "0123456789abcdef" * 2 + "01234567"
    assert base_revision(f"/cache/models--user--base/snapshots/{commit}", args) == commit
    assert base_revision(f"/cache/models--user--base/snapshots/{commit[1:]}", args) is None
    assert base_revision(str(tmp_path), args) is base_revision("nobody/nothing", args) is None
    assert base_revision(tiny_model(), args) is None
    for place, found in (("refs/main", commit), (f"snapshots/{commit}/config.json", "{}")):
        path = tmp_path / "cache" / "models--user--base" / place
        path.parent.mkdir(parents=True)
        path.write_text(found)
    assert base_revision("user/base", args) is None
    args.model_init_kwargs = {"cache_dir": str(tmp_path / "cache")}
    assert base_revision("user/base", args) == commit


@pytest.mark.slow
def test_a_run_of_a_script(make_trainer):
    sampler = partial(TransformersSampler.from_args, batch_size=3)
    settings = {"prompt_style": "compact", "save_strategy": "no", "weight_decay": 0.125}
    trainer = make_trainer(sampler=sampler, max_steps=1, **settings)
    trainer.base_model_name, trainer.warm_start = "some/base", {"steps": 4}
    trainer.train()
    record = record_of(trainer)
    assert record["model"] == "some/base" and record["warm_start"] == {"steps": 4}
    settings = record["settings"]
    assert settings["prompt_style"] == "compact" and settings["max_completion_length"] == 8
    assert settings["task_kwargs"]["code_f"]["num_inputs"] == 4 and settings["eval_strategy"] == "no"
    others = record["other_settings"]
    assert others["weight_decay"] == 0.125 and others["lr_scheduler_type"] == "constant"
    assert not {"seed", "output_dir", "save_strategy", "max_grad_norm"} & set(others)
    own = "trl_populora.generation.transformers_sampler:TransformersSampler"
    assert record["sampler"] == {"class": own, "made_by": own, "kwargs": {"batch_size": 3}}
    assert record["reward_funcs"] == ["self_play_reward", "hash_reward"]
    assert record["row_source"].endswith(":SelfPlaySource") and record["isolation"].startswith("L")
    assert {"trl", "torch", "transformers", "trl-populora"} <= set(record["versions"])
    assert record["versions"]["python"] == platform.python_version()
    assert record["versions"]["sqlite"] == sqlite3.sqlite_version
    machine = record["hardware"]
    assert machine["processor"] and machine["cores"] >= 1 and machine["memory_gib"] > 0.1
    assert len(machine["gpus"]) == torch.cuda.device_count()
    trainer.save_model()
    run = open_run(trainer.args.output_dir)
    assert run.base == "some/base" and run.setting("task_types", None) == ["code_o", "code_i", "code_f"]


def test_a_gpu_that_pytorch_cannot_use_does_not_end_a_run(monkeypatch):
    """The driver counts it, also if it is too old for this PyTorch."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)  # as it says once Lightning is imported
    assert hardware()["gpus"] == []


def test_a_run_on_a_dataset(config):
    args = config(num_teachers=0, num_students=2, num_generations=2, per_device_train_batch_size=4, max_steps=1)
    trainer = PopulationSelfPlayTrainer(
        tiny_model(), hash_reward, args, train_dataset=PROMPTS, processing_class=tiny_tokenizer(), peft_config=lora()
    )
    trainer.train()
    record = record_of(trainer)
    assert record["row_source"].endswith(":DatasetSource") and record["isolation"] is None
    assert record["reward_funcs"] == ["hash_reward"] and record["sampler"]["made_by"] is None
    assert record["warm_start"] is None and record["exams"] == {}
    assert (
        record["dataset_part"] == {"config_name": None, "split": None, "rows": 6}
        or record["dataset_part"]["rows"] == 6
    )
    for name, on_hub in ((None, None), (args.output_dir, False), ("org/prompts", True)):
        trainer.dataset_name = name
        assert run_record(trainer)["dataset_on_hub"] is on_hub


def test_the_commit_of_a_checkout(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_state() is None
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@x"]
    (tmp_path / "file").write_text("1")
    for words in (["init", "-q"], ["add", "file"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    state = git_state()
    assert len(state["commit"]) == 40 and state["changed"] is False
    (tmp_path / "file").write_text("2")
    assert git_state() == state | {"changed": True}


def test_no_secret_is_written(make_trainer, tmp_path):
    trainer = make_trainer(max_steps=1, model_init_kwargs={"token": "hf_SECRET", "max_tokens": 3})
    trainer.given_sampler = partial(TransformersSampler.from_args, api_key="SECRET")
    record = run_record(trainer)
    assert "SECRET" not in json.dumps(record) + trainer.args.to_json_string()  # which trackers get
    save_run(trainer, str(tmp_path))
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"SECRET" in path.read_bytes()]
    trainer.args.vllm_server_base_urls = ["https://user:SECRET@node:8000"]
    assert run_record(trainer)["settings"]["vllm_server_base_urls"] == [f"https://{HIDDEN}@node:8000"]
    trainer.args.chat_template_kwargs = {"think_token": "<think>"}  # prompts have it, and other commands read it
    assert run_record(trainer)["other_settings"]["chat_template_kwargs"] == {"think_token": "<think>"}
    trainer.args.vllm_engine_kwargs = {"hf_token": "hf_SECRET"}
    facts = card_facts(trainer)
    assert "SECRET" not in json.dumps(facts) and facts["settings"]["vllm_engine_kwargs"] == {"hf_token": HIDDEN}
    assert record["other_settings"]["model_init_kwargs"] == {"token": HIDDEN, "max_tokens": 3}
    assert record["lora"]["r"] == lora().r and record["lora"]["target_modules"] == "all-linear"


@dataclass(frozen=True)
class Keyed(Countdown):
    """A task type that needs a key."""

    api_key: str = ""


def test_secrets_of_task_types_are_not_written(make_trainer, tmp_path):
    trainer = make_trainer(max_steps=1, task_types=["countdown"])
    trainer.source.task_types = {"countdown": Keyed(style="full", api_key="SECRET")}
    save_run(trainer, str(tmp_path))
    state = (tmp_path / STATE_FILE).read_text()
    assert "SECRET" not in state and HIDDEN in state
    run = Run(str(tmp_path), "tiny", ("student_0",), {})
    with pytest.raises(ValueError, match="does not hold api_key of the task type countdown"):
        make_task_types(run)
