"""The base of chains: a Llama of a million parameters, trained from scratch, with room to learn at every depth.

    python -m recipes.chains.make.base --output recipes/chains/base

from the folder that holds `recipes/`, with the `lightning` extra installed. Killed, the same command goes on
where it was.

In a last phase, worked answers end too early after the third line (`stop_steps`), or take some statements for others
(`confused_steps`). So the base fails on chains that it could solve, and no temperature mends that: reinforcement has
something to teach, and its greedy answers show it.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from tokenizers import Regex, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast

from recipes.chains.make.measure import measure
from recipes.chains.make.rows import ChainExamples, weak_shares
from recipes.tiny.make.small_llama import make_model, make_tokenizer, save
from trl_populora.integrations.lightning import Row, causal_lm_loss, collate, encode


logger = logging.getLogger(__name__)

STATE_FILE = "training.pt"
TOKENIZER_FOLDER = "tokenizer"
MUON_RATE = 3.0  # its learning rate, in those of AdamW
# Pieces that are tokens of their own wherever they stand, so that a statement is the same tokens in a program and in
# an answer: ends of lines before a statement, with the indentation, the mark before a state and what opens it, digits
# and letters of data. A digit beside a colon, a minus or another digit belongs to a statement.
PIECES = r"\n +|\n(?=x|if |for )| # (?:\[|\{'|')?|(?<![-:\d])\d(?![:\d])|[a-d](?=[a-d]*')"


@dataclass(frozen=True)
class Settings:
    """Everything that decides the weights. All values are ours, chosen by short trials.

    Args:
        steps (`int`): Optimizer steps on right rows. The rate is constant, and falls to zero over the last
            `decay_steps`: a longer training begins as a shorter one.
        decay_steps (`int`), warmup_steps (`int`): Length of the fall at the end, and of the rise at the start.
        short_steps (`int`): Of `steps`, the first that see short chains of `code_o` alone: to copy a statement
            and to apply it is learnt there, on short rows.
        stop_steps (`int`), stops (`float`): Steps of the last phase, in which answers may end too early: after each
            line from the third on with this chance.
        confused_steps (`int`), confused (`float`): Steps of another last phase, in which answers take held-out
            statements for ones that they resemble, with this chance. With it, all rows are of `weak_shares`.
        weak_every (`int`): Then one proposal of so many comes from the families that have these statements.
        kinds (`str`), types (`str`): Kinds of state and task types of the rows, by name, with spaces between them.
        learning_rate (`float`), stop_learning_rate (`float`): Peak of each phase.
        rows (`int`), tokens_per_pass (`int`): Rows per optimizer step; tokens, padding included, per forward pass.
        vocabulary (`int`), tokenizer_rows (`int`): Tokens, and the rows that they are chosen by.
        hidden (`int`), layers (`int`): Shape of the model.
        precision (`str`): Of the products of matrices: `"bfloat16"`, or `"float32"`, which is 2.6 times as fast on a
            CPU without instructions for bfloat16.
        seed (`int`): Seed of rows and initial weights.
    """

    steps: int = 6000
    decay_steps: int = 800
    warmup_steps: int = 50
    short_steps: int = 800
    kinds: str = "chain_digits chain_text chain_table"
    types: str = "code_o code_i code_f"
    stop_steps: int = 130
    stops: float = 0.6
    confused_steps: int = 0
    confused: float = 0.6
    weak_every: int = 5
    learning_rate: float = 3e-3
    stop_learning_rate: float = 1e-3
    rows: int = 64
    tokens_per_pass: int = 3072
    vocabulary: int = 768
    tokenizer_rows: int = 6000
    hidden: int = 128
    layers: int = 4
    precision: str = "bfloat16"
    seed: int = 0

    @property
    def last_steps(self) -> int:
        """Steps of the last phase."""
        return self.stop_steps + self.confused_steps

    def __post_init__(self) -> None:
        if self.precision not in ("bfloat16", "float32"):
            raise ValueError(f"precision={self.precision!r} must be 'bfloat16' or 'float32'.")
        if self.stop_steps and self.confused_steps:
            raise ValueError(
                f"stop_steps={self.stop_steps} and confused_steps={self.confused_steps}: there is one last phase. Set "
                "one of them to 0."
            )


def build_tokenizer(settings: Settings) -> PreTrainedTokenizerFast:
    """Tokens do not cross the borders of `PIECES`."""
    examples = ChainExamples(settings.seed).batch(settings.tokenizer_rows, seed=f"{settings.seed}/tokenizer")
    pieces = pre_tokenizers.Split(Regex(PIECES), behavior="isolated")
    return make_tokenizer(examples, pieces, vocabulary=settings.vocabulary)


def build_model(tokenizer: PreTrainedTokenizerFast, settings: Settings) -> LlamaForCausalLM:
    """A new model with weights of the seed."""
    model = make_model(tokenizer, hidden=settings.hidden, layers=settings.layers, seed=settings.seed)
    if settings.precision == "bfloat16":
        model.set_attn_implementation("eager")  # on a CPU four times as fast as sdpa, at these widths
    return model


class Training:
    """The steps of both phases, with a state on disk.

    Args:
        folder (`Path`): Where the state is kept; one that is there is gone on from.
        settings ([`Settings`]): Decides the result: equal settings give equal bits on equal machines and thread
            counts, resumed or not.
        start (`Path`, *optional*): Folder of a model and tokenizer to begin with; default: a new model.

    Raises:
        ValueError: If the state on disk is of another model, tokenizer, seed or start. What else differs holds from
            there on.
    """

    def __init__(self, folder: Path, settings: Settings, *, start: Path | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self.settings, self.start = folder / STATE_FILE, settings, str(start or "")
        kept = folder / TOKENIZER_FOLDER  # a state is worth nothing without the tokenizer that it began with
        if not kept.is_dir():
            part = folder / f"{TOKENIZER_FOLDER}.part"
            (AutoTokenizer.from_pretrained(start) if start else build_tokenizer(settings)).save_pretrained(part)
            part.rename(kept)
        self.tokenizer = AutoTokenizer.from_pretrained(kept)
        self.model = build_model(self.tokenizer, settings).train()
        if start is not None and not self.path.exists():
            self.model.load_state_dict(AutoModelForCausalLM.from_pretrained(start).state_dict())
        self.step, self.optimizers = 0, self._optimizers()
        if self.path.exists():
            self._resume(torch.load(self.path, weights_only=True))

    def run(self, *, progress: int = 50, save_every: int = 100) -> None:
        """All steps that are left. The loss is logged every `progress` steps, the state saved every `save_every`."""
        one = self.settings
        kinds, types = one.kinds.split(), one.types.split()
        shortest = {"solve": {"short": 1}, "propose": {"short": 1}}
        short = ChainExamples(one.seed, kinds=kinds, levels=shortest, types=["code_o"])
        levels = weak_shares(one.weak_every) if one.confused_steps else None
        every = ChainExamples(one.seed, kinds=kinds, types=types, levels=levels)
        total, losses, began = one.steps + one.last_steps, [], time.process_time()
        while self.step < total:
            if self.step == one.steps:
                self._save(self.path.with_name(f"step_{self.step}.pt"))
                self.optimizers = self._optimizers()
            examples = short if self.step < one.short_steps else every
            slips = {"stops": one.stops * bool(one.stop_steps), "confused": one.confused * bool(one.confused_steps)}
            slips = slips if self.step >= one.steps else {}
            batch = examples.batch(one.rows, seed=f"{one.seed}/{self.step}", **slips)
            losses.append(self._update(encode(self.tokenizer, batch)))
            self.step += 1
            if self.step % progress == 0:
                mean, spent = sum(losses) / len(losses), (time.process_time() - began) / len(losses)
                logger.info("step %d of %d: loss %.3f, %.2f CPU s a step", self.step, total, mean, spent)
                losses, began = [], time.process_time()
            if self.step % save_every == 0 or self.step == total:
                self._save(self.path)

    def _optimizers(self) -> tuple[torch.optim.Optimizer, ...]:
        """Muon for the matrices of the layers, AdamW for embeddings and norms."""
        matrices = [one for one in self.model.model.layers.parameters() if one.ndim == 2]
        known = {id(one) for one in matrices}
        others = [one for one in self.model.parameters() if id(one) not in known]
        return (
            torch.optim.Muon(matrices, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=0.01),
        )

    def _rate(self) -> float:
        """Learning rate of the step that comes."""
        one = self.settings
        if self.step < one.steps:
            rise, fall = (self.step + 1) / one.warmup_steps, (one.steps - self.step) / max(1, one.decay_steps)
            return one.learning_rate * min(1.0, rise, fall)
        return one.stop_learning_rate * (1 - (self.step - one.steps) / one.last_steps)

    def _update(self, rows: Sequence[Row]) -> float:
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self._rate() * (MUON_RATE if isinstance(optimizer, torch.optim.Muon) else 1.0)
        tokens, total = sum(len(row.ids) - row.prompt for row in rows), 0.0
        for part in _passes(rows, self.settings.tokens_per_pass):
            with torch.autocast("cpu", torch.bfloat16, enabled=self.settings.precision == "bfloat16"):
                sums, _ = causal_lm_loss(self.model, collate(part, self.tokenizer.pad_token_id))
            loss = sums.sum() / tokens
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        return total

    def _save(self, path: Path) -> None:
        optimizers = [one.state_dict() for one in self.optimizers]
        state = {"step": self.step, "model": self.model.state_dict(), "optimizers": optimizers}
        part = path.with_suffix(".part")
        torch.save(state | {"settings": self._declared()}, part)
        part.replace(path)

    def _declared(self) -> dict:
        return asdict(self.settings) | {"start": self.start}

    def _resume(self, state: dict) -> None:
        fixed = ("seed", "vocabulary", "tokenizer_rows", "hidden", "layers", "start")
        began, wanted = state["settings"], self._declared()
        other = {name: began[name] for name in fixed if began[name] != wanted[name]}
        if other:
            raise ValueError(f"{self.path} holds a training with {other}: use another folder, or delete it.")
        self.step = state["step"]
        self.model.load_state_dict(state["model"])
        for optimizer, one in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(one)


def _passes(rows: Sequence[Row], tokens: int) -> Iterator[list[Row]]:
    """Rows of similar length together, at most so many tokens with padding."""
    part: list[Row] = []
    for row in sorted(rows, key=lambda one: len(one.ids)):
        if part and len(row.ids) * (len(part) + 1) > tokens:
            yield part
            part = []
        part.append(row)
    yield part


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, save and measure; writes the folder and `measured.json` in it."""
    parser = argparse.ArgumentParser(description="Train the base of chains from scratch.")
    parser.add_argument("--output", type=Path, required=True, help="folder for weights, tokenizer and measurements")
    parser.add_argument("--start", type=Path, help="folder of a model to go on from, of the same shape")
    parser.add_argument("--work", type=Path, default=Path("runs/chains-base"), help="folder for the training's state")
    for field in fields(Settings):
        name = f"--{field.name.replace('_', '-')}"
        parser.add_argument(name, type=type(field.default), default=field.default, help="see Settings")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads; part of what decides the bits")
    parser.add_argument("--save-only", action="store_true", help="no more steps: save and measure the state as it is")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(options.threads)
    settings = Settings(**{field.name: getattr(options, field.name) for field in fields(Settings)})
    training = Training(options.work, settings, start=options.start)
    if not options.save_only:
        training.run()
    save(training.model, training.tokenizer, options.output, how="settings.json", settings=asdict(settings))
    asked = {"kinds": settings.kinds.split(), "task_types": settings.types.split()}
    results = measure(AutoModelForCausalLM.from_pretrained(options.output), training.tokenizer, **asked)
    (options.output / "measured.json").write_text(json.dumps({"steps": training.step} | results, indent=2) + "\n")
    logger.info("%s", json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
