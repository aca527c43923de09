"""Sharing a population on the Hugging Face Hub: upload, download and export.

`contents` defines the files of a repository. `client` uploads and downloads them, and writes error messages. `pushing`
and `pulling` combine both. `reporting` writes the card. `training` starts runs from adapters.
"""

from .client import HubError
from .pulling import pull
from .pushing import push_dataset, push_member, push_population


__all__ = ["HubError", "pull", "push_dataset", "push_member", "push_population"]
