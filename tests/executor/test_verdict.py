"""Reports of children, honest and forged, and what they are judged to be."""

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.drawn_examples import examples
from trl_populora.executor import Limits, Status, Value, frames, verdict
from trl_populora.executor.server import End


LIMITS = Limits(result_bytes=64)
P, F, Z = frames.pack(b"P"), frames.pack(b"F"), frames.pack(b"Z")
ONE = frames.pack(b"R", b"vi1;")


def judge(data, count=1, **end):
    return verdict.judge(End(data, **end), count, LIMITS)


def statuses(execution):
    return [value.status for value in execution.values]


def test_frames_round_trip_and_leave_the_rest():
    assert frames.unpack(P + ONE + Z[:3]) == ([(b"P", b""), (b"R", b"vi1;")], Z[:3])
    assert frames.unpack(b"") == ([], b"")


def test_a_complete_report():
    execution = judge(P + F + ONE + frames.pack(b"R", b"eOdd") + Z, 2, seconds=0.25, peak_memory=7)
    assert execution.values == (Value(Status.OK, b"i1;"), Value(Status.EXCEPTION, None, "Odd"))
    assert (execution.status, execution.seconds, execution.peak_memory) == (Status.EXCEPTION, 0.25, 7)


@pytest.mark.parametrize("status", [0, signal.SIGKILL, signal.SIGPROF, 256])
def test_frames_come_before_the_way_it_ended(status):
    assert judge(P + F + ONE + Z, status=status).status is Status.OK


@pytest.mark.parametrize(
    ("status", "seconds", "expected"),
    [
        (signal.SIGPROF, 0.5, Status.CPU_TIMEOUT),
        (signal.SIGXCPU, 2.0, Status.CPU_TIMEOUT),
        (signal.SIGKILL, 0.6, Status.CPU_TIMEOUT),
        (signal.SIGALRM, 0.0, Status.WALL_TIMEOUT),
        (signal.SIGKILL, 0.1, Status.KILLED),
        (signal.SIGSEGV, 0.6, Status.KILLED),
        (signal.SIGSYS, 0.0, Status.KILLED),
        (0, 0.0, Status.NO_RESULT),
        (1 << 8, 0.0, Status.NO_RESULT),
        (frames.CONFINEMENT_FAILED << 8, 0.0, Status.NO_RESULT),
    ],
)
def test_how_it_ended(status, seconds, expected):
    """Before `F` the program failed as a whole; after it, the call in progress and those behind it."""
    assert judge(P, 2, status=status, seconds=seconds).values == ()
    assert judge(P, 2, status=status, seconds=seconds).status is expected
    assert statuses(judge(P + F, 2, status=status, seconds=seconds)) == [expected] * 2
    assert statuses(judge(P + F + ONE, 3, status=status, seconds=seconds)) == [Status.OK, expected, expected]
    assert statuses(judge(P + F + ONE + ONE, 2, status=status, seconds=seconds)) == [Status.OK, expected]
    assert statuses(judge(P + F + ONE[:-1], 1, status=status, seconds=seconds)) == [expected]


def test_only_silence_makes_a_failed_confinement():
    code = frames.CONFINEMENT_FAILED << 8
    assert judge(b"", status=code).status is Status.INFRA_ERROR
    assert judge(P, status=code).status is Status.NO_RESULT
    assert judge(b"", status=signal.SIGSEGV).status is Status.KILLED


def test_failures_of_the_program_itself():
    for data, status in [
        (frames.pack(b"S", b"SyntaxError"), Status.SYNTAX_ERROR),
        (frames.pack(b"C", b"RecursionError"), Status.COMPILE_FAILED),
        (P + frames.pack(b"X", b"eKeyError"), Status.EXCEPTION),
        (P + frames.pack(b"X", b"bSystemExit"), Status.BASE_EXCEPTION),
        (P + frames.pack(b"X", b"mMemoryError"), Status.MEMORY),
    ]:
        assert (judge(data).status, judge(data).values) == (status, ())
        assert judge(data + b"x").status is Status.PROTOCOL_VIOLATION
    assert judge(P, overdue=True).status is Status.WALL_TIMEOUT
    assert judge(P + F + ONE + Z, flooded=True).status is Status.OUTPUT_LIMIT


@pytest.mark.parametrize(
    "data",
    [
        P + F + ONE + ONE + Z,
        P + F + Z,
        P + F + ONE + Z + Z,
        P + F + ONE + Z + b"\0",
        F + ONE + Z,
        P + ONE + Z,
        P + P,
        P + frames.pack(b"S"),
        frames.pack(b"X", b"e"),
        P + F + frames.pack(b"X", b"eKeyError"),
        P + F + frames.pack(b"Q"),
        P + F + frames.pack(b"R"),
        P + F + frames.pack(b"R", b"q"),
        P + F + frames.pack(b"R", b"v"),
        P + F + frames.pack(b"R", b"vi01;"),
        P + F + frames.pack(b"R", b"vb70:" + b"a" * 70),
        P + F + b"R\xff\xff\xff\xff",
    ],
)
def test_violations(data):
    execution = judge(data, status=signal.SIGKILL)
    assert (execution.status, execution.values) == (Status.PROTOCOL_VIOLATION, ())


def test_a_lazy_job_has_its_values_checked_when_they_are_read():
    report = P + F + ONE + frames.pack(b"R", b"vi01;") + Z
    execution = verdict.judge(End(report), 2, LIMITS, lazy=True)
    assert (execution.status, execution.values[0].value) == (Status.OK, 1)
    with pytest.raises(ValueError):
        execution.values[1].value  # noqa: B018
    assert judge(report, 2).status is Status.PROTOCOL_VIOLATION


def test_values_above_a_size_are_not_checked():
    report = P + F + ONE + frames.pack(b"R", b"vi01;") + Z
    for most, status in ((3, Status.OK), (4, Status.PROTOCOL_VIOLATION)):
        assert verdict.judge(End(report), 2, LIMITS, checked_bytes=most).status is status


def test_names_from_the_child_are_cleaned():
    assert judge(P + frames.pack(b"X", b"e\x1b[31m\xff" + b"a" * 200)).error == "?[31m?" + "a" * 94


pieces = st.sampled_from([P, F, Z, ONE, frames.pack(b"R", b"eA"), frames.pack(b"X", b"eA"), frames.pack(b"S", b"A")])


ends = st.sampled_from([0, 256, frames.CONFINEMENT_FAILED << 8, signal.SIGKILL, signal.SIGPROF, signal.SIGSEGV | 128])


@given(st.lists(pieces | st.binary(max_size=8), max_size=6).map(b"".join), st.integers(0, 3), ends)
@examples(400)
def test_any_bytes_give_a_verdict(data, count, status):
    execution = judge(data, count, status=status)
    assert len(execution.values) in (0, count)
    if execution.status is Status.OK:
        assert data.startswith(P + F) and data.endswith(Z) and statuses(execution) == [Status.OK] * count
    if execution.status is Status.INFRA_ERROR:
        assert data == b""
