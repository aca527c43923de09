"""Evaluation along a run, as Trainer asks for it: members are probed, and the numbers logged, recorded and shown."""

from typing import TYPE_CHECKING

from .probes import metrics


if TYPE_CHECKING:
    from .trainer import PopulationSelfPlayTrainer


def probe(trainer: "PopulationSelfPlayTrainer", *, prefix: str = "eval") -> dict[str, float]:
    """Probes the members of now; in training once per step.

    Trackers get `<prefix>_<name>`, which transformers spells `<prefix>/<name>`. In training the record goes to the
    run's folder and to `on_probe` as well; what a user asks for outside is none of the run's record.

    Returns:
        `dict[str, float]`: The numbers under the names of the trackers' keys.
    """
    step, probes = trainer.state.global_step, trainer.probes
    if trainer.is_in_train and probes.last is not None and probes.last["step"] == step:
        return _named(probes.last, prefix)  # `eval_on_start` asks again for what was measured already
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
