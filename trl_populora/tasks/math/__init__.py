"""The type `math`: word problems, and what says whether one is fair and whether an answer is right."""

from trl_populora.tasks.math.math_word import MathWord, WordProblem


__all__ = ["MathWord", "WordProblem"]
