"""Each step of a publication, and each way in which a registry fails at it: afterwards no public
tag is on anything unproven, the message says who, where and what next, and a rerun ends right.

The registry is one over HTTP, so that what goes wrong goes wrong where it does in life.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest
from builders import a_channel
from releases import CPU, NOW, FakeCosign, World, a_release_channel, a_signer, a_world, content_of
from stub_registry import IMPATIENT, QUICK, Clock, Fault, StubRegistry, client_of, serve_registry

from warpfront.errors import RegistryError, TagConflictError
from warpfront.release.admission import admission
from warpfront.release.evidence import DOCUMENT, attached_evidence, local_evidence
from warpfront.release.ledger import Publication
from warpfront.release.publication import held_image
from warpfront.release.publish_context import Published, publish_cells
from warpfront.release.registry.client import HttpRegistry
from warpfront.release.registry.contract import Artifact, Predicate
from warpfront.step_results import Failed

PATH = "demo/torch"
OTHER = "sha256:" + "0" * 64
SBOM = Artifact(
    name="spdx",
    artifact_type="application/spdx+json",
    payload=b'{"name": "a"}',
    annotations={DOCUMENT: "spdx"},
    predicate=Predicate(name="spdx", type="https://spdx.dev/Document", content={"name": "a"}),
)
FAULTS = {
    "500": Fault(status=500),
    "503": Fault(status=503, headers={"Retry-After": "1"}),
    "429": Fault(status=429),
    "401": Fault(status=401, headers={"WWW-Authenticate": 'Basic realm="stub"'}),
    "403": Fault(status=403),
    "507": Fault(status=507),
    "cut": Fault(cut_at=0),
    "hangs": Fault(hangs=True),
    "drips": Fault(drips="head"),
    "lies": Fault(lie=OTHER),
    "corrupt": Fault(corrupt=True),
    "says yes, does nothing": Fault(status=200),
    "says made, does nothing": Fault(status=201),
    "knows nothing": Fault(status=404),
}
STEPS = (
    "head blob",
    "begin",
    "close",
    "put manifest",
    "get manifest",
    "head manifest",
    "get blob",
    "referrers",
)
# Each step and each fault at least once; all of them with --exhaustive.
ALWAYS = {
    ("head blob", "503", 0, False, True),
    ("begin", "507", 0, True, False),
    ("begin", "401", 2, False, True),
    ("close", "cut", 2, False, True),
    ("close", "hangs", 0, True, False),
    ("put manifest", "lies", 2, False, True),
    ("put manifest", "says made, does nothing", 2, True, False),
    ("get manifest", "corrupt", 2, False, True),
    ("get manifest", "drips", 0, True, False),
    ("head manifest", "says yes, does nothing", 2, False, False),
    ("head manifest", "500", 2, True, True),
    ("get blob", "403", 0, False, False),
    ("referrers", "429", 0, True, True),
    ("referrers", "knows nothing", 2, True, False),
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """A machine that publishes by HTTP."""

    world: World
    stub: StubRegistry
    cosign: FakeCosign
    line: HttpRegistry

    def publish(self, line: HttpRegistry | None = None) -> Published:
        line = line or self.line
        world = self.world
        world.engine.registries[self.stub.host] = line  # type: ignore[assignment]
        shop = dataclasses.replace(
            world.shop(a_release_channel(allow=(), repository=f"{self.stub.host}/demo")),
            registry=line,
            documents=lambda _publication, _evidence: (SBOM,),
        )
        found = publish_cells(
            (CPU,),
            (CPU,),
            shop,
            find=lambda cell: local_evidence(cell, world.store, world.engine),
            dry_run=False,
        )
        return found[CPU.id]

    @property
    def public(self) -> dict[str, str]:
        return {
            tag: digest
            for (_, tag), digest in self.stub.tags.items()
            if not tag.startswith(("candidate-", "sha256-"))
        }

    def unproven(self) -> list[str]:
        """The public tags that are on anything but a whole, proven, signed image that is attested
        once.
        """
        return [tag for tag, digest in self.public.items() if not self._is_proven(tag, digest)]

    def _is_proven(self, tag: str, digest: str) -> bool:
        held = held_image(self.line, PATH, tag)
        assert held is not None
        evidence = attached_evidence(self.line, PATH, CPU, held)
        signed = {words for words in self.cosign.signed if words[0].endswith(f"@{digest}")}
        proofs = {f"--annotations=dev.warpfront.verification={one}" for one in evidence.attached}
        stated = [one for one in self.cosign.attested if one[0].endswith(f"@{digest}")]
        return (
            admission(evidence, a_channel(), now=NOW).admitted
            and any(proofs & set(words) for words in signed)
            and [kind for _, kind, _ in stated] == ["https://spdx.dev/Document"]
        )


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    world, cosign = a_world(tmp_path), FakeCosign()
    world.signer = a_signer(cosign)
    with (
        serve_registry(auth="bearer", referrers=False) as stub,
        client_of(stub, tmp_path, clock=Clock()) as line,
    ):
        yield Place(world=world, stub=stub, cosign=cosign, line=line)


def test_a_run_asks_for_each_of_these_steps(place: Place) -> None:
    place.world.build()
    assert isinstance(place.publish(), Publication)
    assert set(STEPS) | {"token"} == set(place.stub.steps())


def test_a_registry_that_hangs_up_after_each_answer_gets_it_all_the_same(
    place: Place, tmp_path: Path
) -> None:
    place.stub.hangs_up = True
    content_of(place.world, place.world.build(), tmp_path)
    assert isinstance(place.publish(), Publication)
    assert (len(place.public), place.unproven()) == (3, [])
    assert place.stub.connections >= len(place.stub.requests)


@pytest.mark.parametrize(
    ("step", "fault", "spare", "lists", "copied"),
    [
        pytest.param(*case, marks=[] if case in ALWAYS else [pytest.mark.exhaustive])
        for case in product(STEPS, FAULTS, (0, 2), (False, True), (False, True))
    ],
)
def test_a_registry_that_fails_at_a_step_leaves_nothing_unproven_and_a_rerun_ends_right(  # noqa: PLR0917
    place: Place,
    step: str,
    fault: str,
    spare: int,
    lists: bool,  # noqa: FBT001
    copied: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    """`spare` times it goes well; it `lists` what is attached by itself. Where blobs are `copied`
    as the engine keeps them, documents and a signature are on their way beside them.
    """
    place.stub.referrers = lists
    image = place.world.build()
    if copied:
        content_of(place.world, image, tmp_path)
    place.stub.fail(step, dataclasses.replace(FAULTS[fault], spare=spare))
    # Only who is kept waiting is impatient: a busy machine is late, too.
    waits = FAULTS[fault].hangs or FAULTS[fault].drips
    patience = dataclasses.replace(IMPATIENT if waits else QUICK, tries=3)
    with client_of(place.stub, tmp_path, clock=Clock(), patience=patience) as line:
        result = place.publish(line)
    place.stub.heal()
    assert place.unproven() == []
    if isinstance(result, Failed):
        # One that says something else of a tag than it has is two publishers, as far as we know.
        assert result.exit_code in {RegistryError.exit_code, TagConflictError.exit_code}
        assert place.stub.host in result.reason
        assert result.hint
    else:
        assert len(place.public) == 3
    done = place.publish()
    assert isinstance(done, Publication), done
    assert set(place.public.values()) == {done.digest}
    assert (len(place.public), place.unproven()) == (3, [])
