"""`PopulationSelfPlayConfig`: every setting of a population run, checked at construction.

Settings that GRPO shares live in [`~trl.GRPOConfig`]; only those of the population are here.
"""

from dataclasses import dataclass, field, fields
from enum import Enum

from transformers.trainer_utils import SchedulerType
from trl import GRPOConfig

from ..self_play import RoundSettings
from ..settings import conform, documented
from ..tasks import DEFAULT_TYPES
from .checks import MAX_PROMPT_TOKENS, check_choices, check_population, target_modules
from .nested import Parts, complete
from .round_shape import RoundShape, derive_batch
from .supported import check_supported


@documented
@dataclass
class PopulationSelfPlayConfig(RoundShape, Parts, GRPOConfig):
    r"""
    Configuration class for the [`PopulationSelfPlayTrainer`].

    The dial is `num_teachers` and `num_students`; the shape of a round follows. With T teachers, S students, P prompts
    per teacher and G = `num_generations`, a round has T*P*G proposals and as many tasks to solve, each attempted G
    times: T*P*G*(1 + G) rows, or (T + S)*P*G with `balance_rows`; one optimizer step (times `num_iterations`).
    `gradient_accumulation_steps` is derived from the rows and `per_device_train_batch_size`. With `num_teachers=0` the
    students train on the dataset given to the trainer; batch sizes are then GRPO's, in multiples of
    `num_generations * num_students` rows.

    Only what differs from [`~trl.GRPOConfig`] is listed. Sources: the paper (arXiv 2605.16727), AZR (arXiv
    2505.03335), or our choice; docs/deviations.md tells them apart.

    Parameters:
        > Parameters that control the population

        num_teachers (`int`, *optional*, defaults to `4`):
            Number of teachers, T. 0 trains the students on a dataset instead of self-play; `max_steps=-1` then trains
            for `num_train_epochs`.
        num_students (`int`, *optional*, defaults to `4`):
            Number of students, S.
        shared_member (`bool`, *optional*, defaults to `False`):
            One adapter plays both roles: the single-agent baseline. Needs one teacher and one student.
        shared_init (`bool`, *optional*, defaults to `False`):
            All founders start from one A, so that their factors correspond as siblings' do.
        lora_r (`int`, *optional*, defaults to `16`):
            LoRA rank of every member. Ignored when the trainer is given a `peft_config`.
        lora_alpha (`int`, *optional*, defaults to `32`):
            LoRA alpha of every member.
        lora_target_modules (`str` or `list[str]`, *optional*, defaults to `"all-linear"`):
            Modules to adapt: `"all-linear"`, or the ends of their names. Patterns need a `peft_config`.
        initial_adapters (`str`, `list[str]` or `dict[str, str]`, *optional*):
            What members start from in place of fresh adapters: PEFT folders, or `user/repo[@revision][/folder]` on the
            Hub. One name is a population, whose members start those of the same names, or an adapter, from which all
            start; a list has one for each member, teachers first; a mapping, one for members or roles
            (docs/hub.md). Not used by a run that resumes.
        teacher_learning_rate (`float`, *optional*):
            Learning rate of the teachers; `learning_rate` if unset.
        student_learning_rate (`float`, *optional*):
            Learning rate of the students; `learning_rate` if unset.
        shard_base (`bool`, *optional*, defaults to `False`):
            Divide the frozen base among the processes of each machine (FSDP2), for a base too large for one GPU. Every
            process still holds all adapters; docs/scaling.md says when it pays.

        > Parameters that control the round

        prompts_per_teacher (`int`, *optional*, defaults to `1`):
            Proposal prompts per teacher and round, P. Task types take turns.
        task_types (`list[str]`, *optional*, defaults to those of Absolute Zero):
            Task types in play: ids of the package or of an installed one, such as `"code_o"` (deduction), `"code_i"`
            (abduction) and `"code_f"` (induction), or classes as `"module:Class"`.
        task_kwargs (`dict[str, dict]` or `str`, *optional*):
            Settings of task types by their ids, which have the fields of the types' classes: `{"code_f":
            {"num_inputs": 4}, "code_o": {"max_float_digits": 8}}`.
        prompt_style (`str`, *optional*, defaults to `"full"`):
            `"full"` spells the rules out; `"compact"` uses few words, for small models.
        prompt_template (`str`, *optional*, defaults to `"chat"`):
            `"chat"` uses the tokenizer's chat template; `"base"` a plain transcript for base models.
        num_references (`int`, *optional*, defaults to `6`):
            Reference tasks shown to a proposer, K.
        seed_tasks (`int`, *optional*, defaults to `256`):
            Verified seed tasks per type that fill the buffers at the start. 0 starts from one identity task.
        seed_families (`list[str]`, *optional*):
            Families of the seed generator to draw from; all if unset.
        buffer_capacity (`int`, *optional*, defaults to `16384`):
            Tasks kept per type; the newest stay.
        balance_rows (`bool`, *optional*, defaults to `False`):
            Each student learns from P of its T*P*G/S tasks, drawn at random: from as many rows as a teacher, instead
            of T*G/S times as many. All its attempts still count for rewards, ratings and records.
        max_unsolved_tries (`int`, *optional*, defaults to `32`):
            A proposed task that was attempted so often and never solved is neither shown to teachers nor given to
            students again. 0 keeps all.
        max_prompt_tokens (`int`, *optional*):
            Tokens that a prompt may have. References are dropped until a teacher's prompt fits; a task whose solver's
            prompt does not fit is refused. Unset: 4096, or what `max_completion_length` leaves of vLLM's model length.
        answer_share (`float`, *optional*, defaults to `0.5`):
            Share of `max_completion_length` that a task's right answer may take, its block included.
        generation_rows (`int`, *optional*, defaults to `64`):
            Rows decoded at once; bounds the memory of the KV cache.

        > Parameters that control training on a dataset (`num_teachers=0`)

        member_prompts (`str`, *optional*, defaults to `"shared"`):
            `"shared"` gives every prompt to all members, which makes their rewards comparable; `"split"` deals the
            prompts out, so that N members see N times as many.

        > Parameters that control rewards and advantages

        teacher_reward (`str`, *optional*, defaults to `"adversarial"`):
            Reward of a valid task with solve rate s: `"adversarial"` 1 - s, `"learnability"` 1 - s inside (0, 1) and
            -0.5 at the ends, `"frontier"` 4 s (1 - s), `"solvable"` 1 - s if anybody of the population solved it,
            else 0.
        solvable_attempts (`int`, *optional*, defaults to `4`):
            With `"solvable"`, extra attempts of the other students at each valid task that its student never solved.
            Nobody learns from them; a round has at most T*P*G times so many rows more. Otherwise ignored.
        solvable_rounds (`int`, *optional*, defaults to `0`):
            With `"solvable"`, rounds that an unsolved task may be solved in, H. Teachers learn from a round H rounds
            later, and a round has up to H + 1 times as many extra attempts.
        reward_kwargs (`dict[str, float]` or `str`, *optional*):
            Fields of [`RewardSettings`] that differ from their defaults: `solved`, `wrong`, `malformed`, `invalid`.
        advantage (`str`, *optional*, defaults to `"group"`):
            `"group"` is GRPO's baseline within each group of G; `"role_task"` whitens per member, role and task type,
            over tokens (AZR).

        > Parameters that control matchmaking

        pairing (`str`, *optional*, defaults to `"variance"`):
            Weight of a pairing by the teacher's predicted win probability x: `"variance"` x (1 - x), `"hard"`,
            `"uniform"`, or `"fixed"` pairs.
        pairing_floor (`float`, *optional*, defaults to `0.1`):
            Share of uniform weight mixed in.

        > Parameters that control evolution

        evolution_interval (`int`, *optional*, defaults to `20`):
            Rounds between replacement steps; 0 turns evolution off.
        evolution_kwargs (`dict[str, Any]` or `str`, *optional*):
            Fields of [`EvolutionSettings`] that differ from their defaults, such as `{"fraction": 0.5, "elites": 2}`.
        hall_of_fame_probability (`float`, *optional*, defaults to `0.0`):
            Probability that a pairing meets champions of the past instead of each other: the student attempts what a
            champion teacher proposes, a champion student what the teacher proposed. Nobody learns from champions'
            rows; those of members stay as many. 0 keeps no champions.
        hall_of_fame_size (`int`, *optional*, defaults to `8`):
            Champions kept per role: the fittest at each replacement step, spread over the whole run.

        > Parameters that control what is measured

        weight_metrics_interval (`int`, *optional*, defaults to `10`):
            Rounds between measurements of the members' weights: norm and effective rank of each update, cosines
            between members of a role. 0 takes none.
        probe_kwargs (`dict[str, Any]` or `str`, *optional*):
            Fields of [`ProbeSettings`]: exams and games against founders, at the start and at the steps of
            `eval_strategy`; nothing with `eval_strategy="no"`.

        > Parameters that control the run's folder

        overwrite_output_dir (`bool`, *optional*, defaults to `False`):
            Discard the record of an earlier run in `output_dir` when a new one starts there.
        resize_on_resume (`bool`, *optional*, defaults to `False`):
            Resume from a checkpoint of another number of members: those that both have go on, new ones start as
            copies, the others are left behind. Otherwise such a checkpoint is refused.

        > Parameters that control the vLLM engine (`use_vllm=True`), beside GRPOConfig's

        vllm_max_loras (`int`, *optional*):
            Distinct adapters in one batch of the engine; all of them if unset. Fewer save GPU memory.
        vllm_adapter_dir (`str`, *optional*):
            Folder through which adapters reach the engine; memory of this machine if unset. A server on another
            machine needs a shared one.
        vllm_engine_kwargs (`dict[str, Any]` or `str`, *optional*):
            Further arguments of `vllm.LLM` for an engine in the trainer's process, such as `{"max_num_seqs": 512,
            "enforce_eager": true}`. They take precedence over what the other settings say.

        > Parameters that control the executor

        executor_kwargs (`dict[str, Any]` or `str`, *optional*):
            Fields of [`ExecutorSettings`] that differ from their defaults, such as `{"workers": 8}`.

    Settings named `..._kwargs` are mappings, JSON on the command line. After construction they hold all their keys.

    > [!NOTE]
    > These parameters have default values different from [`~trl.GRPOConfig`]:
    > - `learning_rate`: Defaults to `1e-5` instead of `1e-6` (LoRA).
    > - `lr_scheduler_type`: Defaults to `"constant"` instead of `"linear"` (a child born late must not learn less).
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
    shard_base: bool = False
    prompts_per_teacher: int = 1
    task_types: list[str] = field(default_factory=lambda: list(DEFAULT_TYPES))
    task_kwargs: dict | str | None = None
    prompt_style: str = "full"
    prompt_template: str = "chat"
    num_references: int = 6
    seed_tasks: int = 256
    seed_families: list[str] | None = None
    buffer_capacity: int = 16384
    balance_rows: bool = False
    max_unsolved_tries: int = 32
    max_prompt_tokens: int | None = None
    answer_share: float = 0.5
    generation_rows: int = 64
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
    hall_of_fame_probability: float = 0.0
    hall_of_fame_size: int = 8
    weight_metrics_interval: int = 10
    probe_kwargs: dict | str | None = None
    overwrite_output_dir: bool = False
    resize_on_resume: bool = False
    vllm_max_loras: int | None = None
    vllm_adapter_dir: str | None = None
    vllm_engine_kwargs: dict | str | None = None
    executor_kwargs: dict | str | None = None

    def __post_init__(self) -> None:
        inherited = {f.name for f in fields(GRPOConfig)}
        conform(self, own={f.name for f in fields(self)} - inherited)
        complete(self)
        self.lora_target_modules = target_modules(self.lora_target_modules)
        check_choices(self)
        check_population(self)
        derive_batch(self)
        if self.num_teachers and self.is_probed:
            if self.num_generations_eval is None:
                self.num_generations_eval = 1  # exams are answered without groups: none has to fit into a batch
            if self.eval_steps is None:
                self.eval_steps = 20 * self.num_iterations  # Trainer's `logging_steps` would be every round
        super().__post_init__()
        check_supported(self)
        if self.ddp_find_unused_parameters is None:  # a rank's rows need not belong to all members
            self.ddp_find_unused_parameters = True

    @property
    def place_model_on_device(self) -> bool | None:
        """`False` with `shard_base`: the base is where it belongs, and no whole one would fit."""
        return False if self.shard_base else None

    @property
    def fixed_settings(self) -> dict:
        """What a run cannot change on its way: rounds are counted, buffers filled and members held back by it."""
        return {
            "num_iterations": self.num_iterations,
            "task_types": list(self.task_types) if self.num_teachers else [],
            "beta": self.beta,
        }

    @property
    def player_learning_rates(self) -> dict[str, float]:
        def choose(rate: float | None) -> float:
            return self.learning_rate if rate is None else rate

        return {"teacher": choose(self.teacher_learning_rate), "student": choose(self.student_learning_rate)}

    @property
    def round_settings(self) -> RoundSettings:
        """Shape of a round of self-play: settings of the same names, and how often guests play."""
        shared = {f.name: getattr(self, f.name) for f in fields(RoundSettings) if f.name != "guest_probability"}
        return RoundSettings(guest_probability=self.hall_of_fame_probability, **shared)

    @property
    def max_row_tokens(self) -> int | None:
        """Most tokens of prompt and completion together in self-play; `None` on a dataset, with prompts of its own."""
        if not self.num_teachers:
            return None
        return (self.max_prompt_tokens or MAX_PROMPT_TOKENS) + self.max_completion_length

    def settings(self) -> dict:
        """Settings of the population, and those of GRPO that tell runs apart: what a run's record and card show."""
        shared = {f.name for f in fields(GRPOConfig)}
        own = [f.name for f in fields(self) if f.name not in shared]
        told = "seed max_steps learning_rate num_generations num_iterations max_completion_length temperature top_p "
        told = (told + "top_k min_p beta use_vllm eval_strategy eval_steps").split()
        values = {name: getattr(self, name) for name in (*own, *told)}
        return {name: value.value if isinstance(value, Enum) else value for name, value in values.items()}
