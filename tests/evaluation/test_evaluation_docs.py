"""What docs/evaluation.md shows and lists is what there is."""

import json
import re
import sys
from pathlib import Path

import pytest

from trl_populora import cli
from trl_populora.evaluation.benchmarks import BUILT_IN
from trl_populora.evaluation.grading import VERDICTS
from trl_populora.evaluation.held_out import LEVELS
from trl_populora.evaluation.results import COLUMNS
from trl_populora.run_files.layout import EVALUATION_FILE, PARTIAL_SUFFIX


TEXT = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text()


def test_the_benchmark_of_the_docs_works(tmp_path, tiny_model, monkeypatch):
    (code,) = re.findall(r"<!-- tested: my_benchmark.py -->\n```python\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "my_benchmark.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    records = [("France", "Paris", "Europe"), ("Japan", "Tokyo", "Asia"), ("Spain", "Madrid", "Europe")]
    lines = [json.dumps(dict(zip(("country", "capital", "continent"), one, strict=True))) for one in records]
    (tmp_path / "capitals.jsonl").write_text("\n".join(lines))
    from my_benchmark import CAPITALS, LastWord

    rows, _ = CAPITALS.records(str(tmp_path))
    questions = CAPITALS.exam(str(tmp_path)).questions
    gold = [CAPITALS.gold(row) for row in rows]
    references = [question.reference for question in questions]
    assert [grade.verdict for grade in LastWord().grade(gold, references)] == ["solved"] * 3
    result = LastWord().compute(predictions=["It is Paris.", "", "Lisbon"], references=references)
    assert result == {"accuracy": 1 / 3, "well_formed": 2 / 3, "spared": 0}
    argv = ["--base", tiny_model, "--exams", "my_benchmark:CAPITALS", "--data", str(tmp_path)]
    assert cli.main(["evaluate", *argv, "--output", str(tmp_path / "out")]) == 0
    (exam,) = json.loads((tmp_path / "out" / EVALUATION_FILE).read_text())["exams"]
    assert exam["exam"] == "capitals" and exam["groups"] == ["Europe", "Asia"]
    sys.modules.pop("my_benchmark")


def test_the_docs_name_every_option_exam_column_and_verdict(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")  # no name of an option is cut in two
    with pytest.raises(SystemExit):
        cli.main(["evaluate", "--help"])
    options = set(re.findall(r"(?<![\w-])--[a-z-]+", capsys.readouterr().out))
    assert len(options) > 15
    listed = {*LEVELS, *BUILT_IN, *COLUMNS, *VERDICTS, "tasks:PATH", "module:Name"}
    for name in (options - {"--help"}) | listed:
        assert re.search(rf"`[^`\n]*(?<![\w-]){re.escape(name)}(?![\w-])[^`\n]*`", TEXT), name
    assert EVALUATION_FILE in TEXT and PARTIAL_SUFFIX in TEXT
