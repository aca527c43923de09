"""The seccomp filters of both architectures, run by a small BPF machine: one of them cannot run on this computer."""

import struct

import pytest

from trl_populora.executor import syscalls


ALLOW, EPERM, KILL = 0x7FFF0000, 0x00050001, 0x80000000
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NUMBERS = {  # from the kernel's own headers, apart from the table under test
    "x86_64": dict(write=1, mmap=9, mprotect=10, exit_group=231, futex=202, read=0, openat=257, clone=56, kill=62,
                   socket=41, execve=59, prctl=157, seccomp=317, ptrace=101, io_uring_setup=425, setitimer=38,
                   rt_sigaction=13, prlimit64=302, brk=12, getrandom=318, bpf=321, sendmsg=46, clone3=435),
    "aarch64": dict(write=64, mmap=222, mprotect=226, exit_group=94, futex=98, read=63, openat=56, clone=220, kill=129,
                    socket=198, execve=221, prctl=167, seccomp=277, ptrace=117, io_uring_setup=425, setitimer=103,
                    rt_sigaction=134, prlimit64=261, brk=214, getrandom=278, bpf=280, sendmsg=211, clone3=435),
}  # fmt: skip


def run(machine, number, *arguments, arch=None):
    """What the filter answers to one call."""
    code = list(struct.iter_unpack("<HBBI", syscalls.seccomp_filter(machine)))
    words = [number & 0xFFFFFFFF, arch or ARCH[machine], 0, 0]
    for argument in (*arguments, *[0] * (6 - len(arguments))):
        words += [argument & 0xFFFFFFFF, argument >> 32 & 0xFFFFFFFF]
    position, register = 0, 0
    while True:
        operation, if_true, if_false, operand = code[position]
        position += 1
        if operation == 0x06:
            return operand
        if operation == 0x20:
            register = words[operand // 4]
        else:
            test = {0x15: register == operand, 0x35: register >= operand, 0x45: bool(register & operand)}[operation]
            position += if_true if test else if_false


@pytest.mark.parametrize("machine", ARCH)
def test_named_calls(machine):
    numbers = NUMBERS[machine]
    answers = {name: run(machine, number) for name, number in numbers.items()}
    allowed = {"exit_group", "futex", "brk", "getrandom", "mprotect"}
    fatal = {"ptrace", "io_uring_setup", "bpf"}
    assert {name for name, answer in answers.items() if answer == ALLOW} == allowed
    assert {name for name, answer in answers.items() if answer == KILL} == fatal
    assert {answers[name] for name in answers.keys() - allowed - fatal} == {EPERM}


@pytest.mark.parametrize("machine", ARCH)
def test_checked_arguments(machine):
    write, mmap, mprotect = (NUMBERS[machine][name] for name in ("write", "mmap", "mprotect"))
    assert [run(machine, write, fd) for fd in (0, 1, 2, 3, 4, 1 << 32)] == [EPERM, EPERM, EPERM, ALLOW, EPERM, EPERM]
    for protection, flags, answer in [
        (3, 0x22, ALLOW),
        (0, 0x21, ALLOW),
        (7, 0x22, EPERM),
        (4, 0x20, EPERM),
        (3, 0x02, EPERM),
        (1, 0x01, EPERM),
    ]:
        assert run(machine, mmap, 0, 4096, protection, flags) == answer
    assert [run(machine, mmap, place, 4096, 3, 0x22) for place in (1 << 12, 1 << 32, 1 << 44)] == [EPERM] * 3
    mremap = {"x86_64": 25, "aarch64": 216}[machine]
    assert [run(machine, mremap, 1 << 44, 1, 2, flags) for flags in (0, 1, 2, 3, 5)] == [ALLOW] * 2 + [EPERM] * 3
    assert [run(machine, mprotect, 0, 4096, protection) for protection in (0, 1, 3, 4, 5, 7)] == [ALLOW] * 3 + [
        EPERM
    ] * 3


@pytest.mark.slow
@pytest.mark.parametrize("machine", ARCH)
def test_few_calls_are_allowed_at_all(machine):
    allowed = [number for number in range(1000) if run(machine, number, 3, 0, 0, 0x20) == ALLOW]
    assert len(allowed) == {"x86_64": 16, "aarch64": 15}[machine]  # mmap and mremap need other arguments
    assert [run(machine, number) for number in (1000, 1 << 20, (1 << 30) - 1)] == [EPERM] * 3


@pytest.mark.parametrize("machine", ARCH)
def test_clocks_of_other_processes(machine):
    call = {"x86_64": 228, "aarch64": 113}[machine]
    assert [run(machine, call, clock) for clock in (0, 1, 2, 11)] == [ALLOW] * 4
    assert [run(machine, call, clock & 0xFFFFFFFF) for clock in (-2, -6, (~1 << 3) | 2, 16)] == [EPERM] * 4


@pytest.mark.parametrize("machine", ARCH)
def test_a_forged_return_from_a_signal_is_fatal(machine):
    assert run(machine, {"x86_64": 15, "aarch64": 139}[machine]) == KILL


def test_foreign_calls_are_fatal():
    assert run("x86_64", 1, 3, arch=0x40000003) == KILL  # i386
    assert run("aarch64", 64, 3, arch=0x40000028) == KILL  # arm
    assert run("aarch64", 64, 3, arch=ARCH["x86_64"]) == KILL
    for number in (1 << 30, (1 << 30) + 1, (1 << 30) + 39, (1 << 32) - 1):
        assert run("x86_64", number) == KILL
    assert not syscalls.supported("riscv64") and not syscalls.supported("i686")
