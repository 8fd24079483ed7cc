"""`invoke`, with a fault sown into an image's way to its tags: `sown_publish.py FAULT TASK ...`.

* `after-tags`: none, but it is killed once the tags that never move are there;
* `alias-first`: aliases are put as soon as the image is there, and it is killed then;
* `unsigned`: nothing is signed, and the tags are put all the same;
* `unattested`: nothing is attested, and the tags are put all the same;
* `unproven`: nothing is attached or signed, and the tags are put all the same.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
from collections.abc import Callable

from invoke.main import program

from warpfront.release.ledger import Publication
from warpfront.release.publication import Publishing


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def after_tags() -> None:
    put = Publishing._set

    def then_die(self: Publishing, publication: Publication, tagging: object) -> Publication:
        done = put(self, publication, tagging)  # type: ignore[arg-type]
        if all(one.done for one in done.tags if not one.moves):
            die()
        return done

    Publishing._set = then_die  # type: ignore[method-assign]


def alias_first() -> None:
    bring = Publishing._candidate

    def named(self: Publishing, publication: Publication) -> Publication:
        there = bring(self, publication)
        for one in there.tags:
            if one.moves:
                here = self.registry.head(self._path(there), one.tag)
                before = here.digest if here else ""
                self._set(there, dataclasses.replace(one, before=before))
        die()
        return there

    Publishing._candidate = named  # type: ignore[method-assign]


def skipping(*steps: str) -> Callable[[], None]:
    def sow() -> None:
        for name in steps:
            getattr(Publishing, name)  # a step by another name is none that is left out
            setattr(Publishing, name, lambda _self, publication: publication)

    return sow


def unattested() -> None:
    Publishing._attested  # noqa: B018 - a step by another name is none that is left out
    Publishing._attested = lambda *_: ()  # type: ignore[method-assign]


FAULTS = {
    "after-tags": after_tags,
    "alias-first": alias_first,
    "unsigned": skipping("signed"),
    "unattested": unattested,
    "unproven": skipping("_document", "signed"),
}


if __name__ == "__main__":
    _, fault, *words = sys.argv
    FAULTS[fault]()
    program.run(["invoke", *words])
