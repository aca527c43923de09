"""What a population's trainer sends to the Hub, and when: at the end, on demand, and while it trains."""

import os
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from transformers.trainer_utils import HubStrategy
from transformers.utils import logging
from transformers.utils.hub import PushInProgress

from ..hub import HubError, push_population
from ..hub.client import open_repository
from ..reporting.model_card import versions
from ..run_files.checkpoint import find_defect, newest_checkpoint
from ..run_files.run import read_record
from ..run_files.secrets import without_secrets


if TYPE_CHECKING:
    from .trainer import PopulationSelfPlayTrainer


logger = logging.get_logger(__name__)


def open_hub(trainer: "PopulationSelfPlayTrainer", *, token: str | None, private: bool | None) -> None:
    """Creates the repository before training, so that missing permissions are found early.

    Raises:
        HubError: If the token may not write to it, or there is no token. If the Hub cannot be reached, there is only a
            warning.
    """
    args = trainer.args
    name = args.hub_model_id or os.path.basename(os.path.abspath(args.output_dir))
    trainer.hub_model_id, trainer.push_in_progress = name, None
    private = args.hub_private_repo if private is None else private
    try:
        whose = {"private": private, "token": token or args.hub_token}
        trainer.hub_model_id = open_repository(name, revision=args.hub_revision, **whose)
    except HubError as error:
        if error.final:
            raise
        logger.warning(f"{error} Training does not wait for it. Every push tries again.")


def push(
    trainer: "PopulationSelfPlayTrainer",
    message: str | None,
    *,
    blocking: bool,
    token: str | None = None,
    revision: str | None = None,
    private: bool | None = None,
) -> str | Future:
    """Uploads what is saved in the output folder, after uploads that are under way."""
    trainer.callback_handler.on_push_begin(trainer.args, trainer.state, trainer.control)
    trainer._finish_current_push()
    own = {"token": token, "revision": revision, "private": private}
    settings: dict[str, Any] = _settings(trainer) | {key: value for key, value in own.items() if value is not None}
    if place := _place(trainer, newest_checkpoint(trainer.args.output_dir)):
        # Its own upload may have failed, or was skipped. What is there already is not sent again.
        if defect := find_defect(place["checkpoint"], content=True):
            logger.warning(f"{place['checkpoint']} is not uploaded, because it is not complete: {defect}.")
        else:
            settings |= place
    ready = push_population(trainer.args.output_dir, message=message or "Upload population", **settings)
    return ready.send() if blocking else ready.send_later()


def push_checkpoint(trainer: "PopulationSelfPlayTrainer", checkpoint: str) -> None:
    """Uploads the population of a whole checkpoint in the background, as `hub_strategy` says.

    Training continues meanwhile. The upload sends the present files of the checkpoint, even if they are deleted later.
    While another upload runs, this one is skipped, unless `hub_always_push` is set. A failure causes a warning.
    """
    args, strategy = trainer.args, HubStrategy(trainer.args.hub_strategy)
    busy = trainer.push_in_progress is not None and not trainer.push_in_progress.is_done()
    if strategy == HubStrategy.END or (busy and not args.hub_always_push):
        return
    trainer.callback_handler.on_push_begin(args, trainer.state, trainer.control)
    message = f"Training in progress, step {trainer.state.global_step}"
    settings: dict[str, Any] = _settings(trainer) | {"message": message}
    settings |= _place(trainer, checkpoint)
    try:
        ready = push_population(checkpoint, **settings)
        ready.again = "The next save and the end of the run push again."
        job = ready.send_later()
    except (OSError, ValueError) as error:
        logger.warning(f"{checkpoint} is not uploaded: {error}.")
        return
    earlier = getattr(trainer.push_in_progress, "jobs", ()) if busy else ()
    # It takes several jobs, whatever transformers' hint says.
    trainer.push_in_progress = PushInProgress([*earlier, job])  # pyright: ignore[reportArgumentType]


def _place(trainer: "PopulationSelfPlayTrainer", checkpoint: str | None) -> dict[str, str]:
    """The checkpoint and its place in the repository, if there is one and `hub_strategy` uploads any."""
    if checkpoint is None:
        return {}
    strategy = HubStrategy(trainer.args.hub_strategy)
    if strategy == HubStrategy.CHECKPOINT:
        return {"checkpoint": checkpoint}
    if strategy == HubStrategy.ALL_CHECKPOINTS:
        return {"checkpoint": checkpoint, "place": os.path.basename(checkpoint)}
    return {}


def card_facts(
    trainer: "PopulationSelfPlayTrainer",
    *,
    model_name: str | None = None,
    dataset_name: str | None = None,
    tags: str | list[str] | None = None,
) -> dict[str, Any]:
    """Facts for the card. Arguments of earlier calls are also used for later cards of the run."""
    given = {"name": model_name, "dataset": dataset_name, "tags": [tags] if isinstance(tags, str) else tags}
    trainer.told |= {key: value for key, value in given.items() if value}
    facts = {
        "settings": without_secrets(trainer.args.settings()),
        "versions": versions(),
        "dataset": trainer.dataset_name,
        "rewards": list(trainer.reward_func_names),
        "revision": trainer.base_revision,
    }
    own_tags = [tag for tag in getattr(trainer.model, "model_tags", None) or () if tag not in trainer._tag_names]
    return facts | trainer.told | {"tags": [*own_tags, *trainer.told.get("tags", ())]}


def _settings(trainer: "PopulationSelfPlayTrainer") -> dict[str, Any]:
    args = trainer.args
    recorded = read_record(args.output_dir).get("model")
    return {
        "to": trainer.hub_model_id,
        "base": None if trainer.base_model_name == recorded else trainer.base_model_name,
        "about": card_facts(trainer),
        "private": args.hub_private_repo,
        "token": args.hub_token,
        "revision": args.hub_revision,
    }
