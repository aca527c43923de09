"""Evaluation during a run, when Trainer calls it: probes the members, and logs, records and shows the numbers."""

from typing import TYPE_CHECKING

from .probes import metrics


if TYPE_CHECKING:
    from .trainer import PopulationSelfPlayTrainer


def probe(trainer: "PopulationSelfPlayTrainer", *, prefix: str = "eval") -> dict[str, float]:
    """Evaluates the current members; during training at most once per step.

    The names are `<prefix>_<name>`, which transformers shows as `<prefix>/<name>` in trackers. During training, the
    record is also written to the run's folder and passed to `on_probe`. Outside training, it is not part of the run's
    record.

    Returns:
        `dict[str, float]`: The numbers under the names of the trackers' keys.
    """
    step, probes = trainer.state.global_step, trainer.probes
    if trainer.is_in_train and probes.last is not None and probes.last["step"] == step:
        return _named(probes.last, prefix)  # a callback asks again for what was measured already
    record, rows = probes.measure(step=step, round=step // trainer.num_iterations)
    if trainer.is_in_train:
        record = probes.keep(record)
        if trainer.accelerator.is_main_process:
            from ..evaluation.results import COLUMNS

            trainer.folder.append_probe(record, rows, COLUMNS)
            if trainer.on_probe is not None:
                trainer.on_probe(record)
    else:
        trainer.source.close()  # a sandbox that was started for this
        probes.close()
    named = _named(record, prefix)
    training = trainer.model.training
    trainer.model.eval()  # or what waits to be logged of training would be logged now
    try:
        trainer.log(dict(named))
    finally:
        trainer.model.train(training)
    callbacks = trainer.callback_handler
    trainer.control = callbacks.on_evaluate(trainer.args, trainer.state, trainer.control, named)
    return named


def _named(record: dict, prefix: str) -> dict[str, float]:
    return {f"{prefix}_{name}": value for name, value in metrics(record).items()}
