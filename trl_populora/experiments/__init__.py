"""Experiments: one YAML with a question, arms and seeds; its runs, one process each; its results, nothing left out.

A run is the ordinary one of a recipe (`python -m trl_populora.train`), and its exams are those of `populora evaluate`.
This room decides which runs there are, and when; docs/experiments.md has the YAML.
"""

from .plan import Experiment, Job, Measure, read_experiment


__all__ = ["Experiment", "Job", "Measure", "read_experiment"]
