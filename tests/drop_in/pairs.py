"""The same run by `GRPOTrainer` and by `PopulationSelfPlayTrainer`, and everything in which the two must agree."""

import hashlib
import json
import os
import random
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, PreTrainedModel
from trl import GRPOConfig, GRPOTrainer

from trl_populora.training import PopulationSelfPlayTrainer


CLASSES = (PopulationSelfPlayTrainer, GRPOTrainer)
TIMES = re.compile(r"(runtime|_per_second|step_time|preparation_time)$")
PROMPTS = ["one", "two words", "three", "four of them here", "five", "six", "seven is longer", "eight"]


def letters(completions, **kwargs) -> list[float]:
    """Reward of a completion, text or messages: how many different characters it has, and how many vowels."""
    texts = [c if isinstance(c, str) else c[-1]["content"] or "" for c in completions]
    return [len(set(text)) / 7 + sum(text.count(v) for v in "aeiou") for text in texts]


def slow_but(*names: str, of) -> list:
    """All names of cases; those that are not listed are slow. The fast ones are one of each kind."""
    return [name if name in names else pytest.param(name, marks=pytest.mark.slow) for name in of]


def prompts(**columns) -> Dataset:
    return Dataset.from_dict({"prompt": PROMPTS} | columns)


def chats() -> Dataset:
    return Dataset.from_dict({"prompt": [[{"role": "user", "content": text}] for text in PROMPTS]})


def load(folder: str) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def plain(folders) -> dict:
    """The constructor's arguments in their simplest form."""
    return dict(model=folders.base, reward_funcs=letters, args=settings(), train_dataset=prompts())


def settings(**overrides) -> GRPOConfig:
    """A plain configuration of two steps of four rows on the CPU."""
    chosen = dict(
        output_dir="run",
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        num_generations=2,
        max_completion_length=6,
        max_steps=2,
        learning_rate=1e-2,
        use_cpu=True,
        bf16=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    return GRPOConfig(**(chosen | overrides))


@dataclass
class Run:
    """What is left of a run: compared field by field, to the bit."""

    trainer: GRPOTrainer
    logs: list[dict]
    state: dict
    weights: dict[str, torch.Tensor]
    optimizer: dict[str, torch.Tensor]
    random_states: str
    files: dict[str, str]
    surroundings: dict
    moved: bool


def run(trainer_class: type, arguments, act) -> Run:
    """Construct a trainer with what `arguments()` returns, let `act` use it, and collect what came of it.

    Args:
        trainer_class (`type`): `GRPOTrainer` or a subclass.
        arguments (`Callable[[], dict]`): Makes the constructor's arguments anew: trainers keep and change them.
        act (`Callable[[GRPOTrainer], Any]`): What to do with the trainer, for example `GRPOTrainer.train`.
    """
    torch.manual_seed(0)
    given = arguments()
    trainer = trainer_class(*given.pop("positional", ()), **given)
    before = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    act(trainer)
    weights = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    states = [random.getstate(), np.random.get_state(), torch.get_rng_state().tolist()]
    state = json.loads(json.dumps(vars(trainer.state), default=str))
    logs = [without_times(log) for log in state.pop("log_history")]
    return Run(
        trainer=trainer,
        logs=logs,
        state=state,
        weights=weights,
        optimizer=tensors(trainer.optimizer.state_dict()) if trainer.optimizer else {},
        random_states=digest(repr(states).encode()),
        files={str(path): content(path) for path in sorted(Path().rglob("*")) if path.is_file()},
        surroundings={
            "callbacks": [type(callback).__name__ for callback in trainer.callback_handler.callbacks],
            "rewards": trainer.reward_func_names,
            "args": shown(trainer.args),
        },
        moved=any(not torch.equal(weight, before[name]) for name, weight in weights.items()),
    )


def assert_equal(ours: Run, theirs: Run) -> None:
    """Fail with the name of the first thing that differs. NaN equals NaN; times are left out."""
    assert len(ours.logs) == len(theirs.logs)
    for step, (own, other) in enumerate(zip(ours.logs, theirs.logs, strict=True)):
        assert list(own) == list(other), f"logged names of entry {step}"
        for name in own:
            assert repr(own[name]) == repr(other[name]), f"{name} of entry {step}"
    assert ours.state == theirs.state
    assert different(ours.weights, theirs.weights) == []
    assert different(ours.optimizer, theirs.optimizer) == []
    assert ours.random_states == theirs.random_states, "random numbers drawn"
    assert ours.surroundings == theirs.surroundings
    assert ours.files == theirs.files


def different(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> list[str]:
    both = ours.keys() & theirs.keys()
    unequal = {
        name for name in both if ours[name].dtype != theirs[name].dtype or not torch.equal(ours[name], theirs[name])
    }
    return sorted((ours.keys() ^ theirs.keys()) | unequal)


def tensors(tree, prefix: str = "") -> dict[str, torch.Tensor]:
    """Every number and tensor of an optimizer's state by its path."""
    if isinstance(tree, torch.Tensor):
        return {prefix: tree}
    if isinstance(tree, int | float):
        return {prefix: torch.tensor(tree, dtype=torch.float64)}
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list | tuple) else ()
    return {path: leaf for key, branch in items for path, leaf in tensors(branch, f"{prefix}/{key}").items()}


def without_times(log: dict) -> dict:
    return {name: value for name, value in log.items() if not TIMES.search(name)}


def content(path: Path) -> str:
    """Digest of a file; of the state without times, of the card itself."""
    if path.name == "trainer_state.json":
        state = json.loads(path.read_text())
        state["log_history"] = [without_times(log) for log in state["log_history"]]
        return json.dumps(state, sort_keys=True)
    return path.read_text() if path.name == "README.md" else digest(path.read_bytes())


def shown(value) -> str:
    """`repr` without addresses."""
    return re.sub(r"0x[0-9a-f]+", "", repr(value))


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def train_pair(folder: Path, arguments, act=GRPOTrainer.train, *, learns: bool = True) -> tuple[Run, Run]:
    """Run both classes, each in a folder of its own below `folder`, and require that they agree.

    Args:
        folder (`Path`): An empty folder.
        arguments, act: See `run`.
        learns (`bool`, *optional*, defaults to `True`): Whether the weights have to change: equal runs in which
            nothing happened would prove nothing.

    Returns:
        `tuple[Run, Run]`: Ours and GRPOTrainer's.
    """
    runs, here = [], os.getcwd()
    for trainer_class in CLASSES:
        own = folder / trainer_class.__name__
        own.mkdir()
        os.chdir(own)  # so that output_dir, which is in arguments and files, is the same word in both
        try:
            runs.append(run(trainer_class, arguments, act))
        finally:
            os.chdir(here)
    assert_equal(*runs)
    assert type(runs[0].trainer) is PopulationSelfPlayTrainer and runs[0].trainer.population is None
    assert all(r.moved for r in runs) or not learns, "no weight changed"
    return runs[0], runs[1]
