"""Evaluation: exams that never change, graders, and scores of members. Nothing here trains a member."""

from .exam import Exam, Question
from .exams import exam_keys, make_exam, make_exams
from .held_out import held_out_exam, held_out_tasks, reserved_keys, task_exam, task_keys


__all__ = [
    "Exam",
    "Question",
    "exam_keys",
    "held_out_exam",
    "held_out_tasks",
    "make_exam",
    "make_exams",
    "reserved_keys",
    "task_exam",
    "task_keys",
]
