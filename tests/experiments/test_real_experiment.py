"""The example of recipes/experiments for real, with half of its rounds: stopped, gone on, and finished."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml


ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "recipes/experiments/tiny_rewards.yaml"


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_an_experiment_survives_being_stopped(tmp_path):
    plan = yaml.safe_load(EXAMPLE.read_text()) | {"output": str(tmp_path / "out")}
    shorter = {"max_steps": 4, "evolution_interval": 2, "eval_steps": 2, "save_steps": 1}
    assert shorter.keys() <= plan["settings"].keys()
    plan["settings"] |= shorter
    file = tmp_path / "plan.yaml"
    file.write_text(yaml.safe_dump(plan, sort_keys=False))
    command = [sys.executable, "-m", "trl_populora.cli", "experiment", str(file)]
    first = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    while not list((tmp_path / "out").glob("adversarial/seed_0/checkpoint-*")):
        with pytest.raises(subprocess.TimeoutExpired):  # a run that ends before its first checkpoint has failed
            first.wait(timeout=0.2)
    first.send_signal(signal.SIGTERM)
    said, _ = first.communicate()
    assert first.returncode == 130 and "Stopped." in said
    rounds = (tmp_path / "out/adversarial/seed_0/history.jsonl").read_text().count("\n")
    assert 1 <= rounds < 4 and not (tmp_path / "out/results.json").exists()

    second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert second.returncode == 0, second.stdout + second.stderr
    assert "adversarial/0: training resumed" in second.stdout
    log = (tmp_path / "out/adversarial/seed_0/job.log").read_text()
    assert log.count("-m trl_populora.train") == 2 and "round 4/4" in log

    record = json.loads((tmp_path / "out/results.json").read_text())
    assert record["complete"] and len(record["jobs"]) == 4 and {job["rounds"] for job in record["jobs"]} == {4}
    for arm in ("adversarial", "learnability"):
        for seed in (0, 1):
            folder = tmp_path / "out" / arm / f"seed_{seed}"
            numbers = [json.loads(line)["round"] for line in (folder / "history.jsonl").read_text().splitlines()]
            settings = json.loads((folder / "run.json").read_text())["settings"]
            assert numbers == list(range(4)) and (settings["teacher_reward"], settings["seed"]) == (arm, seed)
    values = record["values"]
    assert all(0 <= value <= 1 for own in values.values() for arm in own.values() for value in arm.values())
    assert len(record["differences"]) == 3 and (tmp_path / "out/results.html").stat().st_size > 1_000_000
    third = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert third.returncode == 0 and third.stdout.count("done already") == 4
