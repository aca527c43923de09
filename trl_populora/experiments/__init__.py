"""Experiments: a YAML file with a question, arms and seeds; its runs, one process each; its results.

A run is a normal run of a recipe (`python -m trl_populora.train`), and its exams are those of `populora evaluate`.
This subpackage decides which runs exist and when they start. docs/experiments.md explains the YAML file.
"""

from .plan import Experiment, Job, Measure, read_experiment


__all__ = ["Experiment", "Job", "Measure", "read_experiment"]
