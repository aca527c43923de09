"""The task type `sql`: a student works out the result of an SQL query."""

from trl_populora.tasks.sql.sql import Sql, SqlTask


__all__ = ["Sql", "SqlTask"]
