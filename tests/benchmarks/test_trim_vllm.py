"""A trimmed wheel keeps the code of one kind of GPU, byte for byte, and drops what no engine here imports."""

import struct
import zipfile

import pytest

from benchmarks.trim_vllm import CODE, MAGIC, PTX, chosen, containers, is_left_out, make, trimmed


def entry(kind, arch, payload):
    head = struct.pack("<HHIQ", kind, 0, 64, len(payload)) + bytes(12) + struct.pack("<I", arch)
    return head.ljust(64, b"\0") + payload


def container(*entries):
    body = b"".join(entries)
    return struct.pack("<IHHQ", MAGIC, 1, 16, len(body)) + body


FOR_80, FOR_90, FOR_100 = (entry(CODE, arch, bytes([arch]) * 32) for arch in (80, 90, 100))
TEXT_75, TEXT_80, TEXT_100 = (entry(PTX, arch, bytes([arch]) * 16) for arch in (75, 80, 100))


def kept(data):
    """Kinds and capabilities of the entries that are not overwritten."""
    return [(one.kind, one.arch) for entries in containers(data) for one in entries if any(data[one.start : one.end])]


@pytest.mark.parametrize(
    "entries, wanted",
    [
        ([FOR_80, FOR_90, FOR_100, TEXT_80], [(CODE, 90)]),
        ([FOR_80, TEXT_75, TEXT_80, TEXT_100], [(PTX, 80)]),  # code of an 80 cannot run on a 90
        ([FOR_80, FOR_100], []),
        ([FOR_90], [(CODE, 90)]),
    ],
)
def test_only_what_this_gpu_can_use_is_kept(entries, wanted):
    data = b"before" + container(*entries) + b"between" + container(FOR_90) + b"after"
    small, n_kept, n_dropped = trimmed(data)
    assert len(small) == len(data) and kept(small) == [*wanted, (CODE, 90)]
    assert (n_kept, n_dropped) == (len(wanted) + 1, len(entries) - len(wanted))
    for one in (one for group in containers(data) for one in group):
        own = small[one.start : one.end]
        assert own in (data[one.start : one.end], bytes(len(own)))
    assert small.startswith(b"before") and small.endswith(b"after") and b"between" in small


def test_bytes_that_only_look_like_a_container_stay():
    data = struct.pack("<IHHQ", MAGIC, 7, 16, 4) + b"text" + struct.pack("<IHHQ", MAGIC, 1, 16, 1 << 40) + b"end"
    assert trimmed(data) == (data, 0, 0)


@pytest.mark.parametrize("body", [FOR_90 + bytes(32), FOR_90 + bytes(8), FOR_90[:-1]])
def test_a_container_of_another_format_is_refused(body):
    with pytest.raises(ValueError, match="an entry of a format that is not known"):
        trimmed(container(body))


def test_a_file_may_end_with_what_looks_like_a_container():
    data = b"text" + struct.pack("<I", MAGIC)
    assert trimmed(data) == (data, 0, 0)


def test_a_wheel_keeps_the_rest(tmp_path):
    name, source = "vllm-0.25.1-cp38-abi3-any.whl", tmp_path / "whole"
    source.mkdir()
    module = "vllm/v1/structured_output/backend_xgrammar.py"
    with zipfile.ZipFile(source / name, "w") as wheel:
        wheel.writestr("vllm/_C.abi3.so", container(FOR_80, FOR_90))
        wheel.writestr("vllm/_moe_C.abi3.so", b"experts")
        wheel.writestr("vllm/engine.py", "import os\n")
        wheel.writestr(module, "# A licence\n# of two lines\nimport os\n")
    make(source / name, tmp_path / name)
    with zipfile.ZipFile(tmp_path / name) as wheel:
        assert set(wheel.namelist()) == {"vllm/_C.abi3.so", "vllm/engine.py", module}
        assert kept(wheel.read("vllm/_C.abi3.so")) == [(CODE, 90)]
        assert wheel.read("vllm/engine.py") == b"import os\n"
        lines = wheel.read(module).decode().splitlines()
    assert lines == ["# A licence", "# of two lines", "from __future__ import annotations", "import os"]


def test_nothing_of_no_use_is_chosen():
    assert chosen([]) == set()
    assert is_left_out("vllm/vllm-rs") and not is_left_out("vllm/lora/request.py")
