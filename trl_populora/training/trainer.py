"""`PopulationSelfPlayTrainer`: GRPO for a population of LoRA adapters that writes its own tasks, or shares a dataset.

Every overridden method is short and calls its parent. It may assume that there is a population (see `plain.py`).
GRPOTrainer still does the padding, reference log-probabilities, losses, logging and checkpoints. Three things change:
the rows of a generation phase come from a `source` (`row_source.py`), every row runs through its member's adapter, and
each member has its own optimizer group, gradient scale and clipping (`member_updates.py`).
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from datasets import Dataset, IterableDataset
from peft import PeftConfig, PeftModel
from torch.nn.functional import pad
from torch.optim.lr_scheduler import LambdaLR
from transformers import BitsAndBytesConfig, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin, TrainerCallback
from transformers.trainer_utils import TrainOutput
from transformers.utils import logging
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.grpo_trainer import EnvironmentFactory, RewardFunc, RolloutFunc

from ..diagnostics import RoundSummary
from ..evolution import Lineage
from ..generation import Sampler, SamplerFactory
from ..population import Population
from ..reporting.model_card import write_card
from ..run_files.checkpoint import check_origin, find_checkpoint
from ..run_files.layout import checkpoint_folder
from ..run_files.run import hub_id
from ..run_files.run_folder import RunFolder
from ..tasks import TaskType
from .batching import arrange, deal, used_columns
from .callbacks import RoundCallback
from .changes import note_changes, record_before
from .config import PopulationSelfPlayConfig
from .construction import (
    EvalDatasets,
    check_overrides,
    load_processing_class,
    make_population,
    make_rewards_and_datasets,
    make_source,
    plain_settings,
    refuse_arguments,
)
from .guard import Guard
from .importance import cut_shares
from .initial_adapters import import_events
from .member_updates import MemberUpdates
from .optimizing import make_optimizer, try_out
from .packages import check_packages
from .plain import plain_without_population
from .probes import Probes
from .probing import probe
from .ranks import Ranks, decided_by_first
from .resuming import adopt_optimizer, check_adapters, load_finished, load_run
from .reward_functions import checked, numbered
from .row_source import RowSource
from .run_record import base_revision
from .samplers import check_sampler, make_sampler
from .saving import about_run, save_checkpoint, save_run
from .scored_rows import ScoredRows, replace_advantages
from .sharding import average_gradients, leave_unwrapped
from .shared_prompts import check_same, check_shareable, pack, prompt_numbers
from .source_checks import (
    checked_advantages,
    checked_finish,
    checked_rewards,
    checked_rollout,
    checked_rows,
    checked_setup,
)
from .stopping import StopCallback
from .supported import FIXED, TOKEN_LOSSES, check_fixed, has_own_loss, without_effect
from .token_means import weigh, weighed
from .uploading import card_facts, open_hub, push, push_checkpoint


logger = logging.get_logger(__name__)

OLD_LOGPS = "old_per_token_logps"
"""TRL's name of log-probabilities of the policy that drew the rows."""


