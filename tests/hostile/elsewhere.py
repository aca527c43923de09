"""Run as a script: goes to an odd place, runs a selection of hostile programs there, and prints what it saw as JSON.

The places are the arguments, entered in their order: `docker` (what its default seccomp profile and capabilities leave),
`no-new-privileges`, `user:N` (becomes that uid), `full-tmp` and `read-only-tmp` (in mount namespaces of their own).
Standard library only.
"""

import ctypes
import json
import os
import platform
import struct
import sys
import warnings
from pathlib import Path

import suite

from trl_populora.executor import Executor, Status

libc = ctypes.CDLL(None, use_errno=True)
MACHINE = 0 if platform.machine() == "x86_64" else 1
AUDIT_ARCH = (0xC000003E, 0xC00000B7)[MACHINE]
CLONE, CLONE3 = (56, 220)[MACHINE], 435
NEW_NAMESPACES = 0x7E020080
CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)  # the 14 that Docker leaves to root

# What Docker's default profile refuses to those: name -> (x86_64, aarch64), from the kernel's own tables.
REFUSED = {
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "quotactl": (179, 60),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "bpf": (321, 280),
    "userfaultfd": (323, 282), "perf_event_open": (298, 241), "ptrace": (101, 117), "kcmp": (312, 272),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "open_by_handle_at": (304, 265), "lookup_dcookie": (212, 18), "nfsservctl": (180, 42), "acct": (163, 89),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "syslog": (103, 116), "vhangup": (153, 58),
    "personality": (135, 92), "move_pages": (279, 239), "mbind": (237, 235), "set_mempolicy": (238, 237),
}  # fmt: skip


def refuse_like_docker():
    """Install that filter for this process and all below it. Needs CAP_SYS_ADMIN, or no new privileges."""
    load, equal, any_bit, answer = 0x20, 0x15, 0x45, 0x06
    allow, eperm, enosys = 0x7FFF0000, 0x00050001, 0x00050000 | 38
    code = [(load, 0, 0, 4), (equal, 1, 0, AUDIT_ARCH), (answer, 0, 0, allow), (load, 0, 0, 0)]
    for numbers in REFUSED.values():
        code += [(equal, 0, 1, numbers[MACHINE]), (answer, 0, 0, eperm)]
    code += [(equal, 0, 1, CLONE3), (answer, 0, 0, enosys)]
    code += [(equal, 0, 3, CLONE), (load, 0, 0, 16), (any_bit, 0, 1, NEW_NAMESPACES), (answer, 0, 0, eperm)]
    code += [(answer, 0, 0, allow)]
    text = b"".join(struct.pack("<HBBI", *instruction) for instruction in code)
    kept = ctypes.create_string_buffer(text, len(text))
    program = struct.pack("<HxxxxxxQ", len(code), ctypes.addressof(kept))
    check(libc.prctl(22, 2, ctypes.c_char_p(program), 0, 0), "the seccomp filter")
    assert libc.unshare(0x10000000) == -1 and ctypes.get_errno() == 1


def keep_capabilities():
    for number in range(64):
        if number not in CAPABILITIES:
            libc.prctl(24, ctypes.c_ulong(number), 0, 0, 0)  # PR_CAPBSET_DROP; beyond the last one it fails
    bits = sum(1 << number for number in CAPABILITIES)
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(bits, bits, 0, 0, 0, 0)
    check(libc.capset(header, data), "capset")


def become(uid):
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def cover_tmp(read_only):
    """A /tmp and a /dev/shm of 64 KiB, full or read-only, that nobody outside this process sees.

    The interpreter and this repository stay where they are, even if that is below /tmp.
    """
    needed = sorted({sys.prefix, sys.base_prefix, str(Path(__file__).resolve().parents[2])}, key=len)
    check(libc.unshare(0x00020000), "unshare")
    check(libc.mount(b"none", b"/", None, 0x40000 | 0x4000, None), "private mounts")
    for folder in (b"/tmp", b"/dev/shm"):
        kept = {path: os.open(path, os.O_PATH) for path in needed if path.startswith(folder.decode() + "/")}
        check(libc.mount(b"tmpfs", folder, b"tmpfs", 0, b"size=64k"), "mount")
        for path, handle in kept.items():
            os.makedirs(path, exist_ok=True)
            check(libc.mount(b"/proc/self/fd/%d" % handle, path.encode(), None, 4096 | 16384, None), "bind mount")
            os.close(handle)
        try:
            with open(os.path.join(folder.decode(), "filler"), "wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
        except OSError as error:
            assert error.errno == 28, error
        if read_only:
            check(libc.mount(b"tmpfs", folder, None, 32 | 1, None), "remount")


def check(result, what):
    if result != 0:
        raise OSError(ctypes.get_errno(), what)


def enter(place):
    if place == "docker":
        refuse_like_docker()
        if os.geteuid() == 0:
            keep_capabilities()
    elif place == "no-new-privileges":
        check(libc.prctl(38, 1, 0, 0, 0), place)
    elif place.startswith("user:"):
        become(int(place[5:]))
    else:
        cover_tmp(place == "read-only-tmp")


def selection(step):
    """Every `step`-th program of the suite that does not only wait."""
    cases = {f"{category}: {name}": case for category, all in suite.CATEGORIES.items() for name, case in all.items()}
    left_out = suite.CATEGORIES["regressions"].keys()
    names = [name for name in cases if name.split(": ", 1)[1] not in left_out and "wall_timeout" not in cases[name][1]]
    return {name: cases[name] for name in names[::step]}


def main(*places):
    for place in places:
        enter(place)
    warnings.simplefilter("ignore")
    cases = selection(6)
    with Executor(2, suite.LIMITS, modules=suite.MODULES_HERE) as executor:
        header = "CANARY = '/etc/hostname'; PORT = 9\n"
        executions = executor.run_many(
            [job for case in cases.values() for job in (suite.job(*case, header), suite.NORMAL)]
        )
        level = executor.isolation
    seen = dict(zip(cases, map(suite.outcome, executions[::2]), strict=True))
    wanted = {name: {text.replace("killed SIGSYS", "killed") for text in case[1]} for name, case in cases.items()}
    print(
        json.dumps(
            {
                "level": level,
                "cases": len(cases),
                "wrong": {name: seen[name] for name in cases if not suite.allowed(seen[name], wanted[name])},
                "normal": sum(
                    e.status is Status.OK and e.values[0].value == suite.NORMAL_VALUE for e in executions[1::2]
                ),
                "uid": os.getuid(),
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
