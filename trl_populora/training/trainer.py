"""`PopulationSelfPlayTrainer`: GRPO for a population of LoRA adapters that writes its own tasks, or shares a dataset.

Every override is short, calls its parent, and does nothing without a population. What GRPOTrainer does, it still does:
padding, reference log-probabilities, losses, logging, checkpoints. What changes: the rows of a generation phase come
from a `source` (a round of self-play, or the user's prompts dealt to members), every row runs through its member's
adapter, and each member has its own optimizer group, gradient scale and clipping.
"""

import os
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext

import torch
from accelerate.utils import gather_object
from transformers import TrainerState
from transformers.trainer_utils import TrainOutput
from transformers.utils import logging
from trl import GRPOTrainer

from ..diagnostics import RoundSummary
from ..evolution import Lineage
from ..population import Population
from ..reporting.model_card import write_card
from ..run_files.checkpoint import WRITE_ERRORS, check_origin, find_checkpoint, write_checkpoint
from ..run_files.files import write_file, write_files
from ..run_files.layout import STAGING_FOLDER, TRAINER_STATE_FILE, TRAINING_ARGS_FILE, checkpoint_folder
from ..run_files.run_folder import RunFolder
from ..self_play.rewards import role_rewards, role_task_advantages
from .batching import deal
from .callbacks import RoundCallback
from .config import PopulationSelfPlayConfig
from .construction import (
    make_datasets,
    make_population,
    make_reward_functions,
    make_sampler,
    make_source,
    plain_settings,
    refuse_arguments,
)
from .dataset_source import PromptSampler
from .guard import Guard
from .ranks import Ranks
from .resize import adopt, adopt_optimizer
from .sharding import average_gradients, leave_unwrapped
from .state import fingerprint, load_hall, load_state, read_state, save_state
from .supported import TOKEN_LOSSES


logger = logging.get_logger(__name__)

PAPER = {"title": "PopuLoRA: Co-Evolving LLM Populations for Reasoning Self-Play", "id": "2605.16727", "citation": ""}


