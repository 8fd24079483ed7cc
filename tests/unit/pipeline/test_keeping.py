"""After publishing: promoted, taken back, carried on a disk, explained, cleared up."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
from pathlib import Path

import pytest
from builders import a_check
from releases import (
    CPU,
    NOW,
    PROJECT,
    REPOSITORY,
    FakeCosign,
    World,
    a_release_channel,
    a_signer,
    a_world,
)
from stub_registry import attach_one

from warpfront.commands.channels import (
    CarriedImages,
    ChannelRepositories,
    export_image,
    without_absent,
)
from warpfront.commands.why_published import explained
from warpfront.errors import (
    InputError,
    NotPublishableError,
    RegistryError,
    RegistryFault,
    TagConflictError,
)
from warpfront.images.built import CREATED, BuiltImage
from warpfront.images.labels import CELL
from warpfront.matrix.release_channels import Alias, Channel
from warpfront.release.evidence import (
    DOCUMENT,
    VERIFICATION_TYPE,
    demanded_channel,
    local_evidence,
)
from warpfront.release.ledger import LEDGER_FOLDER, Publication, Stage, Stock
from warpfront.release.publish_context import Published, publish_cells
from warpfront.release.registry.contract import IMAGE_INDEX, IMAGE_MANIFEST, Artifact, index_body
from warpfront.release.registry.copying import Repository
from warpfront.release.registry.layout import LayoutRegistry
from warpfront.release.retention import newest_first, not_needed
from warpfront.release.statements.statement import predicate_of
from warpfront.release.why import why_text
from warpfront.report.described import pruning_text, stock_text, yank_text
from warpfront.step_results import Blocked, Failed
from warpfront.system.references import fallback_tag
from warpfront.system.store import as_json
from warpfront.verify.results import Outcome, Verification
from warpfront.verify.verdict import failure_of, sealed

NIGHTLY = a_release_channel(
    name="nightly", tags=("{torch}-{content}-n",), aliases=(), allow=("unsigned", "skipped")
)
SIMPLE_SIGNING = "application/vnd.dev.cosign.simplesigning.v1+json"
NEWER = {"content": "b", "created": "2026-11-21T10:00:00+00:00"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return a_world(tmp_path)


def build(world: World, *checks: object, **changes: object) -> str:
    return world.build(CPU, *checks, labels={CELL: CPU.id}, **changes)  # type: ignore[arg-type]


def carried(
    world: World,
    channel: Channel,
    source: Repository | None = None,
    *,
    to: str = "",
    dry_run: bool = False,
) -> Published:
    """The CPU image from a place into a channel, proven by what is attached to it."""
    place = source or Repository(registry=world.registry, repository=REPOSITORY)
    found = CarriedImages(place_of=lambda _cell: place, channel=NIGHTLY)
    shop = dataclasses.replace(
        world.shop(dataclasses.replace(channel, repository=to or channel.repository)),
        documents=found.documents,
        bring=lambda publication: found.bring(publication, CPU, world.registry),
        action="promote",
    )
    results = publish_cells((CPU,), (CPU,), shop, find=found.find, dry_run=dry_run)
    return results[CPU.id]


def house(world: World) -> ChannelRepositories:
    return ChannelRepositories(
        registry=world.registry, paths=(REPOSITORY,), store=world.store, now=NOW
    )


# --- promote ---


def test_a_nightly_becomes_a_release_by_its_digest_without_the_engine(world: World) -> None:
    image = build(world)
    world.published(channel=NIGHTLY)
    world.engine.gone = True
    result = carried(world, a_release_channel())
    assert isinstance(result, Publication), result
    assert (result.digest, result.stage, result.sent_bytes) == (image, Stage.DONE, 0)
    assert {world.public[tag] for tag in ("latest", "2.13.0-cpu")} == {image}
    assert world.ledger().action == "promote"


def test_what_a_release_demands_has_to_be_attached_to_the_nightly(world: World) -> None:
    build(world, a_check(), a_check(Outcome.SKIPPED, name="b"))
    world.published(channel=NIGHTLY)
    public = world.public
    result = carried(world, a_release_channel())
    assert isinstance(result, Failed)
    assert result.exit_code == NotPublishableError.exit_code
    assert world.public == public


def test_an_edited_attachment_promotes_nothing(world: World) -> None:
    """Whoever may push may attach what they like; it has to hold together all the same."""
    build(world, a_check(Outcome.SKIPPED))
    digest = world.published(channel=NIGHTLY).digest
    (attached,) = (
        one
        for one in world.registry.attached[REPOSITORY, digest]
        if one.artifact_type == VERIFICATION_TYPE
    )
    layers = json.loads(world.registry.manifests[REPOSITORY, attached.digest][0])["layers"]
    payload = world.registry.blobs[REPOSITORY, layers[0]["digest"]]
    subject = world.registry.head(REPOSITORY, digest)
    assert subject is not None
    document = json.loads(payload)
    document["verifications"][0]["checks"][0]["outcome"] = "passed"
    document["verifications"][0]["ended"] = NOW
    for forged in (json.dumps(document).encode(), b"[" * 99_999, b'{"verifications": 3}', b"\xff"):
        attach_one(
            world.registry,
            REPOSITORY,
            subject,
            Artifact(
                artifact_type=VERIFICATION_TYPE,
                payload=forged,
                annotations={},
            ),
        )
    result = carried(world, a_release_channel())
    assert isinstance(result, Failed)
    assert "changed after it was made" in result.reason


def test_a_forged_proof_with_a_seal_of_its_own_is_in_no_signature(world: World) -> None:
    """A seal is no signature: whoever may push can make one."""
    signer = a_signer(FakeCosign())
    world.signer = signer
    build(world, a_check(Outcome.SKIPPED))
    digest = world.published(channel=NIGHTLY).digest
    subject = world.registry.head(REPOSITORY, digest)
    assert subject is not None
    build(world)
    forged = world.store.load(CPU.id, "verify-x86-64", (Verification,))
    forged = sealed(dataclasses.replace(forged, image_id=digest), ended=NOW)
    attach_one(
        world.registry,
        REPOSITORY,
        subject,
        Artifact(
            artifact_type=VERIFICATION_TYPE,
            payload=json.dumps({"verifications": as_json([forged])}).encode(),
            annotations={},
        ),
    )
    for dry_run in (True, False):
        result = carried(world, a_release_channel(allow=()), dry_run=dry_run)
        assert isinstance(result, Failed)
        assert "is in no signature of a trusted key" in result.reason
        assert "--trust" in result.hint
    world.signer = None
    result = carried(world, a_release_channel(allow=()))
    assert isinstance(result, Failed)
    assert result.reason == "there is no key to sign it with"


def test_a_signed_nightly_is_promoted_by_its_signature(world: World) -> None:
    world.signer = a_signer(FakeCosign())
    build(world)
    world.published(channel=NIGHTLY)
    result = carried(world, a_release_channel(allow=()))
    assert isinstance(result, Publication), result


def test_what_was_never_published_cannot_be_promoted(world: World) -> None:
    build(world)
    assert isinstance(carried(world, a_release_channel()), Blocked)


def test_what_is_meant_for_no_registry_or_for_another_is_refused(world: World) -> None:
    build(world)
    world.published()
    for to in ("/site", "site.test/UPPER", "site.test/torch:tag", "user@site.test/x"):
        with pytest.raises(InputError, match="no image reference"):
            demanded_channel((NIGHTLY,), "nightly", to)
    assert demanded_channel((NIGHTLY,), "nightly", "site.test:5000/x").repository
    with pytest.raises(InputError, match="in another registry"):
        house(world).yank("example.test/demo/torch:latest", "", dry_run=False)
    with pytest.raises(InputError, match="--days -1"):
        house(world).prune("", days=-1, dry_run=True)


def test_an_image_goes_to_another_repository_by_mounts_with_its_proof(world: World) -> None:
    image = build(world)
    world.published(channel=NIGHTLY)
    result = carried(world, a_release_channel(), to="registry.test/stable")
    assert isinstance(result, Publication), result
    assert world.registry.tagged["stable/torch", "latest"] == image
    assert result.sent_bytes == 0
    why, _ = explained(world.registry, "stable/torch", "latest")
    assert why.unread == ()


# --- yank ---


def test_an_image_that_is_taken_back_sends_its_aliases_where_they_were(world: World) -> None:
    first = build(world)
    world.published()
    second = build(world, **NEWER)
    world.published()
    yanked = house(world).yank(f"{PROJECT}/torch:latest", "wrong sums", dry_run=False)
    assert yanked.moved == {"2.13.0-cpu": first, "latest": first}
    assert world.public["latest"] == first
    assert second in world.public.values(), "a tag that never moves does not go"
    assert "delete" not in world.registry.calls
    assert "latest -> " in yank_text(yanked, dry_run=False)
    (stock,) = [one for one in house(world).stock() if one.digest == second]
    assert stock.yanked


def test_a_dry_run_of_it_changes_nothing(world: World) -> None:
    build(world)
    world.published()
    build(world, **NEWER)
    world.published()
    public, attached = world.public, len(world.registry.manifests)
    house(world).yank(f"{PROJECT}/torch:latest", "", dry_run=True)
    assert (world.public, len(world.registry.manifests)) == (public, attached)


def test_where_there_was_nothing_before_the_alias_stays_and_it_is_said(world: World) -> None:
    image = build(world)
    world.published()
    yanked = house(world).yank(f"{PROJECT}/torch@{image}", "", dry_run=False)
    assert (set(yanked.kept), yanked.moved) == ({"2.13.0-cpu", "latest"}, {})
    assert world.public["latest"] == image


def test_two_that_are_taken_back_lead_to_the_third(world: World) -> None:
    first = build(world)
    world.published()
    for day in ("21", "22"):
        build(world, content=day, created=f"2026-11-{day}T09:00:00+00:00")
        world.published()
    (middle,) = {digest for tag, digest in world.public.items() if "323132" in tag}
    house(world).yank(f"{PROJECT}/torch@{middle}", "", dry_run=False)
    house(world).yank(f"{PROJECT}/torch:latest", "", dry_run=False)
    assert world.public["latest"] == first


def test_an_image_that_is_not_there_cannot_be_taken_back(world: World) -> None:
    with pytest.raises((TagConflictError, RegistryError)):
        house(world).yank(f"{PROJECT}/torch:gone", "", dry_run=False)


# --- prune ---


def stock(*tags: str, created: str = "2026-01-01T00:00:00+00:00", **changes: object) -> Stock:
    made = Stock(
        repository="r/a",
        digest="sha256:" + "1" * 64,
        tags=tags,
        channels=("nightly",),
        labels={CREATED: created},
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def unneeded(*stocks: Stock, channel: str = "nightly") -> list[Stock]:
    found = not_needed(stocks, channel=channel, now=NOW, days=14)
    return [one for one, _ in found]


@pytest.mark.parametrize(
    "kept",
    [
        stock("a", aliases=("a",)),
        stock("a", channels=("nightly", "release")),
        stock("a", channels=()),
        stock("a", created="2026-11-20T00:00:00+00:00"),
        stock("a", created="long ago"),
        stock("candidate-20261121T000000-aa-bb"),
        stock("candidate-of-somebody-else"),
    ],
)
def test_one_reason_to_keep_an_image_is_enough(kept: Stock) -> None:
    assert unneeded(kept) == []


def test_old_candidates_and_old_images_of_the_channel_may_go() -> None:
    candidate = stock("candidate-20260101T000000-aa-bb", channels=())
    both = stock("candidate-20260101T000000-aa-bb", "a")
    assert unneeded(candidate, both) == [candidate, both]
    assert unneeded(candidate, both, channel="") == [candidate]


def test_the_way_back_of_an_alias_is_kept() -> None:
    before = stock("old")
    now_on = stock("new", "latest", digest="x", aliases=("latest",), befores=(before.digest,))
    assert unneeded(before, now_on) == []
    assert unneeded(before) == [before]
    # One that was taken back leads on; one that was not is where the way ends.
    for yanked in (True, False):
        between = stock("mid", digest="y", yanked=yanked, befores=(before.digest,))
        newer = dataclasses.replace(now_on, befores=("y",))
        assert unneeded(before, between, newer) == ([] if yanked else [before])
    circle = stock("mid", digest="y", yanked=True, befores=("y",))
    assert unneeded(circle, dataclasses.replace(now_on, befores=("y",))) == []


def test_where_an_alias_was_that_has_gone_on_is_no_way_back_of_what_stays(world: World) -> None:
    """A release keeps itself, and not for ever the nightly before the one that it was made from."""
    aliases = (Alias(tag="nightly", cells=frozenset({CPU.id})),)
    nightly = dataclasses.replace(NIGHTLY, aliases=aliases)
    images: list[str] = []
    for content in ("b", "c", "d"):
        images.append(
            build(world, content=content, created=f"2026-01-0{len(images) + 1}T10:00:00Z")
        )
        world.published(channel=nightly)
        if content == "c":
            world.published(channel=a_release_channel())
    by_digest = {one.digest: one for one in house(world).stock()}
    assert [by_digest[one].befores for one in images] == [(), (), (images[1],)]
    removed = house(world).prune("nightly", days=14, dry_run=False)
    assert [one.digest for one in removed] == [images[0]]
    house(world).yank(f"{PROJECT}/torch@{images[1]}", "", dry_run=False)
    by_digest = {one.digest: one for one in house(world).stock()}
    assert by_digest[images[1]].befores == (images[0],)


def test_with_an_image_goes_what_is_about_it_and_nothing_that_somebody_listed(
    world: World,
) -> None:
    """Whoever may push may write what is attached to an old image: the newest one, say."""
    registry, old = world.registry, build(world, created="2026-01-01T10:00:00+00:00")
    world.published(channel=NIGHTLY)
    (proof,) = registry.attached[REPOSITORY, old]
    signatures = json.loads(registry.manifests[REPOSITORY, proof.digest][0]) | {
        "layers": [{"mediaType": SIMPLE_SIGNING, "digest": proof.digest, "size": 1}]
    }
    del signatures["subject"], signatures["artifactType"]
    lists = fallback_tag(old)
    body = json.dumps(signatures).encode()
    registry.put_manifest(REPOSITORY, f"{lists}.sig", body, IMAGE_MANIFEST)
    registry.put_manifest(REPOSITORY, lists, index_body([proof]), IMAGE_INDEX)
    public = build(world, content="b")
    world.published()
    kept = {(REPOSITORY, tag): one for tag, one in world.public.items() if one == public}
    subject = registry.head(REPOSITORY, public)
    assert subject is not None
    registry.attached[REPOSITORY, old].append(subject)
    registry.tagged[REPOSITORY, f"{lists}.att"] = public
    several = index_body([subject, proof])
    registry.put_manifest(REPOSITORY, "several", several, IMAGE_INDEX)
    for tag in (lists, "several"):
        elsewhere = copy.deepcopy(world)
        elsewhere.registry.tagged[REPOSITORY, lists] = registry.tagged[REPOSITORY, tag]
        house(elsewhere).prune("nightly", days=14, dry_run=False)
        left, tags = elsewhere.registry.manifests, elsewhere.registry.tagged
        assert {old, proof.digest} & {digest for _, digest in left} == set()
        assert (REPOSITORY, f"{lists}.sig") not in tags
        assert ((REPOSITORY, lists) in tags) is (tag == "several"), "which leads to an image"
        assert kept.items() <= tags.items()


def test_nothing_is_removed_that_a_public_tag_is_on(world: World) -> None:
    build(world)
    world.published()
    public = world.public
    world.registry.tagged[REPOSITORY, "candidate-20260101T000000-aa-bb"] = public["latest"]
    build(world, content="c")
    stray = world.engine.parts[world.store.load(CPU.id, "build", (BuiltImage,)).image_id]
    world.engine.tag(
        world.store.load(CPU.id, "build", (BuiltImage,)).image_id,
        f"{PROJECT}/torch:candidate-20260101T000000-cc-dd",
    )
    world.engine.push(f"{PROJECT}/torch:candidate-20260101T000000-cc-dd", lambda *_: None)
    foreseen = house(world).prune("", days=14, dry_run=True)
    assert [one.tags for one in foreseen] == [("candidate-20260101T000000-cc-dd",)]
    assert "--yes" in pruning_text(foreseen, dry_run=True)
    assert house(world).prune("", days=14, dry_run=False) == foreseen
    assert world.public == public
    assert house(world).prune("", days=14, dry_run=False) == ()
    assert stray


# --- a disk ---


def test_an_image_on_a_disk_has_the_same_digest_proof_and_tags(
    world: World, tmp_path: Path
) -> None:
    image = build(world)
    world.published(channel=NIGHTLY)
    place = Repository(registry=world.registry, repository=REPOSITORY)
    found = CarriedImages(place_of=lambda _cell: place, channel=NIGHTLY)
    assert isinstance(export_image(CPU, found, tmp_path / "disk"), str)
    layout = LayoutRegistry(folder=tmp_path / "disk" / "torch")
    assert json.loads((layout.folder / "oci-layout").read_text())
    assert len(layout.tags("torch")) == 1
    away = a_world(tmp_path / "away")
    result = carried(
        away,
        a_release_channel(),
        Repository(registry=layout, repository="torch"),
        to="registry.test/x",
    )
    assert isinstance(result, Publication), result
    assert away.registry.tagged["x/torch", "latest"] == image
    why, _ = explained(away.registry, "x/torch", "latest")
    assert (why.digest, why.unread) == (image, ())


def test_a_damaged_disk_publishes_nothing(world: World, tmp_path: Path) -> None:
    build(world)
    world.published(channel=NIGHTLY)
    place = Repository(registry=world.registry, repository=REPOSITORY)
    export_image(CPU, CarriedImages(place_of=lambda _cell: place, channel=NIGHTLY), tmp_path)
    layout = LayoutRegistry(folder=tmp_path / "torch")
    for blob in (layout.folder / "blobs/sha256").iterdir():
        blob.write_bytes(blob.read_bytes() + b" ")
    away = a_world(tmp_path / "away")
    result = carried(away, a_release_channel(), Repository(registry=layout, repository="torch"))
    assert isinstance(result, Failed)
    assert "damaged" in result.reason
    assert away.registry.tagged == {}


# --- what an image is ---


def test_an_image_is_explained_by_what_is_attached_to_it(world: World) -> None:
    image = build(world)
    world.published()
    why, _ = explained(world.registry, REPOSITORY, "latest")
    assert (why.digest, why.unread, why.signature) == (image, (), "none")
    assert why.labels[CELL] == CPU.id
    assert "verification: none" in why_text(why), "the summary is a paper, which this shop has not"


def test_a_signature_is_checked_with_the_verification_that_it_is_for(world: World) -> None:
    world.signer = a_signer(FakeCosign())
    build(world)
    digest = world.published().digest
    why, _ = explained(world.registry, REPOSITORY, digest, signer=world.signer)
    assert why.signature.startswith("holds")
    why, _ = explained(world.registry, REPOSITORY, digest, signer=a_signer(FakeCosign()))
    assert "none of this key" in why.signature


def test_what_is_attached_and_does_not_hold_is_said(world: World) -> None:
    build(world)
    digest = world.published().digest
    subject = world.registry.head(REPOSITORY, digest)
    assert subject is not None
    for name, said in (("a", {}), ("b", {"dev.warpfront.statement": "provenance"})):
        attach_one(
            world.registry,
            REPOSITORY,
            subject,
            Artifact(
                artifact_type=VERIFICATION_TYPE,
                payload=name.encode(),
                annotations=said,
            ),
        )
    why, _ = explained(world.registry, REPOSITORY, digest)
    assert len(why.unread) == 3
    with pytest.raises(InputError):
        explained(world.registry, REPOSITORY, "gone")


def test_what_is_published_is_listed_with_its_aliases(world: World) -> None:
    build(world)
    world.published()
    text = stock_text(house(world).stock())
    assert "latest (alias)" in text
    assert "candidate" not in text, "which is a name that nobody is told of"
    assert "proven for: release" in text
    assert "there is no key" in text


def test_what_was_published_last_is_listed_first(world: World) -> None:
    """Not what sorts first by its tags, nor what was built last: c moves no alias."""
    order = []
    for content, day in (("z", "19"), ("a", "21"), ("m", "22"), ("c", "18")):
        image = build(world, content=content, created=f"2026-11-{day}T10:00:00+00:00")
        aliases = {} if content != "c" else {"aliases": ()}
        order.append(world.published(channel=a_release_channel(**aliases)).digest)
        assert image == order[-1]
    listed = house(world).stock()
    assert [one.digest for one in listed] == order[::-1]
    text = stock_text(listed)
    assert sorted(order, key=text.index) == order[::-1]
    yanked = house(world).yank(f"{PROJECT}/torch:latest", "", dry_run=False)
    assert yanked.digest == order[2]
    assert [one.digest for one in house(world).stock()] == order[::-1], "that names nothing"


def test_a_time_that_is_none_is_the_oldest() -> None:
    """Whoever may push writes what they like beside an image."""
    wrong = stock("a", digest="w", created="soon", runs=("99999999T999999-aa", "", "x" * 99))
    built, named = stock("b"), stock("c", digest="n", runs=("20260102T000000-aa",))
    assert [*newest_first((wrong, built, named))] == [named, built, wrong]


def test_a_document_that_no_trusted_key_has_signed_is_neither_promoted_nor_attested(
    world: World,
) -> None:
    """Whoever may push may attach one; our key would make it true."""
    cosign = FakeCosign()
    world.signer = a_signer(cosign)
    build(world)
    kind = "application/spdx+json"
    payload = b'{"name": "ours"}'
    ours = Artifact(
        name="spdx",
        artifact_type=kind,
        payload=payload,
        annotations={DOCUMENT: "spdx"},
        predicate=predicate_of("spdx", kind, payload),
    )
    shop = dataclasses.replace(
        world.shop(NIGHTLY), documents=lambda _publication, _evidence: (ours,)
    )
    find = functools.partial(local_evidence, store=world.store, engine=world.engine)
    (done,) = publish_cells((CPU,), (CPU,), shop, find=find, dry_run=False).values()
    assert isinstance(done, Publication)
    subject = world.registry.head(REPOSITORY, done.digest)
    assert subject is not None
    theirs = dataclasses.replace(ours, payload=b'{"name": "theirs"}')
    attach_one(world.registry, REPOSITORY, subject, theirs)
    cosign.attested.clear()
    result = carried(world, a_release_channel(allow=()))
    assert isinstance(result, Publication), result
    assert result.attested == ("spdx",)
    assert [one for _, _, one in cosign.attested] == [{"name": "ours"}]


def test_attestations_are_checked_by_the_key_that_is_trusted(world: World) -> None:
    world.signer = a_signer(FakeCosign())
    build(world)
    kind = "application/vnd.cyclonedx+json"
    paper = Artifact(
        name="cyclonedx",
        artifact_type=kind,
        payload=b"{}",
        annotations={DOCUMENT: "cyclonedx"},
        predicate=predicate_of("cyclonedx", kind, b"{}"),
    )
    shop = dataclasses.replace(
        world.shop(NIGHTLY), documents=lambda _publication, _evidence: (paper,)
    )
    find = functools.partial(local_evidence, store=world.store, engine=world.engine)
    (done,) = publish_cells((CPU,), (CPU,), shop, find=find, dry_run=False).values()
    assert isinstance(done, Publication)
    why, _ = explained(world.registry, REPOSITORY, done.digest, signer=world.signer)
    assert why.attestations == "cyclonedx"
    why, _ = explained(world.registry, REPOSITORY, done.digest, signer=a_signer(FakeCosign()))
    assert why.attestations == "nothing, by this key"


# --- pruning where something is refused ---


def test_where_nothing_can_be_deleted_nothing_is_and_foreseeing_it_is_possible(
    world: World,
) -> None:
    build(world, created="2026-01-01T00:00:00+00:00")
    world.published(channel=NIGHTLY)
    world.registry.may_delete = False
    public = world.public
    assert len(house(world).prune("nightly", days=14, dry_run=True)) == 1
    with pytest.raises(RegistryError, match="nothing was removed"):
        house(world).prune("nightly", days=14, dry_run=False)
    assert world.public == public


def test_an_image_whose_removal_is_refused_leaves_the_others_to_go_and_is_raised(
    world: World,
) -> None:
    old = [
        build(world, content=content, created="2026-01-01T00:00:00+00:00")
        and world.published(channel=NIGHTLY).digest
        for content in "abc"
    ]
    delete, kept = world.registry.delete, old[1]

    def refusing(repository: str, digest: str) -> None:
        if digest == kept:
            raise RegistryError(
                "no", registry="x", step="delete", fault=RegistryFault.REFUSED, hint=""
            )
        delete(repository, digest)

    world.registry.delete = refusing  # type: ignore[method-assign]
    with pytest.raises(RegistryError, match="no"):
        house(world).prune("nightly", days=14, dry_run=False)
    assert set(world.public.values()) == {kept}
    (written,) = [
        found
        for path in (world.store.folder / LEDGER_FOLDER).glob("*.json")
        if isinstance(found := json.loads(path.read_text("utf-8"))["value"], dict)
        and "removed" in found
    ]
    assert len(written["removed"]) == 2


# --- promoting the whole matrix ---


def test_cells_that_the_source_has_not_are_no_failure_beside_those_that_it_has(
    world: World,
) -> None:
    build(world)
    done = world.published()
    missing = Blocked(cell_id="b", step="publish", reason="x has none of b", hint="")
    refused = Failed(cell_id="c", step="publish", reason="no", hint="", exit_code=18)
    results: dict[str, Published] = {CPU.id: done, "b": missing, "c": refused}
    found = without_absent(results, {"b"})
    assert found[CPU.id] is done
    assert str(found["b"]) == "nothing to promote: x has none of b"
    assert found["c"] is refused, "what is there and cannot be promoted stays a failure"
    assert failure_of([found[CPU.id], found["b"]]) is None


def test_where_no_cell_is_there_or_the_registry_could_not_be_asked_it_is_a_failure(
    world: World,
) -> None:
    build(world)
    done = world.published()
    missing = Blocked(cell_id="b", step="publish", reason="x has none of b", hint="")
    assert without_absent({"b": missing}, {"b"}) == {"b": missing}
    unreachable: dict[str, Published] = {CPU.id: done, "b": missing}
    assert without_absent(unreachable, set()) == unreachable
