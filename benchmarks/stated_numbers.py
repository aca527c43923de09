"""How many word problems that people wrote pass the rules of numbers of `math`, with the solutions that people wrote.

    python benchmarks/stated_numbers.py --data FOLDER           # seconds
    python benchmarks/stated_numbers.py --data FOLDER --json    # prints the last line only

FOLDER holds `gsm8k.jsonl`. Its solutions mark each calculation: `<<48/2=24>>`. Together they are the program. A number
that is the result of an earlier calculation stands for a variable. Solutions without a calculation in Python's syntax
are left out.

The last line is one line of JSON: `problems`, the share `accepted`, and `states_answer`, the share that states the
answer though the calculations do not use it. Above it is each problem that is not accepted. In most of those that we
read, people computed a number in their heads. A program must compute it.
"""

import argparse
import ast
import json
import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from trl_populora.evaluation.benchmarks import benchmark
from trl_populora.tasks.math.quantities import check_numbers, constants, gives_away


MARKED = re.compile("<<([^<>=]+)=([^<>]+)>>")


class Variables(ast.NodeTransformer):
    """Writes a variable for each number that was computed before."""

    def __init__(self) -> None:
        self.computed = set()

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.copy_location(ast.Name("result"), node) if constants(node) <= self.computed else node


def program(solution: str) -> ast.AST | None:
    """The calculations of a solution as a list; `None` if it has none that can be read."""
    written, parts = Variables(), []
    for calculation, result in MARKED.findall(solution):
        plain = re.sub(r"(?<![\d.])0+(?=\d)", "", re.sub("[$,]", "", calculation).replace("%", "/100")).strip()
        try:
            parts.append(written.visit(ast.parse(plain.replace("x", "*"), mode="eval")).body)
            written.computed.add(Fraction(re.sub("[$,%]", "", result).strip()))
        except (SyntaxError, ValueError):
            return None
    return ast.List(parts) if parts else None


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path, help="folder with gsm8k.jsonl")
    parser.add_argument("--json", action="store_true", help="print the last line only")
    options = parser.parse_args(arguments)
    records, _ = benchmark("gsm8k").records(str(options.data))
    problems = accepted = away = 0
    for record in records:
        solution, _, answer = record["answer"].rpartition("####")
        problem, tree = record["question"], program(solution)
        if tree is None:
            continue
        problems += 1
        away += gives_away(problem, tree, Fraction(answer.strip().replace(",", "")))
        refusal = check_numbers(problem, tree)
        accepted += refusal is None
        if refusal is not None and not options.json:
            print(f"{refusal.reason}, {refusal.detail}: {problem}\n")
    if not problems:
        parser.error(f"{options.data} holds no problem of gsm8k with a calculation that can be read.")
    shares = {"accepted": accepted / problems, "states_answer": away / problems}
    print(json.dumps({"problems": problems} | {name: round(share, 4) for name, share in shares.items()}))


if __name__ == "__main__":
    main()
