"""The fork server: a new, small interpreter, which confines itself and forks a child for every job.

`server.py` runs this file as a script. The caller never imports it. It inherits only one socket from the caller, as
descriptor 0. It never reads a job, but passes the descriptors of the job to the child. It imports modules with a
leading underscore, because the memory of their Python wrappers would be copied for every child.
"""

import _socket
import builtins
import codecs
import gc
import marshal
import os
import struct
import sys
from _signal import SIG_DFL, SIG_SETMASK, SIGALRM, SIGPIPE, SIGPROF, pthread_sigmask, signal  # pyright: ignore[reportMissingImports]
from importlib.machinery import SourceFileLoader
from itertools import repeat
from types import ModuleType


HERE = os.path.dirname(os.path.abspath(__file__))
CONTROL = 0
CODECS = """
    ascii base64_codec cp437 cp850 cp1250 cp1251 cp1252 hex_codec iso8859_2 iso8859_15 koi8_r mac_roman punycode
    raw_unicode_escape rot_13 unicode_escape utf_16 utf_16_be utf_16_le utf_32 utf_32_be utf_32_le utf_7 utf_8_sig
"""  # those that programs use; each of the others, too, would be memory that every child copies a part of
POOL, POOL_HEADER = 16384, 48  # bytes of a pool of small objects of one size, and those before its first object
POOLS = 2  # of each size, whose addresses differ between the kinds of servers
SHIFTS = (0, 2, 5, 11)  # blocks by which later pools differ: of small numbers, these reorder the most small sets


def main() -> None:
    control = _socket.socket(fileno=CONTROL)
    settings = marshal.loads(control.recv(1 << 16))
    try:
        server = Server(control, settings)
    except BaseException as error:
        word = {PermissionError: "refused", ImportError: "missing"}.get(type(error), "failed")
        control.send(f"{word} {error or type(error).__name__}".encode())
        os._exit(1)
    control.send(" ".join(["ready", *server.held]).encode())
    try:
        server.serve()
    finally:
        os._exit(1)


class Server:
    """Confines this process, then serves jobs until the control socket closes."""

    def __init__(self, control: _socket.socket, settings: dict) -> None:
        self.control = control
        self.memory_share = settings["memory_share"]
        preload(settings["modules"], settings["path"])
        self.seed = getattr(sys.modules.get("random"), "seed", None)
        _, syscalls, _, confine, self.child, probes = load(
            "frames", "syscalls", "canonical", "confine", "child", "probes"
        )
        reset_signals()
        machine = os.uname().machine
        skip = settings["without"]
        confine.drop_user()
        namespaces = "namespaces" not in skip and confine.enter_namespaces()
        confine.leave_watcher(settings["client"])
        confine.harden(machine)
        unprivileged = confine.unprivileged()
        landlock = "landlock" not in skip and confine.restrict_files()
        self.seccomp = confine.Filter(machine) if syscalls.supported(machine) and "seccomp" not in skip else None
        prepare_interpreter(settings, self.child)
        if self.seccomp is not None and not probes.filter_holds(self.seccomp, machine):
            self.seccomp = None
        measures = {
            "seccomp": self.seccomp is not None,
            "unprivileged": unprivileged,
            "landlock": landlock,
            "namespaces": namespaces,
        }
        self.held = [name for name, holds in measures.items() if holds]
        if not (self.seccomp and unprivileged or settings["accept_unsafe"]):
            raise PermissionError(
                f"no working seccomp filter, or privileges that cannot be given up ({machine}, Linux "
                f"{os.uname().release}). Use x86_64 or aarch64 with a kernel and a container profile that allow "
                "seccomp filters; or pass accept_unsafe=True if you trust every program that will run"
            )
        order_pools(settings["heap"])  # the last step: it gives every child of this kind the same addresses
        gc.freeze()

    def serve(self) -> None:
        # Every page of memory that this loop changes is copied once for each job. So it changes as few as possible.
        fork, close, wait4, number = os.fork, os.close, os.wait4, int.from_bytes
        receive, send, space = self.control.recvmsg, self.control.send, _socket.CMSG_SPACE(8)
        run, seccomp, memory_share, seed = self.child.run, self.seccomp, self.memory_share, self.seed
        pack = struct.Struct("<idq").pack
        while True:
            status = usage = None  # a child can read this frame, and must not learn about the previous job
            message, ancillary, _, _ = receive(8, space)
            if not message:
                return
            descriptors = ancillary[0][2]
            channel, job = number(descriptors[:4], "little"), number(descriptors[4:8], "little")
            pid = fork()
            if pid == 0:
                run(channel, job, number(message, "little"), seccomp, memory_share, seed)
            close(channel)
            close(job)
            _, status, usage = wait4(pid, 0)
            send(pack(status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024))


