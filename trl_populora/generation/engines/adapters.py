"""Adapters for an engine: a new version of a member whenever its weights have changed, as a PEFT folder or in memory.

A hash of the weights shows whether a member has changed, so no code has to report a change. Every version has a name,
an id and a path that were never used before. Under a known id, an engine may still answer with old weights (vLLM
does), and it may reuse cached prefixes of a known name.
"""

import fcntl
import glob
import logging
import os
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from threading import Lock
from typing import IO, NamedTuple

import torch
import xxhash
from peft import LoraConfig
from safetensors.torch import load_file, save_file
from torch import Tensor

from ...population import Population
from ...population.factors import Factor, Factors, from_tensors, to_tensors
from ...run_files.layout import ADAPTER_FILE


logger = logging.getLogger(__name__)

MEMORY_FOLDER = "/dev/shm"
PREFIX = "populora-"
LOCK = ".in_use"  # locked while the process lives, and by its children
WRITERS = 4  # adapters that are hashed and written at a time: most of it is the kernel's work for new pages
PROBES = 4  # files of the canary's proof at the start


class AdapterVersion(NamedTuple):
    """One state of one member's adapter, as an engine knows it.

    Attributes:
        member (`str`): Adapter name in the population.
        name (`str`): Its name in the engine; never reused.
        id (`int`): Its number in the engine, from 1; never reused.
        path (`str`): PEFT folder; never reused. Without the weights, if they stay in memory.
    """

    member: str
    name: str
    id: int
    path: str


def adapter_names(population: Population) -> list[str]:
    """Names of all adapters on the model: members and guests."""
    return list(population.model.peft_config)


def temperature_of(population: Population, name: str | None) -> float:
    """Sampling temperature of an adapter as a multiple of the run's; 1 for the base."""
    return 1.0 if name is None else population.routing.temperatures.get(name, 1.0)


