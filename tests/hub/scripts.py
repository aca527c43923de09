"""What runs in the process that talks to the loopback Hub."""

import contextlib
import io
import logging
import os
import re
import time
import types
import urllib.request
import zlib

import yaml


SETTINGS = {
    "model_name_or_path": "user/base",
    "use_cpu": True,
    "bf16": False,
    "num_teachers": 1,
    "num_students": 1,
    "num_generations": 2,
    "per_device_train_batch_size": 6,
    "max_steps": 2,
    "max_completion_length": 8,
    "lr_scheduler_type": "constant",
    "seed_tasks": 4,
    "num_references": 1,
    "prompt_style": "compact",
    "task_types": ["code_o"],
    "evolution_interval": 0,
    "gradient_checkpointing": False,
    "report_to": "none",
    "save_strategy": "steps",
    "save_steps": 1,
    "lora_r": 2,
    "lora_alpha": 4,
    "executor_kwargs": {"workers": 1},
    "learning_rate": 0.01,
    "reward_funcs": ["tests.hub.scripts.hash_reward"],
    "plots": False,
}


def hash_reward(completions: list, **_) -> list[float]:
    """A reward that varies with the text: a random base solves nothing, and would learn nothing."""
    return [zlib.crc32(str(completion).encode()) % 7 / 3 for completion in completions]


def call(main, argv: list[str], folder: str | None = None, *, token: str | None = "hf_user") -> tuple:
    """Exit code, standard output, and standard error with what was logged, of a command."""
    out, err = io.StringIO(), io.StringIO()
    handler = logging.StreamHandler(err)
    loggers = [logging.getLogger(name) for name in ("transformers", "trl_populora")]
    before = os.environ.pop("HF_TOKEN", None)
    if token is not None:
        os.environ["HF_TOKEN"] = token
    try:
        for logger in loggers:
            logger.addHandler(handler)
        with contextlib.chdir(folder or "."), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(argv)
    except SystemExit as stop:
        code = stop.code
    finally:
        os.environ["HF_TOKEN"] = before
        for logger in loggers:
            logger.removeHandler(handler)
    return code, out.getvalue(), err.getvalue()


def train(changes: dict, folder: str, **rest) -> tuple:
    """`populora train` of a small recipe; the run is in `demo` below the folder."""
    from trl_populora import train

    os.makedirs(folder, exist_ok=True)
    recipe = os.path.join(folder, "recipe.yaml")
    with open(recipe, "w") as file:
        yaml.safe_dump(SETTINGS | {"output_dir": os.path.join(folder, "demo")} | changes, file)
    return call(train.main, ["--config", recipe], folder, **rest)


def train_and_release(changes: dict, folder: str, step: int) -> tuple:
    """The same; once `checkpoint-<step>` is whole, the Hub is told to go on."""
    from trl_populora.training.trainer import PopulationSelfPlayTrainer

    save = PopulationSelfPlayTrainer._save_checkpoint

    def save_and_release(self, model, trial):
        save(self, model, trial)
        if self.state.global_step == step:
            urllib.request.urlopen(f"{os.environ['HF_ENDPOINT']}/release").read()

    PopulationSelfPlayTrainer._save_checkpoint = save_and_release
    try:
        return train(changes, folder)
    finally:
        PopulationSelfPlayTrainer._save_checkpoint = save


def populora(*argv: str, **rest) -> tuple:
    from trl_populora.cli import main

    return call(main, list(argv), **rest)


def run_card(text: str, folder: str | None = None) -> tuple[dict, float]:
    """Executes the Python of a card; the adapter's tensors by name, as lists, and what the model says to a text."""
    import torch
    from peft.utils import get_peft_model_state_dict

    names = {}
    with contextlib.chdir(folder or "."):
        exec(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1], names)
    model, tokenizer = names["model"], names["tokenizer"]
    with torch.no_grad():
        logits = model(**tokenizer("1 + 1 =", return_tensors="pt")).logits
    return {name: tensor.tolist() for name, tensor in get_peft_model_state_dict(model).items()}, logits.tolist()


def run_dataset_card(text: str) -> list[dict]:
    """Executes the Python of a dataset's card; the rows that it loads."""
    names = {}
    exec(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1], names)
    return names["rounds"].to_list()


def push_from_a_script(folder: str) -> str:
    """Students trained on a dataset by a script, and pushed by the trainer's own method."""
    from datasets import Dataset

    from trl_populora.training import PopulationSelfPlayConfig, PopulationSelfPlayTrainer
    from trl_populora.training.supported import SELF_PLAY

    without = ("model_name_or_path", "reward_funcs", "plots", *SELF_PLAY)
    recipe = {name: value for name, value in SETTINGS.items() if name not in without}
    changes = {"num_teachers": 0, "num_students": 2, "per_device_train_batch_size": 4, "max_steps": 1}
    args = PopulationSelfPlayConfig(**recipe | changes | {"output_dir": folder, "save_strategy": "no"})
    trainer = PopulationSelfPlayTrainer(
        SETTINGS["model_name_or_path"],
        hash_reward,
        args,
        train_dataset=Dataset.from_dict({"prompt": ["1 + 1 =", "2 + 2 ="]}),
    )
    trainer.model.add_model_tags("mine")
    trainer.train()
    args.hub_model_id = "user/repo"
    return trainer.push_to_hub(dataset_name="user/prompts", tags="more", model_name="ours")


def prepare() -> None:
    """The client tries again what failed, and waits longer each time: not here. And a run draws one picture."""
    from huggingface_hub.utils import _http

    from trl_populora.reporting import plots

    plots.PLOTS = {"ratings": plots.PLOTS["ratings"]}
    _http.time = types.SimpleNamespace(**vars(time) | {"sleep": lambda seconds: None})


def logits_of(model: str) -> list:
    """What a model says to the text of [`run_card`]."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    inputs = AutoTokenizer.from_pretrained(model)("1 + 1 =", return_tensors="pt")
    with torch.no_grad():
        return AutoModelForCausalLM.from_pretrained(model)(**inputs).logits.tolist()
