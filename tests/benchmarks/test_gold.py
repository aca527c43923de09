import json
import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from tests.evaluation.test_functions import HUMANEVAL, MBPP
from tests.evaluation.test_livecodebench import SUM


SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gold.py"


@pytest.fixture
def main():
    return runpy.run_path(str(SCRIPT))["main"]


def write(folder: Path, name: str, *records: dict) -> None:
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))


def test_gold_is_accepted_and_the_last_line_is_json(main, tmp_path, capsys):
    write(tmp_path, "humaneval_plus", HUMANEVAL)
    write(tmp_path, "mbpp_plus", MBPP)
    assert main(["--data", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    summary = json.loads(lines[-1])
    assert list(summary) == ["humaneval_plus", "mbpp_plus"] and lines[0] == "HumanEval+: 1 of 1 accepted"
    assert all(one["gold"] == 1.0 and one["tasks"] == 1 and one["dirty"] == {} for one in summary.values())
    assert all(one["seconds"] > 0 for one in summary.values())


@pytest.mark.slow
def test_gold_that_fails_is_an_error_unless_it_is_listed(main, tmp_path, capsys, monkeypatch):
    from trl_populora.evaluation.benchmarks import humaneval_plus

    known = humaneval_plus.HUMANEVAL_PLUS

    def gold(record):
        return "```python\ndef total(x): return 0\n```" if record["task_id"] == "HumanEval/1" else known.gold(record)

    write(tmp_path, "humaneval_plus", HUMANEVAL, HUMANEVAL | {"task_id": "HumanEval/1"})
    arguments = ["--data", str(tmp_path), "--benchmarks", "humaneval_plus"]
    monkeypatch.setattr(humaneval_plus, "HUMANEVAL_PLUS", replace(known, gold=gold))
    assert main(arguments) == 1
    assert "HumanEval/1: wrong: total([1, 2]) is 0, expected 3" in capsys.readouterr().out
    dirty = {"HumanEval/1": "known"}
    monkeypatch.setattr(humaneval_plus, "HUMANEVAL_PLUS", replace(known, gold=gold, dirty=dirty))
    assert main([*arguments, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["humaneval_plus"]["gold"] == 0.5 and summary["humaneval_plus"]["dirty"] == dirty
    monkeypatch.setattr(humaneval_plus, "HUMANEVAL_PLUS", replace(known, dirty=dirty))
    assert main(arguments) == 1
    assert "HumanEval/1: listed as dirty, but accepted" in capsys.readouterr().out


def test_a_benchmark_without_right_answers_says_so(main, tmp_path, capsys):
    write(tmp_path, "livecodebench", SUM)
    assert main(["--data", str(tmp_path), "--json"]) == 0
    (summary,) = json.loads(capsys.readouterr().out).values()
    assert summary == {"gold": None, "reason": "its records hold no right answers"}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(["--benchmarks", "gsm9k"], "Did you mean 'gsm8k'?"), ([], "holds none of the files")],
)
def test_bad_arguments_are_explained(main, tmp_path, capsys, arguments, text):
    with pytest.raises(SystemExit):
        main(["--data", str(tmp_path), *arguments])
    assert text in capsys.readouterr().err
