"""The licence table, one row a package: its licence, the source of it, and whether a person has
to decide. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from warpfront.release.sbom.licences import LicenceClass, class_of
from warpfront.release.sbom.parts import Bill, Part
from warpfront.system.markdown import markdown_table, markdown_text

SCHEMA = 1
LicenceRow = tuple[Part, LicenceClass]


def licence_rows(bill: Bill) -> tuple[LicenceRow, ...]:
    """Return the rows, those to decide on first, each group sorted by name. A wheel's bundled
    parts are under the wheel's own expression, so they have no row.
    """
    rows = [
        (part, class_of(part.licence, debian_main=bill.debian_main and part.kind == "debian"))
        for part in bill.parts
        if part.kind != "carried"
    ]
    return tuple(sorted(rows, key=lambda row: (not row[1].decision, row[0].name, row[0].version)))


def licence_document(bill: Bill) -> dict[str, object]:
    """Return the table as JSON values."""
    rows = licence_rows(bill)
    return {
        "schema": SCHEMA,
        "cell_id": bill.cell_id,
        "image": f"{bill.name}:{bill.tag}",
        "decisions": sum(asks.decision for _, asks in rows),
        "classes": dict(sorted(Counter(asks.name for _, asks in rows).items())),
        "packages": [
            {
                "package": part.name,
                "version": part.version,
                "kind": part.kind,
                "expression": part.licence.expression,
                "source": part.licence.source,
                "said": part.licence.said,
                "class": asks.name,
                "decision": asks.decision,
            }
            for part, asks in rows
        ],
    }


def licence_markdown(bill: Bill) -> str:
    """Return the table for people: the rows that need a decision, then everything."""
    rows = licence_rows(bill)
    undecided = [row for row in rows if row[1].decision]
    counts = Counter((asks.name, asks.means) for _, asks in rows)
    classes = [(name, str(count), means) for (name, means), count in counts.most_common()]
    return "\n".join(
        [
            f"# Licences in {markdown_text(bill.name)}:{markdown_text(bill.tag)}",
            "",
            f"{len(rows)} packages; {len(undecided)} need a decision before it is passed on.",
            "",
            *markdown_table(("class", "packages", "what it asks"), classes),
            "",
            *(["## To decide", "", *_packages(undecided), ""] if undecided else []),
            "## All",
            "",
            *_packages(rows),
            "",
        ]
    )


def _packages(rows: Iterable[LicenceRow]) -> list[str]:
    cells = [
        (
            f"{part.name} {part.version}",
            part.licence.expression or "unknown",
            part.licence.source or part.licence.said or "nothing is said",
            asks.name,
        )
        for part, asks in rows
    ]
    return markdown_table(("package", "licence", "says", "class"), cells)
