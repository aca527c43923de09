"""`MemberLoader`: batches with equally many rows of every member, in an order that can be resumed."""

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, default_collate


SAMPLES = ("shared", "split")


class MemberLoader:
    """Batches of a dataset for the members of a population. Pass it to `Trainer.fit` like a `DataLoader`.

    The order of samples is a function of (seed, epoch) and the same for all members. A run that resumes from a
    checkpoint inside an epoch continues with the next batch. With several processes, each gets its share of the rows
    of every batch. No row is repeated: together, the processes see the batches that one process would see.

    Args:
        dataset (`Sequence`): Samples by index, such as a list or a `datasets.Dataset`.
        members (`Iterable[str]`): Names of the members, or the population.
        rows_per_member (`int`): Rows of each member in a batch, over all processes together.
        collate (`Callable`, *optional*):
            Makes a `dict` from a list of samples, one per row; PyTorch's default collation if unset. `"members"` is
            added to it, the name of each row's member.
        samples (`str`, *optional*, defaults to `"shared"`):
            Which member gets which sample. `"shared"`: every member gets every sample. `"split"`: of `n` members,
            member `k` gets samples `k`, `k + n`, `k + 2n` and so on. Samples left over at the end are not used.
        shuffle (`bool`, *optional*, defaults to `False`): Whether every epoch has a different order of samples.
        seed (`int`, *optional*, defaults to `0`): Seed of these orders.
        num_workers (`int`, *optional*, defaults to `0`): Processes that load samples.

    Raises:
        ValueError: If there are no samples or members, a number is out of range, or `samples` is unknown.
    """

    batch_sampler = None  # Lightning looks for both, as a `DataLoader` has them

    def __init__(
        self,
        dataset: Sequence[Any],
        members: Iterable[str],
        *,
        rows_per_member: int,
        collate: Callable[[list], dict] = default_collate,
        samples: str = "shared",
        shuffle: bool = False,
        seed: int = 0,
        num_workers: int = 0,
    ) -> None:
        if samples not in SAMPLES:
            raise ValueError(f"samples must be one of {SAMPLES}, got {samples!r}.")
        if rows_per_member < 1:
            raise ValueError(f"rows_per_member={rows_per_member} must be at least 1.")
        self.members = list(members)
        if not self.members or isinstance(members, str):
            raise ValueError(
                f"members={members!r} must be a list of names of the members that rows are for, or the population."
            )
        self.rounds = len(dataset) if samples == "shared" else len(dataset) // len(self.members)
        if not self.rounds:
            raise ValueError(
                f"{len(dataset)} samples are too few for {len(self.members)} members with samples={samples!r}."
            )
        self._rows = _Rows(dataset, len(self.members), split=samples == "split")
        self.rows_per_member, self.shuffle, self.seed, self.num_workers = rows_per_member, shuffle, seed, num_workers
        self._collate = collate
        self._epoch = self._start = self._given = 0

    @property
    def sampler(self) -> "MemberLoader":
        return self

    def __len__(self) -> int:
        """Batches of an epoch."""
        return math.ceil(self.rounds / self.rows_per_member)

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __iter__(self) -> Iterator[dict]:
        self._given, self._start = self._start, 0
        loader = DataLoader(
            self._rows,
            batch_sampler=self._batches(self._given),  # pyright: ignore[reportArgumentType]
            collate_fn=self._collate_rows,
            num_workers=self.num_workers,
            generator=self._generator(),  # or it would draw from the global one
        )
        for batch in loader:
            self._given += 1
            yield batch

    def state_dict(self) -> dict:
        return {"given": self._given, "batches": len(self)}

    def load_state_dict(self, state: dict) -> None:
        """The next epoch starts after the batches that were already given, or from the beginning if these were all."""
        if state["batches"] != len(self):
            raise ValueError(
                f"The checkpoint was saved with {state['batches']} batches in an epoch; now there are {len(self)}. "
                "Resume with the same data and rows_per_member."
            )
        self._start = state["given"] % len(self)

    def _generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(zlib.crc32(f"{self.seed}:{self._epoch}".encode()))

    def _batches(self, start: int) -> list[list[tuple[int, int]]]:
        """This process's rows of each batch from number `start` on: (sample of the member, member)."""
        order = torch.randperm(self.rounds, generator=self._generator()).tolist() if self.shuffle else None
        order = order or list(range(self.rounds))
        parallel = torch.distributed.is_available() and torch.distributed.is_initialized()
        rank, ranks = (torch.distributed.get_rank(), torch.distributed.get_world_size()) if parallel else (0, 1)
        batches = []
        for number in range(start, len(self)):
            samples = order[number * self.rows_per_member :][: self.rows_per_member]
            rows = [(sample, member) for sample in samples for member in range(len(self.members))]
            if len(rows) < ranks:
                raise ValueError(f"Batch {number} has {len(rows)} rows for {ranks} processes; use fewer processes.")
            share = rows[rank * len(rows) // ranks : (rank + 1) * len(rows) // ranks]
            batches.append(sorted(share, key=lambda row: row[1]))  # in the members' order routing moves no row
        return batches

    def _collate_rows(self, rows: list[tuple[int, Any]]) -> dict:
        batch = self._collate([sample for _, sample in rows])
        return {**batch, "members": [self.members[member] for member, _ in rows]}


class _Rows(Dataset):
    """Rows by (sample of the member, member): the member and its sample."""

    def __init__(self, dataset: Sequence[Any], members: int, *, split: bool) -> None:
        self.dataset, self.stride = dataset, members if split else None

    def __getitem__(self, row: tuple[int, int]) -> tuple[int, Any]:
        sample, member = row
        return member, self.dataset[sample if self.stride is None else sample * self.stride + member]
