"""Merging: adds a member's update to the weights of the base model, for tools that cannot load adapters."""

import os

from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from ..run_files.files import write_files
from ..run_files.run import Run
from .pushing import check_member


def export_merged(run: Run, member: str, output: str, *, base: str) -> None:
    """Writes a whole model, `W + scaling * B A`, and the tokenizer of the base.

    The update is added in float32, and the sum is rounded to the dtype of the base.

    Args:
        run ([`Run`]): Run of the member.
        member (`str`): Its name.
        output (`str`): Folder to write to.
        base (`str`): Base model, as `from_pretrained` takes it.

    Raises:
        ValueError: If there is no such member.
    """
    check_member(run, member)
    model = AutoModelForCausalLM.from_pretrained(base, dtype="auto")
    dtype = model.dtype
    merged = PeftModel.from_pretrained(model.float(), os.path.join(run.folder, member)).merge_and_unload()
    merged = merged.to(dtype)
    tokenizer = AutoTokenizer.from_pretrained(base)

    def write(aside: str) -> None:
        merged.save_pretrained(aside)
        tokenizer.save_pretrained(aside)

    write_files(output, write)
