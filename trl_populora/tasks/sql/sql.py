"""`sql`: small tables and a query. The student works out its result. SQLite, in the sandbox, gives the right one.

The teacher writes tables in a format without SQL (`tables.py`) and one query (`query.py`). Results are compared as
multisets of rows. If the query orders its whole result, they are compared as sequences.

In another form of such a task, the student sees a question and writes a query, which is judged on hidden rows. That
form is easier to cheat. A question that says too little has many fitting queries, and teachers are rewarded
for tasks that students fail. A wrong query may give the right result on the hidden rows. In our form, tables and query
have exactly one result. Nothing is hidden, and no text of a student runs.

A teacher can still write an unfair query. Such queries are refused by what they do (`trials.py`, `harness.py`): if the
result depends on the order of rows, on time or on chance, if no change of the tables changes it, if it cannot be
written down, or if it takes too many steps.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from trl_populora.executor import Execution, Job, Status
from trl_populora.tasks.base import Features, Message, Run, TaskType, on_scale, refused_by, word_pairs
from trl_populora.tasks.parsing import completion_fences, fence, last_body, num_bytes, reserved_in, unseen_in
from trl_populora.tasks.sql.families import FAMILIES
from trl_populora.tasks.sql.harness import MODULE, PROGRAM, run_query
from trl_populora.tasks.sql.keys import task_key
from trl_populora.tasks.sql.prompts import propose_prompt, solve_prompt, task_text
from trl_populora.tasks.sql.query import is_ordered, measure, read_query
from trl_populora.tasks.sql.tables import Row, Table, read_tables, same_rows, split_row, write_rows, write_tables
from trl_populora.tasks.sql.ties import Place, open_places
from trl_populora.tasks.sql.trials import Trial, judge_trials, trials
from trl_populora.tasks.task import Answer, Draft, Payload, Refusal, Task


MAX_DRAWS = 100  # of a seed task before its settings count as too narrow


@dataclass(frozen=True)
class SqlTask(Payload):
    """
    Tables, a query and its result.

    Args:
        tables (`str`): The tables in their normal form.
        query (`str`): One SELECT statement, without comments.
        ordered (`bool`): Whether the order of the result's rows matters.
        result (`tuple[tuple[int | float | str | None, ...], ...]`): The rows that SQLite returned.
    """

    tables: str
    query: str
    ordered: bool
    result: tuple[Row, ...]


class Proposed(NamedTuple):
    """A parsed proposal."""

    tables: tuple[Table, ...]
    query: str
    ordered: bool
    places: tuple[Place, ...]  # where its order is open

    @property
    def trials(self) -> list[Trial]:
        return trials(self.tables, self.places)


@dataclass(frozen=True)
class Sql(TaskType):
    """
    Results of SQL queries. Sizes are in UTF-8 bytes. Text that exceeds a limit is refused, never cut.

    Args:
        tables_bytes (`int`, *optional*, defaults to `2048`): Size of all tables.
        query_bytes (`int`, *optional*, defaults to `1024`): Size of a query.
        result_bytes (`int`, *optional*, defaults to `512`): Size of a result.
        max_tables (`int`, *optional*, defaults to `4`): Tables of a task.
        max_rows (`int`, *optional*, defaults to `40`): Rows of all tables together.
        max_steps (`int`, *optional*, defaults to `2000`):
            Instructions of SQLite's virtual machine that a query may take. This also bounds the work of a student, who
            has no computer.
    """

    id: ClassVar[str] = "sql"
    payload: ClassVar[type[Payload]] = SqlTask
    reasons: ClassVar[Mapping[str, str]] = {
        "no_tables": "no tables block, or an empty one",
        "not_tables": "tables that are not in the required format, or with a value that a cell cannot hold",
        "no_query": "no query block, or an empty one",
        "not_a_query": "a query that is not one SELECT of plain words, numbers, texts and signs",
        "sql_error": "SQLite reports an error in the query",
        "not_allowed": "the query reads something other than its tables, is recursive, or calls another function",
        "too_many_steps": "the query takes too many steps",
        "empty_result": "the result has no rows",
        "row_order": "the result depends on an order that the query leaves open, as that in which rows are stored",
        "idle_table": "the result does not depend on one of the tables",
        "constant_result": "no change of the tables changes the result",
        "unclear_value": "a value of the result has no plain form or too many digits, or its rounding is unclear",
        "no_answer": "no result block, or an empty one",
    }
    families: ClassVar[tuple[str, ...]] = tuple(FAMILIES)
    easy_families: ClassVar[tuple[str, ...]] = ("where", "order_by", "aggregate")

    tables_bytes: int = 2048
    query_bytes: int = 1024
    result_bytes: int = 512
    max_tables: int = 4
    max_rows: int = 40
    max_steps: int = 2000

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("tables_bytes", "query_bytes", "result_bytes", "max_tables", "max_rows", "max_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    # Proposing -------------------------------------------------------------------------------------------------

    def propose_prompt(self, references: Sequence[Task], rng: random.Random) -> list[Message]:
        chosen = rng.sample(list(references), min(self.max_references, len(references)))
        return propose_prompt(self, "\n\n".join(task_text(task) for task in chosen))

    def parse_proposal(self, completion: str, references: Sequence[Task]) -> Draft | Refusal:
        blocks = completion_fences(completion)
        texts = {"tables": last_body(blocks, "tables"), "query": last_body(blocks, "query")}
        for name, text in texts.items():
            if not text:
                return Refusal(f"no_{name}", f"no ```{name} block, or an empty one")
            refusal = self._check_text(name, text)
            if refusal is not None:
                return refusal
        proposed = self._read(texts["tables"] or "", texts["query"] or "")
        if isinstance(proposed, Refusal):
            return proposed
        key = task_key(proposed.tables, proposed.query)
        if any(self.key(task.payload) == key for task in references):
            return Refusal("duplicate", "repeats a reference")
        return Draft(key, proposed)

    def _read(self, tables_text: str, query_text: str) -> Proposed | Refusal:
        """Parses tables and query, and applies every rule that needs no execution."""
        try:
            tables = read_tables(tables_text)
        except ValueError as error:
            return Refusal("not_tables", str(error))
        num_rows = sum(len(table.rows) for table in tables)
        for what, count, most in (("tables", len(tables), self.max_tables), ("rows", num_rows, self.max_rows)):
            if count > most:
                return Refusal("too_large", f"{count} {what}, at most {most} are allowed")
        try:
            query, tokens = read_query(query_text)
        except ValueError as error:
            return Refusal("not_a_query", str(error))
        # Again: the normal form of tables may be longer, and a text without its comments may contain a marker.
        refusal = self._check_text("tables", write_tables(tables)) or self._check_text("query", query)
        return refusal or Proposed(tables, query, is_ordered(tokens), open_places(tokens))

    def _check_text(self, name: str, text: str) -> Refusal | None:
        size, most = num_bytes(text), getattr(self, f"{name}_bytes")
        if size > most:
            return Refusal("too_large", f"the {name} block has {size} bytes, at most {most} are allowed")
        marker = reserved_in(text) or unseen_in(text)
        return None if marker is None else Refusal("reserved_text", f"the {name} block contains {marker!r}")

    def verify(self, drafts: Sequence[Draft], run: Run) -> list[Payload | Refusal]:
        jobs = [Job(PROGRAM, self._inputs(one.content), deterministic=True, modules=(MODULE,)) for one in drafts]
        return [self._finish(one.content, execution) for one, execution in zip(drafts, run(jobs), strict=True)]

    def _inputs(self, proposed: Proposed) -> tuple[tuple, ...]:
        """Arguments of the harness, one call for each trial."""
        places = tuple(map(tuple, proposed.places))
        return tuple(
            (
                tuple(map(tuple, trial.tables)),
                proposed.query,
                trial.reverse,
                self.max_steps,
                None if trial.decided is None else (places, *trial.decided),
                trial.plain,
            )
            for trial in proposed.trials
        )

    def _finish(self, proposed: Proposed, execution: Execution) -> Payload | Refusal:
        if execution.status is not Status.OK:
            return refused_by(execution)
        return self._settle(proposed, [value.value for value in execution.values])

    def _settle(self, proposed: Proposed, outcomes: Sequence) -> SqlTask | Refusal:
        """The payload, from the outcomes of all trials, or the reason why the proposal is not valid."""
        kinds = [trial.kind for trial in proposed.trials]
        rows = judge_trials(kinds, proposed.tables, outcomes, ordered=proposed.ordered)
        if isinstance(rows, Refusal):
            return rows
        refusal = self._check_text("result", write_rows(rows))
        return refusal or SqlTask(write_tables(proposed.tables), proposed.query, proposed.ordered, rows)

    def propose_completion(self, task: Task) -> str:
        return task_text(task)

    # Solving ---------------------------------------------------------------------------------------------------

    def solve_prompt(self, task: Task) -> list[Message]:
        return solve_prompt(self, task)

    def parse_answer(self, task: Task, completion: str) -> Answer | Refusal:
        text = last_body(completion_fences(completion), "result")
        if not text:
            return Refusal("no_answer", "no ```result block, or an empty one")
        return Answer(tuple(split_row(line) for line in text.split("\n") if line.strip()))

    def judge(self, tasks: Sequence[Task], answers: Sequence[Answer], run: Run) -> list[bool | Refusal]:
        return [
            same_rows(task.payload.result, answer.value, ordered=task.payload.ordered)
            for task, answer in zip(tasks, answers, strict=True)
        ]

    def solve_completion(self, task: Task) -> str:
        return fence("result", write_rows(task.payload.result))

    # Stock -----------------------------------------------------------------------------------------------------

    def generate(self, rng: random.Random, *, families: Sequence[str] | None = None) -> Task:
        names = self.check_families(families)
        for _ in range(MAX_DRAWS):
            name = rng.choice(names)
            payload = self._run_trusted(*FAMILIES[name](rng))
            if isinstance(payload, SqlTask):
                return Task.create(self.id, payload, author=f"seed:{name}")
        raise ValueError(f"found no {self.id} task of families {list(names)} within the limits; raise the limits")

    def simplest(self) -> Task:
        payload = self._run_trusted("numbers(a INTEGER)\n1\n2", "SELECT a FROM numbers WHERE a > 1")
        if isinstance(payload, Refusal):
            raise ValueError(f"the limits of {self.id} allow no task: {payload.detail}")
        return Task.create(self.id, payload, author="seed:simplest")

    def _run_trusted(self, tables: str, query: str) -> SqlTask | Refusal:
        """A task that this package wrote, so that its query may run in this process. It must keep the same rules."""
        proposed = self._read(tables, query)
        if isinstance(proposed, Refusal):
            return proposed
        return self._settle(proposed, [run_query(*arguments) for arguments in self._inputs(proposed)])

    def features(self, task: Task) -> Features | None:
        try:
            tables, (_, tokens) = read_tables(task.payload.tables), read_query(task.payload.query)
        except ValueError:
            return None
        measures = {"tables": len(tables), "rows": sum(len(table.rows) for table in tables), **measure(tokens)}
        # 0 is the simplest task, 1 a page of SQL (our choice).
        point = (
            on_scale(math.log(len(tokens) / 4), 0, math.log(60)),
            on_scale(measures["tables"] - 1 + measures["joins"], 0, 6),
            on_scale(measures["clauses"], 0, 8),
            on_scale(measures["nesting"], 0, 4),
        )
        return Features(measures, self.id, point)

    def parts(self, task: Task) -> frozenset[str]:
        return word_pairs(task.payload.query)  # tables differ in names and numbers only

    def key(self, payload: SqlTask) -> str:
        return task_key(read_tables(payload.tables), payload.query)
