"""Checkpoints that are whole or do not exist: written aside, sealed by a manifest, moved into place by one rename."""

import json
import os
import shutil
import zlib
from collections.abc import Callable
from importlib.metadata import version

from safetensors import SafetensorError
from torch import nn
from torch.distributed.tensor import DTensor
from transformers.trainer_utils import rotate_checkpoints
from transformers.utils import logging

from .ranks import Ranks


logger = logging.get_logger(__name__)

MANIFEST = "manifest.json"
STAGING = ".saving"
FORMAT_VERSION = 1
WRITE_ERRORS = (OSError, RuntimeError, SafetensorError)  # torch and safetensors wrap what the file system says


def staging_folder(output_dir: str) -> str:
    """Where a checkpoint is written before it is whole; whatever lies there is what a killed process left."""
    return os.path.join(output_dir, STAGING)


def write_checkpoint(
    write: Callable[[], None],
    *,
    output_dir: str,
    step: int,
    ranks: Ranks,
    about: dict,
    save_total_limit: int | None = None,
) -> bool:
    """Writes `checkpoint-<step>`, whole or not at all.

    Args:
        write (`Callable`): Writes this rank's files below `staging_folder(output_dir)/checkpoint-<step>`.
        output_dir (`str`): Folder of the run.
        step (`int`): Training step.
        ranks ([`Ranks`]): All take part; the first seals.
        about (`dict`): What the manifest says beside the files and their sizes.
        save_total_limit (`int`, *optional*): Checkpoints to keep; older ones go once the new one is whole.

    Returns:
        `bool`: Whether it was written. If not (full disk, folder gone), a warning says why, what was written is
        removed, and the checkpoints before it are as they were: training goes on and the next save tries again.
    """
    staging = staging_folder(output_dir)
    source, target = (os.path.join(folder, f"checkpoint-{step}") for folder in (staging, output_dir))
    if ranks.is_main:
        shutil.rmtree(staging, ignore_errors=True)
    ranks.accelerator.wait_for_everyone()
    problems = ranks.problems(_problem(write))
    if not problems:
        problems = ranks.problems(_problem(lambda: _seal(source, target, about)) if ranks.is_main else None)
    if ranks.is_main:
        shutil.rmtree(staging, ignore_errors=True)
        if problems:
            logger.warning(
                f"Step {step} was not saved to {target}: {'; '.join(problems)}. Training goes on; earlier checkpoints "
                "are untouched, and the next save tries again. Free some space or mend the folder."
            )
        else:
            rotate_checkpoints(output_dir, save_total_limit=save_total_limit, use_mtime=True)
    return not problems


def checkpoints(output_dir: str) -> list[str]:
    """All `checkpoint-N` of a folder, whole or not, oldest first."""
    if not os.path.isdir(output_dir):
        return []
    names = (n for n in os.listdir(output_dir) if n.startswith("checkpoint-") and n.rsplit("-", 1)[1].isdigit())
    return sorted((os.path.join(output_dir, name) for name in names), key=checkpoint_step)


def checkpoint_step(folder: str) -> int:
    return int(folder.rsplit("-", 1)[1])


def whole_checkpoints(output_dir: str) -> list[str]:
    """Checkpoints in a folder that hold all their files, oldest first."""
    return [folder for folder in checkpoints(output_dir) if flaw(folder) is None]


def flaw(folder: str) -> str | None:
    """What keeps a folder from being a whole checkpoint of a population, in words; `None` if nothing does."""
    if not os.path.isdir(folder):
        return "there is no such folder"
    try:
        with open(os.path.join(folder, MANIFEST), encoding="utf-8") as file:
            manifest = json.load(file)
        if manifest["format"] != FORMAT_VERSION:
            return f"it has format {manifest['format']!r}, and this version reads format {FORMAT_VERSION}"
        files = dict(manifest["files"])
    except FileNotFoundError:
        return f"{MANIFEST} is missing: it is torn, or no checkpoint of a population"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{MANIFEST} cannot be read ({type(error).__name__})"
    for name, size in files.items():
        path = os.path.join(folder, name)
        if not os.path.isfile(path):
            return f"{name} is missing"
        if os.path.getsize(path) != size:
            return f"{name} has {os.path.getsize(path)} bytes instead of {size}"
    return None


def choose_checkpoint(
    wanted: str | bool | None, *, output_dir: str, base: str, fixed: dict | None = None
) -> str | None:
    """The checkpoint to resume from.

    Args:
        wanted (`str` or `bool`, *optional*):
            A folder; `"auto"` for the newest whole checkpoint of `output_dir` or none; `True` for the newest, which
            must exist; `None` or `False` for none.
        output_dir (`str`): Folder of the run.
        base (`str`): Fingerprint of the base model, see [`fingerprint`].
        fixed (`dict`, *optional*): Settings that a run cannot change on its way.

    Raises:
        ValueError: If the checkpoint is torn, misses files, or was made on another base model; the text offers the
            newest whole one.
    """
    if wanted is None or wanted is False:
        return None
    if wanted is True or wanted == "auto":
        found = whole_checkpoints(output_dir)
        if not found and wanted is True:
            raise ValueError(f"{output_dir!r} holds no whole checkpoint. Start without resume_from_checkpoint.")
        if not found:
            return None
        wanted = found[-1]
    problem = flaw(wanted)
    if problem is None:
        with open(os.path.join(wanted, MANIFEST), encoding="utf-8") as file:
            saved = json.load(file)
        before = saved.get("fixed", {})
        changed = {name: value for name, value in (fixed or {}).items() if name in before and before[name] != value}
        if saved.get("base") == base and not changed:
            return wanted
        problem = f"it was saved on another base model (fingerprint {saved.get('base')}; this one has {base})"
        if changed:
            problem = "; ".join(f"it was saved with {n}={before[n]!r}, not {v!r}" for n, v in changed.items())
        others = []
    else:
        others = whole_checkpoints(os.path.dirname(os.path.abspath(wanted)))
    offer = f" The newest whole one is {others[-1]}: resume from that." if others else ""
    raise ValueError(f"Cannot resume from {wanted!r}: {problem}.{offer}")


def fingerprint(base_model: nn.Module) -> str:
    """Checksum of a base model's shapes and of the first values of each frozen tensor."""
    total = 0
    for name, parameter in base_model.named_parameters():
        if "lora_" not in name:
            whole = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
            head = whole.detach().reshape(-1)[:256].to("cpu", copy=True).contiguous()
            values = head.float().numpy().tobytes()
            total = zlib.crc32(f"{name}:{tuple(parameter.shape)}".encode() + values, total)
    return f"{total:08x}"


def _problem(action: Callable[[], None]) -> str | None:
    try:
        action()
    except WRITE_ERRORS as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return None


def _seal(source: str, target: str, about: dict) -> None:
    """Makes sure that all files have reached the disk, lists them, and moves the folder into place."""
    files = {}
    for folder, _, names in os.walk(source):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb+") as file:
                os.fsync(file.fileno())
            files[os.path.relpath(path, source)] = os.path.getsize(path)
    manifest = {"format": FORMAT_VERSION, "trl_populora": version("trl-populora"), **about, "files": files}
    with open(os.path.join(source, MANIFEST), "w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    if os.path.isdir(target):  # left by a run that was resumed from an earlier checkpoint, or torn
        shutil.rmtree(target)
    os.replace(source, target)
    for folder in (target, os.path.dirname(target)):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
