"""The example, at toy size: it trains, evolves, and leaves logs, a checkpoint and adapters behind."""

import runpy
from pathlib import Path

import pytest
from peft import LoraConfig


EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "lightning_evolve.py"


@pytest.mark.slow
def test_the_example_runs_and_learns(tmp_path, monkeypatch, capsys):
    main = runpy.run_path(str(EXAMPLE))["main"]
    trainer = main(output=str(tmp_path), members=3, epochs=3, size=24)
    versions = [member.version for member in trainer.lightning_module.population.values()]
    assert sum(versions) == 2  # one of three in each epoch but the last
    text = capsys.readouterr().out
    assert "student_0@0" in text and "step 3" in text and "step 6" in text
    lines = (tmp_path / "lightning_logs" / "version_0" / "metrics.csv").read_text().splitlines()
    column = lines[0].split(",").index("val_loss")
    losses = [float(line.split(",")[column]) for line in lines[1:] if line.split(",")[column]]
    assert len(losses) == 3 and losses[-1] < losses[0]
    assert list(tmp_path.rglob("*.ckpt"))
    assert LoraConfig.from_pretrained(tmp_path / "population" / "student_2").r == 8