class AdapterStore:
    """Takes a version of every adapter that has changed, and removes versions that no engine needs any more.

    Args:
        population ([`Population`]): Members and their model.
        dtype (`torch.dtype`): Dtype of the stored weights, which is the engine's.
        folder (`str`, *optional*):
            Folder for the files. Every engine must be able to read it under this path. Default: `/dev/shm` (memory),
            or the folder for temporary files if that does not exist or has too little space. A new sub-folder is
            created, and removed by `close()` or when the process ends; in `/dev/shm`, by the next store if the process
            is killed.
        in_memory (`bool`, *optional*, defaults to `False`):
            Keep the weights in `weights`, for an engine of this process. Only configurations are written, into the
            folder for temporary files. B is stored times the scaling, as an engine needs it.
        run (`str`, *optional*): A part of all names. Default: random.

    Attributes:
        weights (`dict[str, dict[str, torch.Tensor]]`):
            With `in_memory`, the matrices of each version by its name, under PEFT's names, on the host.
    """

    def __init__(
        self,
        population: Population,
        *,
        dtype: torch.dtype,
        folder: str | None = None,
        in_memory: bool = False,
        run: str | None = None,
    ) -> None:
        self.population, self.dtype, self.in_memory = population, dtype, in_memory
        self.run = run or secrets.token_hex(4)
        self.weights: dict[str, dict[str, Tensor]] = {}
        remove_abandoned(MEMORY_FOLDER)
        in_shm = not in_memory and self._fits(MEMORY_FOLDER)
        parent = folder or (MEMORY_FOLDER if in_shm else tempfile.gettempdir())
        if not (folder or in_shm or in_memory):
            logger.warning(
                "%s is missing or has less than %.2g GB free, so adapters reach the engine through %s: slower, and a "
                "server in another container must see it. Give it more space (Docker: --shm-size), or set "
                "vllm_adapter_dir.",
                *(MEMORY_FOLDER, self.needed / 1e9, parent),
            )
        try:
            os.makedirs(parent, exist_ok=True)
            self.folder = tempfile.mkdtemp(prefix=f"{PREFIX}{self.run}-", dir=parent)
        except OSError as error:
            raise ValueError(f"adapter_dir={parent!r} cannot be written ({error}); choose another folder.") from error
        if not (in_memory or self._fits(self.folder)):
            free = shutil.disk_usage(self.folder).free
            os.rmdir(self.folder)
            raise ValueError(
                f"adapter_dir={parent!r} has {free / 1e9:.2f} GB free, and two versions of all adapters take "
                f"{self.needed / 1e9:.2f} GB. Choose another folder (vllm_adapter_dir), or give it more space "
                "(Docker: --shm-size)."
            )
        os.chmod(self.folder, 0o755)  # a server may run as somebody else
        lock = None if folder or not in_shm else _lock(self.folder)
        self._close = weakref.finalize(self, _remove, self.folder, os.getpid(), lock)
        self._digests: dict[str, bytes] = {}
        self._current: dict[str, AdapterVersion] = {}
        self._superseded: list[AdapterVersion] = []
        self._numbers = count(1)

    @property
    def needed(self) -> int:
        """Bytes at the peak: two versions of every adapter (served and new), or the probes at the start."""
        names = adapter_names(self.population)
        sizes = [sum(X.numel() for f in self.population.factors(name).values() for X in f[:2]) for name in names]
        return self.dtype.itemsize * max(2 * sum(sizes), PROBES * max(sizes))

    def _fits(self, folder: str) -> bool:
        return os.access(folder, os.W_OK) and shutil.disk_usage(folder).free >= self.needed

    def take_changed(self, *, everything: bool = False) -> list[AdapterVersion]:
        """Takes a new version of every adapter whose weights differ from the last version.

        An old version stays until the next call, because an engine may still read it.

        Args:
            everything (`bool`, *optional*, defaults to `False`): Take a new version of the others, too.

        Raises:
            ValueError: If an adapter's scaling is not what its configuration says.
            OSError: If a file cannot be written. Then none of this call's is left.
        """
        self.remove(self._superseded)
        self._superseded = []

        def changed(version: AdapterVersion) -> bytes | None:
            with copying:
                tensors, flat = self.pack(self.population.factors(version.member))
            digest = xxhash.xxh3_128_digest(flat.view(torch.uint8).numpy().data)
            if digest == self._digests.get(version.member) and not everything:
                return None
            self.keep(version, tensors, self.config_of(version.member))
            return digest

        versions, copying = list(map(self.new_version, adapter_names(self.population))), Lock()  # a copy at a time
        if torch.cuda.is_available():  # other threads have another stream, if vLLM has changed that of this one
            torch.cuda.current_stream().synchronize()
        try:
            with ThreadPoolExecutor(WRITERS) as pool:
                jobs = [pool.submit(changed, version) for version in versions]
            taken = {version: digest for version, job in zip(versions, jobs, strict=True) if (digest := job.result())}
        except BaseException:  # the next call takes all of them again
            self.remove(versions)
            raise
        for version, digest in taken.items():
            if version.member in self._current:
                self._superseded.append(self._current[version.member])
            self._current[version.member], self._digests[version.member] = version, digest
        return list(taken)

    def new_version(self, member: str) -> AdapterVersion:
        """A name, an id and a path that were never used."""
        number = next(self._numbers)
        name = f"{member}-{self.run}-{number}"
        return AdapterVersion(member, name, number, os.path.join(self.folder, name))

    @torch.no_grad()
    def pack(self, factors: Factors) -> tuple[dict[str, Tensor], Tensor]:
        """An adapter as the engine needs it: matrices under PEFT's names on the host, and the buffer with all of them.

        One transfer for the whole adapter, whatever the number of its matrices. From a GPU, the buffer is pinned: the
        transfer is faster, and PyTorch keeps the memory for the next adapter.
        """
        parts, flat = to_tensors(factors), flatten(factors, self.dtype, scaled=self.in_memory)
        if flat.is_cuda:
            flat = torch.empty(flat.shape, dtype=self.dtype, pin_memory=True).copy_(flat)
        pieces = flat.split([matrix.numel() for matrix in parts.values()])
        return {key: piece.view(parts[key].shape) for key, piece in zip(parts, pieces, strict=True)}, flat

    def remove(self, versions: Iterable[AdapterVersion]) -> None:
        for version in versions:
            self.weights.pop(version.name, None)
            shutil.rmtree(version.path, ignore_errors=True)

    def keep(self, version: AdapterVersion, tensors: dict[str, Tensor], config: LoraConfig) -> None:
        """Stores packed matrices as a new version, completely or not at all. `remove` ends it."""
        scratch = os.path.join(self.folder, f".{version.name}")
        try:
            os.mkdir(scratch)
            if self.in_memory:
                self.weights[version.name] = tensors
            else:
                save_file(tensors, os.path.join(scratch, ADAPTER_FILE))
            config.save_pretrained(scratch)
            os.rename(scratch, version.path)
        except BaseException:
            self.weights.pop(version.name, None)
            shutil.rmtree(scratch, ignore_errors=True)
            raise

    def config_of(self, name: str) -> LoraConfig:
        """PEFT configuration of an adapter, checked against the scaling that its layers really use."""
        config = self.population.lora_configs[name]
        stated = config.lora_alpha / (config.r**0.5 if config.use_rslora else config.r)
        for path, factor in self.population.factors(name).items():
            if abs(factor.scaling - stated) > 1e-9 * stated or factor.A.shape[0] != config.r:
                raise ValueError(
                    f"Adapter {name!r} has rank {factor.A.shape[0]} and scaling {factor.scaling} at {path}, but its "
                    f"configuration says {config.r} and {stated}; an engine would serve the latter."
                )
        return config

    @property
    def state(self) -> dict[str, tuple[str, bytes]]:
        """Name and hash of the current version of each adapter."""
        return {name: (version.name, self._digests[name]) for name, version in self._current.items()}

    def close(self) -> None:
        self._close()
        self.weights.clear()


