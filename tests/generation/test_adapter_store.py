"""Adapters for an engine: what PEFT reads back, when there is a new version, and how long it stays."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peft import PeftModel

from tests.tiny import lora, perturb, tiny_population, two_layers
from trl_populora.generation.engines import adapters
from trl_populora.generation.engines.adapters import AdapterStore, adapter_names, read_factors
from trl_populora.generation.engines.vllm_engine import LORA_RANKS, round_up_rank
from trl_populora.population import Population


ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def files(tmp_path):
    files = AdapterStore(tiny_population(noise=0.3), dtype=torch.float32, folder=str(tmp_path))
    yield files
    files.close()


@given(rank=st.integers(1, 512))
def test_rank_is_rounded_up_to_the_nearest_that_vllm_has(rank):
    assert round_up_rank(rank) == min(allowed for allowed in LORA_RANKS if allowed >= rank)


def test_a_rank_that_vllm_cannot_serve_is_refused():
    with pytest.raises(ValueError, match="lora_r=513 .* at most 512"):
        round_up_rank(513)


@pytest.mark.parametrize("rslora", [False, True])
def test_a_folder_is_a_peft_adapter_with_the_members_weights(tmp_path, rslora):
    population = tiny_population(1, 1, noise=0.3, lora_config=lora(use_rslora=rslora))
    files = AdapterStore(population, dtype=torch.float32, folder=str(tmp_path))
    tokens = torch.arange(3, 13)[None]
    for version in files.take_changed():
        alone = PeftModel.from_pretrained(two_layers(0), version.path).eval()
        with torch.no_grad(), population.route([version.member]):
            torch.testing.assert_close(population.base_model(tokens).logits, alone(tokens).logits)
    files.close()


def test_weights_are_stored_in_the_engines_type(tmp_path):
    from safetensors.torch import load_file

    population = tiny_population(1, 1, noise=0.3)
    files = AdapterStore(population, dtype=torch.bfloat16, folder=str(tmp_path))
    version = files.take_changed()[0]
    for path, factor in population.factors(version.member).items():
        stored = load_file(os.path.join(version.path, "adapter_model.safetensors"))
        assert torch.equal(stored[f"{path}.lora_A.weight"], factor.A.to(torch.bfloat16))
        assert torch.equal(stored[f"{path}.lora_B.weight"], factor.B.to(torch.bfloat16))
    files.close()


def test_a_folder_in_memory_that_is_too_small_is_not_taken(tmp_path, monkeypatch, caplog):
    """Docker gives /dev/shm 64 MB."""
    population, sizes = tiny_population(1, 1), {"/dev/shm": 10, str(tmp_path): 10**12}
    parameters = sum(p.numel() for p in population.parameters("student_0"))

    def disk_usage(folder):
        return SimpleNamespace(free=next(free for start, free in sizes.items() if folder.startswith(start)))

    monkeypatch.setattr(adapters.shutil, "disk_usage", disk_usage)
    monkeypatch.setattr(adapters.tempfile, "gettempdir", lambda: str(tmp_path))
    files = AdapterStore(population, dtype=torch.bfloat16)
    assert files.folder.startswith(str(tmp_path))
    assert f"adapters reach the engine through {tmp_path}" in caplog.text and "--shm-size" in caplog.text
    assert files.needed == 2 * 4 * parameters  # two versions of two members, as much as four probes
    files.close()
    sizes[str(tmp_path)] = files.needed - 1
    with pytest.raises(ValueError, match="0.00 GB free, and two versions .*vllm_adapter_dir.*--shm-size"):
        AdapterStore(population, dtype=torch.bfloat16)
    assert not list(tmp_path.iterdir())


POPULATION = tiny_population(1, 1, noise=0.3)
FACTORS = POPULATION.factors("student_0")


@given(data=st.data())
def test_any_change_of_any_weight_changes_the_digest(data):
    path = data.draw(st.sampled_from(sorted(FACTORS)))
    which = data.draw(st.sampled_from("AB"))
    matrix = getattr(FACTORS[path], which).clone()
    flat = matrix.view(-1)
    cell = data.draw(st.integers(0, matrix.numel() - 1))
    change = data.draw(st.sampled_from(["next", "sign", "rows"]))
    if change == "next":
        flat[cell] = torch.nextafter(flat[cell], torch.tensor(torch.inf))
    elif change == "sign":
        matrix.neg_()
    else:
        matrix = matrix.flip(0)
    changed = FACTORS | {path: FACTORS[path]._replace(**{which: matrix})}
    population = SimpleNamespace(model=SimpleNamespace(peft_config=["student_0"]), factors=lambda name: FACTORS)
    population.lora_configs = POPULATION.lora_configs
    for store in (AdapterStore(population, dtype=torch.float32, in_memory=in_memory) for in_memory in (False, True)):
        assert len(store.take_changed()) == 1 and not store.take_changed()
        store.population = SimpleNamespace(**vars(population) | {"factors": lambda name: changed})
        assert len(store.take_changed()) == 1 and not store.take_changed()
        store.close()


def test_a_version_that_cannot_be_written_leaves_nothing_and_all_are_written_again(files, monkeypatch):
    """Four threads write: those of other members may have ended."""
    before = files.take_changed()
    perturb(files.population, 0.5, seed=7)
    save = adapters.save_file

    def full(tensors, path):
        if "teacher_1" in path:
            Path(path).write_bytes(b"the beginning")
            raise OSError(28, "No space left on device")
        save(tensors, path)

    monkeypatch.setattr(adapters, "save_file", full)
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            files.take_changed()
        assert sorted(os.listdir(files.folder)) == sorted(version.name for version in before)
    monkeypatch.undo()
    after = files.take_changed()
    assert [version.member for version in after] == adapter_names(files.population)
    assert sorted(os.listdir(files.folder)) == sorted(version.name for version in [*before, *after])


def test_only_changed_members_are_written_and_superseded_files_stay_until_the_next_write(files):
    first = {version.member: version for version in files.take_changed()}
    assert sorted(first) == sorted(files.population) and files.take_changed() == []
    perturb_one(files.population, "student_1")
    (second,) = files.take_changed()
    assert second.member == "student_1" and not set(second[1:]) & set(first["student_1"][1:])
    assert os.path.isdir(first["student_1"].path)
    perturb_one(files.population, "student_1")
    (third,) = files.take_changed()
    assert not os.path.exists(first["student_1"].path)
    assert os.path.isdir(second.path) and os.path.isdir(third.path)
    assert sorted(os.listdir(files.folder)) == sorted(
        v.name for v in (*(first[n] for n in first if n != "student_1"), second, third)
    )


@pytest.mark.parametrize("rslora", [False, True])
def test_weights_stay_in_memory_for_an_engine_of_this_process(tmp_path, rslora):
    """Only configurations are files, nothing needs room in /dev/shm, and B has the scaling that vLLM would give it."""
    population = tiny_population(1, 1, noise=0.3, lora_config=lora(use_rslora=rslora, lora_alpha=5))
    store = AdapterStore(population, dtype=torch.bfloat16, in_memory=True, run="run")
    first = store.take_changed()
    assert [version.name for version in first] == ["teacher_0-run-1", "student_0-run-2"]
    assert os.path.dirname(store.folder) == adapters.tempfile.gettempdir()
    assert all(os.listdir(version.path) == ["adapter_config.json"] for version in first)
    for version in first:
        factors, held = population.factors(version.member), store.weights[version.name]
        read = read_factors(version, factors, store.weights)
        for path, (A, B, scaling) in factors.items():
            A, B = A.bfloat16(), B.bfloat16() * scaling
            assert torch.equal(held[f"{path}.lora_A.weight"], A) and torch.equal(held[f"{path}.lora_B.weight"], B)
            assert read[path].scaling == 1 and torch.equal(read[path].B, B.float())
        assert len({X.untyped_storage().data_ptr() for X in held.values()}) == 1, "one transfer from a GPU"
    perturb_one(population, "student_0")
    (second,) = store.take_changed()
    assert sorted(store.weights) == ["student_0-run-2", "student_0-run-4", "teacher_0-run-1"]
    store.remove([second])
    assert store.take_changed() == [] and sorted(store.weights) == ["teacher_0-run-1"]
    store.close()
    assert not os.path.exists(store.folder) and not store.weights


def test_an_interrupt_leaves_nothing(files, monkeypatch):
    """Ctrl-C in a notebook, while threads still write."""
    before = files.take_changed()
    perturb(files.population, 0.5, seed=7)
    submit = adapters.ThreadPoolExecutor.submit

    def interrupted(pool, work, version):
        if version.member == "student_1":
            raise KeyboardInterrupt
        return submit(pool, work, version)

    with monkeypatch.context() as patch:
        patch.setattr(adapters.ThreadPoolExecutor, "submit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            files.take_changed()
    assert sorted(os.listdir(files.folder)) == sorted(version.name for version in before)
    assert len(files.take_changed()) == len(before)


def test_guests_travel_like_members(tmp_path):
    population = Population(two_layers(0), lora(), num_teachers=1, num_students=1, guests=["guest_0"])
    perturb(population, 0.3)
    files = AdapterStore(population, dtype=torch.float32, folder=str(tmp_path))
    assert [version.member for version in files.take_changed()] == adapter_names(population)
    population.admit("guest_0", population.factors("student_0"))
    assert [version.member for version in files.take_changed()] == ["guest_0"]
    files.close()


def test_a_scaling_that_no_configuration_tells_is_refused(files):
    layer = next(iter(files.population.routing.layers.values()))
    layer.scaling["teacher_0"] *= 2
    with pytest.raises(ValueError, match="'teacher_0' has rank 4 and scaling 4.0 at .* says 4 and 2.0"):
        files.take_changed()


def test_configuration_on_disk_is_the_members_own(files):
    version = files.take_changed()[0]
    with open(os.path.join(version.path, "adapter_config.json")) as file:
        config = json.load(file)
    assert (config["r"], config["lora_alpha"], config["use_dora"], config["bias"]) == (4, 8, False, "none")


ENDS = """
import sys, torch
from tests.tiny import tiny_population
from trl_populora.generation.engines.adapters import AdapterStore
files = AdapterStore(tiny_population(), dtype=torch.float32, folder=sys.argv[1])
files.take_changed()
print(files.folder, flush=True)
1 / 0
"""


@pytest.mark.slow
def test_files_end_with_the_process(tmp_path):
    process = subprocess.run([sys.executable, "-c", ENDS, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert "ZeroDivisionError" in process.stderr
    folder = process.stdout.strip()
    assert os.path.dirname(folder) == str(tmp_path) and not os.path.exists(folder)


def test_files_do_not_end_with_a_fork_of_the_process(files):
    child = os.fork()
    if child == 0:
        files.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert os.path.isdir(files.folder)
    files.close()
    assert not os.path.exists(files.folder)


@torch.no_grad()
def perturb_one(population, name):
    population.parameters(name)[1].add_(0.1)


def test_the_next_store_removes_what_a_killed_process_has_left_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(adapters, "MEMORY_FOLDER", str(tmp_path))
    population = tiny_population(1, 1)

    def store() -> AdapterStore:
        return AdapterStore(population, dtype=torch.float32)

    killed, living = store(), store()
    again = store()
    assert all(os.path.isdir(one.folder) for one in (killed, living))  # they are in use
    *_, lock = killed._close.detach()[2]  # it removes nothing any more, and
    lock.close()  # its lock is free, as that of a process that has ended
    (tmp_path / "populora-another").mkdir()  # without a lock: not known to be abandoned
    stores = living, again, store()
    assert set(os.listdir(tmp_path)) == {"populora-another", *(os.path.basename(one.folder) for one in stores)}
    for one in stores:
        one.close()
    assert os.listdir(tmp_path) == ["populora-another"]
