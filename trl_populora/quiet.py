"""Messages of other libraries that users of the commands cannot act on. Only the messages listed here are hidden."""

import logging
import re
import warnings


MESSAGES = {
    # A population samples from its base and decodes by its tokenizer; both are set up for that on purpose.
    "transformers.trainer_utils": "The tokenizer has new PAD/BOS/EOS tokens that differ from the model config",
    "transformers.tokenization_utils_tokenizers": "Ignoring clean_up_tokenization_spaces=True for BPE tokenizer",
    # A kernel that is downloaded. Only a 4-bit base on a CPU would use it.
    "bitsandbytes.backends.cpu.ops": "Failed to load CPU gemm_4bit_forward",
    # Rows are drawn with a cache and learned from without one.
    "transformers.modeling_layers": "Caching is incompatible with gradient checkpointing",
}
"""Logger -> beginning of the message that is hidden."""
WARNINGS = (
    (r"You are using 'rollout_func', which is an experimental feature", UserWarning, ""),  # TRL gets its rows by it
    (r".*deprecated and will be removed in v6", FutureWarning, ""),  # TRL and PEFT use these names of transformers
    (r"invalid escape sequence", SyntaxWarning, r".*\btrueskill\b"),  # Python 3.12 and newer, at the first import
)
"""Beginning of a warning (regular expression), its category, and its module (regular expression)."""


class _Held(logging.Filter):
    """Hides messages with this beginning."""

    def __init__(self, beginning: str) -> None:
        super().__init__()
        self.beginning = beginning

    def filter(self, record: logging.LogRecord) -> bool:
        return not re.sub(r"^\[RANK \d+\] ", "", record.getMessage()).startswith(self.beginning)  # of accelerate


_FILTERS = {name: _Held(beginning) for name, beginning in MESSAGES.items()}  # a logger takes the same filter once


def filter_messages() -> None:
    """Hides these messages in this process. Commands call it before their imports; the library does not call it."""
    for name, held in _FILTERS.items():
        logging.getLogger(name).addFilter(held)
    for message, category, module in WARNINGS:
        warnings.filterwarnings("ignore", message=message, category=category, module=module)


def hide_loading_bars() -> None:
    """Hide the progress bars of datasets and transformers; those of downloads stay."""
    import datasets
    import transformers

    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
