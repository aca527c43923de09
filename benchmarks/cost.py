"""The tables of docs/cost.md: what runs need, by the formulas of `training.forecast`. No model is loaded; a minute.

    python benchmarks/cost.py

Shapes of the bases are those of Qwen2.5, from their published configurations. Nothing here has run on a GPU.
"""

import json
import math
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean

from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase, Qwen2Config

from trl_populora.cli.needs import counter
from trl_populora.integrations.base_models import local_folder
from trl_populora.recipe import RunArguments, parse
from trl_populora.training import PopulationSelfPlayConfig
from trl_populora.training.forecast import Phase, Shapes, memory, phases


RECIPES = Path(__file__).resolve().parents[1] / "recipes"
CARDS = (8, 24, 80, 141)  # GB
SPARE = 0.1  # of a card, for what is not counted (docs/scaling.md)
SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"
FLOPS = 989e12  # dense bfloat16 operations per second of an H200, from its data sheet (docs/scaling.md)
NODE = 8  # GPUs that the recipes with an engine are made for
MEASURED = {
    "chains/demo.yaml": ("3 min 9 s",),
    "smollm2-135m/demo.yaml": ("11 min 50 s",),
    "tiny/4t4s.yaml": ("18 min 1 s",),
}
"""Wall-clock times of recipes, as they stand in docs/performance.md."""
CHAINS = "[results](results/population.md), beside other jobs"
MEASURED_ELSEWHERE = {
    "dataset/programs.yaml": "[your dataset](start/your_dataset.md#try-it-offline)",
    **{f"chains/{name}.yaml": CHAINS for name in ("1t1s", "4t4s", "single_agent")},
}
"""Pages that have the measured time of a recipe."""


@dataclass(frozen=True)
class Base:
    """A Qwen2.5 base: layers, hidden and intermediate size, heads, key and value heads, tied embeddings."""

    name: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    tied: bool
    vocabulary: int = 151_936

    @property
    def shapes(self) -> Shapes:
        config = Qwen2Config(
            num_hidden_layers=self.layers,
            hidden_size=self.hidden,
            intermediate_size=self.intermediate,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            tie_word_embeddings=self.tied,
            vocab_size=self.vocabulary,
        )
        return Shapes.of(config, "all-linear")


BASES = (
    Base("0.5B", 24, 896, 4864, 14, 2, True),
    Base("1.5B", 28, 1536, 8960, 12, 2, True),
    Base("3B", 36, 2048, 11008, 16, 2, True),
    Base("7B", 28, 3584, 18944, 28, 4, False, 152_064),
    Base("14B", 48, 5120, 13824, 40, 8, False, 152_064),
    Base("32B", 64, 5120, 27648, 40, 8, False, 152_064),
)
PLANS = {
    "short": "--max_completion_length 512 --per_device_train_batch_size 2 --generation_rows 16 --lora_r 16",
    "long": "--max_completion_length 2048 --per_device_train_batch_size 4 --generation_rows 64 --lora_r 32",
}


@dataclass(frozen=True)
class Plan:
    """A recipe as it is read: its settings, the shapes of its base, and the rows and tokens of a round."""

    run: RunArguments
    args: PopulationSelfPlayConfig
    shapes: Shapes
    rounds: dict[str, Phase]

    def parts(self, shapes: Shapes | None = None, *, processes: int = 1) -> dict[str, float]:
        """Parts and peaks of the memory of a GPU, with the shapes of this base or of another one."""
        return memory(shapes or self.shapes, self.args, self.rounds, processes=processes)


def trained() -> list[str]:
    """Recipes that train by themselves. The others are plans of experiments, or get their sizes from a command."""
    names = (path.relative_to(RECIPES).as_posix() for path in RECIPES.glob("*/*.yaml"))
    return sorted(
        name for name in names if not name.startswith(("experiments/", "accelerate_")) and "retention" not in name
    )


