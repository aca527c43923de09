"""The fork server: a fresh, small interpreter that confines itself and forks once per job.

Run as a script by `server.py`, never imported by the caller. It inherits nothing from the caller but one socket, as
descriptor 0, and it never reads a job: the descriptors of a job pass through it to the child. Modules with a leading
underscore are used on purpose, since their Python wrappers would be copied into every child.
"""

import _socket
import builtins
import gc
import marshal
import os
import select
import struct
import sys
from _signal import SIG_DFL, SIG_SETMASK, SIGALRM, SIGKILL, SIGPIPE, SIGPROF, pthread_sigmask, signal  # pyright: ignore[reportMissingImports]
from importlib.machinery import SourceFileLoader
from types import ModuleType


HERE = os.path.dirname(os.path.abspath(__file__))
CONTROL = 0


def main() -> None:
    control = _socket.socket(fileno=CONTROL)
    settings = marshal.loads(control.recv(1 << 16))
    try:
        server = Server(control, settings)
    except BaseException as error:
        word = "refused" if isinstance(error, (PermissionError, ImportError)) else "failed"
        control.send(f"{word} {error or type(error).__name__}".encode())
        os._exit(1)
    control.send(f"ready {server.level}".encode())
    try:
        server.serve()
    finally:
        os._exit(1)


class Server:
    """Confines this process, then serves jobs until the control socket closes."""

    def __init__(self, control, settings: dict) -> None:
        self.control = control
        self.memory_share = settings["memory_share"]
        for name in settings["modules"]:
            __import__(name)
        _, syscalls, _, confine, self.child, probes = load(
            "frames", "syscalls", "canonical", "confine", "child", "probes"
        )
        reset_signals()
        machine = os.uname().machine
        skip = settings["without"]
        confine.drop_user()
        namespaces = "namespaces" not in skip and confine.enter_namespaces()
        self.parent = os.getppid()
        confine.harden(machine)
        if namespaces:
            confine.die_with_parent()  # the process outside, which has one thread
        unprivileged = confine.unprivileged()
        landlock = "landlock" not in skip and confine.restrict_files()
        self.seccomp = confine.Filter(machine) if syscalls.supported(machine) and "seccomp" not in skip else None
        prepare_interpreter(settings, self.child.Sink())
        if self.seccomp is not None and not probes.filter_holds(self.seccomp, machine):
            self.seccomp = None
        self.level = level(self.seccomp is not None, landlock, namespaces, unprivileged)
        if self.level == "L0" and not settings["accept_unsafe"]:
            raise PermissionError(
                f"no working seccomp filter ({machine}, Linux {os.uname().release}). Use x86_64 or aarch64 with a "
                "kernel and a container profile that allow seccomp filters; or pass accept_unsafe=True if you trust "
                "every program that will run"
            )

    def serve(self) -> None:
        idle = select.poll()
        idle.register(CONTROL, select.POLLIN)
        while True:
            if not idle.poll(1000):
                if os.getppid() != self.parent:
                    return
                continue
            message, ancillary, _, _ = self.control.recvmsg(8, _socket.CMSG_SPACE(8))
            if not message:
                return
            ((_, _, packed),) = ancillary
            channel, job = int.from_bytes(packed[:4], "little"), int.from_bytes(packed[4:8], "little")
            pid = os.fork()
            if pid == 0:
                self.child.run(channel, job, int.from_bytes(message, "little"), self.seccomp, self.memory_share)
            os.close(channel)
            os.close(job)
            self.control.send(self.wait(pid))

    def wait(self, pid: int) -> bytes:
        """Wait for the child, killing it if the caller goes away; its end as the kernel tells it."""
        handle = os.pidfd_open(pid)
        ends = select.poll()
        ends.register(handle, select.POLLIN)
        ends.register(CONTROL, 0)  # errors and hang-up only
        while not (events := ends.poll(1000)) and os.getppid() == self.parent:
            pass
        if not events or events[0][0] == CONTROL:
            os.kill(pid, SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        os.close(handle)
        return struct.pack("<idq", status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def load(*names: str) -> list:
    """Import modules of this directory with a private copy of the builtins, out of reach of `builtins.len = ...`."""
    package = ModuleType("executor")
    package.__path__ = [HERE]
    sys.modules["executor"] = package
    private = dict(vars(builtins))
    modules = []
    for name in names:
        module = ModuleType(f"executor.{name}")
        vars(module)["__builtins__"] = private
        module.__package__ = "executor"
        sys.modules[module.__name__] = module
        setattr(package, name, module)
        SourceFileLoader(module.__name__, os.path.join(HERE, f"{name}.py")).exec_module(module)
        modules.append(module)
    for name in ("executor", *[module.__name__ for module in modules]):
        del sys.modules[name]
    return modules


def reset_signals() -> None:
    """The caller may have ignored or blocked the signals by which time limits end a child."""
    pthread_sigmask(SIG_SETMASK, [])
    for number in (SIGALRM, SIGPROF, SIGPIPE):
        signal(number, SIG_DFL)


def prepare_interpreter(settings: dict, sink) -> None:
    """The last touches before the memory image is frozen and shared by all children."""
    os.environ.clear()
    sys.path.clear()
    sys.path_importer_cache.clear()
    sys.argv[:] = ["program"]
    sys.stdin = sys.__stdin__ = None
    sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = sink
    sys.setrecursionlimit(settings["recursion_limit"])
    gc.set_threshold(settings["gc_threshold"], 10, 10)
    # Reference counts of common objects and the layout of the heap, which a program might look at.
    globals()["ballast"] = [[None, True, False, 0, 1, "", ()] for _ in range(settings["ballast"])]
    compile("0", "<warm-up>", "exec")  # builds the compiler's types, which would cost each child a millisecond
    gc.collect()
    gc.freeze()


def level(seccomp: bool, landlock: bool, namespaces: bool, unprivileged: bool) -> str:
    """The isolation level, as `docs/security.md` defines it."""
    if not seccomp or not unprivileged:
        return "L0"
    return f"L{1 + landlock + namespaces}"


if __name__ == "__main__":
    main()
