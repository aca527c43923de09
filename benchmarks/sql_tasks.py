"""What a task about an SQL query costs on one core: to verify a proposal, to judge an answer, to draw a seed task.

    python benchmarks/sql_tasks.py            # about a minute
    python benchmarks/sql_tasks.py --json     # prints the numbers as JSON in the last line

Wall milliseconds are of the whole way through the executor, with all runs of a deterministic job. Its CPU is that of
the first run or of the repetitions, whichever is more. Medians over the rounds.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Sequence

from trl_populora.executor import Executor, Job
from trl_populora.tasks.sql import Sql
from trl_populora.tasks.sql.harness import MODULE
from trl_populora.tasks.task import Answer, Draft


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON in the last line")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tasks", type=int, default=64, help="proposals in a round")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    numbers = measure(options.rounds, options.tasks)
    for name, value in numbers.items():
        print(f"{name:45} {value:.4g}")
    if options.json:
        print(json.dumps(numbers))


def measure(rounds: int, count: int) -> dict[str, float]:
    """Milliseconds a task, medians over the rounds."""
    kind, spent = Sql(), {}

    def note(name: str, seconds: float) -> None:
        spent.setdefault(name, []).append(seconds / count * 1000)

    with Executor(1) as executor:
        begin = time.perf_counter()
        executor.run_many([Job("def f(): return 1", ((),), deterministic=True, modules=(MODULE,))])
        start = time.perf_counter() - begin

        def run(jobs: Sequence[Job]) -> list:
            executions = executor.run_many(jobs)
            note("verify, CPU of a run, ms", sum(execution.seconds for execution in executions))
            return executions

        for round in range(rounds):
            begin = time.process_time()
            tasks = kind.seeds(count, seed=round)
            note("draw a seed task, CPU, ms", time.process_time() - begin)
            read = [kind.parse_proposal(kind.propose_completion(task), []) for task in tasks]
            drafts = [draft for draft in read if isinstance(draft, Draft)]
            wall, own = time.perf_counter(), time.process_time()
            payloads = kind.verify(drafts, run)
            note("verify, wall, ms", time.perf_counter() - wall)
            note("verify, CPU of this process, ms", time.process_time() - own)
            assert payloads == [task.payload for task in tasks]
            nothing = [Job("def f(): return 1", ((),), deterministic=True, modules=(MODULE,)) for _ in tasks]
            wall = time.perf_counter()
            executor.run_many(nothing)
            note("a deterministic job that does nothing, wall, ms", time.perf_counter() - wall)
            begin = time.process_time()
            read = [kind.parse_answer(task, kind.solve_completion(task)) for task in tasks]
            assert all(kind.judge(tasks, [answer for answer in read if isinstance(answer, Answer)], run))
            note("judge an answer, CPU, ms", time.process_time() - begin)
            runs = sum(len(draft.content.trials) for draft in drafts)
            note("trials of a proposal", runs / 1000)
    return {"start of the fork servers, s": start} | {name: statistics.median(each) for name, each in spent.items()}


if __name__ == "__main__":
    main()
