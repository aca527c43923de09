import json
import math
import os
import shutil

import pytest

from tests.reporting.pages import opener
from trl_populora.diagnostics import MemberSummary, RoundSummary


def make_round(number: int, *, size: int = 2, **changes) -> RoundSummary:
    """A plausible round of `size` teachers and `size` students."""
    wave = math.sin(number / 5)
    teachers, students = [tuple(f"{role}_{i}" for i in range(size)) for role in ("teacher", "student")]
    members = [
        MemberSummary(
            name=name,
            role=name.split("_")[0],
            version=number // 20,
            reward=0.1 * wave + 0.05 * i,
            validity=0.6 + 0.2 * wave if name in teachers else None,
            solve_rate=0.5 - 0.2 * wave,
            fill_rate=0.25 if name in students else None,
            solve_rate_filled=0.75 if name in students else None,
            delta_norm=1.0 + number / 10 if number % 2 else None,
            effective_rank=3.0 + 0.1 * i if number % 2 else None,
            mu=25 + wave * (1 if name in teachers else -1) + i,
            sigma=8 / (1 + number / 10) + 0.5,
            length=40 + number / 3 + i,
            rows=16,
            tokens=700,
            refusals={"no_program": 2} if name in teachers else {},
            grad_norm=0.3,
            prompt_tokens=100,
            updates=1,
        )
        for i, name in enumerate([*teachers, *students])
    ]
    facts = {
        "round": number,
        "step": number + 1,
        "members": tuple(members),
        "teachers": teachers,
        "students": students,
        "games": tuple(tuple(4 * (number + 1) * (i != j) for j in range(size)) for i in range(size)),
        "wins": tuple(tuple((i + j) * (number + 1) * (i != j) // 2 for j in range(size)) for i in range(size)),
        "matches": size,
        "window_attempts": tuple(tuple(8 * (i != j) for j in range(size)) for i in range(size)),
        "window_solved": tuple(tuple(2 * (i != j) for j in range(size)) for i in range(size)),
        "solve_rate": 0.5 - 0.2 * wave,
        "solve_rates": {("code_o", "code_i")[number % 2]: 0.4},
        "fill_rate": 0.25,
        "solve_rate_filled": 0.75,
        "rewards": {"teachers/reward": 0.5, "students/reward": -0.25},
        "cosines": {role: {"mean": 0.2, "min": 0.1, "max": 0.4} for role in ("teachers", "students") if number % 2},
        "statuses": {"ok": 40, "cpu_timeout": 1},
        "complexity": {"ast_nodes": 20 + number / 2, "ast_depth": 7 + wave, "lines": 4.5, "cyclomatic": 2.0},
        "coverage": {"filled": 10 + number, "new": 1, **{f"filled/{name}": 5 + number for name in teachers}},
        "seconds": {"propose": 1.0, "verify": 0.1, "match": 0.01, "solve": 2.0, "learn": 3.0},
    }
    return RoundSummary(**(facts | changes))


EVENT = {
    "step": 4,
    "slot": "student_1",
    "role": "student",
    "operator": "svd_subspace",
    "parameters": {"seed": 1},
    "parents": [["student_0", 0], ["student_1", 0]],
    "version": 1,
    "fitness": {"student_0": 1.0, "student_1": 0.0},
    "rating_before": [24.0, 3.0],
    "rating_after": [25.0, 4.2],
}


@pytest.fixture
def rounds() -> list[RoundSummary]:
    return [make_round(k, events=(EVENT,) if k == 3 else ()) for k in range(6)]


@pytest.fixture
def run(tmp_path, rounds):
    """Folder of a run of six rounds with a replacement."""
    lines = [json.dumps(summary.to_json()) for summary in rounds]
    (tmp_path / "history.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "lineage.jsonl").write_text(json.dumps(EVENT) + "\n")
    return tmp_path


@pytest.fixture(scope="session")
def browser():
    """Chromium, driven by Playwright; a test that needs it is skipped where one of the two is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    names = (os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
    path = next((found for name in names if name and (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("no Chromium on this machine: install it, or set CHROMIUM to its path")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser, tmp_path):
    """[`opener`] for one test."""
    with opener(browser, tmp_path) as open_it:
        yield open_it
