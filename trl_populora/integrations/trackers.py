"""Which packages the trackers in `report_to` need. Logging to them is transformers' business."""

import importlib.util
from collections.abc import Iterable, Iterator


PACKAGES = {
    "azure_ml": ("azureml",),
    "clearml": ("clearml",),
    "codecarbon": ("codecarbon",),
    "comet_ml": ("comet_ml",),
    "dagshub": ("dagshub",),
    "dvclive": ("dvclive",),
    "flyte": ("flytekit",),
    "mlflow": ("mlflow",),
    "neptune": ("neptune",),
    "swanlab": ("swanlab",),
    "tensorboard": ("tensorboard", "tensorboardX"),
    "trackio": ("trackio",),
    "wandb": ("wandb",),
}
"""Name in `report_to` -> packages of which one is needed. Names that are not here are left to transformers."""


def missing_trackers(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Trackers that cannot be used because their package is not installed, and the package."""
    for name in names:
        packages = PACKAGES.get(name, ())
        if packages and not any(importlib.util.find_spec(package) for package in packages):
            yield name, packages[0]


def check_trackers(names: Iterable[str]) -> None:
    """Raises `ValueError` if the package of a tracker is not installed."""
    for name, package in missing_trackers(names):
        raise ValueError(f"report_to={name!r} needs the package {package}: install it, or set report_to to none.")
