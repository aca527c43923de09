"""The format of a child's report. `child.py` writes it, and `verdict.py` reads it.

A report is a sequence of frames. A frame is a tag of one byte, the length of the payload in four bytes, and the
payload. A report has one of these forms:

    S name          the source is not Python
    C name          the compiler failed
    P X failure     the program failed before `f` was called
    P F R* Z        the program defined `f`. One R for each input, with a failure, `v` canonical bytes or `u` reason

`P` is sent before any untrusted code runs. A failure is `e` (exception), `b` (base exception) or `m` (memory), and the
name of the exception's type. Nothing may follow the last frame.
"""

CHANNEL = 3
"""File descriptor of the result channel in a child: the only one it may write to."""

CONFINEMENT_FAILED = 71
"""Exit code of a child that could not confine itself. It counts only if the child sent no frame."""

HEADER = 5


def pack(tag: bytes, payload: bytes = b"") -> bytes:
    """One frame."""
    return tag + len(payload).to_bytes(4, "little") + payload


def unpack(data: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """The complete frames at the start of `data` as `(tag, payload)` pairs, and the bytes that are left."""
    frames, start = [], 0
    while len(data) - start >= HEADER:
        body = start + HEADER
        end = body + int.from_bytes(data[start + 1 : body], "little")
        if end > len(data):
            break
        frames.append((data[start : start + 1], data[body:end]))
        start = end
    return frames, data[start:]
