"""The licence table, one row a package: its licence, the source of it, and whether a person has
to decide. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from warpfront.release.sbom.licences import Licence, LicenceClass, class_of
from warpfront.release.sbom.parts import Bill, Part
from warpfront.system.markdown import markdown_text

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LicenceRow:
    """A package of an image and its licence's class."""

    package: str
    version: str
    kind: str
    licence: Licence
    asks: LicenceClass


def licence_rows(bill: Bill) -> tuple[LicenceRow, ...]:
    """Return the rows, those to decide on first, each group sorted by name. A wheel's bundled
    parts are under the wheel's own expression, so they have no row.
    """
    parts = [part for part in bill.parts if part.kind != "carried"]
    rows = [_row(part, debian_main=bill.debian_main and part.kind == "debian") for part in parts]
    return tuple(sorted(rows, key=lambda row: (not row.asks.decision, row.package, row.version)))


def licence_document(bill: Bill) -> dict[str, object]:
    """Return the table as JSON values."""
    rows = licence_rows(bill)
    return {
        "schema": SCHEMA,
        "cell_id": bill.cell_id,
        "image": f"{bill.name}:{bill.tag}",
        "decisions": sum(row.asks.decision for row in rows),
        "classes": dict(sorted(Counter(row.asks.name for row in rows).items())),
        "packages": [
            {
                "package": row.package,
                "version": row.version,
                "kind": row.kind,
                "expression": row.licence.expression,
                "source": row.licence.source,
                "said": row.licence.said,
                "class": row.asks.name,
                "decision": row.asks.decision,
            }
            for row in rows
        ],
    }


def licence_markdown(bill: Bill) -> str:
    """Return the table for people: the rows that need a decision, then everything."""
    rows = licence_rows(bill)
    undecided = [row for row in rows if row.asks.decision]
    means = {row.asks.name: row.asks.means for row in rows}
    counts = Counter(row.asks.name for row in rows)
    return "\n".join(
        [
            f"# Licences in {markdown_text(bill.name)}:{markdown_text(bill.tag)}",
            "",
            f"{len(rows)} packages; {len(undecided)} need a decision before it is passed on.",
            "",
            *_table(("class", "packages", "what it asks"), _classes(counts, means)),
            "",
            *(["## To decide", "", *_packages(undecided), ""] if undecided else []),
            "## All",
            "",
            *_packages(rows),
            "",
        ]
    )


def _row(part: Part, *, debian_main: bool) -> LicenceRow:
    return LicenceRow(
        package=part.name,
        version=part.version,
        kind=part.kind,
        licence=part.licence,
        asks=class_of(part.licence, debian_main=debian_main),
    )


def _classes(counts: Counter[str], means: dict[str, str]) -> list[tuple[str, ...]]:
    return [(name, str(count), means[name]) for name, count in counts.most_common()]


def _packages(rows: Iterable[LicenceRow]) -> list[str]:
    cells = [
        (
            f"{row.package} {row.version}",
            row.licence.expression or "unknown",
            row.licence.source or row.licence.said or "nothing is said",
            row.asks.name,
        )
        for row in rows
    ]
    return _table(("package", "licence", "says", "class"), cells)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [head, tuple("---" for _ in head), *(tuple(map(markdown_text, row)) for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]
