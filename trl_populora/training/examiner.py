"""`Examiner`: lets members answer without learning, and does not change the run.

All ranks sample and execute their shares, as in a round. The settings of the sampler and the random states are
restored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..executor import Execution, Executor, Job
from ..generation import Sampler
from ..progress import watched_jobs
from ..self_play.sampling import Completion, Message


if TYPE_CHECKING:
    from ..evaluation import Exam
    from ..evaluation.results import ExamResult
    from .row_source import RowSource


class Examiner:
    """Samples and judges answers with the sampler and the sandbox of a run.

    Args:
        source ([`RowSource`]): Already set up. If it has no sandbox, one is created when the first program runs.
    """

    def __init__(self, source: RowSource) -> None:
        self.source = source
        self._own: Executor | None = None

    @property
    def sampler(self) -> Sampler:
        return self.source.sampler

    def draw(
        self,
        prompts: Sequence[list[Message]],
        players: Sequence[str | None],
        *,
        seed: int,
        streams: Sequence[int],
    ) -> list[Completion]:
        """One completion per prompt, with the sampler's settings. Each rank samples its share."""
        adapters = [self._adapter(player) for player in players]
        return self.source.ranks.share(
            list(zip(prompts, adapters, streams, strict=True)),
            lambda own, _: self.sampler(
                [one[0] for one in own], [one[1] for one in own], seed=seed, streams=[one[2] for one in own]
            ),
            evenly=self.source.args.shard_base,  # every forward is then a collective
        )

    def run(self, jobs: Sequence[Job]) -> list[Execution]:
        """Runs programs in the sandbox, each rank its share. They are not counted in the metrics of the round."""
        executor = self.source.executor or self._own
        if executor is None:
            executor = self._own = self.source.args.executor.make(self.source.ranks.cores)
        run = watched_jobs(executor, self.sampler.progress)
        return self.source.ranks.share(list(jobs), lambda own, _: run(own))

    def examine(
        self, exam: Exam, players: Sequence[str], *, base: bool = False, length: int | None = None
    ) -> ExamResult:
        """Lets players answer an exam with greedy decoding, in one batch (the base separately), and grades the
        answers.

        Args:
            exam ([`Exam`]): The questions.
            players (`Sequence[str]`): Members, players or guests.
            base (`bool`, *optional*, defaults to `False`): Whether the frozen base answers, too, under the name
                `"base"`.
            length (`int`, *optional*): Maximum tokens of an answer. If unset, that of the exam, or else that of the
                run.
        """
        from ..evaluation.answering import collect_answers, grade  # imports evaluate, which takes a second
        from ..evaluation.results import ExamResult

        with self.sampler.decoding(temperature=0.0, max_completion_length=length or exam.max_completion_length):
            rows = (len(players) + 1) * len(exam.questions)
            self.sampler.progress.begin(f"probe {exam.name}")
            answers = collect_answers(exam, players, self.draw, base=base, rows_per_call=rows)
        self.sampler.progress.begin(f"probe {exam.name}, grading")
        return ExamResult(exam, grade(exam, answers, exam.make_grader(self.run)))

    def close(self) -> None:
        """Ends the sandbox if the examiner has created it. The next program starts a new one."""
        if self._own is not None:
            self._own.close()

    def _adapter(self, player: str | None) -> str | None:
        population = self.source.population
        return player if player is None or player in population.guests else population.adapter_of(player)
