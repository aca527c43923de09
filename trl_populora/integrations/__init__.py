"""Bridges to other tools: base models from where they are kept, and `lightning.Trainer` in `lightning/`."""

from .base_models import resolve_base


__all__ = ["resolve_base"]
