"""Progress within phases: who counts what, that nothing of it changes a run, and what a terminal shows of it."""

import io
import warnings

import pytest

from tests import tiny
from tests.terminal import Terminal
from trl_populora.executor import Executor, Job
from trl_populora.generation import TransformersSampler
from trl_populora.generation.transformers_sampler import TOKENS_AT_ONCE
from trl_populora.progress import Progress, watched_jobs
from trl_populora.reporting import LiveView


PROMPTS = [[{"role": "user", "content": text}] for text in ("one", "two and more", "three", "four", "five")]
PROGRAM = "def f(x):\n    return x + 1"


def test_the_whole_is_what_was_given_or_what_workers_expect():
    progress = Progress()
    progress.begin("solve")
    assert progress.seconds_left() is None
    progress.expect(6, "rows")
    progress.expect(2, "rows")
    progress.started -= 10
    progress.advance(2)
    assert (progress.done, progress.total, progress.unit) == (2, 8, "rows")
    assert progress.seconds_left() == pytest.approx(30, abs=1)
    progress.begin("gsm8k", 10, "answers", done=5)
    progress.expect(64, "rows")  # a batch of it
    progress.started -= 10
    assert progress.total == 10 and progress.unit == "answers" and progress.seconds_left() is None
    progress.reach(6)
    assert progress.seconds_left() == pytest.approx(40, abs=1)  # the five that were there took no time
    progress.end()
    assert not progress.name and progress.done == 0


@pytest.mark.slow
def test_rows_are_counted_while_they_are_drawn():
    seen, length = [], 2 * TOKENS_AT_ONCE + 3
    sampler = TransformersSampler(
        tiny.tiny_population(), tiny.tiny_tokenizer(), max_completion_length=length, batch_size=2
    )
    reach = sampler.progress.reach
    sampler.progress.reach = lambda done: (seen.append(done), reach(done))
    sampler.progress.begin("solve")
    sampler(PROMPTS, ["student_0", "student_1"] * 2 + ["teacher_0"], seed=3)
    assert sampler.progress.done == sampler.progress.total == 5 and sampler.progress.unit == "rows"
    assert any(0 < done < 2 and done != 1 for done in seen)  # half-written rows
    assert seen == sorted(seen)


def test_programs_are_counted_while_they_run():
    progress, seen = Progress(), []
    progress.begin("verify")
    with Executor(1) as executor:
        run = watched_jobs(executor, progress)
        assert [one.values[0].value for one in run([Job(PROGRAM, ((1,),))] * 3)] == [2, 2, 2]
        assert (progress.done, progress.total, progress.unit) == (3, 3, "programs")
        real = executor.run_many
        executor.run_many = lambda jobs: [seen.append(progress.done) or one for one in real(jobs)]
        run([Job(PROGRAM, ((1,),))] * 2)
    assert seen == [5, 5] and progress.done == progress.total == 5


@pytest.mark.slow
def test_a_round_goes_through_its_phases(make_trainer):
    trainer, phases = make_trainer(max_steps=1, evolution_interval=0), []
    progress, begin = trainer.progress, trainer.progress.begin

    def note(name, *rest, **named):
        phases.append((progress.name, progress.done, progress.total))
        begin(name, *rest, **named)

    progress.begin = note
    trainer.train()
    phases.append((progress.name, progress.done, progress.total))
    args = trainer.args
    own = {name: (done, total) for name, done, total in phases if total}
    rows = args.rows_per_round
    assert own["propose"] == (args.proposals_per_round,) * 2
    assert own["solve"] == (args.completions_per_round - args.proposals_per_round,) * 2
    assert own["learn"] == (rows, rows)
    order = [name for name, *_ in phases if name in ("propose", "verify", "match", "solve", "judge", "learn")]
    assert list(dict.fromkeys(order)) == ["propose", "verify", "match", "solve", "judge", "learn"]


def test_a_terminal_shows_phase_and_run_and_a_file_does_not(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "119")
    progress = Progress()
    for file in (Terminal(), io.StringIO()):
        with LiveView(rounds=4, file=file) as view:
            view.watch(progress)
            progress.begin("solve")
            progress.expect(8, "rows")
            progress.started -= 6
            progress.reach(2.0)
            if file.isatty():
                assert file.shows(r"2/8 rows, 0:\d\d left")
    assert not file.getvalue()


@pytest.mark.slow
def test_an_attached_view_takes_the_place_of_what_transformers_prints(make_trainer, capfd):
    own, out = [], io.StringIO()
    trainer = make_trainer(max_steps=2, on_round=own.append, disable_tqdm=False)
    with LiveView(rounds=2, file=out) as view:
        view.attach(trainer)
        trainer.train()
    assert [summary.round for summary in own] == [0, 1]
    assert "round 1/2" in out.getvalue() and "round 2/2" in out.getvalue()
    printed = "".join(capfd.readouterr())
    assert "it/s" not in printed and "'loss'" not in printed
    assert any(one[1] and "removed in v6" in one[1].pattern for one in warnings.filters)  # see quiet.py
