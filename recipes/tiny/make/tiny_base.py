"""The tiny base: a Llama of a million parameters, trained from scratch in minutes, on which self-play really learns.

    python -m recipes.tiny.make.tiny_base --output recipes/tiny/base

from the folder that holds `recipes/`, with the `lightning` extra installed.

It can propose and solve all three task types, over a part of the easy seed families. A last phase teaches it to answer
wrongly and to propose invalid or trivial programs part of the time: reinforcement lifts what is latent and adds no
capacity, so a base that is already as good as it can be would show nothing. The command's last lines measure it.
"""

import argparse
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from peft import LoraConfig
from tokenizers import Regex, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast

from trl_populora.executor import Executor
from trl_populora.generation import TransformersSampler
from trl_populora.integrations.lightning import Row, causal_lm_loss, collate
from trl_populora.integrations.lightning.warm_start import learning_rate_factor
from trl_populora.population import Population
from trl_populora.tasks import TaskBuffer, make_task_types

from .skill import measure_proposing, measure_solving
from .small_llama import make_model, make_tokenizer, save
from .tiny_rows import HELD_OUT_FAMILIES, TASK_KWARGS, TRAINED_FAMILIES, TinyExamples


logger = logging.getLogger(__name__)

MEASURING_SEED = 424_242  # tasks and references that measure are drawn apart from those that train


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the weights. All values are ours, chosen by short trials.

    Args:
        steps, latent_steps (`int`): Optimizer steps on right rows, then on partly spoilt ones.
        learning_rate, latent_learning_rate (`float`): Peak of each phase; both decay linearly to zero.
        wrong_answers, invalid_proposals, trivial_proposals (`float`): Shares of spoilt rows in the last phase.
        rows, rows_per_pass (`int`): Rows per optimizer step and per forward pass.
        vocabulary, tokenizer_rows (`int`): Tokens, and the rows that they are chosen by.
        hidden, layers (`int`): Shape of the model.
        seed (`int`): Seed of data and initial weights.
    """

    steps: int = 2400
    latent_steps: int = 200
    learning_rate: float = 3e-3
    latent_learning_rate: float = 1e-3
    wrong_answers: float = 0.5
    invalid_proposals: float = 0.35
    trivial_proposals: float = 0.2
    rows: int = 64
    rows_per_pass: int = 32
    vocabulary: int = 640
    tokenizer_rows: int = 4000
    hidden: int = 128
    layers: int = 4
    seed: int = 0


def build_tokenizer(examples: TinyExamples, recipe: Recipe) -> PreTrainedTokenizerFast:
    """Digits, and the letters of string data, are always tokens of their own."""
    data_letter = Regex("[A-Da-d](?=[A-Da-d]*')")
    return make_tokenizer(
        [examples.draw() for _ in range(recipe.tokenizer_rows)],
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Split(data_letter, behavior="isolated"),
        vocabulary=recipe.vocabulary,
    )


def train(recipe: Recipe, *, progress: int = 100) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Make the tokenizer and the model.

    Args:
        recipe (`Recipe`): Decides the result: equal recipes give equal bits on equal machines and thread counts.
        progress (`int`): The loss is logged every so many steps.
    """
    tokenizer = build_tokenizer(TinyExamples(recipe.seed), recipe)
    model = make_model(tokenizer, hidden=recipe.hidden, layers=recipe.layers, seed=recipe.seed)
    train_phase(model, tokenizer, recipe, latent=False, progress=progress)
    train_phase(model, tokenizer, recipe, latent=True, progress=progress)
    return model.eval(), tokenizer


