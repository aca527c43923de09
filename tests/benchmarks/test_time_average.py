import json
from pathlib import Path

import pytest
import torch

from benchmarks import time_average
from tests.archives import unpack
from tests.tiny import lora, perturb, two_layers
from trl_populora.population import Population
from trl_populora.population.adapters import read_adapter
from trl_populora.reporting.played_run import read_run
from trl_populora.run_files.checkpoint import write_checkpoint
from trl_populora.run_files.layout import STAGING_FOLDER


RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "experiments"


def run_of(folder, members, checkpoints):
    """A folder with checkpoints of different weights, the last ones as the final weights. Returns their updates."""
    updates = []
    for step in range(1, checkpoints + 1):
        population = Population(two_layers(), lora(), shared_member=members == 1, num_teachers=1, num_students=1)
        torch.manual_seed(step)
        perturb(population, 0.1)
        write_checkpoint(
            lambda p=population, s=step: p.save(str(folder / STAGING_FOLDER / f"checkpoint-{s}")),
            output_dir=str(folder),
            step=step,
            is_main=True,
            problems=lambda problem: [problem] if problem else [],
            about={},
        )
        population.save(str(folder))
        updates.append({path: A.T @ B.T * scaling for path, (A, B, scaling) in population.factors("agent_0").items()})
    return updates


def test_the_average_is_the_mean_of_the_last_checkpoints_updates(tmp_path):
    updates = run_of(tmp_path / "run", 1, 3)
    time_average.average_checkpoints(tmp_path / "run", tmp_path / "averaged", last=2)
    _, factors = read_adapter(tmp_path / "averaged" / "agent_0")
    for path, (A, B, scaling) in factors.items():
        mean = (updates[1][path] + updates[2][path]) / 2
        U, S, V = torch.linalg.svd(mean, full_matrices=False)  # the operator keeps as much of it as the rank holds
        best = (U[:, : len(A)] * S[: len(A)]) @ V[: len(A)]
        torch.testing.assert_close(A.T @ B.T * scaling, best, rtol=1e-3, atol=1e-5)
    assert not list((tmp_path / "averaged").glob("checkpoint-*"))


def test_it_names_a_run_with_too_few_checkpoints_or_several_members(tmp_path):
    run_of(tmp_path / "run", 1, 1)
    with pytest.raises(SystemExit, match="one, and 2"):
        time_average.average_checkpoints(tmp_path / "run", tmp_path / "averaged", last=2)
    with pytest.raises(SystemExit, match="has 2 members"):
        table = json.loads((tmp_path / "run" / "population.json").read_text())
        table["members"] *= 2
        (tmp_path / "run" / "population.json").write_text(json.dumps(table))
        time_average.average_checkpoints(tmp_path / "run", tmp_path / "averaged", last=1)


@pytest.mark.slow
def test_arms_are_compared_as_the_experiment_compares_them(tmp_path):
    unpack(RESULTS / "weak_sharing.tar.xz", tmp_path, "weak_sharing/students/", "weak_sharing/single_agent_4x_rows/")
    runs = {
        arm: [read_run(str(one)) for one in sorted((tmp_path / "weak_sharing" / arm).glob("seed_*"))]
        for arm in ("single_agent_4x_rows", "students")
    }
    named = dict(zip(("agent, last weights", "students, average of students"), runs.values(), strict=True))
    (found,) = time_average.compared(named, "chains_weak")["differences"].values()
    written = json.loads((RESULTS / "weak_sharing.json").read_text())["pairs"]["averaged_student"]
    wanted = written["students - single_agent_4x_rows"]
    assert found["difference"] == pytest.approx(wanted["difference"], abs=1e-4)
    assert found["over_seeds"] == pytest.approx([wanted["low"], wanted["high"]], abs=1e-4)
    assert found["over_seeds_and_questions"] == pytest.approx(wanted["with_questions"][:2], abs=1e-4)
