"""Chooses and checks the sampler of a trainer, from its argument `sampler` and from `use_vllm`."""

import inspect
from typing import Any

from accelerate import Accelerator
from transformers import PreTrainedTokenizerBase

from ..generation import Sampler, SamplerFactory, TransformersSampler, vllm_sampler
from ..population import Population
from .config import PopulationSelfPlayConfig
from .supported import uncorrectable


def check_sampler(sampler: Any, args: PopulationSelfPlayConfig) -> None:
    """Refuse what cannot become a sampler, before anything is loaded.

    Args:
        sampler (`type[Sampler]`, `SamplerFactory` or `None`): As it was given to the trainer.
        args ([`PopulationSelfPlayConfig`]): Settings.

    Raises:
        ValueError: Naming what is wrong with it, and what to pass instead.
    """
    if sampler is None:
        return
    instead = "Pass a subclass of Sampler, or a function (population, tokenizer, accelerator, args) -> Sampler."
    if args.use_vllm:
        raise ValueError(f"sampler={sampler!r} with use_vllm=true: both select the sampler. Leave one of them out.")
    if isinstance(sampler, Sampler):
        raise ValueError(
            f"sampler={sampler!r} already has a population, and the trainer makes its own. "
            + instead.replace("a subclass of Sampler", f"the class {type(sampler).__name__}")
        )
    if isinstance(sampler, type):
        if not issubclass(sampler, Sampler):
            raise ValueError(f"sampler={sampler!r} is not a subclass of trl_populora.Sampler. {instead}")
        if missing := sorted(sampler.__abstractmethods__):
            raise ValueError(
                f'sampler={sampler!r} lacks {", ".join(missing)}: implement it (page "Samplers" of the documentation).'
            )
        return
    if not callable(sampler):
        raise ValueError(f"sampler={sampler!r} is neither a class nor a function. {instead}")
    try:
        inspect.signature(sampler).bind(None, None, None, None)
    except (TypeError, ValueError) as error:
        raise ValueError(f"sampler={sampler!r} cannot be called with four arguments: {error}. {instead}") from None


def make_sampler(
    sampler: type[Sampler] | SamplerFactory | None,
    args: PopulationSelfPlayConfig,
    population: Population,
    tokenizer: PreTrainedTokenizerBase,
    accelerator: Accelerator,
) -> Sampler:
    """Who draws completions: the given sampler, the engine of `use_vllm`, or the training model itself.

    Raises:
        ValueError: If a function makes something else, or the loss cannot be corrected for what it reports.
    """
    given = sampler or (vllm_sampler if args.use_vllm else TransformersSampler)
    made = (given.from_args if isinstance(given, type) else given)(population, tokenizer, accelerator, args)
    if not isinstance(made, Sampler):
        raise ValueError(f"sampler={given!r} made {made!r}, which is not a trl_populora.Sampler.")
    if not hasattr(made, "chat_template_kwargs"):
        name = type(made).__name__
        raise ValueError(f"{name}.__init__ must call super().__init__(population, tokenizer, **settings).")
    if made.chat_template_kwargs != (args.chat_template_kwargs or {}):
        raise ValueError(
            f"sampler={given!r} renders prompts with chat_template_kwargs={made.chat_template_kwargs}, and not with "
            f"{args.chat_template_kwargs} of the settings. Pass them to Sampler.__init__."
        )
    if made.reports_logprobs and (problem := uncorrectable(args)):
        raise ValueError(f"The sampler reports its own log-probabilities: {problem}.")
    return made
