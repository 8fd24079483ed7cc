"""Retention in a repository: unpublished candidates and old, unreferenced images of a channel
may be deleted; also which image is newer. Pure.

Deleting a digest deletes every tag on it, so one reason to retain it is enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from warpfront.images.built import CREATED
from warpfront.release.ledger import CANDIDATE_PREFIX, Stock

_RUN_TIME = "%Y%m%dT%H%M%S"
_RUN_TIME_LENGTH = len("20261122T120000")


def not_needed(
    stocks: Iterable[Stock], *, channel: str, now: str, days: int
) -> tuple[tuple[Stock, str], ...]:
    """Return the images that may be deleted, and why: old ones of `channel` only ("": none)."""
    stocks = tuple(stocks)
    limit = datetime.fromisoformat(now) - timedelta(days=days)
    # If one of them is withdrawn itself, the digest before that counts, too.
    by_digest = {stock.digest: stock for stock in stocks}
    ways_back: set[str] = set()
    ahead = [before for stock in by_digest.values() if stock.aliases for before in stock.befores]
    while ahead:
        digest = ahead.pop()
        if digest not in ways_back and digest in by_digest and by_digest[digest].yanked:
            ahead += by_digest[digest].befores
        ways_back.add(digest)
    removable = []
    for stock in stocks:
        public = [tag for tag in stock.tags if not tag.startswith(CANDIDATE_PREFIX)]
        if stock.aliases or stock.listed_in or stock.digest in ways_back:
            continue
        if not public and all(_is_before(_time_of_run(tag), limit) for tag in stock.tags):
            removable.append((stock, f"a candidate that nobody published, older than {days} days"))
        elif (
            public
            and stock.channels == (channel,)
            and _is_before(_read_time(stock.labels.get(CREATED, "")), limit)
        ):
            removable.append((stock, f"an image of {channel}, older than {days} days"))
    return tuple(removable)


def newest_first(stocks: Iterable[Stock]) -> tuple[Stock, ...]:
    """Return the images in the order of their last names' times; of the same time, by name."""
    ordered = sorted(stocks, key=lambda stock: (stock.repository, stock.tags))
    oldest = datetime.min.replace(tzinfo=UTC)
    return tuple(sorted(ordered, key=lambda stock: named_at(stock) or oldest, reverse=True))


def named_at(stock: Stock) -> datetime | None:
    """Return when an image got its last name: the latest time at the beginning of its runs'
    names, which its tags have, else its build time.
    """
    named = [_time_of_run(run) for run in (*stock.runs, *stock.tags)]
    times = [time for time in named if time is not None]
    return max(times) if times else _read_time(stock.labels.get(CREATED, ""))


def _is_before(moment: datetime | None, limit: datetime) -> bool:
    """Return whether a time is before another. An unknown time is not, so its image is retained."""
    return moment is not None and moment < limit


def _time_of_run(tag: str) -> datetime | None:
    text = tag.removeprefix(CANDIDATE_PREFIX)[:_RUN_TIME_LENGTH]
    try:
        return datetime.strptime(text, _RUN_TIME).replace(tzinfo=UTC)
    except ValueError:
        return None


def _read_time(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else None
