"""Orders that a query leaves open and that no order of rows shows, because SQLite sorts groups and sets."""

import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.drawn_examples import examples
from trl_populora.executor import Executor, Limits, Status
from trl_populora.tasks.parsing import fence
from trl_populora.tasks.sql import Sql
from trl_populora.tasks.sql.families import FAMILIES
from trl_populora.tasks.sql.harness import TIE, run_query
from trl_populora.tasks.sql.query import KEYWORDS, read_query
from trl_populora.tasks.sql.ties import open_places
from trl_populora.tasks.task import Draft, Refusal


SALES = """s(shop TEXT, item TEXT, price INTEGER)
North | pen | 3
West | cup | 4
East | pen | 5
West | pen | 6
North | cup | 7
South | hat | 2"""
COUNTS = "SELECT shop, count(*) AS n FROM s GROUP BY shop"


def run_here(jobs):
    """What the sandbox does with these queries, which are ours, in this process."""
    for job in jobs:
        values = [SimpleNamespace(value=run_query(*arguments)) for arguments in job.inputs]
        yield SimpleNamespace(status=Status.OK, values=values)


def fate(query, tables=SALES, run=run_here):
    """The reason of the refusal of a proposal, or "valid"."""
    kind = Sql()
    draft = kind.parse_proposal(f"{fence('tables', tables)}\n{fence('query', query)}", [])
    payload = kind.verify([draft], run)[0] if isinstance(draft, Draft) else draft
    return payload.reason if isinstance(payload, Refusal) else "valid"


LEFT_OPEN = [
    f"{COUNTS} ORDER BY n DESC",
    f"{COUNTS} ORDER BY n DESC LIMIT 1",
    f"{COUNTS} ORDER BY n NULLS LAST LIMIT 3 OFFSET 1",
    f"{COUNTS} ORDER BY NULL",
    f"{COUNTS} LIMIT 2",
    f"WITH c AS ({COUNTS}) SELECT shop, n FROM c WHERE n = 2 ORDER BY n /* , shop */",
    f"SELECT shop, ')' AS x FROM ({COUNTS}) ORDER BY ' LIMIT (', x -- , shop",
    "SELECT shop FROM s UNION SELECT item FROM s LIMIT 2",
    "SELECT count(*), shop FROM s WHERE shop <> 'West' GROUP BY shop LIMIT 1 OFFSET 1",  # the middle of both orders
    "SELECT shop, length(shop) FROM s UNION SELECT item, length(item) FROM s ORDER BY 2",
    "SELECT shop FROM s EXCEPT SELECT item FROM s LIMIT 3",
    "SELECT substr(shop, 2, 1) COLLATE NOCASE AS x, shop FROM s GROUP BY shop ORDER BY x > 'e'",
    # inside another query
    f"SELECT count(*), max(shop) FROM ({COUNTS} LIMIT 2)",
    f"SELECT item FROM s WHERE shop IN (SELECT shop FROM ({COUNTS} ORDER BY n LIMIT 1))",
    "SELECT item, (SELECT shop FROM s GROUP BY shop) FROM s WHERE price > 4",
    "SELECT group_concat(shop) FROM (SELECT shop FROM s UNION SELECT item FROM s)",
    f"SELECT shop, row_number() OVER (ORDER BY n) AS r FROM ({COUNTS}) ORDER BY shop",
    # windows
    "SELECT shop, row_number() OVER () FROM s GROUP BY shop",
    "SELECT shop, row_number() OVER (ORDER BY count(*)) FROM s GROUP BY shop",
    "SELECT shop, count(*) FILTER (WHERE price > 0) OVER (ROWS 1 PRECEDING), max(price) FROM s GROUP BY shop",
    "SELECT shop, sum(max(price)) OVER (ORDER BY count(*) ROWS UNBOUNDED PRECEDING) FROM s GROUP BY shop",
    "SELECT shop, lag(shop) OVER w FROM s GROUP BY shop WINDOW w AS (ORDER BY count(*))",
    "SELECT shop, lead(shop, 1) OVER (w) FROM s GROUP BY shop WINDOW w AS (PARTITION BY count(*))",
    "SELECT shop, ntile(2) OVER (PARTITION BY count(*)) FROM s GROUP BY 1",
    "SELECT shop, first_value(shop) OVER (PARTITION BY count(*)) FROM s GROUP BY shop",
    "SELECT shop, last_value(shop) OVER (PARTITION BY count(*)) FROM s GROUP BY shop",
    "SELECT substr(shop, 1, 1) AS y, nth_value(max(price), 2) OVER () FROM s GROUP BY y",
    f"SELECT shop FROM (SELECT shop, row_number() OVER (ORDER BY n DESC) AS r FROM ({COUNTS})) WHERE r = 1",
]  # fmt: skip
DECIDED = [
    f"{COUNTS} ORDER BY n DESC, shop",
    f"{COUNTS} ORDER BY n DESC, shop LIMIT 2 OFFSET 1",
    f"{COUNTS} LIMIT 9",
    f"WITH c AS ({COUNTS}) SELECT n, count(*) FROM c GROUP BY n ORDER BY n",
    f"SELECT n FROM ({COUNTS}) ORDER BY n",  # tied rows are equal
    f"SELECT sum(n) FROM ({COUNTS} ORDER BY n DESC LIMIT 3)",
    "SELECT shop FROM s UNION SELECT item FROM s ORDER BY 1 DESC LIMIT 2",
    "SELECT shop COLLATE NOCASE FROM s UNION SELECT lower(shop) FROM s ORDER BY 1",
    "SELECT shop FROM s UNION ALL SELECT item FROM s WHERE price IN (SELECT max(price) FROM s GROUP BY item)",
    "SELECT item FROM s AS o WHERE price = (SELECT max(price) FROM s WHERE item = o.item) ORDER BY price",
    "SELECT group_concat(shop) FROM (SELECT shop FROM s GROUP BY shop ORDER BY shop DESC)",
    "SELECT shop, rank() OVER (ORDER BY count(*)), dense_rank() OVER w, cume_dist() OVER w > 0.6 FROM s GROUP BY shop "
    "WINDOW w AS (ORDER BY count(*) DESC)",
    "SELECT shop, sum(max(price)) OVER (ORDER BY count(*)), count(*) OVER () FROM s GROUP BY shop",
    "SELECT shop, rank() OVER (v), row_number() OVER (w ORDER BY shop) FROM s GROUP BY shop "
    "WINDOW w AS (PARTITION BY count(*)), u AS (ORDER BY count(*)), v AS (u)",
    "SELECT shop, row_number() OVER (ORDER BY count(*), shop), lag(shop) OVER (ORDER BY shop) FROM s GROUP BY shop",
    "SELECT count(*), row_number() OVER (ORDER BY count(*)) FROM s GROUP BY shop",  # tied rows are equal
    "SELECT shop, sum(price) OVER (ORDER BY price GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES) FROM s",
    "SELECT shop, sum(price) OVER (ORDER BY price RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) FROM s",
]


