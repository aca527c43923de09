"""Unpacks archives of runs."""

import tarfile
from pathlib import Path


FILTER = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11.4 and newer


def unpack(archive: Path, folder: Path, *begins: str) -> None:
    """Put the files of `archive` into `folder`; with `begins`, only those whose names begin so."""
    with tarfile.open(archive) as file:
        file.extractall(folder, [one for one in file if one.name.startswith(begins or "")], **FILTER)
