"""`PopulationSelfPlayTrainer`: GRPO for a population that writes its own tasks.

Every override is short, calls its parent, and does nothing without a population. What GRPOTrainer does, it still does:
padding, reference log-probabilities, losses, logging, checkpoints. What changes: a generation phase is a round of
self-play, every row runs through its member's adapter, and each member has its own optimizer group, gradient scale and
clipping.
"""

import os
import time
from collections import Counter
from collections.abc import Callable

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from peft import LoraConfig
from transformers import PreTrainedModel, set_seed
from trl import GRPOTrainer
from trl.trainer.utils import create_model_from_path

from ..diagnostics import Observer, RoundSummary
from ..evolution import Lineage
from ..executor import Executor, Limits
from ..generation import TransformersSampler
from ..population import Population
from ..self_play import PlayedRound, Ratings, RoundSettings, SelfPlay
from ..self_play.rewards import advantages
from ..tasks import TaskBuffer, identity_tasks, seed_tasks, task_types
from .batching import deal
from .callbacks import RoundCallback
from .config import TOKEN_LOSSES, PopulationSelfPlayConfig
from .run_folder import RunFolder
from .state import load_state, save_state


def self_play_reward(completions, self_play_reward, **kwargs) -> list[float | None]:
    """Reward function that hands TRL the rewards which the round has already computed."""
    return self_play_reward


