"""Makes a small wheel of vLLM for `gpu.py`, for machines that files reach slowly: 250 MB become 33.

    python benchmarks/trim_vllm.py wheels/vllm-0.25.1-cp38-abi3-manylinux_2_28_x86_64.whl --out small

It keeps what an engine in this process needs to serve a dense model with adapters on an H100 or H200. Machine code
for others is overwritten with zeros, which compress to nothing. CUDA chooses by headers, which stay. The server,
experts, most quantised kernels and structured output are left out. docs/gpu.md lists the packages it needs.
"""

import argparse
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


HOPPER = 90  # compute capability of an H100 or H200, without its dot
MAGIC = 0xBA55ED50  # of a container of machine code ("fatbin"), as `cuobjdump` reads them
HEADER = 32  # least bytes of an entry's header
PTX, CODE = 1, 2  # kinds of an entry: text for the driver's compiler, and machine code
LEFT_OUT = (
    "vllm/vllm-rs",
    "vllm/_moe_C",
    "vllm/_qutlass_C",
    "vllm/_flashmla",
    "vllm/vllm_flash_attn/_vllm_fa2_C",  # for GPUs before Hopper
    "vllm/third_party/deep_gemm",
    "vllm/third_party/fmha",
    "vllm/third_party/flashmla",
    "vllm/entrypoints/serve/instrumentator/static",
    "vllm/model_executor/layers/fused_moe/configs",
    "vllm/model_executor/layers/quantization/utils/configs",
)
STRUCTURED = ("vllm/v1/structured_output/backend_xgrammar.py", "vllm/v1/structured_output/backend_guidance.py")
"""Modules whose annotations need packages of structured output at import. Kept as text, they need none."""


class Entry(NamedTuple):
    """One piece of a container: `PTX` or `CODE`, its compute capability (90), and where its bytes are."""

    kind: int
    arch: int
    start: int
    end: int


def containers(data: bytes | bytearray) -> Iterator[list[Entry]]:
    """The entries of each container in a file."""
    place, magic = 0, struct.pack("<I", MAGIC)
    while 0 <= (place := data.find(magic, place)) <= len(data) - 16:
        version, header, size = struct.unpack_from("<HHQ", data, place + 4)
        end = place + header + size
        if version != 1 or header != 16 or end > len(data):
            place += len(magic)
            continue
        entries, at = [], place + header
        while at < end:
            kind, _, own, length = struct.unpack_from("<HHIQ", data, at) if at + HEADER <= end else (0, 0, 0, 0)
            if own < HEADER or at + own + length > end:
                raise ValueError(f"The container at byte {place} has an entry of a format that is not known.")
            (arch,) = struct.unpack_from("<I", data, at + 28)
            entries.append(Entry(kind, arch, at + own, at + own + length))
            at += own + length
        yield entries
        place = end


def chosen(entries: list[Entry]) -> set[Entry]:
    """What an H100 or H200 can use: code for it; where there is none, the newest PTX that it can compile."""
    own = {entry for entry in entries if entry.kind == CODE and entry.arch == HOPPER}
    texts = [entry for entry in entries if entry.kind == PTX and entry.arch <= HOPPER]
    return own or {entry for entry in texts if entry.arch == max(text.arch for text in texts)}


def trimmed(data: bytes) -> tuple[bytes, int, int]:
    """A library with zeros in place of code for other GPUs, and the numbers of entries kept and overwritten."""
    result, kept, dropped = bytearray(data), 0, 0
    for entries in containers(data):
        own = chosen(entries)
        for entry in entries:
            if entry in own:
                kept += 1
            else:
                result[entry.start : entry.end] = bytes(entry.end - entry.start)
                dropped += 1
    return bytes(result), kept, dropped


def is_left_out(name: str) -> bool:
    return name.startswith(LEFT_OUT) or name.endswith((".h", ".hpp", ".cuh", ".cu", ".inl", ".jpg"))


def make(wheel: Path, target: Path) -> None:
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(target, "w", zipfile.ZIP_LZMA) as small:
        for name in source.namelist():
            if is_left_out(name):
                continue
            data = source.read(name)
            if name.endswith(".so"):
                data, kept, dropped = trimmed(data)
                print(f"{name}: {kept} pieces of code kept, {dropped} overwritten")
            elif name in STRUCTURED:
                data = after_license(data.decode(), "from __future__ import annotations\n").encode()
            small.writestr(name, data)


def after_license(text: str, line: str) -> str:
    """Text with a line after the comments at its beginning."""
    lines = text.splitlines(keepends=True)
    place = next((i for i, one in enumerate(lines) if not one.startswith("#")), len(lines))
    return "".join([*lines[:place], line, *lines[place:]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    target = args.out / args.wheel.name
    if target.exists():
        parser.error(f"--out {args.out} has a wheel of this name already")
    aside = target.with_suffix(".part")
    make(args.wheel, aside)
    aside.replace(target)
    print(f"{target}: {target.stat().st_size / 1e6:.1f} MB, from {args.wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
