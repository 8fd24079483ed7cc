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

from warpfront.release.ledger import Publication
from warpfront.release.publication import digest_on
from warpfront.release.publishing import ImagePublisher
from warpfront.release.signing import Signer


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def after_tags() -> None:
    put = ImagePublisher.set_tag

    def then_die(self: ImagePublisher, publication: Publication, *given: Any) -> Publication:
        done = put(self, publication, *given)
        if all(one.done for one in done.tags if not one.moves):
            die()
        return done

    ImagePublisher.set_tag = then_die  # type: ignore[method-assign, assignment]


def alias_first() -> None:
    bring = ImagePublisher.candidate

    def named(self: ImagePublisher, publication: Publication) -> Any:
        held, _ = bring(self, publication)
        there = dataclasses.replace(publication, digest=held.digest)
        unrecorded = dataclasses.replace(self, record=lambda _: None)
        for one in there.tags:
            if one.moves:
                before = digest_on(self.registry, there.path, one.tag)
                unrecorded.set_tag(there, dataclasses.replace(one, before=before), held)
        die()

    ImagePublisher.candidate = named  # type: ignore[method-assign]


def skipping(*steps: str) -> Callable[[], None]:
    def sow() -> None:
        for name in steps:
            getattr(ImagePublisher, name)  # a step by another name is none that is left out
            setattr(ImagePublisher, name, lambda _self, publication, *_, **__: publication)

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
