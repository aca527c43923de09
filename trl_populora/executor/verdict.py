"""Turns the report of a child, and the way in which it ended, into an `Execution`.

The report comes from a process that ran hostile code. So every byte is checked, and any deviation from the format in
`frames.py` is a failure of the program. If the report is incomplete, the exit status from the kernel decides.
"""

from __future__ import annotations

import os
import signal

from . import canonical, frames
from .records import Execution, Limits, Status, Value
from .server import End


_FAILURES = {b"e": Status.EXCEPTION, b"b": Status.BASE_EXCEPTION, b"m": Status.MEMORY}
_COMPILER = {b"S": Status.SYNTAX_ERROR, b"C": Status.COMPILE_FAILED}


class Violation(Exception):
    """The report deviates from the format."""


def max_report_bytes(count: int, limits: Limits, total_bytes: int | None = None) -> int:
    """Maximum bytes of a report that keeps the format, for `count` inputs."""
    values = count * limits.result_bytes if total_bytes is None else total_bytes
    return 1024 + count * (frames.HEADER + 128) + values


def judge(end: End, count: int, limits: Limits, *, lazy: bool = False, checked_bytes: int | None = None) -> Execution:
    """
    Judges one run of a program.

    Args:
        end (`End`):
            The report of the child, and how it ended.
        count (`int`):
            Number of inputs of the run.
        limits (`Limits`):
            Limits of the run.
        lazy (`bool`, *optional*, defaults to `False`):
            Whether values are not checked here, see `Job`.
        checked_bytes (`int`, *optional*):
            Size above which they are not, see `Job`.

    Returns:
        `Execution`: With one value for each input, or without values if the program failed before `f` was called.
    """

    def execution(status: Status, values: tuple[Value, ...] = (), error: str | None = None) -> Execution:
        return Execution(status, values, end.seconds, end.peak_memory, error)

    most = -1 if lazy else limits.result_bytes if checked_bytes is None else checked_bytes
    if end.flooded:
        return execution(Status.OUTPUT_LIMIT)
    try:
        reached, status, values, error = _read(end.data, count, limits, most)
    except Violation as violation:
        return execution(Status.PROTOCOL_VIOLATION, error=str(violation))
    if status is not None:
        return execution(status, error=error)
    if len(values) < count or reached != b"Z":
        death = _death(end, limits)
        if not count or reached != b"F" and reached != b"Z":
            return execution(death)
        # The call that was running has failed, and the others never ran. If the process was killed after the last
        # call, that call has failed.
        values = values[: count - 1] + [Value(death)] * max(1, count - len(values))
    return execution(overall(values), tuple(values))


def overall(values: list[Value] | tuple[Value, ...]) -> Status:
    """The first status that is not `OK`, if any."""
    return next((value.status for value in values if value.status is not Status.OK), Status.OK)


def _read(data: bytes, count: int, limits: Limits, most: int) -> tuple[bytes, Status | None, list[Value], str | None]:
    """The tag of the last stage (`F` during the calls), the failure of the program, the values, and the error."""
    parts, rest = frames.unpack(data)
    if len(rest) >= frames.HEADER and int.from_bytes(rest[1:5], "little") > limits.result_bytes + 128:
        raise Violation("a frame of impossible length")
    reached, status, values, error = b"", None, [], None
    for tag, payload in parts:
        if status is not None or reached == b"Z":
            raise Violation("a frame after the last")
        if payload and tag in (b"P", b"F", b"Z"):
            raise Violation("a frame with a payload that it does not have")
        if reached == b"" and tag in _COMPILER:
            status, error = _COMPILER[tag], _identifier(payload)
        elif reached == b"" and tag == b"P" or reached == b"P" and tag == b"F":
            reached = tag
        elif reached == b"P" and tag == b"X":
            failure = _failure(payload)
            status, error = failure.status, failure.error
        elif reached == b"F" and tag == b"R" and len(values) < count:
            values.append(_value(payload, limits, most))
        elif reached == b"F" and tag == b"Z" and len(values) == count:
            reached = b"Z"
        else:
            raise Violation("a frame out of place")
    if rest and (status is not None or reached == b"Z"):
        raise Violation("bytes after the last frame")
    return reached, status, values, error


def _value(payload: bytes, limits: Limits, most: int) -> Value:
    tag, body = payload[:1], payload[1:]
    if tag == b"v":
        if len(body) > limits.result_bytes:
            raise Violation("a value above its limit")
        try:
            if len(body) <= most:
                canonical.decode(body)
        except (ValueError, RecursionError, MemoryError):
            raise Violation("a value that is not canonical") from None
        return Value(Status.OK, body, None)
    if tag == b"u":
        return Value(Status.UNPLAIN, None, _identifier(body))
    return _failure(payload)


def _failure(payload: bytes) -> Value:
    if payload[:1] not in _FAILURES:
        raise Violation("an unknown kind of result")
    return Value(_FAILURES[payload[:1]], None, _identifier(payload[1:]))


def _identifier(text: bytes) -> str:
    """A name or reason from the child, limited to 100 characters of printable ASCII, because it is logged."""
    return "".join(chr(byte) if 32 <= byte < 127 else "?" for byte in text[:100])


def _death(end: End, limits: Limits) -> Status:
    if end.overdue:
        return Status.WALL_TIMEOUT
    code = os.waitstatus_to_exitcode(end.status)
    if code in (-signal.SIGPROF, -signal.SIGXCPU):
        return Status.CPU_TIMEOUT
    if code == -signal.SIGALRM:
        return Status.WALL_TIMEOUT
    if code == -signal.SIGKILL and end.seconds >= limits.cpu_seconds:
        return Status.CPU_TIMEOUT
    if code < 0:
        return Status.KILLED
    if code == frames.CONFINEMENT_FAILED and not end.data:
        return Status.INFRA_ERROR
    return Status.NO_RESULT
