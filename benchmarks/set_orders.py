"""How many programs whose result depends on the addresses of objects an executor accepts as deterministic.

    PYTHONPATH=. python3.14 benchmarks/set_orders.py

from the root of a clone, with any Python: it needs no other package. Each of 1,600 programs makes up to 2,000 objects,
puts two to eight of one kind into a set, and returns the order in which the set gives them. Objects of one kind differ
only in their addresses. Orders that every address gives, if any, are also counted.
"""

import platform
from collections import Counter
from itertools import product

from trl_populora.executor import Executor, Job, Status


CLASSES = {
    "one attribute": "class A:\n def __init__(s, n): s.n = n",
    "three attributes": "class A:\n def __init__(s, n): s.n = n; s.m = 1; s.k = 2",
    "one slot": "class A:\n __slots__ = ('n',)\n def __init__(s, n): s.n = n",
    "attribute set later": "class B: pass\ndef A(n):\n b = B(); b.n = n\n return b",
}
BODIES = (
    "many = [A(i) for i in range({many})]\n return [a.n for a in {{{made}}}]",
    "many = [A(i) for i in range({many})]\n s = set()\n for i in range({size}): s.add(A(i))\n return [a.n for a in s]",
    "many = [A(i) for i in range({many})]\n return [a.n for a in set(many[-{size}:])]",
    "b = [A(i) for i in range({size})]\n for i in range({many}): b[i % {size}] = A(i)\n return [a.n for a in set(b)]",
    "many = [object() for i in range({many})]\n b = many[-{size}:]\n return [b.index(a) for a in set(b)]",
)
MANY = (10, 30, 60, 100, 150, 200, 250, 300, 350, 400, 500, 700, 900, 1100, 1500, 2000)
SIZES = (2, 3, 4, 5, 8)


def main() -> None:
    cases = list(product(CLASSES.values(), BODIES, MANY, SIZES))
    jobs = []
    for source, body, many, size in cases:
        text = body.format(many=many, size=size, made=", ".join(f"A({i})" for i in range(size)))
        jobs.append(Job(f"{source}\ndef f():\n {text}", ((),), deterministic=True))
    with Executor() as executor:
        statuses = [execution.status for execution in executor.run_many(jobs)]
    if set(statuses) - {Status.OK, Status.NONDETERMINISTIC}:
        raise SystemExit(f"Some programs did not run: {Counter(statuses)}")
    accepted = Counter(size for (*_, size), status in zip(cases, statuses, strict=True) if status is Status.OK)
    sizes = ", ".join(f"{accepted[size]} of sets of {size}" for size in SIZES)
    print(f"Python {platform.python_version()}: {accepted.total()} of {len(jobs)} accepted: {sizes}")


if __name__ == "__main__":
    main()
