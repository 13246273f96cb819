"""`Table`: the small immutable table that every result holds; it prints and becomes pandas."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imir_detect.errors import ImirError, InvalidArgumentError
from imir_detect.files import write_atomically
from imir_detect.strict import json_text

if TYPE_CHECKING:
    import pandas


class Table(Sequence[dict[str, Any]]):
    """A small immutable table: rows in a fixed order, columns by name.

    >>> table = Table(("layer", "z"), [(0, 1.5), (1, None)])
    >>> table.column("layer"), table[1]
    ([0, 1], {'layer': 1, 'z': None})
    """

    def __init__(self, columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
        self.columns = tuple(columns)
        self.rows = tuple(tuple(row) for row in rows)
        if any(len(row) != len(self.columns) for row in self.rows):
            raise InvalidArgumentError(
                "a table's rows need one entry a column",
                got=str(sorted({len(row) for row in self.rows})),
                wanted=str(len(self.columns)),
                todo="fill missing entries with None",
            )

    @classmethod
    def of(cls, kind: type, records: Iterable[Any]) -> Table:
        """A table of dataclass records."""
        names = tuple(f.name for f in fields(kind))
        return cls(names, ([getattr(record, name) for name in names] for record in records))

    def column(self, name: str) -> list[Any]:
        """The entries of one column, in order."""
        if name not in self.columns:
            raise InvalidArgumentError(
                "no such column", got=repr(name), wanted=", ".join(self.columns), todo="use one"
            )
        place = self.columns.index(name)
        return [row[place] for row in self.rows]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Table(self.columns, self.rows[index])
        return dict(zip(self.columns, self.rows[index], strict=True))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and (self.columns, self.rows) == (other.columns, other.rows)

    def __hash__(self) -> int:
        return hash((self.columns, self.rows))

    def to_pandas(self) -> pandas.DataFrame:
        """The table as a pandas DataFrame (pandas comes with the extra `report`)."""
        try:
            import pandas
        except ImportError as error:
            raise ImirError(
                "pandas is not installed", todo="pip install 'imir-detect[report]'"
            ) from error
        frame = pandas.DataFrame(list(self), columns=list(self.columns))
        for name in self.columns:  # pandas makes floats of whole numbers with gaps
            kinds = {type(value) for value in self.column(name)}
            if kinds == {int, type(None)}:
                frame[name] = frame[name].astype("Int64")
        return frame

    def to_json(self, path: Path | str) -> Path:
        """Write the rows as a strict JSON list of objects, atomically; returns the path."""
        path = Path(path)
        write_atomically(path, json_text(list(self)).encode())
        return path

    def __str__(self) -> str:
        cells = [self.columns, *([cell_text(v) for v in row] for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
        return "\n".join(line.rstrip() for line in lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(c)}</th>" for c in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell_text(v))}</td>" for v in row) + "</tr>"
            for row in self.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def cell_text(value: Any) -> str:
    """A table entry as text: two decimals, a dash for none."""
    if value is None:
        return "-"
    return rounded(value, 2) if isinstance(value, float) else str(value)


def rounded(value: float, digits: int) -> str:
    """A number to so many decimals; what rounds to zero has no sign.

    >>> rounded(-0.004, 2), rounded(-0.04, 2)
    ('0.00', '-0.04')
    """
    text = f"{value:.{digits}f}"
    return text[1:] if text.startswith("-") and not text.strip("-0.") else text
