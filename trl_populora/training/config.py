"""`PopulationSelfPlayConfig`: every setting of a population run, checked at construction.

The settings of GRPO are inherited from [`~trl.GRPOConfig`]. Only those of the population are defined here.
"""

from dataclasses import dataclass, field, fields
from enum import Enum

from transformers.trainer_utils import IntervalStrategy, SaveStrategy, SchedulerType
from transformers.training_args import OptimizerNames
from trl import GRPOConfig

from ..run_files.secrets import without_secrets
from ..self_play import RoundSettings
from ..settings import conform, documented
from ..tasks import DEFAULT_TYPES
from .checks import (
    MAX_PROMPT_TOKENS,
    check_choice,
    check_choices,
    check_names_given,
    check_population,
    target_modules,
)
from .nested import Parts, complete
from .round_shape import RoundShape, assumed_processes, check_processes, derive_batch
from .supported import check_deepspeed, check_supported


@documented
@dataclass
class PopulationSelfPlayConfig(RoundShape, Parts, GRPOConfig):
    r"""
    Configuration class for the [`PopulationSelfPlayTrainer`].

    `num_teachers` and `num_students` set the size of the population, and the size of a round follows from it. Let
    there be T teachers, S students, P prompts per teacher and G = `num_generations`. A round has T*P*G proposals, and
    as many tasks to solve. Each task is attempted G times. This gives T*P*G*(1 + G) rows (completions) to learn from,
    or (T + S)*P*G with `balance_rows`. A round is one optimizer step (times `num_iterations`).
    `gradient_accumulation_steps` is computed from the number of rows and `per_device_train_batch_size`.

    With `num_teachers=0`, the students train on the dataset that is passed to the trainer. Batch sizes then work as in
    GRPO, in multiples of `num_generations * num_students` rows.

    Only parameters that differ from [`~trl.GRPOConfig`] are listed. A default comes from the paper (arXiv 2605.16727),
    from AZR (arXiv 2505.03335), or is our choice. docs/deviations.md says which.

    Parameters:
        > Parameters that control the population

        num_teachers (`int`, *optional*, defaults to `4`):
            Number of teachers, T. With 0, the students train on a dataset instead of self-play. Then `max_steps=-1`
            trains for `num_train_epochs`.
        num_students (`int`, *optional*, defaults to `4`):
            Number of students, S.
        shared_member (`bool`, *optional*, defaults to `False`):
            Whether one adapter plays both roles: the single-agent baseline. Needs one teacher and one student.
        shared_init (`bool`, *optional*, defaults to `False`):
            Whether all fresh adapters start from the same matrix A. Then crossover can combine their factors better.
        lora_r (`int`, *optional*, defaults to `16`):
            LoRA rank of every member. Ignored if a `peft_config` is passed to the trainer.
        lora_alpha (`int`, *optional*, defaults to `32`):
            LoRA alpha of every member.
        lora_target_modules (`str` or `list[str]`, *optional*, defaults to `"all-linear"`):
            Modules to adapt: `"all-linear"`, or a list of endings of module names. Patterns need a `peft_config`.
        initial_adapters (`str`, `list[str]` or `dict[str, str]`, *optional*):
            Adapters that members start from, instead of fresh ones: PEFT folders, or
            `user/repo[@revision][/folder]` on the Hub. A single name is either a population (each member starts from
            the member of the same name) or one adapter for all members. A list has one adapter per member, teachers
            first. A mapping has names of members or roles as keys (docs/hub.md). Ignored when a run resumes.
        teacher_learning_rate (`float`, *optional*):
            Learning rate of the teachers; `learning_rate` if unset.
        student_learning_rate (`float`, *optional*):
            Learning rate of the students; `learning_rate` if unset.
        learning_rate_spread (`float`, *optional*, defaults to `1.0`):
            How far apart the learning rates of the first members of a role are: from the rate divided by this number
            (slot 0) to the rate times this number (last slot), in equal ratios. Use it if you do not know the rate,
            together with `mutate_learning_rate` in `evolution_kwargs`. 1 gives all members the same rate. A role with
            one member has the rate itself.
        shard_base (`bool`, *optional*, defaults to `False`):
            Whether to divide the frozen base among the processes of each machine (FSDP2). Use it for a base that is
            too large for one GPU. Every process still holds all adapters (docs/scaling.md).

        > Parameters that control the round

        prompts_per_teacher (`int`, *optional*, defaults to `1`):
            Proposal prompts per teacher and round, P. Task types take turns over prompts and rounds.
        task_types (`list[str]`, *optional*, defaults to those of Absolute Zero):
            Task types of the run. Each is an id, such as `"code_o"` (deduction), `"code_i"` (abduction) and `"code_f"`
            (induction), or a class as `"module:Class"`. Other installed packages can add ids.
        task_kwargs (`dict[str, dict]` or `str`, *optional*):
            Settings of task types, as a mapping from ids to fields of the types' classes: `{"code_f":
            {"num_inputs": 4}, "code_o": {"max_float_digits": 8}}`.
        prompt_style (`str`, *optional*, defaults to `"full"`):
            `"full"` states all rules in the prompt. `"compact"` is short, for small models.
        prompt_template (`str`, *optional*, defaults to `"chat"`):
            `"chat"` uses the tokenizer's chat template. `"base"` writes a plain transcript, for base models.
        num_references (`int`, *optional*, defaults to `6`):
            Number of reference tasks that a teacher's prompt shows, K.
        seed_tasks (`int`, *optional*, defaults to `256`):
            Verified seed tasks (generated examples) per type in the buffer at the start. 0 starts from one trivial
            task.
        seed_families (`list[str]`, *optional*):
            Families (kinds) of seed tasks to use. If unset, those that each type uses by default. The documentation
            has a list of all, with examples.
        reserved_exams (`list[str]`, *optional*):
            Names of further exams, such as `["package.module:my_exam"]`. Self-play does not learn from their tasks. It
            never learns from held-out tasks, nor from the tasks of its own exams. Rows of a dataset are not compared
            with exams.
        buffer_capacity (`int`, *optional*, defaults to `16384`):
            Tasks that the buffer keeps per type. When it is full, the newest stay.
        balance_rows (`bool`, *optional*, defaults to `False`):
            Whether each student learns from only P of its T*P*G/S tasks, drawn at random. It then learns from as many
            rows as a teacher, instead of T*G/S times as many. All its attempts still count for rewards, ratings and
            records.
        max_unsolved_tries (`int`, *optional*, defaults to `32`):
            After this number of attempts without a solution, a proposed task leaves play: it is neither shown to
            teachers nor given to students again. 0 keeps all tasks in play.
        max_prompt_tokens (`int`, *optional*):
            Maximum tokens of a prompt. References are dropped until a teacher's prompt fits. A task is refused if the
            student's prompt does not fit. If unset: 4096, or at most vLLM's model length minus
            `max_completion_length`.
        answer_share (`float`, *optional*, defaults to `0.5`):
            Share of `max_completion_length` that the right answer of a task may take, including its code block.
        generation_rows (`int`, *optional*, defaults to `64`):
            Number of rows that are decoded at once. It limits the memory of the KV cache.
        share_prompts (`bool`, *optional*, defaults to `False`):
            Whether learning computes a prompt once for all its completions in a micro-batch (arXiv 2506.05433).
            Gradients are the same up to rounding. The longer prompts are than completions, the more time it saves
            (docs/performance.md). Needs `attn_implementation="sdpa"`, the default, without sliding windows.

        > Parameters that control training on a dataset (`num_teachers=0`)

        member_prompts (`str`, *optional*, defaults to `"shared"`):
            `"shared"` gives every prompt to all members, which makes their rewards comparable. `"split"` gives every
            prompt to one member, so that N members see N times as many prompts.

        > Parameters that control rewards and advantages

        teacher_reward (`str`, *optional*, defaults to `"adversarial"`):
            Reward of a valid task with solve rate s. `"adversarial"`: 1 - s. `"learnability"`: 1 - s if 0 < s < 1,
            else -0.5. `"frontier"`: 4 s (1 - s). `"solvable"`: 1 - s if some member of the population solved the
            task, else 0. `"module:function"`: your own, of s and of whether some other member solved the task.
        solvable_attempts (`int`, *optional*, defaults to `4`):
            With `"solvable"`, or another reward that depends on who else solves a task: the number of extra attempts
            by other students at each valid task that its own student did not solve. Nobody learns from them. A round
            has at most T*P*G times this number of extra rows. Ignored with other rewards.
        solvable_rounds (`int`, *optional*, defaults to `0`):
            With `"solvable"`, the number of later rounds in which an unsolved task may still be solved, H. Teachers
            learn from their proposals H rounds later. A round has up to H + 1 times as many extra attempts.
        reward_kwargs (`dict[str, float]` or `str`, *optional*):
            Fields of [`RewardSettings`] to change: `solved`, `wrong`, `malformed`, `invalid`, `sharing`.
        advantage (`str`, *optional*, defaults to `"group"`):
            How advantages are computed. `"group"` uses GRPO's baseline within each group of G. `"role_task"` whitens
            rewards over tokens, separately for each member, role and task type (AZR).

        > Parameters that control matchmaking

        pairing (`str`, *optional*, defaults to `"variance"`):
            How teachers and students are paired. Let x be the predicted probability that the teacher wins. The weight
            of a pairing is x (1 - x) for `"variance"`, x squared for `"hard"`, and equal for `"uniform"`. `"fixed"`
            always makes the same pairs.
        pairing_floor (`float`, *optional*, defaults to `0.1`):
            Share of uniform weights that is mixed into the weights of pairings, above 0 and at most 1.

        > Parameters that control evolution

        evolution_interval (`int`, *optional*, defaults to `20`):
            Number of rounds between replacement steps. 0 turns evolution off.
        evolution_kwargs (`dict[str, Any]` or `str`, *optional*):
            Fields of [`EvolutionSettings`] to change, such as `{"fraction": 0.5, "elites": 2}`.
        recombination_interval (`int`, *optional*, defaults to `0`):
            Number of rounds between recombinations. A recombination gives every member the mean of the updates of its
            role (with islands, of the members of its role on its island). In a round with a replacement step there is
            none. 0 turns recombination off.
        recombination_roles (`str`, *optional*, defaults to `"both"`):
            Roles that recombine: `"teachers"`, `"students"` or `"both"`.
        hall_of_fame_probability (`float`, *optional*, defaults to `0.0`):
            Probability that a teacher and a student that are paired play against champions (frozen earlier members)
            instead of each other. The student attempts tasks of a champion teacher. A champion student attempts the
            tasks of the teacher. Nobody learns from the champions' rows, and members have as many rows as without
            champions. 0 keeps no champions. Below 1, because games with champions are not rated.
        hall_of_fame_size (`int`, *optional*, defaults to `8`):
            Number of champions to keep per role. At each replacement step, the fittest member is added. Those that are
            kept are spread over the whole run.

        > Parameters that control what is measured

        weight_metrics_interval (`int`, *optional*, defaults to `10`):
            Number of rounds between measurements of the members' weights: norm and effective rank of each update, and
            cosines between members of a role. 0 turns them off.
        probe_kwargs (`dict[str, Any]` or `str`, *optional*):
            Fields of [`ProbeSettings`]. A probe is an evaluation by exams and by games against the first members.
            Probes happen at the start, at the steps of `eval_strategy` and at the end. There are none with
            `eval_strategy="no"`.

        > Parameters that control the run's folder

        overwrite_output_dir (`bool`, *optional*, defaults to `False`):
            Whether to delete the files of an earlier run in `output_dir` when a new run starts there.
        resize_on_resume (`bool`, *optional*, defaults to `False`):
            Whether to resume from a checkpoint with another number of members. Members that exist in both the
            checkpoint and the new run continue. New members start as copies. The others are left behind. If `False`,
            such a checkpoint is refused.

        > Parameters that control the vLLM engine (`use_vllm=True`), beside GRPOConfig's

        vllm_max_loras (`int`, *optional*):
            Number of different adapters in one batch of the engine; all of them if unset. A smaller number saves GPU
            memory.
        vllm_server_base_urls (`list[str]`, *optional*):
            URLs of several vLLM servers, instead of the one in `vllm_server_base_url`, for `vllm_mode="server"`. The
            rows are divided among them, and each server loads all adapters (docs/vllm.md).
        vllm_adapter_dir (`str`, *optional*):
            Folder through which adapters reach a vLLM server. If unset, it is in the memory of this machine
            (`/dev/shm`). A server on another machine needs a shared folder. An engine in the trainer's process takes
            adapters from memory.
        vllm_engine_kwargs (`dict[str, Any]` or `str`, *optional*):
            Additional arguments of `vllm.LLM` for an engine in the trainer's process, such as `{"max_num_seqs": 512,
            "enforce_eager": true}`. They take precedence over the other settings.

        > Parameters that control the executor

        executor_kwargs (`dict[str, Any]` or `str`, *optional*):
            Fields of [`ExecutorSettings`] to change, such as `{"workers": 8}`.

    Settings named `..._kwargs` are mappings. On the command line they are JSON. After construction they contain all
    their keys.

    > [!NOTE]
    > These parameters have default values different from [`~trl.GRPOConfig`]:
    > - `learning_rate`: Defaults to `1e-5` instead of `1e-6` (LoRA).
    > - `lr_scheduler_type`: Defaults to `"constant"` instead of `"linear"`, for children that are born late.
    > - `max_steps`: Defaults to `200` instead of `-1` (the paper's number of gradient steps).
    > - `logging_steps`: Defaults to `1` instead of `10`.
    > - `save_steps`: Defaults to `20` instead of `500`.
    > - `vllm_importance_sampling_mode`: Defaults to `"token_truncate"` instead of `"sequence_mask"` (which sums
    >   rounding differences over a row, so that long rows would be left out).
    > - `eval_steps`: In self-play, defaults to 20 rounds instead of `logging_steps`.
    """

    learning_rate: float = 1e-5
    lr_scheduler_type: SchedulerType | str = "constant"
    max_steps: int = 200
    logging_steps: float = 1
    save_steps: float = 20
    vllm_importance_sampling_mode: str = "token_truncate"
    num_teachers: int = 4
    num_students: int = 4
    shared_member: bool = False
    shared_init: bool = False
    lora_r: int = 16
    lora_alpha: int = 32
    # A factory, because TrlParser loses the plain default of a union of list and str: the field would be None.
    lora_target_modules: list[str] | str = field(default_factory=lambda: "all-linear")
    initial_adapters: dict | str | list | None = None  # in this order: what the parser takes for its type
    teacher_learning_rate: float | None = None
    student_learning_rate: float | None = None
    learning_rate_spread: float = 1.0
    shard_base: bool = False
    prompts_per_teacher: int = 1
    task_types: list[str] = field(default_factory=lambda: list(DEFAULT_TYPES))
    task_kwargs: dict | str | None = None
    prompt_style: str = "full"
    prompt_template: str = "chat"
    num_references: int = 6
    seed_tasks: int = 256
    seed_families: list[str] | None = None
    reserved_exams: list[str] | None = None
    buffer_capacity: int = 16384
    balance_rows: bool = False
    max_unsolved_tries: int = 32
    max_prompt_tokens: int | None = None
    answer_share: float = 0.5
    generation_rows: int = 64
    share_prompts: bool = False
    member_prompts: str = "shared"
    teacher_reward: str = "adversarial"
    solvable_attempts: int = 4
    solvable_rounds: int = 0
    reward_kwargs: dict | str | None = None
    advantage: str = "group"
    pairing: str = "variance"
    pairing_floor: float = 0.1
    evolution_interval: int = 20
    evolution_kwargs: dict | str | None = None
    recombination_interval: int = 0
    recombination_roles: str = "both"
    hall_of_fame_probability: float = 0.0
    hall_of_fame_size: int = 8
    weight_metrics_interval: int = 10
    probe_kwargs: dict | str | None = None
    overwrite_output_dir: bool = False
    resize_on_resume: bool = False
    vllm_max_loras: int | None = None
    vllm_server_base_urls: list[str] | None = None
    vllm_adapter_dir: str | None = None
    vllm_engine_kwargs: dict | str | None = None
    executor_kwargs: dict | str | None = None

    def __post_init__(self) -> None:
        inherited = {f.name for f in fields(GRPOConfig)}
        own = {f.name for f in fields(self)} - inherited | {"reward_weights"}
        check_names_given(self)
        conform(self, own=own, free=("accelerator_config", "deepspeed", "fsdp_config"))
        complete(self)
        self.lora_target_modules = target_modules(self.lora_target_modules)
        check_choices(self)
        enums = {"optim": OptimizerNames, "lr_scheduler_type": SchedulerType, "save_strategy": SaveStrategy}
        strategies = dict.fromkeys(("eval_strategy", "logging_strategy"), IntervalStrategy)
        for name, choices in (enums | strategies).items():
            check_choice(name, getattr(self, name), [one.value for one in choices])
        check_population(self)
        check_deepspeed(self)
        processes = derive_batch(self)
        if self.num_teachers and self.is_probed:
            if self.num_generations_eval is None:
                self.num_generations_eval = 1  # exams are answered without groups, so no group has to fit into a batch
            if self.eval_steps is None:
                self.eval_steps = 20 * self.num_iterations  # Trainer's `logging_steps` would be every round
        super().__post_init__()
        check_processes(self, processes)
        check_supported(self)
        if self.ddp_find_unused_parameters is None:  # a rank's rows need not belong to all members
            self.ddp_find_unused_parameters = True
        for name in ("activation_checkpointing_kwargs", "gradient_checkpointing_kwargs"):  # two names of one setting
            if (given := getattr(self, name, None)) is not None:  # without a value, PyTorch's is reentrant
                setattr(self, name, {"use_reentrant": False} | given)

    @property
    def world_size(self) -> int:
        """Number of processes; within `for_processes`, the number there."""
        return assumed_processes() or super().world_size

    @property
    def place_model_on_device(self) -> bool | None:
        """`False` with `shard_base`: the base is already on its devices, and a complete one would not fit."""
        return False if self.shard_base else None

    @property
    def fixed_settings(self) -> dict:
        """Settings that must not change when a run resumes."""
        return {
            "num_iterations": self.num_iterations,
            "task_types": list(self.task_types) if self.num_teachers else [],
            "beta": self.beta,
            "optim": getattr(self.optim, "value", self.optim).removesuffix("_fused"),  # the same moments
        }

    @property
    def member_learning_rates(self) -> dict[str, float]:
        """First learning rate of each member, by name. With a spread, population based training can search for one
        (Jaderberg et al., 2017); the grid of rates is our choice."""
        student = self.learning_rate if self.student_learning_rate is None else self.student_learning_rate
        teacher = self.learning_rate if self.teacher_learning_rate is None else self.teacher_learning_rate
        if self.shared_member:
            return {"agent_0": student}
        return {
            f"{role}_{i}": rate * self.learning_rate_spread ** (2 * i / (size - 1) - 1 if size > 1 else 0)
            for role, rate, size in (("teacher", teacher, self.num_teachers), ("student", student, self.num_students))
            for i in range(size)
        }

    @property
    def round_settings(self) -> RoundSettings:
        """Settings of a round of self-play: the fields of the same names, and how often guests play."""
        shared = {f.name: getattr(self, f.name) for f in fields(RoundSettings) if f.name != "guest_probability"}
        return RoundSettings(guest_probability=self.hall_of_fame_probability, **shared)

    @property
    def max_row_tokens(self) -> int | None:
        """Most tokens of prompt and completion together in self-play; `None` on a dataset, with prompts of its own."""
        if not self.num_teachers:
            return None
        return (self.max_prompt_tokens or MAX_PROMPT_TOKENS) + self.max_completion_length

    def to_dict(self) -> dict:
        """All settings without secrets, for trackers. transformers would hide top-level tokens only."""
        return without_secrets(super().to_dict())

    def settings(self) -> dict:
        """Settings for the record and the card of a run: those of the population, and the main ones of GRPO."""
        shared = {f.name for f in fields(GRPOConfig)}
        own = [f.name for f in fields(self) if f.name not in shared]
        told = "seed max_steps learning_rate num_generations num_iterations max_completion_length temperature top_p "
        told = (told + "top_k min_p beta use_vllm eval_strategy eval_steps").split()
        values = {name: getattr(self, name) for name in (*own, *told)}
        return {name: value.value if isinstance(value, Enum) else value for name, value in values.items()}
