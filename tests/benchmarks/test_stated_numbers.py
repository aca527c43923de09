"""benchmarks/stated_numbers.py reads calculations as people write them."""

import json
import runpy
from pathlib import Path


SCRIPT = Path(__file__).parents[2] / "benchmarks" / "stated_numbers.py"
PROBLEMS = [
    ("Ann has 6 dozen eggs and sells 25% of them. How many?", "<<6*12=72>>72, <<72*25%=18>>18\n#### 18"),
    ("Ben pays $1,200 for 3 x 4 m. How much per m2?", "<<3x4=12>>12, <<$1,200/12=100>>100\n#### 100"),
    ("Carla has 7 nuts and eats 3 of 8.", "<<8-3=5>>5 <<09+5=14>>\n#### 7"),  # 9 stands nowhere, and 7 is the answer
    ("no calculation that can be read", "<<a+=3>>\n#### 3"),
]


def test_made_problems(tmp_path, capsys):
    records = [{"question": question, "answer": answer} for question, answer in PROBLEMS]
    (tmp_path / "gsm8k.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    runpy.run_path(str(SCRIPT))["main"](["--data", str(tmp_path)])
    found = capsys.readouterr().out.splitlines()
    assert json.loads(found[-1]) == {"problems": 3, "accepted": 0.6667, "states_answer": 0.3333}
    assert "number_not_in_problem, line 1: 9: Carla" in found[0]
