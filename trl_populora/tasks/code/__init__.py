"""The three Python types of Absolute Zero: `code_o` (deduction), `code_i` (abduction) and `code_f` (induction)."""

from __future__ import annotations

from trl_populora.tasks.code.code_f import CodeF
from trl_populora.tasks.code.code_i import CodeI
from trl_populora.tasks.code.code_o import CodeO
from trl_populora.tasks.code.payload import CodePayload


__all__ = ["CodeF", "CodeI", "CodeO", "CodePayload"]
