"""Seed families of `sql`. A family is a function that draws the text of tables and of one query.

It depends on `rng` alone. A theme gives the words, so that the tasks of a family differ in more than their numbers.
The task type (`sql.py`) checks the text like a proposal of a teacher.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple


_NAMES = "Ann Ben Cleo Dan Eva Finn Gita Hugo Iris Jon Kim Leo Mia Noah Olga Paul".split()
_ITEMS = "lamp chair desk pen cup plate fork knife towel mirror clock vase basket candle brush bowl".split()
_TITLES = "Dawn Harbor Ember Willow Stone River Orchard Comet Maple Raven Tundra Cedar Island Meadow".split()
_PLACES = "Oslo Lima Rome Kyiv Cairo Delhi Quito Paris".split()


class Theme(NamedTuple):
    """Words for two tables: one of things, and one of events that happened to them."""

    table: str
    label: str
    labels: Sequence[str]
    group: str
    groups: Sequence[str]
    number: str
    high: int
    events: str
    link: str
    amount: str


class World(NamedTuple):
    """A theme, the text of its two tables, and values that a query can compare with."""

    theme: Theme
    things: str
    events: str
    group: str  # one of the groups in the table
    number: int  # the median of the things' numbers

    @property
    def both(self) -> str:
        return f"{self.things}\n\n{self.events}"


THEMES = (
    Theme("people", "name", _NAMES, "city", _PLACES[:4], "age", 70, "orders", "person_id", "amount"),
    Theme("products", "item", _ITEMS, "kind", ("kitchen", "office"), "price", 60, "sales", "product_id", "sold"),
    Theme("books", "title", _TITLES, "genre", ("novel", "poetry", "travel"), "pages", 400, "loans", "book_id", "days"),
    Theme("players", "name", _NAMES, "team", ("red", "blue", "green"), "points", 40, "games", "player_id", "goals"),
    Theme("ships", "ship", _TITLES, "port", _PLACES[4:], "cargo", 90, "trips", "ship_id", "miles"),
    Theme("pets", "pet", _NAMES, "species", ("cat", "dog", "bird"), "weight", 30, "visits", "pet_id", "cost"),
)


def _world(rng: random.Random, rows: tuple[int, int] = (4, 7), *, nulls: bool = False, events: int = 0) -> World:
    theme = rng.choice(THEMES)
    count = rng.randint(*rows)
    numbers: list[int | None] = [rng.randint(1, theme.high) for _ in range(count)]
    if rng.random() < 0.5:
        numbers[-1] = numbers[0]  # a tie
    middle = sorted(filter(None, numbers))[count // 2]
    if nulls:
        for place in rng.sample(range(count), rng.randint(1, 2)):
            numbers[place] = None
    labels, groups = rng.sample(theme.labels, count), rng.choices(theme.groups[:3], k=count)
    lines = [f"{theme.table}(id INTEGER, {theme.label} TEXT, {theme.group} TEXT, {theme.number} INTEGER)"]
    for place, (label, group, number) in enumerate(zip(labels, groups, numbers, strict=True), start=1):
        lines.append(f"{place} | {label} | {group} | {'NULL' if number is None else number}")
    happened = [f"{theme.events}({theme.link} INTEGER, {theme.amount} INTEGER)"]
    happened += [f"{rng.randint(1, count)} | {rng.randint(1, 20)}" for _ in range(events)]
    return World(theme, "\n".join(lines), "\n".join(happened), rng.choice(groups), middle)


def _condition(rng: random.Random, world: World) -> str:
    t = world.theme
    return rng.choice(
        [
            f"{t.number} {rng.choice(['>', '>=', '<', '<=', '<>'])} {world.number}",
            f"{t.group} {rng.choice(['=', '<>'])} '{world.group}'",
            f"{t.label} LIKE '%{rng.choice('aeio')}%'",
            f"{t.number} BETWEEN {world.number // 2} AND {world.number}",
        ]
    )


def where(rng: random.Random) -> tuple[str, str]:
    world = _world(rng)
    conditions = [_condition(rng, world) for _ in range(rng.randint(1, 2))]
    columns = rng.choice([world.theme.label, f"{world.theme.label}, {world.theme.number}", "id"])
    text = rng.choice([" AND ", " OR "]).join(conditions)
    return world.things, f"SELECT {columns} FROM {world.theme.table} WHERE {text}"


def order_by(rng: random.Random) -> tuple[str, str]:
    world = _world(rng)
    t, start = world.theme, rng.randint(0, 2)
    by = rng.choice([f"{t.number} DESC, id", f"{t.number}, id DESC", f"{t.group}, {t.number}, id"])
    offset = f" OFFSET {start}" if start else ""
    return world.things, f"SELECT {t.label} FROM {t.table} ORDER BY {by} LIMIT {rng.randint(1, 3)}{offset}"


def aggregate(rng: random.Random) -> tuple[str, str]:
    world = _world(rng)
    t = world.theme
    what = rng.choice(
        [
            "count(*)",
            f"sum({t.number})",
            f"max({t.number}) - min({t.number})",
            f"count(DISTINCT {t.group})",
        ]
    )
    return world.things, f"SELECT {what} FROM {t.table} WHERE {_condition(rng, world)}"


def group_by(rng: random.Random) -> tuple[str, str]:
    world = _world(rng, (5, 8))
    t = world.theme
    what = rng.choice(
        [
            "count(*)",
            f"sum({t.number})",
            f"max({t.number})",
            f"round(avg({t.number}), 1)",
            f"min({t.label})",
        ]
    )
    having = rng.choice(["", " HAVING count(*) > 1", f" HAVING sum({t.number}) > {world.number}"])
    return world.things, f"SELECT {t.group}, {what} FROM {t.table} GROUP BY {t.group}{having}"


def case(rng: random.Random) -> tuple[str, str]:
    world = _world(rng)
    t = world.theme
    value = (
        f"CASE WHEN {_condition(rng, world)} THEN 'yes' WHEN {t.number} % {rng.randint(2, 4)} = 0 THEN 'maybe' "
        "ELSE 'no' END"
    )
    if rng.random() < 0.5:
        return world.things, f"SELECT {t.label}, {value} FROM {t.table}"
    return world.things, f"SELECT {value} AS answer, count(*) FROM {t.table} GROUP BY answer"


def nulls(rng: random.Random) -> tuple[str, str]:
    world = _world(rng, nulls=True)
    t = world.theme
    queries = [
        f"SELECT count(*), count({t.number}), sum({t.number}) FROM {t.table}",
        f"SELECT {t.label} FROM {t.table} WHERE NOT ({t.number} > {world.number})",
        f"SELECT {t.label}, coalesce({t.number}, 0) + 1 FROM {t.table} WHERE {t.number} IS NULL OR id > 2",
        f"SELECT {t.label}, {t.number} FROM {t.table} ORDER BY {t.number} DESC, id",
    ]
    return world.things, rng.choice(queries)


def inner_join(rng: random.Random) -> tuple[str, str]:
    world = _world(rng, (3, 5), events=rng.randint(4, 7))
    t = world.theme
    source = f"{t.table} AS t JOIN {t.events} AS e ON e.{t.link} = t.id"
    queries = [
        f"SELECT t.{t.label}, e.{t.amount} FROM {source} WHERE e.{t.amount} > {rng.randint(4, 12)}",
        f"SELECT t.{t.label}, sum(e.{t.amount}) FROM {source} GROUP BY t.id, t.{t.label}",
        f"SELECT t.{t.group}, count(*) FROM {source} GROUP BY t.{t.group}",
        f"SELECT DISTINCT t.{t.label} FROM {source} WHERE t.{t.number} > e.{t.amount}",
    ]
    return world.both, rng.choice(queries)


def left_join(rng: random.Random) -> tuple[str, str]:
    world = _world(rng, (3, 5), events=rng.randint(3, 6))
    t = world.theme
    source = f"{t.table} AS t LEFT JOIN {t.events} AS e ON e.{t.link} = t.id"
    least = rng.randint(3, 10)
    queries = [
        f"SELECT t.{t.label}, count(e.{t.amount}) FROM {source} GROUP BY t.id, t.{t.label}",
        f"SELECT t.{t.label} FROM {source} WHERE e.{t.amount} IS NULL",
        f"SELECT t.{t.label}, sum(e.{t.amount}) FROM {source} AND e.{t.amount} > {least} GROUP BY t.id",
        f"SELECT count(*), count(e.{t.amount}), max(t.{t.number}) FROM {source} AND t.{t.number} > {world.number}",
    ]
    return world.both, rng.choice(queries)


def subquery(rng: random.Random) -> tuple[str, str]:
    world = _world(rng, (4, 6), events=rng.randint(4, 6))
    t = world.theme
    inner = f"SELECT {t.link} FROM {t.events} WHERE {t.amount} > {rng.randint(5, 12)}"
    single = [
        f"SELECT {t.label} FROM {t.table} WHERE {t.number} > (SELECT avg({t.number}) FROM {t.table})",
        f"SELECT {t.label} FROM {t.table} AS t WHERE {t.number} = (SELECT max({t.number}) FROM "
        f"{t.table} WHERE {t.group} = t.{t.group})",
    ]
    double = [
        f"SELECT {t.label} FROM {t.table} WHERE id {rng.choice(['IN', 'NOT IN'])} ({inner})",
        f"SELECT {t.label}, (SELECT count(*) FROM {t.events} WHERE {t.link} = t.id) FROM {t.table} AS t",
        f"SELECT {t.label} FROM {t.table} AS t WHERE NOT EXISTS ({inner} AND {t.link} = t.id)",
    ]
    return (world.things, rng.choice(single)) if rng.random() < 0.4 else (world.both, rng.choice(double))


def set_operation(rng: random.Random) -> tuple[str, str]:
    world = _world(rng, (4, 6), events=rng.randint(3, 6))
    t = world.theme
    operator = rng.choice(["UNION", "UNION ALL", "EXCEPT", "INTERSECT"])
    first = f"SELECT id FROM {t.table} WHERE {_condition(rng, world)}"
    return world.both, f"{first} {operator} SELECT {t.link} FROM {t.events}"


def with_query(rng: random.Random) -> tuple[str, str]:
    world = _world(rng, (4, 6), events=rng.randint(5, 8))
    t = world.theme
    sums = f"WITH s(id, total) AS (SELECT {t.link}, sum({t.amount}) FROM {t.events} GROUP BY {t.link})"
    queries = [
        f"{sums} SELECT t.{t.label}, s.total FROM {t.table} AS t JOIN s ON s.id = t.id WHERE s.total > "
        f"(SELECT avg(total) FROM s)",
        f"{sums} SELECT {t.label} FROM {t.table} WHERE {t.number} > (SELECT max(total) FROM s)",
        f"{sums} SELECT t.{t.group}, sum(coalesce(s.total, 0)) FROM {t.table} AS t LEFT JOIN s ON s.id = t.id "
        f"GROUP BY t.{t.group}",
    ]
    return world.both, rng.choice(queries)


def window(rng: random.Random) -> tuple[str, str]:
    world = _world(rng)
    t = world.theme
    value = rng.choice(
        [
            f"rank() OVER (ORDER BY {t.number} DESC)",
            f"dense_rank() OVER (ORDER BY {t.group})",
            f"sum({t.number}) OVER (ORDER BY id)",
            f"sum({t.number}) OVER (PARTITION BY {t.group} ORDER BY id)",
            f"{t.number} - lag({t.number}) OVER (ORDER BY id)",
            f"row_number() OVER (PARTITION BY {t.group} ORDER BY {t.number}, id)",
            f"max({t.number}) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
        ]
    )
    return world.things, f"SELECT {t.label}, {value} FROM {t.table}"


FAMILIES: dict[str, Callable[[random.Random], tuple[str, str]]] = {
    family.__name__: family
    for family in (
        where,
        order_by,
        aggregate,
        case,
        group_by,
        nulls,
        inner_join,
        left_join,
        subquery,
        set_operation,
        with_query,
        window,
    )  # fmt: skip
}
"""Name -> family, easy ones first."""