@cache
def plan(recipe: str, options: str = "") -> Plan:
    """Reads a recipe, with options, as `populora doctor --gpu` does on a machine without a GPU.

    Configuration and tokenizer of Qwen2.5 are not here. Its shapes are those of `BASES`, its tokens those of SmolLM2.
    """
    run, args = parse(["--config", str(RECIPES / recipe), "--use_cpu", "true", *options.split()])
    known = re.fullmatch(r"Qwen/Qwen2\.5-(?:Coder-)?([\d.]+B)(?:-Instruct)?", run.model_name_or_path)
    if known:
        shapes = next(base.shapes for base in BASES if base.name == known[1])
    else:
        folder, how = local_folder(run.model_name_or_path)
        shapes = Shapes.of(AutoConfig.from_pretrained(folder, **how), args.lora_target_modules)
    count = counter(tokenizer(SMOLLM2 if known else run.model_name_or_path), args)
    rounds = phases(args, count)
    if run.dataset_name:  # doctor does not read its prompts
        lines = (RECIPES.parent / run.dataset_name).read_text(encoding="utf-8").splitlines()
        sizes = [count(json.loads(line)["prompt"]) for line in lines]
        rounds = {name: replace(one, prompt=fmean(sizes), longest=max(sizes)) for name, one in rounds.items()}
    return Plan(run, args, shapes, rounds)


@cache
def tokenizer(base: str) -> PreTrainedTokenizerBase:
    folder, how = local_folder(base)
    return AutoTokenizer.from_pretrained(folder, padding_side="left", **how)


def peak(parts: dict[str, float]) -> float:
    """GB at the larger one of the two peaks."""
    return max(parts["learning"], parts["sampling"]) / 1e9


def fits(parts: dict[str, float], card: float, engine: float = 0.0) -> bool:
    """Whether a card holds the peak with a tenth left over, beside an engine that takes this share of it."""
    return peak(parts) <= card * (1 - SPARE - engine) and parts.get("engine, at least", 0) <= card * engine * 1e9


def smallest(parts: dict[str, float], engine: float = 0.0) -> str:
    """The smallest card that holds the peak."""
    return next((f"{card} GB" for card in CARDS if fits(parts, card, engine)), "no single card")


def memory_table() -> list[str]:
    """Peak of one card for 4 teachers and 4 students, learning and sampling apart, and the cards that hold it."""
    lines = ["| base | plan | learning, GB | sampling, GB | fits |", "|---|---|---|---|---|"]
    for base in BASES:
        for name, options in PLANS.items():
            parts = plan("qwen2.5-coder-7b/4t4s.yaml", f"--use_vllm false {options}").parts(base.shapes)
            sizes = f"{parts['learning'] / 1e9:.1f} | {parts['sampling'] / 1e9:.1f}"
            lines.append(f"| {base.name} | {name} | {sizes} | {smallest(parts)} |")
    return lines


def largest_table() -> list[str]:
    """The largest base that each card holds, by the same numbers."""
    lines = [f"| card | {' | '.join(f'base, {name}' for name in PLANS)} |", "|---|" + "---|" * len(PLANS)]
    for card in CARDS:
        cells = []
        for options in PLANS.values():
            one = plan("qwen2.5-coder-7b/4t4s.yaml", f"--use_vllm false {options}")
            fitting = [base.name for base in BASES if fits(one.parts(base.shapes), card)]
            cells.append(fitting[-1] if fitting else "none")
        lines.append(f"| {card} GB | {' | '.join(cells)} |")
    return lines


CARD_RECIPES = {"qwen2.5-coder-7b/24gb.yaml": 24, "qwen2.5-coder-1.5b/12gb.yaml": 12}
WORDS = {
    "base": "weights of the base",
    "unpacked weights": "one of its matrices, unpacked",
    "adapters": "weights of the adapters",
    "gradients": "their gradients",
    "optimizer": "their optimizer states",
    "activations": "activations of a micro-batch",
    "stacks in updates": "stacks of its adapters",
    "logits": "a tile of its logits",
    "KV cache": "KV cache",
    "prefill": "pass of the prompts",
    "stacks of adapters": "stacks of the adapters while sampling",
    "learning": "**peak while learning**",
    "sampling": "**peak while sampling**",
}


def card_table() -> list[str]:
    """The parts that `populora doctor` prints, for the recipes of one card."""
    parts = {recipe: plan(recipe).parts() for recipe in CARD_RECIPES}
    names = [recipe.removesuffix(".yaml") for recipe in CARD_RECIPES]
    lines = [f"| GB | {' | '.join(f'`{name}`' for name in names)} |", "|---|" + "---|" * len(names)]
    for part, words in WORDS.items():
        sizes = (f"{one[part] / 1e9:.2f}" if part in one else "none" for one in parts.values())
        lines.append(f"| {words} | {' | '.join(sizes)} |")
    free = (card - peak(one) for card, one in zip(CARD_RECIPES.values(), parts.values(), strict=True))
    lines.append(f"| left of the card | {' | '.join(f'{size:.2f}' for size in free)} |")
    return lines


