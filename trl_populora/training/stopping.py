"""SIGTERM during training: the run saves a checkpoint after the round and ends. SLURM and others send it before they
end a job."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback, TrainerControl, TrainerState
from transformers.utils import logging

from ..run_files.checkpoint import newest_checkpoint
from .config import PopulationSelfPlayConfig


if TYPE_CHECKING:
    from .trainer import PopulationSelfPlayTrainer


logger = logging.get_logger(__name__)

WAITING = ("should_save", "should_training_stop")
"""What a callback may ask for within a round, and gets at its end: a resumed run would play the round again, and the
record of a round that did not end would be lost."""
SAME_SECONDS = 2.0  # a process may get a signal from the scheduler and again from the launcher: one request


class StopCallback(TrainerCallback):
    """Ends training after the round in which a process of the run got SIGTERM, with a checkpoint.

    Only at the end of a round is the checkpoint enough to continue exactly.

    Attributes:
        stopped (`bool`): Whether the last training ended for this reason, before its last step.
    """

    def __init__(self, trainer: "PopulationSelfPlayTrainer") -> None:
        self.trainer = trainer
        self.stopped = False
        self._asked: float | None = None  # when this process got the signal
        self._over = False  # whether the last round has ended; an upload may still be under way
        self._wanted: set[str] = set()  # of `WAITING`, asked for within the round

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Context in which a first SIGTERM asks training to end, and a later one has its usual effect. Works only in
        the main thread, because other threads cannot receive signals."""
        self.stopped, self._asked, self._over, self._wanted = False, None, False, set()
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL

        def ask(number: int, frame: FrameType | None) -> None:
            now = time.monotonic()
            if self._asked is None and not self._over:
                self._asked = now
            elif self._asked is None or now - self._asked >= SAME_SECONDS:
                signal.signal(number, before)
                os.kill(os.getpid(), number)

        signal.signal(signal.SIGTERM, ask)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    def on_step_end(
        self, args: PopulationSelfPlayConfig, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.global_step % self.trainer.num_iterations or state.global_step >= state.max_steps:
            return
        if self.trainer.ranks.any(self._asked is not None):
            self.stopped = True
            control.should_log = control.should_save = control.should_training_stop = True

    def on_train_end(
        self, args: PopulationSelfPlayConfig, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._over = True
        self.tell()  # Trainer waits for an upload after this

    def agree(self) -> None:
        """Gives all processes what one of them wants: `on_round` and `on_probe` are called on one only, and what a
        callback sees can differ. A process that saved or evaluated alone would wait for the others. What is of
        `WAITING` waits for the end of the round."""
        control = self.trainer.control
        wanted = {name for name in WAITING if getattr(control, name)} | self._wanted
        ended = self.trainer.state.global_step % self.trainer.num_iterations == 0
        vars(control).update(dict.fromkeys(WAITING, False), **dict.fromkeys(wanted if ended else (), True))
        self._wanted = set() if ended else wanted
        for name in ("should_log", "should_evaluate", "should_save", "should_training_stop"):
            setattr(control, name, self.trainer.ranks.any(getattr(control, name)))

    @property
    def saved(self) -> bool:
        """Whether there is a checkpoint of the newest step; the same answer on every rank."""
        return self.trainer.saved_step == self.trainer.state.global_step

    def tell(self) -> None:
        """Says how to go on, if the run was stopped."""
        if self.stopped and self.trainer.ranks.is_main:
            newest = newest_checkpoint(self.trainer.args.output_dir)
            upload = getattr(self.trainer, "push_in_progress", None)
            waits = "" if upload is None or upload.is_done() else " The process ends when its upload has ended."
            logger.warning(
                f"Stopped by SIGTERM after step {self.trainer.state.global_step}. "
                f"resume_from_checkpoint=auto goes on from {newest or 'the beginning'}.{waits}"
            )
