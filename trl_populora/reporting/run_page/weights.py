"""Cosines between the saved adapters of a role, read without PEFT, whose import takes longer than the page."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ...run_files.files import read_json
from ...run_files.layout import ADAPTER_CONFIG_FILE, ADAPTER_FILE


MAX_BYTES = 400 * 2**20
"""Adapters of a role that are read; those of larger ones are left alone."""


def adapter_cosines(folders: Mapping[str, str]) -> dict[tuple[str, str], float]:
    """Two members -> cosine of their updates `dW = B A`, from Gram matrices of the factors; 0 if an update is 0.

    Args:
        folders (`Mapping[str, str]`): Member -> its PEFT folder. All must adapt the same matrices with one scaling.

    Raises:
        ValueError: If adapters are missing, damaged, too large, or have other matrices or several scalings.
    """
    paths = {name: os.path.join(folder, ADAPTER_FILE) for name, folder in folders.items()}
    if missing := [path for path in paths.values() if not os.path.isfile(path)]:
        raise ValueError(f"{missing[0]} is missing.")
    size = sum(map(os.path.getsize, paths.values()))
    if size > MAX_BYTES:
        raise ValueError(f"the adapters have {size / 2**20:.0f} MiB; at most {MAX_BYTES >> 20} are read.")
    for folder in folders.values():
        config = read_json(os.path.join(folder, ADAPTER_CONFIG_FILE), missing="it is not a PEFT folder.")
        if config.get("rank_pattern") or config.get("alpha_pattern"):
            raise ValueError("adapters with patterns of ranks or alphas are not compared.")
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = [load_file(path) for path in paths.values()]
    except SafetensorError as error:
        raise ValueError(f"an adapter is damaged: {error}") from None
    keys = [key for key in tensors[0] if key.endswith(".lora_A.weight")]
    if not keys or any(own.keys() != tensors[0].keys() for own in tensors):
        raise ValueError("the adapters are not of the same matrices.")
    count = len(tensors)
    inner = torch.zeros(count, count, dtype=torch.float64)
    for key in keys:
        sides = [
            torch.stack([own[name].to(torch.float64) for own in tensors])
            for name in (key, key.replace(".lora_A.", ".lora_B."))
        ]
        inner += torch.einsum("ird,jsd,ior,jos->ij", sides[0], sides[0], sides[1], sides[1])
    norms = inner.diagonal().clamp(min=0.0).sqrt()
    scale = norms.outer(norms)
    cosines = torch.where(scale > 0, inner / scale, 0.0).clamp(-1.0, 1.0).nan_to_num(nan=2.0).tolist()
    return {
        (one, other): cosines[i][j]
        for i, one in enumerate(folders)
        for j, other in enumerate(folders)
        if cosines[i][j] <= 1.0
    }
