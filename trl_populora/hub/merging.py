"""Merging: adds a member's update to the weights of the base model, for tools that cannot load adapters."""

import os
import warnings
from typing import Any

from peft import PeftModel, get_peft_model_state_dict
from transformers import AutoModelForCausalLM, AutoTokenizer

from ..population.adapters import read_adapter
from ..population.factors import not_finite, to_tensors
from ..run_files.files import damage_told, write_files
from ..run_files.run import Run
from .pushing import check_member


def export_merged(run: Run, member: str, output: str, *, base: str) -> None:
    """Writes a whole model, `W + scaling * B A`, and the tokenizer of the base, with the chat template of the run.

    The update is added in float32, and the sum is rounded to the dtype of the base.

    Args:
        run ([`Run`]): Run of the member.
        member (`str`): Its name.
        output (`str`): Folder to write to.
        base (`str`): Base model, as `from_pretrained` takes it.

    Raises:
        ValueError: If there is no such member, or its adapter is damaged or of another base. If the base is
            quantised on disk.
    """
    check_member(run, member)
    folder = os.path.join(run.folder, member)
    _, factors = read_adapter(folder)
    if wrong := not_finite(factors):
        raise ValueError(f"{folder} has weights that are not finite, at {wrong[0]}. Export another member.")
    which: dict[str, Any] = {"revision": run.revision} if run.revision else {}
    with damage_told(f"the base {base!r}"):
        model = AutoModelForCausalLM.from_pretrained(base, dtype="auto", **which)
    if getattr(model, "is_quantized", False):
        raise ValueError(
            f"{base} is quantised, and takes no update. Name the same base in full precision with --base."
        )
    dtype, other = model.dtype, f"{folder} does not fit {base}: it is an adapter of another base. Name it with --base."
    model = model.float()
    try:
        with warnings.catch_warnings(action="ignore"):  # of missing matrices, which are refused below
            loaded = PeftModel.from_pretrained(model, folder)
    except (RuntimeError, ValueError) as error:  # other shapes, or no matching layers
        raise ValueError(other) from error
    if get_peft_model_state_dict(loaded, save_embedding_layers=False).keys() != to_tensors(factors).keys():
        raise ValueError(other)
    merged = loaded.merge_and_unload().to(dtype)
    tokenizer = AutoTokenizer.from_pretrained(base, **which)
    tokenizer.chat_template = run.chat_template or tokenizer.chat_template

    def write(aside: str) -> None:
        merged.save_pretrained(aside)
        tokenizer.save_pretrained(aside)

    write_files(output, write)