def preload(modules: list[str], path: list[str]) -> None:
    """
    Imports the modules that programs may import, from the standard library or from the folders in `path`.

    `sys.path` is emptied before any program runs, so nothing else can be imported from these folders.
    """
    if path:
        sys.path += path
        for library in ("OMP", "OPENBLAS", "MKL"):  # no thread survives a fork
            os.environ[f"{library}_NUM_THREADS"] = "1"
    sys.modules["_hashlib"] = None  # pyright: ignore[reportArgumentType]  # so that hashlib does not load OpenSSL, which is large
    # Modules register code that would run in every child. The slow part is the new seed of `random`, for which
    # `child.run` has a faster one.
    register, os.register_at_fork = os.register_at_fork, lambda **hooks: None
    own = ["_pylong"] if sys.version_info >= (3, 12) else []  # the interpreter imports it to divide large integers
    own += ["_strptime"] if "datetime" in modules else []  # imported by `datetime.strptime`
    for name in [*modules, *own]:
        try:
            __import__(name)
        except BaseException as error:
            raise ImportError(f"module {name!r} cannot be imported ({type(error).__name__}: {error})") from None
    for name in CODECS.split() if modules else ():
        codecs.lookup(name)
    os.register_at_fork = register
    if len(os.listdir("/proc/self/task")) > 1:  # a fork does not copy threads, and their locks would stay locked
        raise ImportError(f"one of the modules {', '.join(modules)} starts threads when it is imported")


def load(*names: str) -> list:
    """Imports modules of this folder with a private copy of the builtins. `builtins.len = ...` does not change it."""
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
    """Resets the signals that end a child at its time limit, because the caller may have ignored or blocked them."""
    pthread_sigmask(SIG_SETMASK, [])
    for number in (SIGALRM, SIGPROF, SIGPIPE):
        signal(number, SIG_DFL)


def prepare_interpreter(settings: dict, child: ModuleType) -> None:
    """Prepares the memory that all children share."""
    os.dup2(1, child.CHANNEL)  # /dev/null
    child.rehearse()
    os.close(child.CHANNEL)
    os.environ.clear()
    sys.path.clear()
    sys.path_importer_cache.clear()
    sys.argv[:] = ["program"]
    sys.stdin = sys.__stdin__ = None
    sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = child.Sink()
    sys.setrecursionlimit(settings["recursion_limit"])
    gc.set_threshold(settings["gc_threshold"], 10, 10)
    # Changes reference counts of common objects and the layout of the heap. A program that depends on them then gives
    # different results in two servers.
    globals()["ballast"] = [[None, True, False, 0, 1, "", ()] for _ in range(settings["ballast"])]
    gc.collect()
    fill_pools()


def fill_pools() -> None:
    """
    Fills all gaps in the memory pools of small objects.

    Then the objects of a child lie together in new pools. Otherwise they would fill gaps in about thirty pools, and
    the kernel would copy each of these.
    """
    fillers = globals()["fillers"] = []
    for size in range(48, 513, 16):
        for _ in range(2000):
            filler = bytes(size - b"".__sizeof__())
            if id(filler) % POOL == POOL_HEADER:  # the first of a new pool
                break
            fillers.append(filler)
    bytearray(1 << 16)  # makes malloc sort its free chunks, which the first call in every child would do otherwise


def order_pools(kind: int) -> None:
    """
    Gives the small objects of a child other addresses in each kind of server: ascending, descending or mixed.

    Addresses determine the order of objects in a set, and of texts such as `<object at 0x...>`. A pool gives the block
    first that was freed last. So this fills pools, and frees their blocks in the opposite of the wanted order.
    """
    kept, plans = globals()["pools"] = [], []
    for index in order(32, kind):
        size = 16 * (index + 1)
        make = {16: object, 32: complex}.get(size, lambda size=size: bytes(size - 33))
        count = (POOL - POOL_HEADER) // size
        found, pools = {}, []
        while len(pools) < POOLS and len(found) < 500:  # the first blocks fill gaps; not every Python has pools
            for block in [make() for _ in repeat(None, (POOLS + 2) * count)]:
                found.setdefault(id(block) // POOL, []).append(block)
            pools = [sorted(blocks, key=id) for _, blocks in sorted(found.items()) if len(blocks) == count]
        used = mirrored(count, size // 16)
        plans.append([])
        for number in order(min(POOLS, len(pools)), kind):
            kept += pools[number][used:]  # an empty pool could get objects of another size
            plans[-1] += [pools[number][place] for place in order(used, kind, 4096 // size)]
        rest = len(plans[-1]) - SHIFTS[kind]
        kept += plans[-1][rest:]
        del plans[-1][rest:]
    block = found = pools = None
    gc.collect()  # also frees the lists, dicts, tuples and floats that the interpreter keeps for the next use
    for plan in plans:
        plan.clear()  # from the last to the first


def order(count: int, kind: int, near: int = 512) -> list[int]:
    """Numbers in the order of this kind of server. Mixed are only numbers that are near each other: a child should
    change few pages of memory."""
    if kind < 2:
        return list(range(count))[:: 1 - 2 * kind]
    return sorted(range(count), key=lambda number: (number // near, hash((kind, number))))


def mirrored(count: int, step: int) -> int:
    """
    How many blocks of a pool to use, so that a small set has the opposite order if they are used from the last one.

    The place of an object in a set of up to 4 or 19 objects is its address / 16, modulo 8 or 32. The places of the
    blocks are 3, 3 + step and so on. So the first and the last one that are used need opposite places.
    """
    same = step & -step  # places of the blocks differ by multiples of this
    for table in (32, 8):
        for last in range(count - 2, count // 2, -1):
            if (step * last + 6 - 2 * (3 % same) + same) % table == 0:
                return last + 1
    return count - 1


if __name__ == "__main__":
    main()