def recipe_table() -> list[str]:
    """Base, members, memory, card, tokens and minutes of every recipe that trains."""
    lines = [
        "| recipe | base | members | GB on a GPU | card | rounds × rows | prompts | sampled, as seed tasks "
        "| sampled, at most | minutes |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for recipe in trained():
        cells = f"`{recipe.removesuffix('.yaml')}`", *needs(plan(recipe)), minutes(recipe)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def needs(one: Plan) -> tuple[str, ...]:
    """The cells of a recipe between its name and its minutes."""
    args, rounds = one.args, one.rounds.values()
    base = one.run.model_name_or_path.removeprefix("Qwen/").removeprefix("HuggingFaceTB/")
    packed = (args.model_init_kwargs or {}).get("quantization_config", {}).get("load_in_4bit")
    members = "1 in both roles" if args.shared_member else f"{args.num_teachers} + {args.num_students}"
    engine = args.vllm_gpu_memory_utilization if args.use_vllm else 0.0
    card, on_node = smallest(one.parts(), engine), smallest(one.parts(processes=NODE), engine) if engine else ""
    rows = sum(phase.rows for phase in rounds)
    extra = args.proposals_per_round * args.round_settings.extra_attempts if args.num_teachers else 0
    written = sum(phase.rows * phase.completion for phase in rounds)
    return (
        f"`{base}`{', 4 bits' if packed else ''}",
        members,
        f"{peak(one.parts()):.1f}{' + engine' if engine else ''}",
        f"{card}, {on_node} on {NODE} GPUs" if engine and on_node != card else card,
        f"{args.rounds} × {rows:,}",
        short(args.rounds * sum(phase.rows * phase.prompt for phase in rounds)),
        short(args.rounds * written) if args.num_teachers else "no seed tasks",
        short(args.rounds * (rows + extra) * args.max_completion_length),
    )


def minutes(recipe: str) -> str:
    """Measured minutes of a recipe, or the bound for its updates on a GPU, or neither."""
    if recipe in MEASURED:
        return f"measured: {', '.join(MEASURED[recipe])}"
    if recipe in MEASURED_ELSEWHERE:
        return f"measured: {MEASURED_ELSEWHERE[recipe]}"
    if re.search(r"^use_cpu: true", (RECIPES / recipe).read_text(encoding="utf-8"), re.MULTILINE):
        return "not measured"
    least, most = bound(plan(recipe))
    return f"bound: {rounded_down(least)} to {rounded_down(most)}"


def bound(one: Plan) -> tuple[float, float]:
    """Minutes of all updates of a run at peak speed, with completions as long as seed tasks, and at the limit."""
    args, rounds = one.args, one.rounds.values()
    sizes = (
        sum(phase.learned * (phase.prompt + phase.completion) for phase in rounds),
        sum(phase.learned * (phase.prompt + args.max_completion_length) for phase in rounds),
    )
    again = args.gradient_checkpointing
    least, most = (
        args.rounds * args.num_iterations * update_seconds(one.shapes, tokens, again) / 60 for tokens in sizes
    )
    return least, most


def update_seconds(shapes: Shapes, tokens: float, checkpointing: bool) -> float:
    """Seconds at peak speed for the products with the base's weights: forward, with checkpointing once more, backward.

    Products of attention, adapters and LM head are left out, so the true number is higher.
    """
    return (3 if checkpointing else 2) * 2 * shapes.linear * tokens / FLOPS


def short(count: float) -> str:
    """A number with three digits, as it is or in thousands (k) or millions (M)."""
    unit, name = (1e6, " M") if count >= 1e6 else (1e3, " k") if count >= 1e3 else (1.0, "")
    return f"{float(f'{count / unit:.3g}'):,g}{name}"


def rounded_down(number: float) -> str:
    """Two digits of a lower bound."""
    places = 1 - math.floor(math.log10(number))
    return f"{math.floor(number * 10**places) / 10**places:,.{max(places, 0)}f}"


if __name__ == "__main__":
    print("\n".join([*recipe_table(), "", *memory_table(), "", *largest_table(), "", *card_table()]))