@pytest.mark.every(4)
@pytest.mark.parametrize("query", LEFT_OPEN)
def test_a_result_that_the_query_leaves_open_is_no_task(query):
    assert fate(query) == "row_order"


@pytest.mark.every(4)
@pytest.mark.parametrize("query", DECIDED)
def test_a_result_that_the_query_decides_is_a_task(query):
    assert fate(query) == "valid"


@pytest.mark.slow
def test_the_sandbox_sees_the_same():
    with Executor(1, Limits(cpu_seconds=2, wall_seconds=30)) as executor:
        fates = [fate(query, run=executor.run_many) for query in (LEFT_OPEN[1], LEFT_OPEN[17], DECIDED[1], DECIDED[9])]
    assert fates == ["row_order", "row_order", "valid", "valid"]


GROUPS = st.lists(st.sampled_from("abcde"), min_size=2, max_size=9).filter(lambda groups: len(set(groups)) > 1)


@pytest.mark.slow
@given(GROUPS, st.integers(1, 5), st.booleans())
def test_exactly_ties_of_counts_that_a_limit_shows_are_refused(groups, limit, total):
    table = "t(g TEXT, i INTEGER)\n" + "\n".join(f"{group} | {i}" for i, group in enumerate(groups))
    counts = sorted((groups.count(group) for group in set(groups)), reverse=True)
    shown = counts[: limit + 1]
    tied = len(set(shown)) < len(shown)
    query = f"SELECT g, count(*), min(i) FROM t GROUP BY g ORDER BY count(*) DESC{', g' * total} LIMIT {limit}"
    assert fate(query, table) == ("row_order" if tied and not total else "valid")
    tied = len(set(counts)) < len(counts)
    query = f"SELECT g, row_number() OVER (ORDER BY count(*){', g' * total}) AS r, min(i) FROM t GROUP BY g"
    assert fate(query, table) == ("row_order" if tied and not total else "valid")
    query = f"SELECT g, i FROM t{' ORDER BY i' * total} LIMIT {limit}"
    assert fate(query, table) == ("row_order" if limit < len(groups) and not total else "valid")


WORDS = sorted(KEYWORDS & set("select from group by order limit over window as with rows filter".split()))


@examples(300)
@given(st.lists(st.sampled_from([*WORDS, "(", ")", "(", ")", ",", "a", "'(;'", "2", "row_number"]), max_size=30))
def test_places_of_any_text_leave_its_tokens_as_they_are(words):
    tokens = read_query(" ".join(["select", *words]))[1]
    places = open_places(tokens)
    text = " ".join(place.before for place in places) if places else " ".join(words)
    assert text.split() == ([*["select"] * bool(places), *words])
    if places:
        decided: Any = (places, True, True)
        run_query((), "", False, 100, decided)


def test_queries_cannot_call_what_decides_ties():
    assert fate(f"SELECT shop, {TIE}() FROM s LIMIT 9") == "sql_error"


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_no_seed_task_leaves_its_order_open(family):
    rng = random.Random(family)
    fates = {fate(query, tables) for tables, query in (FAMILIES[family](rng) for _ in range(60))}
    assert fates <= {"valid", "empty_result", "idle_table", "constant_result"}
