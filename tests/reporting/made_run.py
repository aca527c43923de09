"""A run folder without a run: rounds, tables, probes and lineage made up by a formula, the same every time.

Numbers agree with each other as far as the report can see: attempts in the tables make the solve rates of the history.
"""

import json
import math
import random
from dataclasses import replace
from pathlib import Path

from trl_populora.diagnostics import MemberSummary, RoundSummary
from trl_populora.run_files.files import write_json
from trl_populora.run_files.round_table import COLUMNS
from trl_populora.run_files.run_folder import RunFolder


TYPES = ("code_o", "code_i", "code_f")
OPERATORS = ("dare", "gaussian", "svd_subspace", "clone", "layerwise")
BODIES = (
    "    return sum(x for x in xs if x % {a} == {b})",
    "    best = xs[0]\n    for x in xs:\n        if x * {a} > best:\n            best = x + {b}\n    return best",
    "    return [x * {a} + {b} for x in reversed(xs)]",
    "    total = {b}\n    for i, x in enumerate(xs):\n        total += i * x if x > {a} else -x\n    return total",
    "    return ''.join(str(x % {a}) for x in sorted(xs))[:{b} + 1]",
)
REASONS = {
    "syntax_error": "the program: invalid syntax at line 2",
    "not_literal": "the input: not a literal at character 0: 'xs'",
    "duplicate": "the task exists already",
    "infra_error": "the executor failed",
}
ASK = "What does f return for this input? Answer in a ```output block."


