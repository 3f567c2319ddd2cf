"""Quoting for the SQL that the formats are written in, and the rules of numbers and times."""

LARGEST_FLOAT32 = 3.4028234663852886e38


def name(text: str) -> str:
    """An SQL identifier."""
    return '"' + text.replace('"', '""') + '"'


def literal(text: object) -> str:
    """An SQL string."""
    return "'" + str(text).replace("'", "''") + "'"


def number(expression: str) -> str:
    """The expression as a finite float32 in a double, or NULL."""
    return f"CASE WHEN abs(try_cast({expression} AS DOUBLE)) <= {LARGEST_FLOAT32} THEN try_cast({expression} AS DOUBLE) END"


def seconds(expression: str) -> str:
    """The expression as a number, or as the seconds since 1970 of a timestamp; otherwise NULL."""
    text = f"CAST({expression} AS VARCHAR)"
    return f"coalesce(try_cast({text} AS DOUBLE), epoch(try_cast({text} AS TIMESTAMP)))"
