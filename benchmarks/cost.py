"""The tables of docs/cost.md: what runs need, by the formulas of `training.forecast`. No model is loaded, seconds.

    python benchmarks/cost.py

Shapes of the bases are those of Qwen2.5, from their published configurations. Nothing here has run on a GPU.
"""

from dataclasses import dataclass
from pathlib import Path

from transformers import AutoTokenizer, Qwen2Config

from trl_populora.cli.needs import counter
from trl_populora.integrations.base_models import local_folder
from trl_populora.recipe import parse
from trl_populora.training.forecast import Shapes, memory, phases


RECIPES = Path(__file__).resolve().parents[1] / "recipes"
CARDS = (8, 24, 80, 141)  # GB
SPARE = 0.1  # of a card, for what is not counted (docs/scaling.md)
SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"


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


def settings(recipe: str, options: str = ""):
    """`PopulationSelfPlayConfig` of a recipe, with options, on a machine without a GPU."""
    return parse(["--config", str(RECIPES / recipe), "--use_cpu", "true", *options.split()])[1]


def memory_table() -> list[str]:
    """Peak of one card for 4 teachers and 4 students, learning and sampling apart, and the cards that hold it."""
    lines = ["| base | plan | learning, GB | sampling, GB | fits |", "|---|---|---|---|---|"]
    plans = {
        name: settings("qwen2.5-coder-7b/4t4s.yaml", f"--use_vllm false {options}") for name, options in PLANS.items()
    }
    rounds = {name: phases(args, lambda text: PROMPT) for name, args in plans.items()}
    for base in BASES:
        for name, args in plans.items():
            parts = memory(base.shapes, args, rounds[name])
            peak = max(parts["learning"], parts["sampling"]) / 1e9
            fits = [card for card in CARDS if peak <= card * (1 - SPARE)]
            told = f"{fits[0]} GB" if fits else "no single card"
            lines.append(
                f"| {base.name} | {name} | {parts['learning'] / 1e9:.1f} | {parts['sampling'] / 1e9:.1f} | {told} |"
            )
    return lines


PROMPT = 1024
"""Tokens of a prompt, for `memory_table`."""


CARD_RECIPES = {"qwen2.5-coder-7b/24gb.yaml": ("7B", 24), "qwen2.5-coder-1.5b/12gb.yaml": ("1.5B", 12)}
WORDS = {
    "base": "weights of the base",
    "unpacked weights": "one of its matrices, unpacked",
    "adapters": "weights of the adapters",
    "gradients": "their gradients",
    "optimizer": "their optimizer states",
    "activations": "activations of a micro-batch",
    "logits": "a tile of its logits",
    "KV cache": "KV cache",
    "prefill": "pass of the prompts",
    "stacks of adapters": "stacks of the adapters while sampling",
    "learning": "**peak while learning**",
    "sampling": "**peak while sampling**",
}


def card_table() -> list[str]:
    """The parts that `populora doctor` prints, for the recipes of one card."""
    plans = {recipe: settings(recipe, "--bf16 true") for recipe in CARD_RECIPES}
    shapes = {base.name: base.shapes for base in BASES}
    parts = {
        recipe: memory(shapes[CARD_RECIPES[recipe][0]], args, phases(args, lambda text: PROMPT))
        for recipe, args in plans.items()
    }
    names = [recipe.removesuffix(".yaml") for recipe in CARD_RECIPES]
    lines = [f"| GB | {' | '.join(f'`{name}`' for name in names)} |", "|---|" + "---|" * len(names)]
    for part, words in WORDS.items():
        sizes = (f"{one[part] / 1e9:.2f}" if part in one else "none" for one in parts.values())
        lines.append(f"| {words} | {' | '.join(sizes)} |")
    free = (
        card - max(one["learning"], one["sampling"]) / 1e9
        for (_, card), one in zip(CARD_RECIPES.values(), parts.values())
    )
    lines.append(f"| left of the card | {' | '.join(f'{size:.2f}' for size in free)} |")
    return lines


def token_table() -> list[str]:
    """Rows and tokens of a round; prompts and answers of seed tasks, in the tokens of a base that is here."""
    lines = [
        "| recipe | rows of a round | prompt tokens | completion tokens, as seed tasks | at the limit | rounds |",
        "|---|---|---|---|---|---|",
    ]
    folder, how = local_folder(SMOLLM2)
    smollm2 = AutoTokenizer.from_pretrained(folder, **how)
    tiny = AutoTokenizer.from_pretrained(RECIPES / "tiny" / "base")
    chosen = {
        "tiny/4t4s.yaml": tiny,
        "smollm2-135m/demo.yaml": smollm2,
        "qwen2.5-coder-7b/1t1s.yaml": smollm2,
        "qwen2.5-coder-7b/4t4s.yaml": smollm2,
        "qwen2.5-coder-7b/8t8s.yaml": smollm2,
    }
    for recipe, tokenizer in chosen.items():
        args = settings(recipe)
        rounds = phases(args, counter(tokenizer, args))
        rows = sum(phase.rows for phase in rounds.values())
        prompts = sum(phase.rows * phase.prompt for phase in rounds.values())
        expected = sum(phase.rows * phase.completion for phase in rounds.values())
        limit = rows * args.max_completion_length
        name = recipe.removesuffix(".yaml")
        lines.append(f"| `{name}` | {rows:,} | {prompts:,.0f} | {expected:,.0f} | {limit:,} | {args.rounds} |")
    return lines


if __name__ == "__main__":
    print("\n".join([*memory_table(), "", *card_table(), "", *token_table()]))
