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
from typing import Any

from invoke.main import program

from warpfront.release import publishing
from warpfront.release.ledger import Publication
from warpfront.release.publication import digest_on
from warpfront.release.publishing import Attester, Tagger
from warpfront.release.signing import Signer


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def after_tags() -> None:
    put = Tagger.set_tag

    def then_die(self: Tagger, publication: Publication, *given: Any) -> Publication:
        done = put(self, publication, *given)
        if all(one.done for one in done.tags if not one.moves):
            die()
        return done

    Tagger.set_tag = then_die  # type: ignore[method-assign, assignment]


def alias_first() -> None:
    bring = publishing.candidate

    def named(publication: Publication, *given: Any) -> Any:
        found = bring(publication, *given)
        held, (uploader, *_) = found[0], given
        there = dataclasses.replace(publication, digest=held.digest)
        for one in there.tags:
            if one.moves:
                before = digest_on(uploader.registry, there.path, one.tag)
                tagger = Tagger(registry=uploader.registry, record=lambda _: None)
                tagger.set_tag(there, dataclasses.replace(one, before=before), held)
        die()
        return found

    publishing.candidate = named  # type: ignore[assignment]


def skipping(*steps: str) -> Callable[[], None]:
    def sow() -> None:
        for name in steps:
            getattr(Attester, name)  # a step by another name is none that is left out
            setattr(Attester, name, lambda _self, publication, *_, **__: publication)

    return sow


def unattested() -> None:
    Signer.attest  # noqa: B018 - a step by another name is none that is left out
    Signer.attest = lambda *_: None  # type: ignore[method-assign]


FAULTS = {
    "after-tags": after_tags,
    "alias-first": alias_first,
    "unsigned": skipping("sign"),
    "unattested": unattested,
    "unproven": skipping("attach", "sign"),
}


if __name__ == "__main__":
    _, fault, *words = sys.argv
    FAULTS[fault]()
    program.run(["invoke", *words])
