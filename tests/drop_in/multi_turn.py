"""Tools, an environment and a rollout function, and the script by which a random model comes to call them."""

import re
from importlib import resources

import torch

from tests.tiny import tiny_tokenizer


def add(a: int, b: int) -> int:
    """
    Adds two numbers.

    Args:
        a: The first number.
        b: The second number.

    Returns:
        The sum.
    """
    return a + b


async def add_later(a: int, b: int) -> int:
    """
    Adds two numbers, asynchronously.

    Args:
        a: The first number.
        b: The second number.

    Returns:
        The sum.
    """
    return a + b


class Counter:
    """An environment: calls of `add` raise a count, which is its reward."""

    def reset(self, **kwargs) -> str:
        self.count = 0
        return "Count."

    def add(self, a: int, b: int) -> int:
        """
        Raises the count.

        Args:
            a: The first number.
            b: The second number.

        Returns:
            The count.
        """
        self.count += a + b
        return self.count

    def get_reward(self) -> float:
        return float(self.count % 5)


def tool_tokenizer():
    """The tiny tokenizer with a chat template that knows tools: one that TRL installs."""
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = (resources.files("trl") / "chat_templates" / "qwen3.jinja").read_text()
    return tokenizer


def scripted_turn(name: str):
    """In place of `GRPOTrainer._generate_single_turn`: call the tool `name` with two digits, then say one letter."""

    def turn(self, prompt_ids, images, multimodal_fields, num_generations, **kwargs):
        completions = []
        for ids in prompt_ids:
            a, b, letter = torch.randint(1, 10, (3,)).tolist()
            if "<tool_response>" in self._tokenizer.decode(ids).rsplit("<|im_start|>user", 1)[-1]:
                text = chr(ord("a") + letter)
            else:
                text = f'<tool_call>\n{{"name": "{name}", "arguments": {{"a": {a}, "b": {b}}}}}\n</tool_call>'
            completions.append(self._tokenizer(text + "<|im_end|>")["input_ids"])
        return completions, None

    return turn


def sums(completions, **kwargs) -> list[float]:
    """Reward of a conversation: the last digit of everything that its tools answered, and its length."""
    answers = [[m["content"] for m in c if m["role"] == "tool"] for c in completions]
    return [sum(int(re.search(r"\d+", text)[0]) for text in texts) % 10 + len(texts) for texts in answers]


def rollout(prompts, trainer) -> dict:
    """A rollout function of random bytes, with a mask over its first token and a column for the reward."""
    tokenizer = trainer.processing_class
    lengths = torch.randint(2, 6, (len(prompts),)).tolist()
    return {
        "prompt_ids": [tokenizer(prompt)["input_ids"] for prompt in prompts],
        "completion_ids": [torch.randint(3, 259, (n,)).tolist() for n in lengths],
        "logprobs": None,
        "env_mask": [[0] + [1] * (n - 1) for n in lengths],
        "bonus": [float(n) for n in lengths],
    }


def bonuses(completions, bonus, **kwargs) -> list[float]:
    return bonus
