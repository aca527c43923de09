"""Results of SQL queries: the type, the text of tables and queries, what runs in the sandbox, and seed families."""

from trl_populora.tasks.sql.sql import Sql, SqlTask


__all__ = ["Sql", "SqlTask"]
