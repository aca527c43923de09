"""States of the global random number generators in a checkpoint, so that dropout and data transforms continue
exactly."""

import random
from typing import Any

import numpy as np
import torch


def collect_random_states(processes: int) -> list[dict[str, Any]]:
    """States of every process's generators, in order of rank. With several processes all must call it together."""
    kind, keys, *rest = np.random.get_state(legacy=True)
    own = {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "python": random.getstate(),
        "numpy": (kind, np.asarray(keys).tolist(), *rest),  # plain, so that `weights_only` can load it
    }
    if processes == 1:
        return [own]
    states: list = [None] * processes
    torch.distributed.all_gather_object(states, own)
    return states


def restore_random_states(states: list[dict[str, Any]]) -> None:
    """Sets this process's generators; does nothing if the states are of another number of processes."""
    parallel = torch.distributed.is_available() and torch.distributed.is_initialized()
    rank, ranks = (torch.distributed.get_rank(), torch.distributed.get_world_size()) if parallel else (0, 1)
    if len(states) != ranks:
        return
    own = states[rank]
    torch.set_rng_state(own["torch"])
    if own["cuda"] and torch.cuda.is_available() and torch.cuda.device_count() == len(own["cuda"]):
        torch.cuda.set_rng_state_all(own["cuda"])
    random.setstate(own["python"])
    np.random.set_state(own["numpy"])
