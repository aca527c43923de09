"""Where the time of a whole training step goes: the real trainer, every part of it timed from outside."""

import copy
import shutil
import tempfile
import time
from collections import defaultdict

import torch
from measuring import peak, reset_peak, synchronize
from peft import LoraConfig
from transformers import PrinterCallback, TrainerCallback

from trl_populora.cli.needs import counter
from trl_populora.training import PopulationSelfPlayConfig, PopulationSelfPlayTrainer
from trl_populora.training.forecast import Shapes, memory, phases


class Steps(TrainerCallback):
    """Wall-clock of each step, from its begin until it is logged: the round, evolution and records are in it."""

    def __init__(self, parts: dict[str, float]):
        self.parts, self.begin, self.steps = parts, None, []

    def on_step_begin(self, args, state, control, **kwargs):
        self.begin = time.perf_counter()
        self.parts.clear()

    def on_log(self, args, state, control, **kwargs):
        if self.begin is not None and len(self.steps) < state.global_step:
            self.steps.append((time.perf_counter() - self.begin, dict(self.parts)))


def whole_step(
    bench, members: int, *, prompts: int = 1, generations: int = 2, steps: int | None = None, drawn: int = 64
) -> dict:
    """Seconds of one step of `members` members, and what part of them is neither model nor executor.

    A step has three rows per member (two generations per prompt: every proposal and two attempts at as many tasks);
    that of the single agent has six. More with `prompts` of each teacher and more `generations`; `drawn` rows are
    drawn at a time. Rewards get a term that varies: a base that solves nothing has no gradient, and the trainer
    leaves such rows out. "learned" is the number of rows that were in the update. "made" are seconds that it took
    to make the trainer, and "first" those of the first step. "overhead" is all but generation, forward, backward
    and the executor; clipping and the optimizer are in it. The last step is measured; of large rounds the first,
    in which the optimizer's memory is allocated too.
    """
    args, folder = bench.args, tempfile.mkdtemp()
    teachers = max(1, members // 2)
    rows = teachers * prompts * generations * (1 + generations)
    config = PopulationSelfPlayConfig(
        output_dir=folder,
        num_teachers=teachers,
        num_students=teachers,
        shared_member=members == 1,
        prompts_per_teacher=prompts,
        num_generations=generations,
        per_device_train_batch_size=max(b for b in range(1, args.rows + 1) if rows % b == 0),
        generation_rows=drawn,
        max_completion_length=args.new_tokens,
        prompt_style="compact",
        num_references=1,
        seed_tasks=8,
        evolution_interval=0,
        max_steps=steps or (2 if rows <= 2 * args.rows else 1),
        learning_rate=1e-5,
        use_cpu=args.device == "cpu",
        bf16=args.device == "cuda",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_steps=1,
        overwrite_output_dir=True,
    )
    shared = {id(t): t for t in (*bench.model.parameters(), *bench.model.buffers())}
    lora = LoraConfig(r=args.rank, lora_alpha=2 * args.rank, target_modules="all-linear")
    parts, begin = defaultdict(float), time.perf_counter()
    steps = Steps(parts)
    trainer = PopulationSelfPlayTrainer(
        copy.deepcopy(bench.model, shared),
        varied,
        config,
        processing_class=bench.tokenizer,
        peft_config=lora,
        callbacks=[steps],
    )
    trainer.remove_callback(PrinterCallback)
    watch(trainer, parts, bench.device)
    made = time.perf_counter() - begin
    reset_peak(bench.device)
    try:
        trainer.train()
    finally:
        trainer.source.executor.close()
        shutil.rmtree(folder)
    seconds, spent = steps.steps[-1]
    inside = sum(spent.get(name, 0.0) for name in ("generate", "forward", "backward", "executor"))
    return {
        "members": members,
        "rows": rows,
        "learned": sum(len(batch["member_ids"]) for batch in trainer._buffered_inputs),
        "made": made,
        "first": steps.steps[0][0],
        "seconds": seconds,
        "seconds_per_row": seconds / rows,
        "peak_mib": peak(bench.device),
        "computed_mib": computed(bench, config) / 2**20,
        "parts": {name: round(value, 4) for name, value in spent.items()},
        "overhead_share": 1 - inside / seconds,
        "optimizer_share": (spent["optimizer"] + spent["clip"]) / seconds,
    }


def computed(bench, config: PopulationSelfPlayConfig) -> float:
    """Bytes on the device by the formulas of docs/scaling.md, with the adapter that the bench has beside its base."""
    config.lora_r, config.model_init_kwargs = bench.args.rank, {"dtype": str(bench.dtype).removeprefix("torch.")}
    shapes = Shapes.of(bench.model.config, "all-linear")
    plan = phases(config, counter(bench.tokenizer, config))
    parts = memory(shapes, config, plan, gpu=bench.device.type == "cuda")
    own = sum(p.numel() * p.element_size() for name in bench.single for p in bench.single.parameters(name))
    return max(parts["learning"], parts["sampling"]) + own


def varied(completion_ids: list[list[int]], **columns) -> list[float]:
    """Rewards that differ in nearly every group. Of ids: the text of random ones is often empty (`base_shapes`)."""
    return [sum(ids) % 97 / 97 for ids in completion_ids]


def watch(trainer: PopulationSelfPlayTrainer, parts: dict[str, float], device: torch.device) -> None:
    """Add the time of each call of these to `parts`."""

    def timed(owner, attribute: str, part: str) -> None:
        call = getattr(owner, attribute)

        def wrapped(*args, **kwargs):
            synchronize(device)
            begin = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                synchronize(device)
                parts[part] += time.perf_counter() - begin

        setattr(owner, attribute, wrapped)

    timed(trainer.population.base_model, "generate", "generate")
    timed(trainer, "_get_per_token_logps_and_entropies", "forward")
    timed(trainer.accelerator, "backward", "backward")
    timed(trainer.source.executor, "run_many", "executor")
    timed(trainer, "_clip_grad_norm", "clip")
    create = trainer.create_optimizer

    def create_optimizer(*args, **kwargs):
        optimizer = create(*args, **kwargs)
        timed(optimizer, "step", "optimizer")
        return optimizer

    trainer.create_optimizer = create_optimizer
