"""`Ranks`: divides work among the processes of a run, and gives all results to all of them."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import broadcast_object_list, gather_object


WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
Item = TypeVar("Item")
Result = TypeVar("Result")


class Ranks:
    """The processes of a run.

    Args:
        accelerator ([`~accelerate.Accelerator`]): Knows which process this is, and of how many.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator

    @property
    def index(self) -> int:
        return self.accelerator.process_index

    @property
    def is_main(self) -> bool:
        return self.accelerator.is_main_process

    @property
    def cores(self) -> int:
        """Cores that this process may use when all on this machine take an equal share.

        If each process is a task of SLURM, SLURM may have given each its own cores already.
        """
        allowed, processes = len(os.sched_getaffinity(0)), os.environ.get("LOCAL_WORLD_SIZE", "1")
        is_task = os.environ.get("SLURM_NTASKS_PER_NODE") == processes
        if is_task and allowed <= int(os.environ.get("SLURM_CPUS_PER_TASK", 0)):
            return allowed
        return max(1, allowed // int(processes))

    def share(
        self,
        items: Sequence[Item],
        work: Callable[[list[Item], list[int]], list[Result]],
        *,
        evenly: bool = False,
        group: int = 1,
    ) -> list[Result]:
        """Does every rank's share of a list, and brings all results to every rank, in the order of the items.

        Args:
            items (`Sequence`): The same on every rank.
            work (`Callable`): Gets this rank's items and their positions, returns one result for each.
            evenly (`bool`, *optional*, defaults to `False`):
                Whether every rank gets equally many items: ranks with fewer also get the first item, without using its
                result. Needed if the work calls collective operations.
            group (`int`, *optional*, defaults to `1`):
                Items that lie next to each other and have work in common, such as rows with one prompt. One rank gets
                as many of them as possible without a rank getting more items than another.
        """
        processes = self.accelerator.num_processes
        block = math.gcd(group, len(items) // processes) if len(items) % processes == 0 else 1
        mine = [place for place in range(len(items)) if place // block % processes == self.index]
        short = len(mine) < math.ceil(len(items) / processes)
        places = [*mine, 0] if evenly and short else mine
        own = work([items[i] for i in places], places)[: len(mine)]
        results = dict(gather_object(list(zip(mine, own, strict=True))))
        return [results[i] for i in range(len(items))]

    def problems(self, own: str | None) -> list[str]:
        """Error messages of all ranks; the same list on every rank."""
        return [f"{text} (rank {rank})" for rank, text in gather_object([(self.index, own)]) if text]

    def largest(self, own: int) -> int:
        """The largest number of all ranks, on every rank."""
        if self.accelerator.num_processes == 1:
            return own
        everyones: Any = self.accelerator.gather(torch.tensor([own], device=self.accelerator.device))
        return int(everyones.max())

    def any(self, own: bool) -> bool:
        """Whether it is true on any rank; the same answer on every rank."""
        return self.largest(int(own)) > 0

    def check_equal(self, tensors: Mapping[str, Sequence[torch.Tensor]], *, step: int) -> None:
        """Checks that all ranks hold bit-identical tensors, by comparing checksums.

        Raises:
            RuntimeError: Naming whose tensors differ.
        """
        if self.accelerator.num_processes == 1:
            return
        own = torch.stack([checksum(group) for group in tensors.values()])
        everyones: Any = self.accelerator.gather(own[None])
        differ = [name for name, sums in zip(tensors, everyones.T.tolist(), strict=True) if len(set(sums)) > 1]
        if differ:
            raise RuntimeError(
                f"After step {step} the ranks no longer hold the same weights of {', '.join(differ)}. A process was "
                "changed from outside, or its hardware fails. Resume from the last checkpoint."
            )


def decided_by_first(decide: Callable[[], Result]) -> Result:
    """What `decide` returns on the process of rank 0, on all processes: what is in a folder can look different to
    another machine, and is read once. All processes must call this function.

    Raises:
        OSError or ValueError: On all processes, if `decide` raises it. Its attribute `everyones` is then `True`:
            one process tells it.
    """
    found: list[Any] = [None, None]
    if PartialState().is_main_process:
        try:
            found[0] = decide()
        except (OSError, ValueError) as error:
            found[1] = error
    value, problem = broadcast_object_list(found)
    if problem is not None:
        vars(problem)["everyones"] = True
        raise problem
    return value


def equal_shares(sizes: Sequence[int], parts: int) -> list[int]:
    """An order of items such that, cut into parts of equally many items, all parts have about equal sums of sizes.

    Greedy: the largest item first, to the part with the smallest sum that is not full. If the number of items is not a
    multiple of `parts`, the order does not change.
    """
    room, rest = divmod(len(sizes), parts)
    if rest:
        return list(range(len(sizes)))
    shares: list[list[int]] = [[] for _ in range(parts)]
    for item in sorted(range(len(sizes)), key=lambda item: -sizes[item]):
        open_shares = (share for share in shares if len(share) < room)
        min(open_shares, key=lambda share: sum(sizes[one] for one in share)).append(item)
    return [item for share in shares for item in sorted(share)]


def checksum(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Sum over all tensors of their words, each times an odd weight of its place, modulo 2^64: exact in any order."""
    total = torch.zeros((), dtype=torch.int64, device=tensors[0].device)
    for place, tensor in enumerate(tensors):
        words = tensor.detach().contiguous().view(WORDS[tensor.element_size()]).view(-1).to(torch.int64)
        weights = torch.arange(len(words), dtype=torch.int64, device=words.device) * 2 + 1
        total += (words * weights).sum() * (2 * place + 1)
    return total
