"""A population on the Hugging Face Hub: what of a run is shared, and how it gets there and back.

`contents` says which files a repository holds; `client` brings them up and down, and words what goes wrong; `pushing`
and `pulling` put both together. How a card reads is decided in `reporting`, which adapters a run starts from in
`training`.
"""

from .client import HubError
from .pulling import pull
from .pushing import push_dataset, push_member, push_population


__all__ = ["HubError", "pull", "push_dataset", "push_member", "push_population"]
