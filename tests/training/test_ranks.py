"""Ranks: every process does its share and gets all; weights that differ are told."""

import threading
from types import SimpleNamespace

import pytest
import torch

from trl_populora.training import ranks as module
from trl_populora.training.ranks import Ranks, checksum, decided_by_first


def shared(monkeypatch, processes, items, **options):
    """What every rank does and gets, with one thread for each rank."""
    barrier, told = threading.Barrier(processes), [None] * processes
    done, got, own = {}, {}, threading.local()

    def gather(items):
        told[own.rank] = items
        barrier.wait(10)
        found = [one for rank in told for one in rank]
        barrier.wait(10)
        return found

    def run(rank):
        own.rank = rank

        def work(mine, places):
            done[rank] = (list(mine), list(places))
            return [f"{item}!{place}" for item, place in zip(mine, places, strict=True)]

        accelerator = SimpleNamespace(process_index=rank, num_processes=processes)
        got[rank] = Ranks(accelerator).share(items, work, **options)

    monkeypatch.setattr(module, "gather_object", gather)
    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    return done, got


@pytest.mark.parametrize("evenly", [False, True])
@pytest.mark.parametrize(
    "processes, count, group", [(1, 5, 2), (2, 8, 4), (3, 12, 4), (3, 7, 2), (3, 2, 1), (2, 12, 4)]
)
def test_every_rank_does_its_share_and_gets_all(monkeypatch, processes, count, group, evenly):
    items = [f"item {i}" for i in range(count)]
    done, got = shared(monkeypatch, processes, items, evenly=evenly, group=group)
    assert all(got[rank] == [f"{item}!{i}" for i, item in enumerate(items)] for rank in range(processes))
    most = -(-count // processes)
    sizes = [len(done[rank][0]) for rank in range(processes)]
    assert max(sizes) == most and (sizes == [most] * processes or not evenly)
    assert sum(sizes) == (count if not evenly else most * processes)
    for mine, places in done.values():
        assert mine == [items[place] for place in places]


def test_one_process_decides_for_all(monkeypatch):
    def fail():
        raise ValueError("no such checkpoint")

    assert decided_by_first(lambda: "a folder") == "a folder"
    with pytest.raises(ValueError, match="no such checkpoint"):
        decided_by_first(fail)
    told = ["of rank 0", None]
    monkeypatch.setattr(module, "PartialState", lambda: SimpleNamespace(is_main_process=False))
    monkeypatch.setattr(module, "broadcast_object_list", lambda own: told)
    assert decided_by_first(fail) == "of rank 0"
    told = [None, OSError(5, "Input/output error", "manifest.json")]
    with pytest.raises(OSError, match="Input/output error"):
        decided_by_first(lambda: pytest.fail("another rank decides"))


def test_rows_of_one_prompt_stay_together(monkeypatch):
    """Two processes, two prompts of four rows; and three prompts, of which one must be divided."""
    done, _ = shared(monkeypatch, 2, list(range(8)), group=4)
    assert [done[rank][1] for rank in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    done, _ = shared(monkeypatch, 2, list(range(12)), group=4)
    assert [done[rank][1] for rank in range(2)] == [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 10, 11]]


def test_a_checksum_sees_places():
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])
    assert checksum([a]) != checksum([b]) and checksum([a, b]) != checksum([b, a])
    assert checksum([a, b]) == checksum([a.clone(), b.clone()])


def test_ranks_that_differ_name_the_member():
    own = {"teacher_0": [torch.zeros(3)], "student_0": [torch.ones(2)]}
    others = torch.stack([checksum([torch.zeros(3)]), checksum([torch.ones(2) + 1e-6])])
    accelerator = SimpleNamespace(num_processes=3, gather=lambda sums: torch.cat([sums, others[None], sums]))
    with pytest.raises(RuntimeError, match="After step 7 .* weights of student_0"):
        Ranks(accelerator).check_equal(own, step=7)


@pytest.mark.parametrize(
    "environment, cores",
    [({}, 8), ({"LOCAL_WORLD_SIZE": "3"}, 2), ({"LOCAL_WORLD_SIZE": "20"}, 1)],
)
def test_processes_of_a_machine_divide_its_cores(monkeypatch, environment, cores):
    for name in ("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE", "SLURM_CPUS_PER_TASK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    assert Ranks(SimpleNamespace()).cores == cores
