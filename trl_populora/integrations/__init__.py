"""Connections to other tools: base models, users' data, and `lightning.Trainer` in `lightning/`."""

from .base_models import resolve_base


__all__ = ["resolve_base"]