@plain_without_population
class PopulationSelfPlayTrainer(GRPOTrainer):
    """
    Trainer for populations of LoRA adapters on one frozen base (PopuLoRA, arXiv 2605.16727).

    With a [`PopulationSelfPlayConfig`], teachers propose tasks, a sandbox verifies them, and matched students solve
    them. Every member takes a GRPO step on its own rows. Ratings pair the members, and weak members are replaced. With
    `num_teachers=0`, the students train on the dataset and reward functions that are passed here, and evolution uses
    their mean reward. With a plain [`~trl.GRPOConfig`], or without `args`, the class behaves as [`~trl.GRPOTrainer`].

    Args:
        model (`str` or [`~transformers.PreTrainedModel`]):
            Base model, kept frozen.
        reward_funcs (`RewardFunc` or `list[RewardFunc]`, *optional*):
            Reward functions. In self-play, they are added to the self-play reward (weights: `args.reward_weights`,
            with the weight of self-play first). They receive the column `player`, and in self-play also `role`,
            `task_type` and `self_play_reward`.
        args ([`PopulationSelfPlayConfig`] or [`~trl.GRPOConfig`], *optional*):
            Settings. Without them, the class behaves as GRPOTrainer. For self-play, pass a
            [`PopulationSelfPlayConfig`].
        train_dataset, eval_dataset ([`~datasets.Dataset`], *optional*):
            Prompts, for `num_teachers=0` only. Every member is evaluated on every prompt.
        peft_config ([`~peft.LoraConfig`], *optional*):
            Template of every member's adapter; made from `lora_r`, `lora_alpha` and `lora_target_modules` if unset.
        row_source ([`RowSource`], *optional*):
            An object of your own subclass of [`RowSource`], if the rows come neither from self-play nor from a
            dataset.
        task_types (`Sequence[str | TaskType]`, *optional*):
            Task types of the run, instead of `args.task_types`: names as there, or instances, as in
            `task_types=["code_o", MyType(largest=9)]`.
        on_round (`Callable[[RoundSummary], None]`, *optional*):
            Called on the main process after every round. If unset, alarms that begin in a round are logged as
            warnings; else they are for the function to show (`summary.alarms`).
        on_probe (`Callable[[dict], None]`, *optional*):
            Called on the main process with the record of every evaluation during the run, as in `probes.jsonl`.
        sampler (`type[Sampler]` or `Callable`, *optional*):
            Your own sampler of completions, instead of `use_vllm`: a subclass of [`Sampler`], or a function
            `(population, tokenizer, accelerator, args) -> Sampler` (docs/samplers.md). Default: the training model
            itself.

    The other arguments are those of [`~trl.GRPOTrainer`]. A population takes no tools, environments, rollout function
    or optimizer.

    Attributes:
        population ([`Population`] or `None`): Members and adapters. lineage ([`Lineage`]): Replacement events.
        source ([`RowSource`]): Makes the rows. It holds the sampler, and in self-play also the executor, the buffer
            and the newest round. row_members (`list[str]`): Adapter of each current row of this process.
        ratings ([`Ratings`] or [`RewardRatings`]): Ratings of the members. Selection uses their `fitness`.
        updates ([`MemberUpdates`]): Scales, clipping and moments of each member.
        progress ([`Progress`]): Phase of the round and its progress, for a view to read.
        stopping ([`StopCallback`]): Its `stopped` tells whether SIGTERM ended the training before its last step.
        probes ([`Probes`]): Evaluations during the run. warm_start (`dict` or `None`): Settings of the warm start
            before this run, for `run.json`. resumed (`list[dict]`): Changes of settings at resumes, also for it.

    Raises:
        ValueError: If a setting contradicts another or is not supported with a population; the text names the fix.
    """

    args: PopulationSelfPlayConfig
    model: PeftModel
    processing_class: PreTrainedTokenizerBase | ProcessorMixin
    lr_scheduler: LambdaLR
    # `plain.py` passes every method to GRPOTrainer while it is `None`, so that no method here meets that.
    population: Population = None  # pyright: ignore[reportAssignmentType]
    staging: str | None = None  # folder of the checkpoint that is being written
    saved_step: int | None = None  # of the newest checkpoint that this process has helped to write
    dataset_name: str | None = None  # what the prompts are called, for the card
    warm_start: dict[str, Any] | None = None

    def __init__(
        self,
        model: str | PreTrainedModel | PeftModel,
        reward_funcs: RewardFunc | list[RewardFunc] | None = None,
        args: GRPOConfig | None = None,
        train_dataset: Dataset | IterableDataset | None = None,
        eval_dataset: EvalDatasets = None,
        processing_class: PreTrainedTokenizerBase | ProcessorMixin | None = None,
        reward_processing_classes: PreTrainedTokenizerBase | list[PreTrainedTokenizerBase] | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: tuple[torch.optim.Optimizer | None, LambdaLR | None] = (None, None),
        quantization_config: BitsAndBytesConfig | None = None,
        peft_config: PeftConfig | None = None,
        tools: list[Callable] | None = None,
        rollout_func: RolloutFunc | None = None,
        environment_factory: EnvironmentFactory | dict[str, EnvironmentFactory] | None = None,
        *,
        row_source: RowSource | None = None,
        task_types: Sequence[str | TaskType] | None = None,
        on_round: Callable[[RoundSummary], None] | None = None,
        on_probe: Callable[[dict[str, Any]], None] | None = None,
        sampler: type[Sampler] | SamplerFactory | None = None,
    ) -> None:
        args = cast(PopulationSelfPlayConfig, args)  # `plain.py` has passed others on
        check_sampler(sampler, args)
        for name, function in {"on_round": on_round, "on_probe": on_probe}.items():
            if function is not None and not callable(function):
                raise TypeError(f"{name}={function!r} must be a function of one argument, or None.")
        check_overrides(self, callbacks)
        refuse_arguments(
            optimizers=next((one for one in optimizers if one is not None), None),
            tools=tools,
            rollout_func=rollout_func,
            environment_factory=environment_factory,
        )
        check_packages(args, reward_funcs if isinstance(reward_funcs, list) else [reward_funcs])
        source = make_source(args, row_source, task_types)
        functions, classes, train_dataset, eval_dataset = make_rewards_and_datasets(
            source, args, reward_funcs, reward_processing_classes, train_dataset, eval_dataset
        )
        population = make_population(model, args, peft_config, quantization_config)
        if processing_class is None:
            processing_class = load_processing_class(population, model, args)
        self._tag_names = ["trl", "grpo", "populora"]
        self.told: dict[str, Any] = {}  # facts for the card that came as arguments
        with plain_settings(args, eval_dataset=eval_dataset):
            super().__init__(
                population.model,
                functions,
                args=args,
                train_dataset=train_dataset,
                eval_dataset=eval_dataset,
                processing_class=processing_class,
                reward_processing_classes=classes,
                callbacks=callbacks,
                optimizers=optimizers,
            )
        self.reward_func_names = numbered(self.reward_func_names)
        self._attach(population, source, sampler)
        self.given_lora, self.base_revision = peft_config, base_revision(model, args)
        self.on_round, self.on_probe = on_round, on_probe
        self.stopping = StopCallback(self)
        self.add_callback(RoundCallback(self))
        self.add_callback(self.stopping)
        try_out(self)
        if self.ranks.is_main and (useless := without_effect(args, model, peft_config)):
            logger.warning(f"Without effect: {'; '.join(useless)}.")
        if self.ranks.is_main and has_own_loss(self, PopulationSelfPlayTrainer) and args.loss_type in TOKEN_LOSSES:
            logger.warning(
                f"{type(self).__name__} has a loss of its own, and loss_type={args.loss_type!r}: gradients are scaled "
                "as for a loss divided by all tokens of the step. If yours is a mean over rows, set loss_type='grpo'."
            )
        if args.push_to_hub:
            self.init_hf_repo()

    def _attach(
        self, population: Population, source: RowSource, sampler: type[Sampler] | SamplerFactory | None
    ) -> None:
        """Replaces the single policy of GRPOTrainer's constructor by the population."""
        args = self.args
        self.beta, self.population = args.beta, population
        self.base_model_name = population.base_model.config._name_or_path
        self.ref_model = population.base_model if args.beta else None
        population.set_trainable()
        if args.shard_base:
            leave_unwrapped(self.model, self.accelerator)
        self.ranks = Ranks(self.accelerator)
        drawing = make_sampler(sampler, args, population, self._tokenizer, self.accelerator)
        self.progress = drawing.progress
        self.use_vllm = drawing.reports_logprobs  # to TRL: there are log-probabilities of another engine to correct by
        checked_setup(source, args, population, drawing, self.ranks)
        self.source, self.rollout_func = source, partial(checked_rollout, source)
        self._generate = partial(self._note_written, self._generate)  # also a subclass' own
        self._calculate_rewards = partial(self._keep_rewards, self._calculate_rewards)  # also a subclass' own
        self.ratings, self.lineage = source.ratings, Lineage()
        self.lineage.extend(import_events(population))
        self.guard = Guard(population)
        self.updates = MemberUpdates(
            population, self.guard, max_grad_norm=args.max_grad_norm, by_token=args.loss_type in TOKEN_LOSSES
        )
        self.probes = Probes(args, source, has_dataset=self.eval_dataset is not None)
        self.folder = RunFolder(args.output_dir)
        self.given_sampler = sampler
        self.row_members: list[str] = []
        self._written: dict[str, list] = {}  # this process' prompts, completions and their lengths
        self._batch: dict[str, Any] = {}  # the micro-batch of the update
        self._unseen, self._logps = 0, None  # micro-batches before their first pass; what the last pass has computed
        self.resumed: list[dict[str, Any]] = []
        self.has_trained = False
        self.fixed = {name: getattr(args, name) for name in FIXED}
        if args.share_prompts:
            check_shareable(population.base_model, aux_loss=self.aux_loss_enabled)
            rounded = self.accelerator.mixed_precision != "no" or population.base_model.dtype != torch.float32
            with population.routing.base(), self.accelerator.autocast():
                check_same(self.model, population.base_model, rounded=rounded)

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput:
        """As in [`~transformers.Trainer`]. `resume_from_checkpoint="auto"` uses the newest complete checkpoint, if
        any. After SIGTERM, it saves a checkpoint at the end of the round and returns; see `stopping`. A second call
        without a checkpoint trains on from where the members are."""
        check_fixed(self.args, self.fixed)
        checkpoint = self.check_checkpoint(resume_from_checkpoint)
        if checkpoint is None and self.has_trained:
            self._go_on(resume=bool(resume_from_checkpoint))
        self.folder.discard_unfinished = resume_from_checkpoint == "auto"
        self.folder.is_anothers = checkpoint is not None and self.folder.is_elsewhere(checkpoint)
        self._forget_rows()
        self.resumed = []
        try:
            with self.folder.locked() if self.ranks.is_main else nullcontext(), self.stopping.listening():
                if checkpoint is not None and load_finished(self, checkpoint):
                    return TrainOutput(self.state.global_step, 0.0, {})
                self.check_sandbox()
                return super().train(checkpoint, trial, ignore_keys_for_eval)
        finally:
            self.is_in_train = False  # which Trainer leaves on after an error or Ctrl-C
            self._close_sandboxes()

    def _go_on(self, *, resume: bool) -> None:
        """A second `train` without a checkpoint: members, ratings and buffers are those of the first.

        Raises:
            ValueError: If a resume was asked for, which would begin where the run began.
        """
        where = "its members, ratings and task buffers stay as they are"
        fix = "To start from the beginning, build a new trainer."
        if resume:
            raise ValueError(
                f"resume_from_checkpoint: {self.args.output_dir!r} holds no checkpoint, and this trainer has trained "
                f"already: {where}. {fix} To train on from here, call train() without it."
            )
        if self.ranks.is_main:
            logger.warning(f"This trainer has trained already: {where}, and the record begins again at round 1. {fix}")
        self.population.count_anew()

    def _forget_rows(self) -> None:
        """Drops what an interrupted `train` has left: rows that nobody learned from yet, and metrics of them."""
        vars(self).update(_step=0, _buffered_inputs=None)
        self._metrics["train"].clear()
        self.updates.begin_round()
        self.guard.begin_round()

    def check_checkpoint(self, wanted: str | bool | None) -> str | None:
        """The checkpoint that `train(resume_from_checkpoint=wanted)` would take; see [`find_checkpoint`]. All
        processes must call it."""
        if not wanted:
            return None
        checkpoint = decided_by_first(lambda: find_checkpoint(wanted, self.args.output_dir))
        if checkpoint is not None:
            check_origin(checkpoint, **about_run(self))
            record_before(checkpoint)  # refused now if it is damaged
            check_adapters(self, checkpoint)
            self.folder.check_resume(checkpoint, overwrite=self.args.overwrite_output_dir)
        return checkpoint

    def check_sandbox(self) -> None:
        """Starts the executor of the rows, if there is one. Raises [`SandboxError`] if it cannot be started here."""
        if self.source.executor is not None:
            self.source.executor.isolation  # noqa: B018 - its self-test

    def close(self) -> None:
        """Ends executor and engine. Training itself ends the executor at its end; an engine stays for the next
        `train`."""
        self._close_sandboxes()
        self.source.sampler.close()

    def _close_sandboxes(self) -> None:
        self.source.close()
        self.probes.close()

    # Evaluation --------------------------------------------------------------------------------------------------

    def evaluate(
        self,
        eval_dataset: Dataset | dict[str, Dataset] | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """As in [`~transformers.Trainer`]. If no dataset is passed, members also take the exams of
        `args.probe_kwargs`. During training, the answers are written to the run's record."""
        metrics = {}
        if eval_dataset is None:
            self.probes.prepare()
        elif not isinstance(eval_dataset, (dict, str)):  # with several, Trainer calls this method for each
            eval_dataset = self.source.to_evaluate(eval_dataset)
        if eval_dataset is not None or self.eval_dataset is not None or not self.probes.has_exams:
            # transformers' hint names torch's datasets only
            metrics = super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)  # pyright: ignore[reportArgumentType]
        if eval_dataset is None and self.probes.has_exams:
            metrics = metrics | probe(self, prefix=metric_key_prefix)
        return metrics

    # The rows of a generation phase ------------------------------------------------------------------------------

    def _get_train_sampler(self, dataset: Dataset | None = None) -> Any:
        rows: Any = self.train_dataset if dataset is None else dataset
        order = self.source.order(rows, step=lambda: self.state.global_step)
        return super()._get_train_sampler(dataset) if order is None else order

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        training, step = self.model.training, self.state.global_step
        self._last_loaded_step = step  # the source brings weights to the engine; TRL would merge and push them all
        place = {"round": step // self.num_iterations, "step": step, "training": training}
        wanted = len(inputs)
        self.progress.begin("sample" if training else "evaluate")
        begun = self.source.begin(inputs, **place)
        inputs, self.row_members = checked_rows(self.source, begun, wanted=wanted, training=training)
        if self.log_completions:
            for column, values in self.source.labels(self.row_members).items():
                self._log_completion_extra(column, values)
        if any(getattr(module, "gradient_checkpointing", False) for module in self.model.modules()):
            self.model.disable_input_require_grads()  # TRL turns it off and on in there; each time a hook would stay
        output = super()._generate_and_score_completions(inputs)
        names, device = list(self.population), output["prompt_ids"].device
        output["member_ids"] = torch.tensor([names.index(name) for name in self.row_members], device=device)
        rewards, weights = self._rewards_per_func, self.reward_weights
        place["versions"] = {name: member.version for name, member in self.population.items()}
        functions = {"names": self.reward_func_names, "weights": weights}
        rows = ScoredRows.gather(output, rewards, members=self.row_members, **self._written, **functions, **place)
        if training:
            self.progress.begin("learn", wanted * self.num_iterations, "rows")
            self.updates.rescale(rows)
            advantages = checked_advantages(self.source, rows)
            if advantages is not None:
                replace_advantages(output, advantages, process=self.ranks.index, logged=self._logs["advantages"])
                rows = replace(rows, advantages=advantages)
            self.source.scored = rows
        metrics = self._metrics["train" if training else "eval"]
        if "importance_sampling_ratio" in output:
            for name, share in cut_shares(output, self.args, self.accelerator.reduce, len(names)).items():
                metrics[f"sampling/cut/{names[name]}"].append(share)
        checked_finish(self.source, rows, metrics)
        self.population.routing.clear()
        return output

    def _note_written(self, generate: Callable[[list], tuple], prompts: list) -> tuple:
        """Generates, and notes what: TRL masks truncated completions (`mask_truncated_completions`), and logs no more
        rows than a generation batch has, which can be fewer than are evaluated at once."""
        generated = generate(prompts)
        self.source.sampler.rest()
        lengths = [len(ids) for ids in generated[1]]
        self._written = {"prompts": prompts, "completions": generated[3], "lengths": lengths}
        return generated

    def _keep_rewards(self, calculate: Callable[..., torch.Tensor], *rows: Any, **named: Any) -> torch.Tensor:
        given, self.reward_funcs = self.reward_funcs, checked(self.reward_funcs, self.reward_func_names)
        try:
            rewards = calculate(*rows, **named)
        finally:
            self.reward_funcs = given
        infinite = rewards.isinf()
        if infinite.any():
            names = [self.reward_func_names[i] for i in infinite.any(0).nonzero().flatten().tolist()]
            logger.warning_once(f"Infinite rewards of {', '.join(names)} do not count: they are taken as None.")
        self._rewards_per_func = checked_rewards(self.source, rewards.masked_fill(infinite, torch.nan))
        return self._rewards_per_func

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        before = self._buffered_inputs
        self.population.stay_trainable()  # a callback or a reward function may have switched adapters
        inputs = super()._prepare_inputs(generation_batch)
        self.population.stay_trainable()
        if self._buffered_inputs is not before:
            roles = [member.role for member in self.population.values()]
            idle = not self.beta and self.args.loss_type in TOKEN_LOSSES  # neither a penalty nor a mean over rows
            how = {"leave_out_idle": idle, "share_prompts": self.args.share_prompts, "agree": self.ranks.largest}
            hidden = self.population.base_model.config.get_text_config().hidden_size
            self._buffered_inputs = deal(self._buffered_inputs, roles, hidden=hidden, **how)
            weigh(self._buffered_inputs, self.accelerator.reduce)
            inputs = self._buffered_inputs[self._step % self.args.steps_per_generation]
            self._unseen = len(self._buffered_inputs)
        if self.model.training:
            self._batch = inputs
        names = list(self.population)
        self.row_members = [names[i] for i in inputs["member_ids"].tolist()]
        self.population.routing.set(self.row_members)  # a subclass' loss may call the model itself
        return inputs

    def prediction_step(self, *args: Any, **kwargs: Any) -> tuple:
        try:
            return super().prediction_step(*args, **kwargs)
        finally:
            self.population.routing.clear()

    # Loss and optimisation, one member at a time -----------------------------------------------------------------

    def _get_per_token_logps_and_entropies(
        self,
        model: torch.nn.Module,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> tuple:
        parent, routing = super()._get_per_token_logps_and_entropies, self.population.routing
        names, roles = list(self.population), [member.role for member in self.population.values()]
        own, scored, updates = [names.index(name) for name in self.row_members], [], torch.is_grad_enabled()
        chunks, hidden = [list(range(len(own)))], self.population.base_model.config.get_text_config().hidden_size
        given = {name for name, value in kwargs.items() if value is not None}
        share = self.args.share_prompts and not args and given <= {"compute_entropy", "compute_aux_loss"}
        own_loss = share and updates and has_own_loss(self, PopulationSelfPlayTrainer)  # may call the model itself
        if own_loss and any(getattr(module, "gradient_checkpointing", False) for module in self.model.modules()):
            share = False  # backward routes again as now
        if batch_size and not updates:  # the update's are dealt and trimmed, and routed until backward
            ids, mask = input_ids[:, :-logits_to_keep], attention_mask[:, :-logits_to_keep]
            prompts = prompt_numbers(ids, mask, own) if share else None
            lengths = mask.sum(1).tolist(), attention_mask[:, -logits_to_keep:].sum(1).tolist()
            chunks = arrange(own, *lengths, roles=roles, size=batch_size, prompts=prompts, hidden=hidden)
        for rows in chunks:
            places = [own[row] for row in rows]
            columns, spare = used_columns(attention_mask[rows], logits_to_keep)
            part = input_ids[rows, columns], attention_mask[rows, columns], logits_to_keep - spare
            packed = pack(*part, places, hidden=hidden) if share else None
            members = [names[i] for i in (places if packed is None else packed.members)]
            routed = nullcontext(routing.set(members)) if updates else routing.rows(members)
            with routing.base(members) if model is self.ref_model else routed:
                if packed is None:
                    outputs = parent(model, *part, None, *args, **kwargs)
                else:
                    with self.accelerator.autocast():
                        outputs = packed.score(model, entropy=kwargs.get("compute_entropy", False))
            scored.append([None if values is None else pad(values, (0, spare)) for values in outputs])
            if packed is not None and own_loss:
                routing.set(self.row_members)
        order = torch.tensor([row for rows in chunks for row in rows], device=input_ids.device).argsort()
        told = tuple(None if parts[0] is None else torch.cat(parts)[order] for parts in zip(*scored, strict=True))
        if updates and told[0] is not None:
            self._logps = told[0].detach()
        return told

    def _compute_loss(self, model: torch.nn.Module, inputs: dict[str, Any]) -> torch.Tensor:
        """In the first pass over a micro-batch, with the weights that drew its rows, all ratios are 1. The pass before
        the update has batches of other shapes, which round otherwise."""
        if not (self._unseen and self.model.training and OLD_LOGPS in inputs):
            return super()._compute_loss(model, inputs)
        self._logps = None
        loss = super()._compute_loss(model, {name: value for name, value in inputs.items() if name != OLD_LOGPS})
        if self._logps is not None:
            self._batch[OLD_LOGPS] = self._logps
        return loss

    def training_step(self, model: torch.nn.Module, inputs: Any, num_items_in_batch: Any) -> torch.Tensor:
        by_row = self.importance_sampling_level == "sequence"
        try:
            with weighed(self._metrics["train"], lambda: self._batch, by_row=by_row):
                loss = super().training_step(model, inputs, num_items_in_batch)
            self._unseen = max(self._unseen - 1, 0)
            return loss
        finally:  # not before: gradient checkpointing routes again during backward
            self.population.routing.clear()
            self.progress.advance(self.args.per_device_train_batch_size)

    def create_optimizer(self, model: torch.nn.Module | None = None) -> torch.optim.Optimizer:
        if self.optimizer is not None:
            return super().create_optimizer(model)
        self.optimizer = make_optimizer(self, self.updates.groups(weight_decay=self.args.weight_decay))
        return self.optimizer

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        self.stopping.agree()
        super()._maybe_log_save_evaluate(*args, **kwargs)
        self.stopping.agree()

    def _evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        metrics = super()._evaluate(*args, **kwargs)
        self.stopping.agree()
        return metrics

    def _clip_grad_norm(self, model: torch.nn.Module) -> torch.Tensor:
        self.accelerator.unscale_gradients()
        if self.args.shard_base:
            average_gradients(self.population)
        return self.updates.clip(self.optimizer)

    # Files -------------------------------------------------------------------------------------------------------

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        if self.args.should_save:
            save_run(self, output_dir or self.args.output_dir)

    def _get_output_dir(self, trial: Any) -> str:
        return self.staging or super()._get_output_dir(trial)

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        parent = super()._save_checkpoint
        self.progress.begin("save")
        saved = save_checkpoint(self, lambda: parent(model, trial))
        self.saved_step = self.state.global_step if saved else self.saved_step
        if saved and self.args.push_to_hub:
            self._push_from_checkpoint(checkpoint_folder(self.args.output_dir, self.state.global_step))

    # The Hub -----------------------------------------------------------------------------------------------------

    def init_hf_repo(self, token: str | None = None, private: bool | None = None) -> None:
        decided_by_first(lambda: open_hub(self, token=token, private=private))

    def push_to_hub(
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        private: bool | None = None,
        **kwargs: Any,
    ) -> str | Future | None:
        """Saves the population and uploads it, one folder per member, in one commit.

        Args:
            commit_message (`str`, *optional*): Title of the commit.
            blocking (`bool`, *optional*, defaults to `True`): Whether to wait until it is done.
            token, revision, private: Used instead of `hub_token`, `hub_revision` and `hub_private_repo`.
            kwargs: Arguments of `create_model_card`.

        Returns:
            `str`, or `Future` if not `blocking`: Address of the commit; `None` on other processes than the first.

        Raises:
            HubError: If the upload failed. The message has the command that repeats it from the folder.
        """
        self.save_model(_internal_call=True)
        if not self.is_world_process_zero():
            return None
        if self.hub_model_id is None:
            open_hub(self, token=token, private=private)
        self.create_model_card(**kwargs)
        return push(self, commit_message, blocking=blocking, token=token, revision=revision, private=private)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        if self.staging is None and self.is_world_process_zero():  # while staged, the checkpoint is not whole yet
            push_checkpoint(self, checkpoint_folder)

    def create_model_card(
        self, model_name: str | None = None, dataset_name: str | None = None, tags: str | list[str] | None = None
    ) -> None:
        if self.is_world_process_zero():
            facts = card_facts(self, model_name=model_name, dataset_name=dataset_name, tags=tags)
            table, base = self.population.table(), self.base_model_name
            about = {"base_model": base, "hub_base": hub_id(base), "repo_id": self.hub_model_id}
            write_card(self.args.output_dir, table, **about, **facts)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: torch.nn.Module | None = None) -> None:
        load_run(self, resume_from_checkpoint)
        note_changes(self, resume_from_checkpoint)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None or not self.args.resize_on_resume:
            return super()._load_optimizer_and_scheduler(checkpoint)
        adopt_optimizer(self.optimizer, self.lr_scheduler, checkpoint)