@torch.no_grad()
def flatten(factors: Factors, dtype: torch.dtype, *, scaled: bool) -> Tensor:
    """All numbers of an adapter, in the order of [`to_tensors`]. Three kernels, not some for each matrix.

    With `scaled`, those of B are times the scaling, which is the same in all layers. The product is in `dtype`, as
    vLLM has it.
    """
    flat = torch.cat([matrix.reshape(-1) for matrix in to_tensors(factors).values()]).to(dtype)
    if scaled:
        flat[sum(factor.A.numel() for factor in factors.values()) :].mul_(next(iter(factors.values())).scaling)
    return flat


def read_factors(version: AdapterVersion, like: Factors, weights: Mapping[str, Mapping[str, Tensor]]) -> Factors:
    """What a version holds, from `weights` or else its file: factors with the paths, types and devices of `like`."""
    tensors = weights.get(version.name)
    scalings = {path: factor.scaling if tensors is None else 1.0 for path, factor in like.items()}
    factors = from_tensors(tensors or load_file(os.path.join(version.path, ADAPTER_FILE)), scalings)
    return {path: Factor(one.A.to(like[path].A), one.B.to(like[path].B), one.scaling) for path, one in factors.items()}


def remove_abandoned(parent: str) -> None:
    """Removes the folders of processes that were killed: those whose lock is free. A lock is the kernel's, so it shows
    the processes of other containers, too. Another user's folders stay."""
    for path in glob.glob(os.path.join(glob.escape(parent), PREFIX + "*", LOCK)):
        with suppress(OSError), open(path, "rb+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(os.path.dirname(path), ignore_errors=True)


def _lock(folder: str) -> IO[bytes]:
    """A locked file in a folder. It gets its name when it is locked, so nobody finds it before."""
    scratch = os.path.join(folder, f"{LOCK}.new")
    lock = open(scratch, "wb")  # noqa: SIM115
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.rename(scratch, os.path.join(folder, LOCK))
    return lock


def _remove(folder: str, owner: int, lock: IO[bytes] | None) -> None:
    if os.getpid() == owner:  # a forked child ends too, and these are not its files
        shutil.rmtree(folder, ignore_errors=True)
    if lock:
        lock.close()
