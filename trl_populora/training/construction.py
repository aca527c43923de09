"""Makes the parts of a population's trainer (population, sampler, source of rows), and refuses unsupported
arguments."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict
from peft import LoraConfig, PeftConfig, PeftModel
from transformers import (
    AutoProcessor,
    EarlyStoppingCallback,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
    set_seed,
)
from trl import GRPOTrainer
from trl.trainer.grpo_trainer import RewardFunc
from trl.trainer.utils import create_model_from_path, get_config_model_id

from ..population import Population
from ..population.lora_config import check_modules
from ..run_files.checkpoint import find_checkpoint
from ..run_files.files import damage_told
from ..run_files.run import TINY
from ..settings import as_mapping
from ..tasks import TaskType, families_of
from .config import PopulationSelfPlayConfig
from .dataset_source import DatasetSource
from .first_tasks import types_in_play
from .initial_adapters import find_sources, start_from, warn_of_other_prompts
from .quantized import completed, keep_gradients
from .ranks import decided_by_first
from .row_source import RowSource
from .self_play_source import SelfPlaySource
from .sharding import load_sharded


EvalDatasets = (
    Dataset | IterableDataset | DatasetDict | IterableDatasetDict | dict[str, Dataset | IterableDataset] | None
)


def check_overrides(trainer: GRPOTrainer, callbacks: Sequence[TrainerCallback] | None) -> None:
    """Refuses what a population would never call, or could not work.

    Raises:
        ValueError: For `_generate_single_turn` of a subclass, and for [`~transformers.EarlyStoppingCallback`].
    """
    if type(trainer)._generate_single_turn is not GRPOTrainer._generate_single_turn:
        raise ValueError(
            f"{type(trainer).__name__}._generate_single_turn would not be called: completions of a population come "
            "from a sampler. Write one of your own (sampler=...)."
        )
    if any(isinstance(one, EarlyStoppingCallback) for one in callbacks or ()):
        raise ValueError(
            "EarlyStoppingCallback follows metric_for_best_model, and a population has no single best member. Set "
            "`control.should_training_stop` in a callback of your own."
        )


def refuse_arguments(**given: Any) -> None:
    """Refuses constructor arguments that a population cannot use. (The source of rows refuses datasets.)

    Raises:
        ValueError: With their names and what to do.
    """
    useless = sorted(name for name, value in given.items() if value is not None)
    if not useless:
        return
    advice = []
    if "optimizers" in useless:
        advice.append(
            "Each member needs a group of its own in the optimizer: set `optim` and `lr_scheduler_type`, or override "
            "`create_optimizer` and `create_scheduler`."
        )
    if useless != ["optimizers"]:
        advice.append("Rows of several turns cannot be assigned to one member: for your own rows, pass a row_source.")
    raise ValueError(
        f"{', '.join(useless)} cannot be combined with a population. {' '.join(advice)} To train one policy, pass a "
        f"trl.GRPOConfig."
    )


def make_source(
    args: PopulationSelfPlayConfig, given: RowSource | None, task_types: Sequence[str | TaskType] | None
) -> RowSource:
    """The source of rows: the user's own, self-play, or a dataset.

    Raises:
        ValueError: If `given` is not a source, task types are passed with a source other than self-play, or a task
            type or a seed family in the settings is unknown.
    """
    if given is None and args.num_teachers:
        if task_types is None:  # a wrong name is told before a base is loaded
            families_of(types_in_play(args, None), args.seed_families)
        return SelfPlaySource(task_types)
    if task_types is not None:
        raise ValueError("task_types needs teachers that write tasks: set num_teachers, or leave task_types out.")
    if given is None:
        return DatasetSource()
    if not isinstance(given, RowSource):
        raise ValueError(f"row_source={given!r} must be an object of a subclass of trl_populora.RowSource.")
    return given


def make_population(
    model: str | PreTrainedModel | PeftModel,
    args: PopulationSelfPlayConfig,
    peft_config: PeftConfig | None,
    quantization_config: Any,
) -> Population:
    """The base model and its members. With `args.shard_base`, the base is divided among processes.

    Raises:
        ValueError: If members do not start at the reference model of a KL penalty, or the base cannot be loaded.
    """
    init = True if peft_config is None else getattr(peft_config, "init_lora_weights", True)
    if args.beta and init not in (True, "gaussian"):
        raise ValueError(
            f"beta={args.beta} with init_lora_weights={init!r}: members would not start at the base, towards which "
            f"the penalty pulls. Set beta to 0.0, or init_lora_weights to True."
        )
    if args.beta and args.initial_adapters:
        raise ValueError(
            f"beta={args.beta} with initial_adapters: the penalty pulls members towards the base, and undoes what "
            f"the adapters have learned. Set beta to 0.0, or leave initial_adapters out."
        )
    if quantization_config is not None and not isinstance(model, str):
        raise ValueError("quantization_config needs the model by name: an instance is quantised when it is loaded.")

    wanted = args.initial_adapters
    sources = find_sources(wanted) if wanted and not resumes(args) else {}
    if sources and args.num_teachers:
        warn_of_other_prompts(sources, {"prompt_style": args.prompt_style, "prompt_template": args.prompt_template})

    def load() -> Population:
        set_seed(args.seed)
        base = _load_base(model, args, quantization_config) if isinstance(model, str) else model
        keep_gradients(base)
        if args.cast_lm_head_to_fp32 and base.config.get_text_config().tie_word_embeddings:
            raise ValueError(
                "cast_lm_head_to_fp32=true with a base whose LM head is its embedding (tie_word_embeddings): TRL "
                "cannot cast one without the other on a model with adapters. Set it to false."
            )
        template = peft_config or LoraConfig(
            r=args.lora_r, lora_alpha=args.lora_alpha, target_modules=args.lora_target_modules, lora_dropout=0.0
        )
        if peft_config is None:
            check_modules(base, args.lora_target_modules, option="lora_target_modules")
        population = Population(
            base,
            template,  # pyright: ignore[reportArgumentType]  # a `Population` refuses other kinds than LoRA
            num_teachers=args.num_teachers,
            num_students=args.num_students,
            shared_member=args.shared_member,
            learning_rate=args.member_learning_rates,
            seed=args.seed,
            shared_init=args.shared_init,
            guests=[f"guest_{i}" for i in range(args.num_guests)],
        )
        if wanted and sources:
            start_from(population, wanted, sources, base=base.config._name_or_path)
        if getattr(base, "is_quantized", False):  # GRPOTrainer would turn trainable adapters into bfloat16, in which
            population.model.requires_grad_(False)  # small steps are lost; `set_trainable` follows
        return population

    population = load_sharded(load, args.device) if args.shard_base else load()
    if as_mapping(args.evolution_kwargs)["mutate_temperature"]:
        population.routing.check_head()
    return population


def resumes(args: PopulationSelfPlayConfig) -> bool:
    """Whether the run resumes from a checkpoint, which then has the adapters."""
    wanted = args.resume_from_checkpoint
    wanted = "auto" if wanted in (True, "auto", "true", "True") else wanted
    return bool(wanted) and decided_by_first(lambda: find_checkpoint(wanted, args.output_dir)) is not None


def load_processing_class(population: Population, model: Any, args: PopulationSelfPlayConfig) -> Any:
    """The tokenizer of the revision that `model_init_kwargs` names, which TRL does not know of a loaded model; `None`
    if there is none."""
    revision = (args.model_init_kwargs or {}).get("revision")
    if revision is None or not isinstance(model, str):
        return None
    name, trusted = get_config_model_id(population.base_model.config), args.trust_remote_code
    sides = {"truncation_side": "left", "padding_side": "left"}
    return AutoProcessor.from_pretrained(name, revision=revision, trust_remote_code=trusted, **sides)


def _load_base(name: str, args: PopulationSelfPlayConfig, quantization_config: Any) -> PreTrainedModel:
    if args.n_gpu > 1:  # TRL refuses it, too, after the base was loaded
        raise ValueError(
            f"This process sees {args.n_gpu} GPUs and could use one. Start it with `accelerate launch` to use all of "
            "them, or set CUDA_VISIBLE_DEVICES=0."
        )
    init_kwargs: dict[str, Any] = {"trust_remote_code": args.trust_remote_code} | dict(args.model_init_kwargs or {})
    if quantization_config is not None:
        init_kwargs["quantization_config"] = quantization_config
    if (given := init_kwargs.get("quantization_config")) is not None:
        init_kwargs["quantization_config"] = completed(given, dtype=init_kwargs.get("dtype", "float32"))
    if args.distributed_state.distributed_type == "MULTI_GPU":
        init_kwargs["device_map"] = None
    elif args.device.type not in ("cpu", "mps"):
        # TRL's default, "auto", would split the layers among all visible devices: routing has one.
        init_kwargs.setdefault("device_map", {"": args.device})
    if name == TINY:
        raise ValueError(
            f"model={name!r} is a name of recipes: pass trl_populora.integrations.resolve_base({name!r})."
        )
    try:
        with damage_told(f"the base {name!r}"):
            return create_model_from_path(name, **init_kwargs)
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        raise ValueError(
            f"model_init_kwargs: {error}. Give arguments of from_pretrained, or settings of the model's configuration."
        ) from error


def make_rewards_and_datasets(
    source: RowSource,
    args: PopulationSelfPlayConfig,
    functions: RewardFunc | list[RewardFunc] | None,
    classes: PreTrainedTokenizerBase | list[PreTrainedTokenizerBase] | None,
    train_dataset: Any,
    eval_dataset: Any,
) -> tuple:
    """Reward functions, their processing classes, and datasets for TRL, as the source defines them."""
    functions = functions if isinstance(functions, list) else [functions] if functions else []
    own: list[PreTrainedTokenizerBase | None] | None = None
    if classes is not None:
        own = [*classes] if isinstance(classes, list) else [classes]
    made: Any = source.make_reward_functions(args, functions, own)
    pair = isinstance(made, tuple) and len(made) == 2
    if not (pair and made[0] and (made[1] is None or isinstance(made[1], list))):
        raise ValueError(
            f"{type(source).__name__}.make_reward_functions must return a list of reward functions and their "
            f"processing classes (a list, or None): return [my_function, *functions], classes. Got {made!r:.100}."
        )
    return *made, *source.make_datasets(args, train_dataset, eval_dataset)


@contextmanager
def plain_settings(args: PopulationSelfPlayConfig, *, eval_dataset: EvalDatasets) -> Iterator[None]:
    """Settings with which GRPOTrainer's constructor skips everything that a population makes itself.

    For `beta > 0` it would add a "ref" adapter, a copy of "default"; here the reference is the base. For `use_vllm` it
    would start an engine with one merged model. For `push_to_hub` it would create the repository. With `eval_strategy`
    it would require a dataset; here members can be evaluated by exams instead. For a mixture of experts it would add
    the auxiliary loss of the model's own settings, which couples members. For `model_init_kwargs` it would warn that
    they are ignored; the base was made with them.
    """
    own: dict[str, Any] = {"beta": 0.0, "use_vllm": False, "push_to_hub": False, "router_aux_loss_coef": 0.0}
    own["model_init_kwargs"] = None
    if eval_dataset is None:
        own["eval_strategy"] = "no"
    given = {name: getattr(args, name) for name in own}
    vars(args).update(own)
    try:
        yield
    finally:
        vars(args).update(given)