class MadeRun:
    """Makes a run in a folder.

    Args:
        folder (`Path`): Where to.
        teachers, students (`int`): Members of each role; without teachers a run on a dataset.
        prompts, group (`int`): Proposal prompts of a teacher in a round, and completions of one prompt.
        evolution_interval (`int`): Rounds between replacements; 0 for none.
        words (`Sequence[str]`): Texts that some completions, programs and details carry, for hostile ones.
        length (`int`): Characters of reasoning in front of every answer, about.
    """

    def __init__(
        self,
        folder: Path,
        *,
        teachers: int = 2,
        students: int = 2,
        prompts: int = 1,
        group: int = 4,
        evolution_interval: int = 3,
        words=(),
        length: int = 40,
        seed: int = 0,
    ) -> None:
        self.folder, self.random = Path(folder), random.Random(seed)
        self.teachers = tuple(f"teacher_{i}" for i in range(teachers))
        self.students = tuple(f"student_{i}" for i in range(students))
        self.prompts, self.group, self.interval = prompts, group, evolution_interval
        self.words, self.length = words, length
        self.versions = dict.fromkeys(self.members, 0)
        self.skill = {name: 0.2 * k for k, name in enumerate(self.members)}
        self.stock: list[dict] = []
        self.window: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self.number = 0
        self.record = RunFolder(str(self.folder))

    @property
    def members(self) -> tuple[str, ...]:
        return (*self.teachers, *self.students)

    def make(self, rounds: int) -> "MadeRun":
        """The whole run, with its settings, probes and final table of members."""
        self.begin(rounds)
        for _ in range(rounds):
            self.play()
        self.finish()
        return self

    def begin(self, rounds: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "num_teachers": len(self.teachers),
            "num_students": len(self.students),
            "num_generations": self.group,
            "max_steps": rounds,
            "learning_rate": 3e-4,
            "task_types": list(TYPES) if self.teachers else None,
            "evolution_interval": self.interval,
            "evolution_kwargs": {"fraction": 0.25, "operators": list(OPERATORS)},
        }
        record = {
            "model": "made-up/base-1B",
            "dataset": None if self.teachers else "made-up/questions",
            "settings": settings,
            "reward_funcs": [] if self.teachers else ["accuracy", "brevity"],
            "processes": 1,
            "versions": {"trl-populora": "0.1.0", "torch": "2.13.0", "trl": "1.16.0"},
            "hardware": {"processor": "Made-up CPU", "cores": 2, "memory_gib": 23.4, "gpus": []},
            "git": {"commit": "12bbe26c0ffee0123456789abcdef0123456789a", "changed": False},
            "isolation": "L3",
        }
        write_json(self.folder / "run.json", record)

    def finish(self) -> None:
        born = {"operator": "founder", "parents": []}
        rows = [{"id": one, "role": one.split("_")[0], "version": self.versions[one]} | born for one in self.members]
        sizes = {f"num_{role}s": sum(row["role"] == role for row in rows) for role in ("teacher", "student")}
        write_json(self.folder / "population.json", {"format": 1, **sizes, "shared_member": False, "members": rows})

    def play(self) -> None:
        """One more round, with its table, and a probe every fifth."""
        number, rows = self.number, []
        self.number += 1
        self.games = {(t, s): [0, 0] for t in self.teachers for s in self.students}
        if self.teachers:
            self._self_play(number, rows)
        else:
            self._dataset(number, rows)
        summary = self._summary(number, rows)  # of the members as they played
        events = self._evolve(number)
        self.record.append_events(events)
        self.record.append_round(number, replace(summary, events=tuple(events)).to_json(), rows)
        if number % 5 == 0:
            self._probe(number)

    def _self_play(self, number: int, rows: list[dict]) -> None:
        tasks = []
        for t, teacher in enumerate(self.teachers):
            for group in range(self.prompts * self.group):
                task = self._task(number, teacher, TYPES[(number + t + group // self.group) % 3])
                if self.random.random() < 0.7 + 0.2 * math.sin(number / 9):
                    tasks.append((task, self.students[(t + number) % len(self.students)]))
                    rows.append(self._proposal(number, teacher, group // self.group, task))
                else:
                    rows.append(self._refused(number, teacher, group // self.group, task))
        self.stock += [task for task, _ in tasks]
        for group, (task, student) in enumerate(tasks):
            for _ in range(self.group):
                rows.append(self._attempt(number, student, group, task, task["author"]))
        for student in self.students:  # a task of the buffer, which is no game
            task = self.random.choice(self.stock) if self.stock else self._task(number, "seed:add", "code_o")
            rows += [self._attempt(number, student, len(tasks), task, None) for _ in range(self.group)]

    def _dataset(self, number: int, rows: list[dict]) -> None:
        for k, student in enumerate(self.students):
            for group in range(self.prompts):
                question = f"Question {(number * self.prompts + group) % 40}: what is {number % 7} times {k}?"
                for _ in range(self.group):
                    right = self.random.random() < 0.3 + number / (number + 40)
                    reward = 1.0 if right else 0.0
                    rows.append(
                        self._row(
                            number,
                            student,
                            "student",
                            group,
                            reward=reward,
                            rewards=json.dumps({"accuracy": reward, "brevity": None}),
                            prompt=json.dumps([{"role": "user", "content": question}]),
                            completion=self._think(f"The answer is {number * k}."),
                        )
                    )

    def _task(self, number: int, author: str, kind: str) -> dict:
        a, b = self.random.randint(2, 9), self.random.randint(0, 3)
        program = "def f(xs):\n" + self.random.choice(BODIES).format(a=a, b=b)
        if self.words and self.random.random() < 0.5:
            program += f"  # {self.random.choice(self.words)}"
        inputs = [str([self.random.randint(0, 20) for _ in range(4)]) for _ in range(3 if kind == "code_f" else 1)]
        outputs = [str(self.random.randint(0, 60)) for _ in inputs]
        payload = {"program": program, "inputs": inputs, "outputs": outputs, "message": ""}
        return {
            "id": f"{self.random.getrandbits(64):016x}",
            "type": kind,
            "author": author,
            "step": number,
            "payload": json.dumps(payload),
            "hardness": self.random.random() + 0.3 * (kind == "code_i"),
        }

    def _proposal(self, number: int, teacher: str, group: int, task: dict) -> dict:
        payload = json.loads(task["payload"])
        text = f"```python\n{payload['program']}\n```\n```input\n{payload['inputs'][0]}\n```"
        return self._row(
            number, teacher, "teacher", group, **_of(task), valid=True, reward=round(task["hardness"] % 1, 2),
            prompt=_asked("Write a new Python function f."), completion=self._think(text),
        )  # fmt: skip

    def _refused(self, number: int, teacher: str, group: int, task: dict) -> dict:
        reason = self.random.choice(list(REASONS))
        detail = " ".join([REASONS[reason], *self.words[:1]])
        return self._row(
            number, teacher, "teacher", group, type=task["type"], valid=False, reason=reason, detail=detail,
            reward=None if reason == "infra_error" else -1.0, prompt=_asked("Write a new Python function f."),
            completion=self._think("```python\ndef f(xs) return\n```"),
        )  # fmt: skip

    def _attempt(self, number: int, student: str, group: int, task: dict, opponent: str | None) -> dict:
        draw, skill = self.random.random(), self.skill[student] + number / 150
        spared, unread = draw > 0.99, 0.95 < draw <= 0.99
        solved = not (spared or unread) and self.random.random() < 1 / (1 + math.exp(4 * (task["hardness"] - skill)))
        if opponent is not None and not spared:
            game = self.games[opponent, student]
            game[0] += 1
            game[1] += solved
        outputs = json.loads(task["payload"])["outputs"]
        answer = "\n".join(outputs) if solved else str(self.random.randint(0, 60))
        reason = "infra_error" if spared else "no_answer" if unread else None
        return self._row(
            number, student, "student", group, **_of(task), valid=reason is None, reason=reason,
            opponent=opponent, fill_in=opponent is None, solved=solved,
            reward=None if spared else 1.0 if solved else -0.5, prompt=_asked(f"{ASK}\n{task['payload']}"),
            completion=self._think("I do not know." if unread else f"```output\n{answer}\n```"),
        )  # fmt: skip

    def _row(self, number: int, member: str, role: str, group: int, **facts) -> dict:
        known = {
            "round": number,
            "step": number,
            "kind": "learned",
            "member": member,
            "role": role,
            "version": self.versions[member],
            "group": group,
            "advantage": round(self.random.gauss(0, 1), 3),
            "learned": facts.get("reward") is not None,
            "prompt_tokens": 60,
            "tokens": len(facts["completion"]) // 4,
        }
        return dict.fromkeys(COLUMNS) | known | facts

    def _think(self, answer: str) -> str:
        words = []
        while sum(map(len, words)) < self.length:
            words.append(self.random.choice(("so", "let", "x", "be", "then", "7", "the", "loop", "adds", "it", "not")))
        said = [*words, self.random.choice(self.words)] if self.words else words
        return " ".join(said) + "\n" + answer

    def _evolve(self, number: int) -> list[dict]:
        if not self.interval or (number + 1) % self.interval:
            return []
        events = []
        for names in (self.teachers, self.students):
            if len(names) < 2:
                continue
            parent, slot = self.random.sample(names, 2)
            operator = self.random.choice(OPERATORS)
            parents = [[parent, self.versions[parent]]]
            parents += [[slot, self.versions[slot]]] if operator in ("dare", "svd_subspace", "layerwise") else []
            self.versions[slot] += 1
            events.append(
                {
                    "slot": slot, "operator": operator, "parameters": {"seed": number}, "parents": parents,
                    "fitness": {name: round(20 + self.skill[name], 2) for name in names}, "learning_rate": None,
                    "temperature": None, "kind": "replacement", "step": number + 1, "role": slot.split("_")[0],
                    "version": self.versions[slot], "rating_before": [21.5, 1.1], "rating_after": [24.0, 4.2],
                }
            )  # fmt: skip
        return events

    def _summary(self, number: int, rows: list[dict]) -> RoundSummary:
        for pair, game in self.games.items():
            self.window[pair] = [*self.window.get(pair, []), tuple(game)][-10:]
        window = {pair: tuple(map(sum, zip(*games))) for pair, games in self.window.items()}
        games = [[10 * window[t, s][0] for s in self.students] for t in self.teachers]
        members = tuple(
            self._member(name, number, [row for row in rows if row["member"] == name]) for name in self.members
        )
        attempts = [row for row in rows if row["role"] == "student" and row["opponent"]]
        filled = 10 + int(8 * math.sqrt(number))
        told = {}
        if self.teachers:
            told = {
                "solve_rate": _share(row["solved"] for row in attempts),
                "solve_rates": {
                    kind: rate
                    for kind in TYPES
                    if (rate := _share(row["solved"] for row in attempts if row["type"] == kind)) is not None
                },
                "fill_rate": 0.2,
                "solve_rate_filled": 0.5,
                "complexity": {"ast_nodes": 18 + number / 6, "ast_depth": 6 + math.sin(number / 7), "lines": 3.5},
                "coverage": {"filled": filled, "new": 1, **{f"filled/{name}": filled // 2 for name in self.teachers}},
                "tasks": {"unsolved": 0.3, "duplicates": 0.05},
                "residual": 0.1,
                "statuses": {"ok": 40},
            }
        matrix = [[window.get((t, s), (0, 0)) for s in self.students] for t in self.teachers]
        roles = ("teachers", "students") if self.teachers else ("students",)
        return RoundSummary(
            round=number,
            step=number,
            members=members,
            teachers=self.teachers,
            students=self.students,
            games=tuple(map(tuple, games)),
            wins=tuple(tuple(10 * won for _, won in row) for row in matrix),
            matches=len(self.teachers),
            window_attempts=tuple(tuple(n for n, _ in row) for row in matrix),
            window_solved=tuple(tuple(won for _, won in row) for row in matrix),
            residuals=tuple(
                tuple(round(0.2 * math.sin(number / 5 + i + j), 3) if n else None for j, (n, _) in enumerate(row))
                for i, row in enumerate(matrix)
            ),
            seconds={"propose": 1.5, "verify": 0.2, "match": 0.01, "solve": 3.2, "judge": 0.3, "learn": 5.0},
            alarms=(f"no valid proposal from {self.teachers[0]}",) if self.teachers and number % 20 == 19 else (),
            cosines={role: {"mean": 0.3, "min": 0.1, "max": 0.6} for role in roles} if number % 3 == 0 else {},
            **told,
        )

    def _member(self, name: str, number: int, rows: list[dict]) -> MemberSummary:
        role = name.split("_")[0]
        teaches = role == "teacher"
        own = [row for row in rows if row["reward"] is not None]
        learned = sum(row["tokens"] for row in own)
        wave = math.sin(number / 11 + len(name) + self.skill[name])
        return MemberSummary(
            name=name,
            role=role,
            version=self.versions[name],
            reward=sum(row["reward"] for row in own) / len(own) if own else None,
            validity=_share(row["valid"] for row in rows) if teaches else None,
            solve_rate=_share(row["solved"] for row in rows if row["opponent"]) if self.teachers else None,
            mu=25 + 2 * wave + 3 * self.skill[name] * (-1 if teaches else 1),
            sigma=0.8 + 4 / (1 + number / 4),
            distinct=0.5 + 0.4 * wave / 2,
            length=sum(row["tokens"] for row in rows) / max(len(rows), 1),
            rows=len(own),
            tokens=learned,
            refusals={"not_literal": 1, "syntax_error": number % 3} if teaches else {},
            grad_norm=math.nan if number == 2 else 0.2,
            delta_norm=1 + math.log1p(number) + self.skill[name] if number % 3 == 0 else None,
            effective_rank=3.5 + 0.1 * wave if number % 3 == 0 else None,
            prompt_tokens=60 * len(own),
            updates=1,
        )

    def _probe(self, number: int) -> None:
        scores = {
            name: {"accuracy": round(0.2 + 0.5 * number / (number + 60) + 0.05 * k, 3), "groups": {"code_o": 0.3}}
            for k, name in enumerate(self.students)
        }
        players = scores | {"base": {"accuracy": 0.18, "groups": {"code_o": 0.2}}}
        mean = sum(one["accuracy"] for one in scores.values()) / len(scores)
        exam = {"version": "abc", "questions": 24, "mean": mean, "groups": {"code_o": 0.3}, "players": players}
        founders = None
        if self.teachers:
            founders = {
                "tasks": 12,
                "students": {name: {"solved": 0.2 + number / (number + 99)} for name in self.students},
                "teachers": {
                    name: {"proposals": 4, "valid": 0.75, "tasks": 3, "unsolved": 0.6, "unsolved_now": None}
                    for name in self.teachers
                },
            }
        record = {
            "step": number + 1, "round": number + 1, "exams": {"held_out": exam}, "founders": founders,
            "seconds": 4.2, "elapsed": 10.0 * number + 5, "probing": 4.2 * (number / 5 + 1),
        }  # fmt: skip
        self.record.append_probe(record, [], {})


def _of(task: dict) -> dict:
    known = {"task": task["id"], "task_step": task["step"]}
    return known | {name: task[name] for name in ("type", "author", "payload")}


def _asked(text: str) -> str:
    return json.dumps([{"role": "user", "content": text}])


def _share(values) -> float | None:
    known = [bool(value) for value in values if value is not None]
    return sum(known) / len(known) if known else None