def train_phase(model, tokenizer, recipe: Recipe, *, latent: bool, progress: int = 100) -> None:
    """The steps on right rows, or the last ones on partly spoilt rows. The phases share nothing but the weights."""
    steps = recipe.latent_steps if latent else recipe.steps
    spoilt = {name: getattr(recipe, name) for name in ("wrong_answers", "invalid_proposals", "trivial_proposals")}
    examples = TinyExamples(recipe.seed, **(spoilt if latent else {}))
    if steps == 0:
        return

    rate = recipe.latent_learning_rate if latent else recipe.learning_rate
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate_factor(step, steps=steps, warmup_steps=steps // 30)
    )
    model.train()
    batches = examples.batches(tokenizer, steps=steps, rows=recipe.rows)
    for step, batch in enumerate(batches, start=1):
        loss = _backward(model, batch, size=recipe.rows_per_pass, pad_token_id=tokenizer.pad_token_id)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step % progress == 0:
            logger.info("%s phase, step %d of %d: loss %.3f", "last" if latent else "first", step, steps, loss)


def _backward(model, batch: Sequence[Row], *, size: int, pad_token_id: int) -> float:
    """Gradient of the mean loss per completion token, in passes of `size` rows of similar length; returns the loss."""
    tokens = sum(len(row.ids) - row.prompt for row in batch)
    batch = sorted(batch, key=lambda row: len(row.ids))
    total = 0.0
    for start in range(0, len(batch), size):
        sums, _ = causal_lm_loss(model, collate(batch[start : start + size], pad_token_id))
        weights = torch.full_like(sums, 1.0 / tokens)
        loss = (sums * weights).sum()
        loss.backward()
        total += loss.item()
    return total


def measure(folder: Path, *, tasks: int = 256, proposals: int = 128) -> dict:
    """What the saved base can do, on the families it was trained on and on the others.

    Returns:
        `dict`: For each of `"trained"` and `"held_out"`, by task type: `"greedy"` and `"sampled"`, the shares of tasks
        solved by greedy decoding and at temperature 1, and `"proposing"`, a `Proposing` at temperature 1.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder)
    lora = LoraConfig(r=1, target_modules="all-linear", lora_dropout=0.0)
    population = Population(AutoModelForCausalLM.from_pretrained(folder), lora, num_teachers=1, num_students=1)
    types = make_task_types(style="compact", kwargs=TASK_KWARGS)
    greedy, sampled = (
        TransformersSampler(population, tokenizer, max_completion_length=96, temperature=t, batch_size=128)
        for t in (0.0, 1.0)
    )
    results = {}
    with Executor() as executor:
        for name, families in (("trained", TRAINED_FAMILIES), ("held_out", HELD_OUT_FAMILIES)):
            drawn = {"seed": MEASURING_SEED, "families": families}
            held_out = [task for kind in types.values() for task in kind.seeds(tasks, **drawn)]
            known = TaskBuffer(types, tasks=(task for kind in types.values() for task in kind.seeds(256, **drawn)))
            arguments = (types, held_out, executor.run_many)
            written = measure_proposing(sampled, None, types, known, executor.run_many, proposals=proposals)
            results[name] = {
                "greedy": measure_solving(greedy, None, *arguments),
                "sampled": measure_solving(sampled, None, *arguments),
                "proposing": {kind: outcome.to_json() for kind, outcome in written.items()},
            }
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, save and measure; writes the folder and `measured.json` in it."""
    parser = argparse.ArgumentParser(description="Train the tiny base from scratch.")
    parser.add_argument("--output", type=Path, required=True, help="folder for weights, tokenizer and measurements")
    parser.add_argument("--steps", type=int, default=Recipe.steps, help="steps of the first phase")
    parser.add_argument("--latent-steps", type=int, default=Recipe.latent_steps, help="steps of the last phase")
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    parser.add_argument("--threads", type=int, default=2, help="CPU threads; part of what decides the bits")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(options.threads)
    recipe = Recipe(steps=options.steps, latent_steps=options.latent_steps, seed=options.seed)
    save(*train(recipe), options.output, how="recipe.json", settings=asdict(recipe))
    results = measure(options.output)
    (options.output / "measured.json").write_text(json.dumps(results, indent=2) + "\n")
    logger.info("%s", json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