class PopulationSelfPlayTrainer(GRPOTrainer):
    """
    Trainer for populations of teacher and student LoRA adapters on one frozen base (PopuLoRA, arXiv 2605.16727).

    With a plain [`~trl.GRPOConfig`] it is [`~trl.GRPOTrainer`]. With a [`PopulationSelfPlayConfig`], teachers propose
    Python tasks, a sandbox verifies them, matched students solve them, every member takes a GRPO step on its own rows,
    ratings pair the members, and weak members are replaced.

    Args:
        model (`str` or [`~transformers.PreTrainedModel`]):
            Base model, kept frozen.
        reward_funcs (`RewardFunc` or `list[RewardFunc]`, *optional*):
            Additional reward functions, added to the self-play reward (weights: `args.reward_weights`, self-play
            first). They receive the columns `player`, `role`, `task_type` and `self_play_reward`.
        args ([`PopulationSelfPlayConfig`] or [`~trl.GRPOConfig`], *optional*):
            Settings.
        peft_config ([`~peft.LoraConfig`], *optional*):
            Template of every member's adapter; made from `lora_r`, `lora_alpha` and `lora_target_modules` if unset.
        on_round (`Callable[[RoundSummary], None]`, *optional*):
            Called on the main process after every round.
        kwargs:
            Further arguments of [`~trl.GRPOTrainer`]. A population takes no dataset, tools, environments, rollout
            function or optimizer.

    Attributes:
        population ([`Population`] or `None`): Members and adapters. ratings ([`Ratings`]): Their ratings.
        lineage ([`Lineage`]): Replacement events. buffer ([`TaskBuffer`]): Verified tasks.
        executor ([`Executor`]): Sandbox. sampler ([`TransformersSampler`]): Draws completions.

    Raises:
        ValueError: If a setting contradicts another or is not supported with a population; the text names the fix.
    """

    _tag_names = ["trl", "grpo", "populora"]
    _name = "PopuLoRA"
    _paper = {
        "title": "PopuLoRA: Co-Evolving LLM Populations for Reasoning Self-Play",
        "id": "2605.16727",
        "citation": "",
    }
    population: Population | None = None

    def __init__(
        self,
        model: "str | PreTrainedModel",
        reward_funcs=None,
        args=None,
        *positional,
        peft_config: LoraConfig | None = None,
        on_round: Callable[[RoundSummary], None] | None = None,
        **kwargs,
    ):
        if not isinstance(args, PopulationSelfPlayConfig):
            super().__init__(model, reward_funcs, args, *positional, peft_config=peft_config, **kwargs)
            return
        _refuse_arguments(positional, kwargs)
        reward_funcs = reward_funcs if isinstance(reward_funcs, list) else [reward_funcs] if reward_funcs else []
        population = self._make_population(model, args, peft_config, kwargs.pop("quantization_config", None))
        # GRPOTrainer would add a "ref" adapter copied from "default" for beta > 0; the reference here is the base.
        beta, args.beta = args.beta, 0.0
        classes = kwargs.pop("reward_processing_classes", None)
        if classes is not None:  # one per function, and the self-play reward comes first
            kwargs["reward_processing_classes"] = [None, *(classes if isinstance(classes, list) else [classes])]
        groups = args.rows_per_round // args.num_generations
        try:
            super().__init__(
                population.model,
                [self_play_reward, *reward_funcs],
                args,
                train_dataset=Dataset.from_dict({"prompt": ["self-play"] * groups}),
                **kwargs,
            )
        finally:
            args.beta = beta
        self.beta = beta
        self.population, self.on_round = population, on_round
        self.base_model_name = population.base_model.config._name_or_path
        self.ref_model = population.base_model if beta else None
        population.set_trainable()
        self._build_self_play()

    # Construction ----------------------------------------------------------------------------------------------

    @staticmethod
    def _make_population(model, args, peft_config, quantization_config) -> Population:
        set_seed(args.seed)
        if isinstance(model, str):
            init_kwargs = dict(args.model_init_kwargs or {})
            init_kwargs.setdefault("trust_remote_code", args.trust_remote_code)
            if quantization_config is not None:
                init_kwargs["quantization_config"] = quantization_config
            if args.distributed_state.distributed_type == "MULTI_GPU":
                init_kwargs["device_map"] = None
            model = create_model_from_path(model, **init_kwargs)
        if peft_config is None:
            peft_config = LoraConfig(
                r=args.lora_r, lora_alpha=args.lora_alpha, target_modules=args.lora_target_modules, lora_dropout=0.0
            )
        return Population(
            model,
            peft_config,
            num_teachers=args.num_teachers,
            num_students=args.num_students,
            shared_member=args.shared_member,
            learning_rate=args.player_learning_rates,
            seed=args.seed,
        )

    def _build_self_play(self):
        args, population = self.args, self.population
        self.rollout_func = self._replay
        shared_by = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
        self.executor = Executor(
            args.executor_workers or max(1, (os.cpu_count() or 1) // shared_by),
            Limits(cpu_seconds=args.executor_cpu_seconds, memory_mb=args.executor_memory_mb),
            accept_unsafe=args.accept_unsafe_execution,
        )
        self.sampler = TransformersSampler(
            population,
            self._tokenizer,
            max_completion_length=args.max_completion_length,
            temperature=args.temperature,
            top_p=args.top_p,
            top_k=args.top_k,
            min_p=args.min_p,
            template=args.prompt_template,
            batch_size=args.generation_rows,
        )
        types = task_types(
            args.prompt_style, num_function_inputs=args.num_function_inputs, num_references=args.num_references
        )
        self.task_types = {name: types[name] for name in args.task_types}
        self.buffer = TaskBuffer(args.buffer_capacity)
        for task in _seed_tasks(args):
            self.buffer.add(task)
        self.ratings = Ratings(population.teachers, population.students)
        self.lineage, self.observer = Lineage(), Observer()
        self.self_play = SelfPlay(
            task_types=self.task_types,
            run_many=self._run_many,
            buffer=self.buffer,
            ratings=self.ratings,
            settings=RoundSettings(
                prompts_per_teacher=args.prompts_per_teacher,
                num_generations=args.num_generations,
                num_references=args.num_references,
                pairing=args.pairing,
                pairing_floor=args.pairing_floor,
                rewards=args.rewards,
                seed=args.seed,
            ),
        )
        self.folder = RunFolder(args.output_dir)
        self.played: PlayedRound | None = None
        self.played_at = 0.0
        self.member_grad_norms: dict[str, float] = {}
        self.execution_counts: Counter[str] = Counter()
        self._scales: dict[str, float] = {}
        self._local_rows = []
        self._row_members: list[str] = []
        self.add_callback(RoundCallback(self))

    # One round, shared out among the ranks -----------------------------------------------------------------------

    def _sample(self, prompts, members, *, seed):
        """Sample every rank's share and bring all completions to every rank."""
        adapters = [self.population.adapter_of(member) for member in members]
        rank, world = self.accelerator.process_index, self.accelerator.num_processes
        mine = range(rank, len(prompts), world)
        own = self.sampler([prompts[i] for i in mine], [adapters[i] for i in mine], seed=seed, streams=mine)
        return _merge(gather_object(list(zip(mine, own, strict=True))), len(prompts))

    def _run_many(self, jobs):
        """Execute every rank's share and bring all executions to every rank."""
        mine = range(self.accelerator.process_index, len(jobs), self.accelerator.num_processes)
        own = self.executor.run_many([jobs[i] for i in mine])
        executions = _merge(gather_object(list(zip(mine, own, strict=True))), len(jobs))
        self.execution_counts.update(execution.status.value for execution in executions)
        return executions

    def _replay(self, prompts, trainer) -> dict:
        """TRL's rollout function: hands over what this rank's rows of the round already contain."""
        completions = [row.completion for row in self._local_rows]
        return {
            "prompt_ids": [list(c.prompt_ids) for c in completions],
            "completion_ids": [list(c.ids) for c in completions],
            "logprobs": None,
        }

    def _generate_and_score_completions(self, inputs):
        if self.population is None:
            return super()._generate_and_score_completions(inputs)
        if not self.model.training:
            raise ValueError("A population has no evaluation loop inside training. Use `populora evaluate`.")
        round = self.state.global_step // self.num_iterations
        self.played = self.self_play.play(self._sample, round=round, step=self.state.global_step)
        self.played_at = time.perf_counter()
        start = self.accelerator.process_index * len(inputs)
        self._local_rows = self.played.rows[start : start + len(inputs)]
        self._row_members = [self.population.adapter_of(row.player) for row in self._local_rows]
        inputs = [
            {
                "prompt": row.prompt,
                "player": row.player,
                "role": row.role,
                "task_type": row.type,
                "self_play_reward": row.reward,
            }
            for row in self._local_rows
        ]
        output = super()._generate_and_score_completions(inputs)
        names = list(self.population)
        output["member_ids"] = torch.tensor(
            [names.index(n) for n in self._row_members], device=output["prompt_ids"].device
        )
        if self.args.advantage == "role_task":
            output["advantages"] = self._role_task_advantages(start, len(inputs)).to(output["advantages"])
        self._scales = self._member_scales(output)
        self.population.routing.clear()
        return output

    def _prepare_inputs(self, generation_batch):
        before = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        if self.population is None or self._buffered_inputs is before:
            return inputs
        roles = [member.role for member in self.population.values()]
        self._buffered_inputs = deal(self._buffered_inputs, roles)
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if self.population is not None:
            self._rewards_per_func = rewards
        return rewards

    def _role_task_advantages(self, start: int, count: int) -> torch.Tensor:
        """Rewards whitened within member, role and task type over the whole round (AZR's TRR++)."""
        per_func = self._rewards_per_func
        total = (per_func * self.reward_weights.to(per_func.device)).nansum(dim=1)
        total[per_func.isnan().all(dim=1)] = torch.nan
        strata = [(row.player, row.role, row.type) for row in self.played.rows]
        values = advantages(
            total.cpu().numpy(), strata, mode="role_task", strata=strata, scale=self.scale_rewards != "none"
        )
        logged = self._logs["advantages"]
        for _ in range(min(len(values), len(logged))):
            logged.pop()
        logged.extend(values.tolist())
        return torch.from_numpy(values)[start : start + count]

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

    def _get_per_token_logps_and_entropies(self, model, input_ids, attention_mask, *args, batch_size=None, **kwargs):
        parent = super()._get_per_token_logps_and_entropies
        if self.population is None:
            return parent(model, input_ids, attention_mask, *args, batch_size=batch_size, **kwargs)
        if model is self.ref_model:
            with self.population.routing.base():
                return parent(model, input_ids, attention_mask, *args, batch_size=batch_size, **kwargs)
        rows, chunks = len(input_ids), []
        for start in range(0, rows, batch_size or rows):
            part = slice(start, start + (batch_size or rows))
            self.population.routing.set(self._row_members[part])
            chunks.append(parent(model, input_ids[part], attention_mask[part], *args, **kwargs))
        return tuple(None if parts[0] is None else torch.cat(parts) for parts in zip(*chunks, strict=True))

    def _compute_loss(self, model, inputs):
        if self.population is not None:
            names = list(self.population)
            self._row_members = [names[i] for i in inputs["member_ids"].tolist()]
        return super()._compute_loss(model, inputs)

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
        members = [(i, p) for i, name in enumerate(self.population) for p in self.population.parameters(name)]
        owners, gradients = zip(*[(i, p.grad) for i, p in members if p.grad is not None], strict=True)
        # All members in one pass and one transfer to the host: no cost per member but that of reading its gradient.
        squares = torch.stack(torch._foreach_norm(gradients)).cpu().double().square()
        scales = torch.tensor([self._scales[name] for name in self.population], dtype=torch.float64)
        norms = scales * torch.zeros_like(scales).index_add_(0, torch.tensor(owners), squares).sqrt()
        factors = (scales * (self.args.max_grad_norm / (norms + 1e-6)).clamp(max=1.0)).tolist()
        torch._foreach_mul_(gradients, [factors[i] for i in owners])
        self.member_grad_norms = dict(zip(self.population, norms.tolist(), strict=True))
        return norms.norm().float()

    # Files -------------------------------------------------------------------------------------------------------

    def _save(self, output_dir=None, state_dict=None):
        if self.population is None:
            return super()._save(output_dir, state_dict)
        if not self.args.should_save:
            return
        output_dir = output_dir or self.args.output_dir
        os.makedirs(output_dir, exist_ok=True)
        self.population.save(output_dir)
        save_state(self, output_dir)
        self.processing_class.save_pretrained(output_dir)
        torch.save(self.args, os.path.join(output_dir, "training_args.bin"))

    def create_model_card(self, model_name=None, dataset_name=None, tags=None):
        if self.population is None:
            return super().create_model_card(model_name, dataset_name, tags)
        if self.is_world_process_zero():
            self.folder.write_card(
                self.population.table(),
                base_model=self.base_model_name,
                repo_id=self.args.hub_model_id or self.args.output_dir,
                settings=self.args.settings(),
            )

    def _load_from_checkpoint(self, resume_from_checkpoint, model=None):
        if self.population is None:
            return super()._load_from_checkpoint(resume_from_checkpoint, model)
        self.population.load(resume_from_checkpoint)
        load_state(self, resume_from_checkpoint)


def _refuse_arguments(positional, kwargs):
    if positional:
        raise ValueError("Pass the arguments after `args` by keyword.")
    names = ("train_dataset", "eval_dataset", "tools", "rollout_func", "environment_factory")
    given = [name for name in names if kwargs.get(name) is not None]
    if (kwargs.get("optimizers") or (None,))[0] is not None:
        given.append("optimizers")
    if given:
        raise ValueError(
            f"{', '.join(given)} cannot be combined with a population: its members write their own tasks and have "
            "their own optimizer groups. Leave it out, or pass a trl.GRPOConfig to train one policy on a dataset."
        )
    for name in names:
        kwargs.pop(name, None)


def _seed_tasks(args):
    for task_type in args.task_types:
        if args.seed_tasks == 0:
            yield identity_tasks(args.num_function_inputs)[task_type]
        else:
            yield from seed_tasks(
                args.seed_tasks,
                seed=args.seed,
                type=task_type,
                num_function_inputs=args.num_function_inputs,
                families=args.seed_families,
            )


def _merge(pairs, count: int) -> list:
    merged = dict(pairs)
    return [merged[i] for i in range(count)]
