"""The task type `math`: word problems whose answer is a number."""

from trl_populora.tasks.math.math_word import MathWord, WordProblem


__all__ = ["MathWord", "WordProblem"]
