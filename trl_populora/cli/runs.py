"""What the commands that look at a run make of it: its members on their base, its task types, its sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..run_files.run import Run


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from ..executor import Executor
    from ..generation import TransformersSampler
    from ..population import Population
    from ..tasks import TaskType


def load_population(run: Run) -> tuple[Population, PreTrainedTokenizerBase]:
    """The population on its base model, and the tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from ..integrations.base_models import resolve_base
    from ..population import Population
    from ..recipe import hush

    hush()
    path = resolve_base(run.base)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype).to(device)
    tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return Population.from_pretrained(run.folder, model), tokenizer


def make_sampler(
    run: Run, population: Population, tokenizer: PreTrainedTokenizerBase, *, temperature: float
) -> TransformersSampler:
    """Sampler over the members, with the run's template and length limit."""
    from ..generation import TransformersSampler

    return TransformersSampler(
        population,
        tokenizer,
        max_completion_length=run.setting("max_completion_length", 512),
        temperature=temperature,
        template=run.setting("prompt_template", "chat"),
        batch_size=run.setting("generation_rows", 64),
    )


def make_task_types(run: Run) -> dict[str, TaskType]:
    """Task types in play in the run, worded as there."""
    from ..tasks import DEFAULT_TYPES, make_task_types

    if "task_types" in run.source:
        return make_task_types(**run.source["task_types"])
    return make_task_types(
        run.setting("task_types", DEFAULT_TYPES),
        style=run.setting("prompt_style", "full"),
        num_references=run.setting("num_references", None),
        kwargs=run.setting("task_kwargs", None),
    )


def make_executor(run: Run) -> Executor:
    """The run's sandbox."""
    from ..executor import ExecutorSettings

    return ExecutorSettings(**run.setting("executor_kwargs", {})).make()
