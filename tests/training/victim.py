"""A tiny run that kills itself with SIGKILL at a chosen moment, for test_kill.py. Runs in a process of its own."""

import json
import os
import signal
import sys
from pathlib import Path

import pyarrow.parquet
import torch

import trl_populora
from tests.tiny import lora, perturb, tiny_model, tiny_tokenizer
from tests.training.conftest import Altered, hash_reward
from tests.training.test_resume import files, outcome
from trl_populora.evolution import replacement
from trl_populora.executor import Executor
from trl_populora.generation import TransformersSampler
from trl_populora.population import Population
from trl_populora.population import population as population_file
from trl_populora.reporting import read_probes
from trl_populora.run_files import run_folder
from trl_populora.training import PopulationSelfPlayConfig, PopulationSelfPlayTrainer


CLOCKS = ("seconds", "probing", "elapsed")
PACKAGE = os.path.dirname(trl_populora.__file__)
# Calls at which a run may be killed: what is called, and whether death comes before or after the call.
POINTS = {
    "generation": (TransformersSampler, "draw"),
    "executor": (Executor, "run_many"),
    "optimizer step": (torch.optim.AdamW, "step"),
    "evolution": (Population, "replace"),
    "after evolution": (replacement, "tell"),
    "adapter file": (population_file, "save_file"),
    "torch file": (torch, "save"),
    "rename": (os, "replace"),
    "flush to disk": (os, "fsync"),
    "lines of a record": (run_folder, "append_lines"),
}


def main(folder: str, kill: tuple | None, steps: int = 6) -> None:
    """Trains to the end, or until killed; leaves `outcome.json` beside the run's folder if it got there."""
    torch.set_num_threads(1)
    args = PopulationSelfPlayConfig(
        output_dir=os.path.join(folder, "run"), num_teachers=2, num_students=2, num_generations=2,
        per_device_train_batch_size=4, max_completion_length=8, prompt_style="compact", num_references=1,
        task_kwargs={"code_f": {"num_inputs": 4}}, seed_tasks=8, max_steps=steps, learning_rate=1e-2,
        evolution_interval=2, executor_kwargs={"workers": 1}, use_cpu=True, bf16=False, save_steps=2,
        save_total_limit=2, optim="adamw_torch", report_to="none", disable_tqdm=True, lr_scheduler_type="linear",
        eval_strategy="steps", eval_steps=3, probe_kwargs={"exams": ["held_out[:3]"], "founders": 1},
    )  # fmt: skip
    trainer = PopulationSelfPlayTrainer(
        tiny_model(), hash_reward, args, processing_class=tiny_tokenizer(), peft_config=lora()
    )
    perturb(trainer.population, 0.1)
    trainer.source.sampler = Altered(trainer.source.sampler, plausible)
    trainer.source.self_play.lengths = None  # eight tokens would hold none of the answers written below
    if kill is not None:
        arm(*kill)
    trainer.train(resume_from_checkpoint="auto")
    sys.setprofile(None)
    state = outcome(trainer) | {"files": files(args.output_dir), "folder": declared(args.output_dir)}
    state["probes"] = [{k: v for k, v in one.items() if k not in CLOCKS} for one in read_probes(args.output_dir)]
    state["answers"] = {
        name: [row | {"seconds": None} for row in pyarrow.parquet.read_table(path).to_pylist()]
        for name, path in ((path.name, path) for path in sorted(Path(args.output_dir, "probes").iterdir()))
    }
    with open(os.path.join(folder, "outcome.json"), "w", encoding="utf-8") as file:
        json.dump(state, file)


def plausible(drawn, members):
    """Texts that make tasks and sometimes solve them, so that buffer and ratings have something to lose."""

    def text(completion, member):
        a, b = completion.ids[0] % 3, completion.ids[-1] % 3
        if member is not None and member.startswith("teacher"):
            return f"```python\ndef f(x, new={completion.ids}):\n    return [x, {a}]\n```\n```input\n{b}\n```"
        return f"```output\n[{a}, {b}]\n```\n```input\n{a}\n```"

    return [c._replace(text=text(c, m)) for c, m in zip(drawn, members, strict=True)]


def arm(point: str, count: int) -> None:
    """Dies at the `count`-th call of a point, or, for the point "call", of any function of the package."""
    left = count

    def tick():
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    if point == "call":

        def profile(frame, event, argument):
            if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
                tick()

        sys.setprofile(profile)
        return
    owner, name = POINTS[point]
    original = getattr(owner, name)

    def call(*args, **kwargs):
        if count % 2:
            tick()
        result = original(*args, **kwargs)
        if not count % 2:
            tick()
        return result

    setattr(owner, name, call)


def declared(folder: str) -> list[str]:
    """Every file and folder of a run but those inside checkpoints and adapters."""
    return sorted(os.listdir(folder))
