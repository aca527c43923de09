"""What a population's trainer is made of (population, sampler, source of rows, datasets), and what it refuses."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from datasets import Dataset, IterableDataset, concatenate_datasets
from peft import LoraConfig
from transformers import set_seed
from trl.trainer.utils import create_model_from_path

from ..generation import TransformersSampler
from ..population import Population
from .config import PopulationSelfPlayConfig
from .dataset_source import DatasetSource
from .ranks import Ranks
from .self_play_source import SelfPlaySource
from .sharding import load_sharded


def self_play_reward(completions, self_play_reward, **kwargs) -> list[float | None]:
    """Reward function that hands TRL the rewards which the round has already computed."""
    return self_play_reward


def refuse_arguments(args: PopulationSelfPlayConfig, given: dict[str, Any]) -> None:
    """Refuse constructor arguments that a population has no use for.

    Raises:
        ValueError: Naming them and what to do.
    """
    own_optimizer = given.pop("optimizers")[0] is not None
    useless = {name for name, value in given.items() if value is not None}
    if args.num_teachers == 0:
        useless &= {"tools", "rollout_func", "environment_factory"}
    if own_optimizer:
        useless.add("optimizers")
    if useless & {"train_dataset", "eval_dataset"}:
        raise ValueError(
            f"{', '.join(sorted(useless))} given to a population of num_teachers={args.num_teachers}, which writes "
            "its own tasks. Set num_teachers=0 to train num_students adapters on your data, or leave the dataset out."
        )
    if useless:
        raise ValueError(
            f"{', '.join(sorted(useless))} cannot be combined with a population: its members have their own optimizer "
            "groups, and rows of several turns cannot be told apart by member. Leave it out, or pass a trl.GRPOConfig "
            "to train one policy."
        )


def make_population(model, args: PopulationSelfPlayConfig, peft_config, quantization_config) -> Population:
    """The base model and its members; the base is divided among processes if `args.shard_base` says so."""
    if args.shard_base:
        return load_sharded(lambda: make_whole_population(model, args, peft_config, quantization_config), args.device)
    return make_whole_population(model, args, peft_config, quantization_config)


def make_whole_population(model, args: PopulationSelfPlayConfig, peft_config, quantization_config) -> Population:
    init = True if peft_config is None else getattr(peft_config, "init_lora_weights", True)
    if args.beta and init not in (True, "gaussian"):
        raise ValueError(
            f"beta={args.beta} with init_lora_weights={init!r}: members would start away from the base, towards which "
            "the penalty pulls. Set beta to 0.0, or init_lora_weights to True."
        )
    set_seed(args.seed)
    if isinstance(model, str):
        init_kwargs = dict(args.model_init_kwargs or {})
        init_kwargs.setdefault("trust_remote_code", args.trust_remote_code)
        if quantization_config is not None:
            init_kwargs["quantization_config"] = quantization_config
        if args.distributed_state.distributed_type == "MULTI_GPU":
            init_kwargs["device_map"] = None
        model = create_model_from_path(model, **init_kwargs)
    elif quantization_config is not None:
        raise ValueError("quantization_config needs the model by name: an instance is quantised when it is loaded.")
    if peft_config is None:
        peft_config = LoraConfig(
            r=args.lora_r, lora_alpha=args.lora_alpha, target_modules=args.lora_target_modules, lora_dropout=0.0
        )
    population = Population(
        model,
        peft_config,
        num_teachers=args.num_teachers,
        num_students=args.num_students,
        shared_member=args.shared_member,
        learning_rate=args.player_learning_rates,
        seed=args.seed,
        shared_init=args.shared_init,
        num_guests=2 if args.hall_of_fame_probability else 0,
    )
    if args.evolution_kwargs["mutate_temperature"]:
        population.routing.check_head()
    return population


def make_reward_functions(args: PopulationSelfPlayConfig, functions, classes) -> tuple[list, list | None]:
    """Reward functions and their processing classes; in self-play, the round's own reward comes first.

    Raises:
        ValueError: If there is none.
    """
    functions = functions if isinstance(functions, list) else [functions] if functions else []
    classes = classes if isinstance(classes, list) or classes is None else [classes]
    if args.num_teachers:
        return [self_play_reward, *functions], None if classes is None else [None, *classes]
    if not functions:
        raise ValueError("reward_funcs is empty: without teachers (num_teachers=0) nothing would tell good from bad.")
    return functions, classes


def make_datasets(args: PopulationSelfPlayConfig, population: Population, train_dataset, eval_dataset):
    """Datasets as TRL is to see them: a placeholder in self-play; for evaluation, every prompt once per member.

    Raises:
        ValueError: If there is no dataset to train on, it streams, holds images, or has too few rows for one batch.
    """
    if args.num_teachers:
        groups = args.rows_per_round // args.num_generations
        return Dataset.from_dict({"prompt": ["self-play"] * groups}), None
    if train_dataset is None:
        raise ValueError("num_teachers=0 trains the students on a dataset: pass train_dataset, or set num_teachers.")
    sets = eval_dataset if isinstance(eval_dataset, dict) else {"eval": eval_dataset}
    for name, dataset in {"train_dataset": train_dataset, **sets}.items():
        if isinstance(dataset, IterableDataset):
            raise ValueError(
                f"{name} streams, and a stream cannot be resumed exactly. Load it without streaming, or take(n) rows "
                "into a Dataset."
            )
        columns = set() if dataset is None else set(dataset.column_names)
        if columns & {"image", "images"}:
            raise ValueError(f"{name} has an image column: a population trains on text only.")
        if "player" in columns:
            raise ValueError(f"{name} has a column 'player', which names the member that answers. Rename it.")
    if len(train_dataset) < args.prompts_per_batch:
        raise ValueError(
            f"train_dataset has {len(train_dataset)} prompts, fewer than the {args.prompts_per_batch} of one "
            "generation batch. Add rows, or lower gradient_accumulation_steps or per_device_train_batch_size."
        )

    def for_every_member(dataset: Dataset) -> Dataset:
        return concatenate_datasets([dataset.add_column("player", [name] * len(dataset)) for name in population])

    sets = {name: None if dataset is None else for_every_member(dataset) for name, dataset in sets.items()}
    return train_dataset, sets if isinstance(eval_dataset, dict) else sets["eval"]


@contextmanager
def plain_settings(args: PopulationSelfPlayConfig) -> Iterator[None]:
    """Settings under which GRPOTrainer's constructor builds nothing that a population brings itself.

    For `beta > 0` it would add a "ref" adapter copied from "default"; the reference here is the base. For `use_vllm`
    it would start an engine that serves one merged model.
    """
    beta, use_vllm = args.beta, args.use_vllm
    args.beta, args.use_vllm = 0.0, False
    try:
        yield
    finally:
        args.beta, args.use_vllm = beta, use_vllm


def make_sampler(args: PopulationSelfPlayConfig, population: Population, tokenizer, accelerator):
    """Who draws completions: the training model itself, or an engine."""
    settings = dict(
        max_completion_length=args.max_completion_length,
        temperature=args.temperature,
        top_p=args.top_p,
        top_k=args.top_k,
        min_p=args.min_p,
        template=args.prompt_template,
    )
    if not args.use_vllm:
        return TransformersSampler(population, tokenizer, batch_size=args.generation_rows, **settings)
    from ..generation.vllm import VLLMSampler

    return VLLMSampler(
        population,
        tokenizer,
        accelerator=accelerator,
        mode=args.vllm_mode,
        server_base_url=args.vllm_server_base_url,
        server_host=args.vllm_server_host,
        server_port=args.vllm_server_port,
        server_timeout=args.vllm_server_timeout,
        tensor_parallel_size=args.vllm_tensor_parallel_size,
        gpu_memory_utilization=args.vllm_gpu_memory_utilization,
        max_model_length=args.vllm_max_model_length,
        max_num_seqs=args.completions_per_round,
        enable_sleep_mode=args.vllm_enable_sleep_mode,
        model_impl=args.vllm_model_impl,
        trust_remote_code=args.trust_remote_code,
        max_loras=args.vllm_max_loras,
        adapter_dir=args.vllm_adapter_dir,
        **settings,
    )


def make_source(args: PopulationSelfPlayConfig, population: Population, sampler, ranks: Ranks):
    """Where rows come from: the members themselves, or a dataset."""
    source = SelfPlaySource if args.num_teachers else DatasetSource
    return source(args, population, sampler, ranks)