class PopulationSelfPlayTrainer(GRPOTrainer):
    """
    Trainer for populations of LoRA adapters on one frozen base (PopuLoRA, arXiv 2605.16727).

    With a plain [`~trl.GRPOConfig`] it is [`~trl.GRPOTrainer`]. With a [`PopulationSelfPlayConfig`], teachers propose
    Python tasks, a sandbox verifies them, matched students solve them, every member takes a GRPO step on its own rows,
    ratings pair the members, and weak members are replaced. With `num_teachers=0`, the students train on the dataset
    and reward functions given here, and evolve by the reward they earn.

    Args:
        model (`str` or [`~transformers.PreTrainedModel`]):
            Base model, kept frozen.
        reward_funcs (`RewardFunc` or `list[RewardFunc]`, *optional*):
            Reward functions; in self-play, additional to the self-play reward (weights: `args.reward_weights`,
            self-play first). They receive the column `player`, and in self-play `role`, `task_type` and
            `self_play_reward`.
        args ([`PopulationSelfPlayConfig`] or [`~trl.GRPOConfig`], *optional*):
            Settings.
        train_dataset, eval_dataset ([`~datasets.Dataset`], *optional*):
            Prompts, for `num_teachers=0` only. Every member is evaluated on every prompt.
        peft_config ([`~peft.LoraConfig`], *optional*):
            Template of every member's adapter; made from `lora_r`, `lora_alpha` and `lora_target_modules` if unset.
        on_round (`Callable[[RoundSummary], None]`, *optional*):
            Called on the main process after every round.

    The other arguments are those of [`~trl.GRPOTrainer`]. A population takes no tools, environments, rollout function
    or optimizer.

    Attributes:
        population ([`Population`] or `None`): Members and adapters. lineage ([`Lineage`]): Replacement events.
        source ([`SelfPlaySource`] or [`DatasetSource`]):
            Where rows come from; has the sampler, and in self-play executor, buffer and the newest round.
        ratings ([`Ratings`] or [`RewardRatings`]): What selection goes by.

    Raises:
        ValueError: If a setting contradicts another or is not supported with a population; the text names the fix.
    """

    population: Population | None = None
    _staging: str | None = None  # folder of the checkpoint that is being written

    def __init__(
        self,
        model,
        reward_funcs=None,
        args=None,
        train_dataset=None,
        eval_dataset=None,
        processing_class=None,
        reward_processing_classes=None,
        callbacks=None,
        optimizers=(None, None),
        quantization_config=None,
        peft_config=None,
        tools=None,
        rollout_func=None,
        environment_factory=None,
        *,
        on_round: Callable[[RoundSummary], None] | None = None,
    ):
        if not isinstance(args, PopulationSelfPlayConfig):
            if on_round is not None:
                raise ValueError("on_round needs a population: pass a PopulationSelfPlayConfig, or leave it out.")
            super().__init__(
                model,
                reward_funcs,
                args,
                train_dataset,
                eval_dataset,
                processing_class,
                reward_processing_classes,
                callbacks,
                optimizers,
                quantization_config,
                peft_config,
                tools,
                rollout_func,
                environment_factory,
            )
            return
        self._tag_names, self._name, self._paper = ["trl", "grpo", "populora"], "PopuLoRA", PAPER
        refuse_arguments(
            args,
            {
                "train_dataset": train_dataset,
                "eval_dataset": eval_dataset,
                "optimizers": optimizers,
                "tools": tools,
                "rollout_func": rollout_func,
                "environment_factory": environment_factory,
            },
        )
        functions, classes = make_reward_functions(args, reward_funcs, reward_processing_classes)
        population = make_population(model, args, peft_config, quantization_config)
        train_dataset, eval_dataset = make_datasets(args, population, train_dataset, eval_dataset)
        with plain_settings(args):
            super().__init__(
                population.model,
                functions,
                args,
                train_dataset,
                eval_dataset,
                processing_class,
                classes,
                callbacks,
                optimizers,
            )
        self.beta, self.use_vllm = args.beta, args.use_vllm
        self.population, self.on_round = population, on_round
        self.base_model_name = population.base_model.config._name_or_path
        self.ref_model = population.base_model if args.beta else None
        population.set_trainable()
        if args.shard_base:
            leave_unwrapped(self.model, self.accelerator)
        self.ranks = Ranks(self.accelerator)
        sampler = make_sampler(args, population, self._tokenizer, self.accelerator)
        self.source = make_source(args, population, sampler, self.ranks)
        self.rollout_func = self.source.rollout
        self.ratings, self.lineage = self.source.ratings, Lineage()
        self.guard = Guard(population)
        self.folder = RunFolder(args.output_dir, self.source.columns)
        self.member_grad_norms: dict[str, float] = {}
        self.role_rewards: dict[str, float] = {}
        self.member_updates: Counter[str] = Counter()  # optimizer steps in this round
        self._scales: dict[str, float] = {}
        self._row_members: list[str] = []
        self.add_callback(RoundCallback(self))

    def train(self, resume_from_checkpoint=None, trial=None, ignore_keys_for_eval=None):
        """As in [`~transformers.Trainer`]; `resume_from_checkpoint="auto"` takes the newest whole one, if any."""
        if self.population is None:
            return super().train(resume_from_checkpoint, trial, ignore_keys_for_eval)
        checkpoint = self.check_checkpoint(resume_from_checkpoint)
        self.folder.discard_unfinished = resume_from_checkpoint == "auto"
        if checkpoint is not None and (done := self._finished(checkpoint)):
            return done
        try:
            return super().train(checkpoint, trial, ignore_keys_for_eval)
        finally:
            self.source.close()

    def _finished(self, checkpoint: str) -> TrainOutput | None:
        """Loads a checkpoint of the last step, where there is nothing left to train: Trainer would go one step on."""
        state = TrainerState.load_from_json(os.path.join(checkpoint, TRAINER_STATE_FILE))
        if state.global_step < (self.args.max_steps if self.args.max_steps > 0 else state.max_steps):
            return None
        self._load_from_checkpoint(checkpoint)
        self.state = state
        return TrainOutput(state.global_step, 0.0, {})

    def check_checkpoint(self, wanted: str | bool | None) -> str | None:
        """The checkpoint that `train(resume_from_checkpoint=wanted)` would take; see [`find_checkpoint`]."""
        checkpoint = find_checkpoint(wanted, self.args.output_dir)
        if checkpoint is not None:
            check_origin(checkpoint, base=fingerprint(self.population.base_model), fixed=self.args.fixed_settings)
            self.folder.check_resume(checkpoint, overwrite=self.args.overwrite_output_dir)
        return checkpoint

    def close(self) -> None:
        """Ends executor and engine. Training ends the executor by itself; an engine stays for the next `train`."""
        self.source.close()
        self.source.sampler.close()

    # The rows of a generation phase ------------------------------------------------------------------------------

    def _get_train_sampler(self, dataset=None):
        if self.population is None or self.args.num_teachers:
            return super()._get_train_sampler(dataset)
        args, dataset = self.args, self.train_dataset if dataset is None else dataset
        prompts = args.prompts_per_batch
        return PromptSampler(
            len(dataset),
            prompts=prompts,
            repeats=args.generation_batch_size // prompts,
            batches=self.num_iterations * args.steps_per_generation,
            shuffle=self.shuffle_dataset,
            seed=args.seed,
            epoch=lambda: self.state.global_step // (len(dataset) // prompts * self.num_iterations),
        )

    def _generate_and_score_completions(self, inputs):
        if self.population is None:
            return super()._generate_and_score_completions(inputs)
        training, step = self.model.training, self.state.global_step
        if not training and self.args.num_teachers:
            raise ValueError("Self-play has no evaluation loop inside training. Use `populora evaluate`.")
        self._last_loaded_step = step  # the source brings weights to the engine; TRL would merge and push them all
        inputs, self._row_members = self.source.begin(inputs, round=step // self.num_iterations, step=step)
        output = super()._generate_and_score_completions(inputs)
        names = list(self.population)
        output["member_ids"] = torch.tensor(
            [names.index(n) for n in self._row_members], device=output["prompt_ids"].device
        )
        if self.args.num_teachers == 0:
            self._rate_by_reward(output, training=training)
        elif self.args.advantage == "role_task":
            output["advantages"] = self._role_task_advantages(output).to(output["advantages"])
        if self.args.num_teachers:
            self._separate_roles()
        if training:
            self._scales = self._member_scales(output)
        self.population.routing.clear()
        return output

    def _prepare_inputs(self, generation_batch):
        if self.population is None:
            return super()._prepare_inputs(generation_batch)
        before = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        if self._buffered_inputs is before:
            return inputs
        roles = [member.role for member in self.population.values()]
        self._buffered_inputs = deal(self._buffered_inputs, roles)
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if self.population is None:
            return rewards
        if self.args.num_teachers:  # no reward of any kind for a row that the executor failed to run
            rewards[rewards[:, 0].isnan()] = torch.nan
        self._rewards_per_func = rewards
        return rewards

    def _total_rewards(self) -> torch.Tensor:
        """Weighted reward of every row of all ranks, on the CPU; NaN where no function scored the row."""
        per_func = self._rewards_per_func
        total = (per_func * self.reward_weights.to(per_func.device)).nansum(dim=1)
        total[per_func.isnan().all(dim=1)] = torch.nan
        return total.cpu()

    def _role_task_advantages(self, output) -> torch.Tensor:
        """Rewards whitened over the tokens of a member, role and task type (AZR's TRR++), for this rank's rows."""
        strata = [(row.player, row.role, row.type) for row in self.source.played.rows]
        own = output["completion_mask"].sum(1).tolist()
        values = role_task_advantages(
            self._total_rewards().numpy(),
            strata,
            weights=gather_object(own),
            scale=self.scale_rewards != "none",
        )
        logged = self._logs["advantages"]
        for _ in range(min(len(values), len(logged))):
            logged.pop()
        logged.extend(values.tolist())
        start = self.ranks.index * len(own)
        return torch.from_numpy(values)[start : start + len(own)]

    def _separate_roles(self) -> None:
        """Takes headline numbers of each role, and drops TRL's, which average both sides of a zero-sum game."""
        self.role_rewards = role_rewards(
            self._total_rewards().numpy(),
            dict(zip(self.reward_func_names, self._rewards_per_func.cpu().numpy().T, strict=True)),
            roles=[row.role for row in self.source.played.rows],
            group_size=self.num_generations,
        )
        mixed = [f"rewards/{name}/{kind}" for name in self.reward_func_names for kind in ("mean", "std")]
        for name in ("reward", "reward_std", "frac_reward_zero_std", *mixed):
            self._metrics["train"].pop(name, None)

    def _rate_by_reward(self, output, *, training: bool) -> None:
        """Tells what each member earned on a dataset: to its rating in training, to the log in evaluation."""
        tokens, prompts = output["completion_mask"].sum(1).tolist(), output["prompt_mask"].sum(1).tolist()
        rows = gather_object(list(zip(self._row_members, tokens, prompts, strict=True)))
        members, tokens, prompts = zip(*rows, strict=True)
        rewards = self._total_rewards().tolist()
        if training:
            self.source.learn(members=members, rewards=rewards, tokens=tokens, prompt_tokens=prompts)
            return
        for name, reward in zip(members, rewards, strict=True):
            self._metrics["eval"][f"population/{name}/reward"].append(reward)

    def _member_scales(self, output) -> dict[str, float]:
        """Factor on each member's gradient that makes its update the one of a trainer with only its rows.

        TRL normalises the loss by all tokens of the round (dapo, cispo, vespo) or by all rows (grpo, dr_grpo, sapo,
        luspo). A member's gradient comes from its own rows only, so total / own undoes the others' share exactly.
        """
        names = list(self.population)
        weight = output["completion_mask"].sum(1).double()
        if self.loss_type not in TOKEN_LOSSES:
            weight = torch.ones_like(weight)
        own = torch.zeros(len(names), dtype=torch.float64, device=weight.device)
        own.index_add_(0, output["member_ids"], weight)
        own = self.accelerator.reduce(own, reduction="sum").tolist()
        return {name: sum(own) / n if n else 0.0 for name, n in zip(names, own, strict=True)}

    # Loss and optimisation, one member at a time -----------------------------------------------------------------

    def _get_per_token_logps_and_entropies(
        self, model, input_ids, attention_mask, logits_to_keep, batch_size=None, *args, **kwargs
    ):
        parent = super()._get_per_token_logps_and_entropies
        if self.population is None:
            return parent(model, input_ids, attention_mask, logits_to_keep, batch_size, *args, **kwargs)
        routing, rows, chunks = self.population.routing, len(input_ids), []
        for start in range(0, rows, batch_size or rows):
            part = slice(start, start + (batch_size or rows))
            members = self._row_members[part]
            routed = routing.base(members) if model is self.ref_model else nullcontext(routing.set(members))
            with routed:
                chunks.append(
                    parent(model, input_ids[part], attention_mask[part], logits_to_keep, None, *args, **kwargs)
                )
        return tuple(None if parts[0] is None else torch.cat(parts) for parts in zip(*chunks, strict=True))

    def _compute_loss(self, model, inputs):
        if self.population is None:
            return super()._compute_loss(model, inputs)
        names = list(self.population)
        self._row_members = [names[i] for i in inputs["member_ids"].tolist()]
        loss = super()._compute_loss(model, inputs)
        if not self.model.training:
            self.population.routing.clear()
        return loss

    def training_step(self, model, inputs, num_items_in_batch):
        try:
            return super().training_step(model, inputs, num_items_in_batch)
        finally:
            if self.population is not None:  # not before: gradient checkpointing routes again during backward
                self.population.routing.clear()

    def create_optimizer(self, model=None):
        if self.population is None or self.optimizer is not None:
            return super().create_optimizer(model)
        optimizer_class, kwargs = self.get_optimizer_cls_and_kwargs(self.args, self.model)
        if kwargs.keys() & {"params", "model", "optimizer_dict"}:
            raise ValueError(f"optim={self.args.optim!r} builds its own groups. Use optim='adamw_torch_fused'.")
        kwargs.pop("lr", None)
        groups = [
            {
                "params": self.population.parameters(name),
                "lr": member.learning_rate,
                "weight_decay": self.args.weight_decay,
                "member": name,
            }
            for name, member in self.population.items()
        ]
        self.optimizer = optimizer_class(groups, lr=self.args.learning_rate, **kwargs)
        return self.optimizer

    def _clip_grad_norm(self, model):
        if self.population is None:
            return super()._clip_grad_norm(model)
        self.accelerator.unscale_gradients()
        if self.args.shard_base:
            average_gradients(self.population)
        names = list(self.population)
        members = [(i, p) for i, name in enumerate(names) for p in self.population.parameters(name)]
        owners, gradients = zip(*[(i, p.grad) for i, p in members if p.grad is not None], strict=True)
        # All members in one pass and one transfer to the host: no cost per member but that of reading its gradient.
        squares = torch.stack(torch._foreach_norm(gradients)).cpu().double().square()
        scales = torch.tensor([self._scales[name] for name in names], dtype=torch.float64)
        norms = scales * torch.zeros_like(scales).index_add_(0, torch.tensor(owners), squares).sqrt()
        factors = (scales * (self.args.max_grad_norm / (norms + 1e-6)).clamp(max=1.0)).tolist()
        torch._foreach_mul_(gradients, [factors[i] for i in owners])
        self.member_grad_norms = dict(zip(names, norms.tolist(), strict=True))
        for name in self.guard.hold_back(self.member_grad_norms):
            del self.member_grad_norms[name]
            self.forget_moments(name)
            for parameter in self.population.parameters(name):
                parameter.grad = None
        self.member_updates.update(self.member_grad_norms.keys())
        return torch.tensor(list(self.member_grad_norms.values()), dtype=torch.float64).norm().float()

    def forget_moments(self, name: str) -> None:
        """Drop what the optimizer remembers of a member's former weights."""
        for parameter in self.population.parameters(name):
            self.optimizer.state.pop(parameter, None)

    # Files -------------------------------------------------------------------------------------------------------

    def _save(self, output_dir=None, state_dict=None):
        if self.population is None:
            return super()._save(output_dir, state_dict)
        if not self.args.should_save:
            return
        output_dir = output_dir or self.args.output_dir
        self.population.save(output_dir)
        save_state(self, output_dir)
        write_files(output_dir, self.processing_class.save_pretrained)
        write_file(os.path.join(output_dir, TRAINING_ARGS_FILE), lambda aside: torch.save(self.args, aside))

    def _get_output_dir(self, trial):
        return self._staging or super()._get_output_dir(trial)

    def _save_checkpoint(self, model, trial):
        parent = super()._save_checkpoint
        if self.population is None:
            return parent(model, trial)

        def write():
            parent(model, trial)
            self.folder.flush()

        self.guard.remember()
        self._staging = os.path.join(self.args.output_dir, STAGING_FOLDER)
        try:
            saved = write_checkpoint(
                write,
                output_dir=self.args.output_dir,
                step=self.state.global_step,
                is_main=self.ranks.is_main,
                problems=self.ranks.problems,
                about={
                    "base": fingerprint(self.population.base_model),
                    "processes": self.accelerator.num_processes,
                    "fixed": self.args.fixed_settings,
                },
                save_total_limit=self.args.save_total_limit,
            )
        finally:
            self._staging = None
        if saved and self.args.push_to_hub:
            self._push_from_checkpoint(checkpoint_folder(self.args.output_dir, self.state.global_step))

    def _push_from_checkpoint(self, checkpoint_folder):
        if self._staging is not None:  # it is not whole yet
            return
        if self.population is not None and self.args.hub_strategy != "end":
            try:
                self._save(self.args.output_dir)  # the upload takes the adapters from there
            except WRITE_ERRORS as error:
                logger.warning(f"Nothing is uploaded from {self.args.output_dir}: {error}.")
                return
        super()._push_from_checkpoint(checkpoint_folder)

    def create_model_card(self, model_name=None, dataset_name=None, tags=None):
        if self.population is None:
            return super().create_model_card(model_name, dataset_name, tags)
        if self.is_world_process_zero():
            write_card(
                self.args.output_dir,
                self.population.table(),
                base_model=self.base_model_name,
                repo_id=self.args.hub_model_id or self.args.output_dir,
                settings=self.args.settings(),
            )

    def _load_from_checkpoint(self, resume_from_checkpoint, model=None):
        if self.population is None:
            return super()._load_from_checkpoint(resume_from_checkpoint, model)
        state = read_state(resume_from_checkpoint)
        if self.args.resize_on_resume:
            adopt(self, resume_from_checkpoint, state)
        else:
            self.population.load(resume_from_checkpoint)
            load_state(self, state)
        load_hall(self, resume_from_checkpoint)

    def _load_optimizer_and_scheduler(self, checkpoint):
        if self.population is None or checkpoint is None or not self.args.resize_on_resume:
            return super()._load_optimizer_and_scheduler(checkpoint)
        adopt_optimizer(self.optimizer, self.lr_scheduler, checkpoint)
