"""From proven images to tags, in a registry in memory: all or nothing, again and again, whoever
dies, whoever else publishes.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import a_cell, a_channel, a_check
from fakes import image_parts
from releases import (
    CPU,
    NOW,
    PROJECT,
    REPOSITORY,
    FakeCosign,
    Quiet,
    World,
    a_release_channel,
    a_signer,
    a_world,
    content_of,
)
from stub_registry import attach_one

from warpfront.errors import (
    NotPublishableError,
    RegistryError,
    RegistryFault,
    SignatureError,
    TagConflictError,
)
from warpfront.matrix.release_channels import Alias
from warpfront.release.admission import Evidence, admission
from warpfront.release.evidence import (
    DOCUMENT,
    VERIFICATION_TYPE,
    attached_evidence,
    local_evidence,
)
from warpfront.release.ledger import Publication, Stage
from warpfront.release.publication import YANK_TYPE, held_image
from warpfront.release.publish_context import PublishContext, publish_cells
from warpfront.release.registry.contract import IMAGE_MANIFEST, Artifact, Predicate, digest_of_bytes
from warpfront.release.tag_contents import TagPage
from warpfront.release.tag_contents_of import PAGE, read_tag_contents
from warpfront.report.described import describe
from warpfront.step_results import Blocked, Failed
from warpfront.system.process import Command, Completed
from warpfront.verify.results import Outcome, Verification

FIXED = f"2.13.0-cpu-py3.11-{(b'a'.hex() * 64)[:12]}"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return a_world(tmp_path)


def failure(world: World, **changes: object) -> Failed:
    (result,) = world.publish(channel=a_release_channel(**changes)).values()
    assert isinstance(result, Failed), result
    return result


def test_a_proven_image_gets_its_tags_and_what_was_proven_goes_with_it(world: World) -> None:
    image = world.build()
    done = world.published()
    assert world.public == {FIXED: image, "2.13.0-cpu": image, "latest": image}
    assert (done.stage, done.digest, done.reference) == (
        Stage.DONE,
        image,
        f"{PROJECT}/torch@{image}",
    )
    assert [one.name for one in done.attached] == ["verification"]
    held = held_image(world.registry, REPOSITORY, image)
    assert held is not None
    evidence = attached_evidence(world.registry, REPOSITORY, CPU, held)
    assert admission(evidence, a_channel(), now=NOW).admitted


@pytest.mark.parametrize("key", [True, False])
def test_signed_is_said_of_what_is_signed_alone(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    key: bool,  # noqa: FBT001 - a case
) -> None:
    steps: list[str] = []
    monkeypatch.setattr(Quiet, "step", lambda _watch, _cell, text: steps.append(text))
    world.build()
    if key:
        world.signer = a_signer(FakeCosign())
    done = world.published()

    said = f"{describe(done)} {' '.join(steps)}".split()
    signed = {"signed", "signed,"} & {*said}
    assert (bool(signed), "unsigned" in f"{said}") == (key, not key)
    assert describe(done).partition(", ")[2].startswith("signed by " if key else "unsigned;")


def test_a_second_run_sends_nothing_and_changes_nothing(world: World) -> None:
    world.build()
    first, public = world.published(), world.public
    world.registry.calls.clear()
    second = world.published()
    assert (second.digest, second.sent_bytes, world.public) == (first.digest, 0, public)
    assert "put_manifest" not in world.registry.calls
    assert "put_blob" not in world.registry.calls
    assert first.sent_bytes == first.present_bytes + first.sent_bytes == second.present_bytes


def test_what_was_not_proven_is_not_sent(world: World) -> None:
    world.build(CPU, a_check(Outcome.FAILED, reason="off by 2"))
    found = failure(world)
    assert found.exit_code == NotPublishableError.exit_code
    assert found.reason == "x86-64: load/torch imports: failed: off by 2"
    assert world.registry.calls == []


def test_what_was_not_built_is_blocked(world: World) -> None:
    (result,) = world.publish().values()
    assert isinstance(result, Blocked)
    assert result.step == "publish"


def test_one_cell_that_may_not_be_published_stops_no_other(world: World) -> None:
    bad = a_cell(id="bad", image="bad")
    world.build()
    world.build(bad, a_check(Outcome.SKIPPED))
    results = world.publish(bad, CPU)
    assert isinstance(results["bad"], Failed)
    assert isinstance(results[CPU.id], Publication)
    assert [one.cell_id for one in world.ledger().refusals] == ["bad"]


def test_two_cells_that_claim_an_alias_are_both_refused_and_nothing_is_sent(world: World) -> None:
    other = a_cell(id="other", python="3.12", tag="2.13.0-cpu-py3.12")
    world.build()
    world.build(other, content="b")
    results = world.publish(other, CPU)
    for result in results.values():
        assert isinstance(result, Failed)
        assert result.exit_code == TagConflictError.exit_code
        assert "other" in result.reason
        assert CPU.id in result.reason
    assert world.registry.calls == []


def test_two_images_that_turn_out_to_be_one_are_refused(world: World) -> None:
    """The matrix tells them apart, what they hold does not."""
    other = a_cell(id="other", python="3.12", tag="2.13.0-cpu-py3.12")
    channel = a_release_channel(tags=("{torch}-{python}",), aliases=())
    world.build()
    world.build(other, content="b")
    assert {type(one) for one in world.publish(CPU, other, channel=channel).values()} == {Failed}
    assert world.registry.calls == []


def test_a_dry_run_says_where_each_tag_is_and_sends_nothing(world: World) -> None:
    image = world.build()
    (foreseen,) = world.publish(dry_run=True).values()
    assert isinstance(foreseen, Publication)
    assert {(one.tag, one.before) for one in foreseen.tags} == {
        (FIXED, ""),
        ("2.13.0-cpu", ""),
        ("latest", ""),
    }
    assert foreseen.stage is Stage.PLANNED
    assert set(world.registry.calls) <= {"head", "manifest", "referrers"}
    assert not (world.store.folder / "release").exists()
    world.published()
    (again,) = world.publish(dry_run=True).values()
    assert isinstance(again, Publication)
    assert {one.before for one in again.tags} == {image}
    assert "to send" in describe(foreseen)
    assert "nothing of it to send" in describe(again)
    assert "nothing" not in describe(foreseen)


def test_a_dry_run_refuses_a_tag_that_is_taken(world: World) -> None:
    channel = a_release_channel(tags=("{torch}",))
    world.build()
    world.published(channel=channel)
    world.build(content="b", created="2026-11-21T10:00:00+00:00")
    (foreseen,) = world.publish(channel=channel, dry_run=True).values()
    assert isinstance(foreseen, Failed)
    assert "never moves" in foreseen.reason


def test_a_dry_run_says_that_an_alias_is_on_a_newer_image(world: World) -> None:
    world.build(content="b", created="2026-11-21T10:00:00+00:00")
    world.published()
    world.build()
    (foreseen,) = world.publish(dry_run=True).values()
    assert isinstance(foreseen, Failed)
    assert "latest is on a newer image" in foreseen.reason


# --- how it gets there ---


def no_push(_reference: str, _on_progress: object) -> int:
    raise AssertionError("the engine was asked to push")


def test_blobs_that_can_be_read_go_as_the_engine_keeps_them(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = world.build()
    content_of(world, image, tmp_path)
    monkeypatch.setattr(world.engine, "push", no_push)
    done = world.published()
    _, config, layer = world.engine.parts[image]
    assert (done.digest, done.sent_bytes) == (image, len(config) + len(layer))
    candidates = {tag for (_, tag) in world.registry.tagged if tag.startswith("candidate-")}
    assert candidates == {done.candidate}


def test_where_the_engine_keeps_not_all_of_it_the_engine_pushes(
    world: World, tmp_path: Path
) -> None:
    image = world.build()
    blobs = content_of(world, image, tmp_path)
    (blobs / digest_of_bytes(world.engine.parts[image][2])[7:]).unlink()
    assert world.published().digest == image


def test_what_an_image_is_built_on_is_mounted_from_there(world: World, tmp_path: Path) -> None:
    child = a_cell(id="child", image="serve", parent=CPU.id)
    channel = a_release_channel(CPU, child, aliases=())
    layer = world.engine.parts[world.build()][2]
    image = world.build(child, content="a", labels={"is": "a child"})
    content_of(world, image, tmp_path)
    found = world.publish(CPU, child, channel=channel)["child"]
    assert isinstance(found, Publication), found
    assert found.sent_bytes == len(world.engine.parts[image][1])
    assert found.present_bytes == len(layer)


# --- nothing before its image ---


@pytest.fixture
def copied(world: World, tmp_path: Path) -> World:
    """A proven image whose blobs can be read, and a signer."""
    world.signer = a_signer(FakeCosign())
    content_of(world, world.build(), tmp_path)
    return world


def cosign_of(world: World) -> FakeCosign:
    assert world.signer is not None
    assert isinstance(world.signer.run, FakeCosign)
    return world.signer.run


def test_only_an_image_that_has_arrived_is_documented_and_signed(copied: World) -> None:
    cosign, present = cosign_of(copied), list[tuple[bool, int]]()

    def signing(command: Command) -> Completed:
        if command.argv[1] == "sign" and command.argv[-1] != "--help":
            tags = [tag for _, tag in copied.registry.tagged if tag.startswith("candidate-")]
            documents = [one for each in copied.registry.attached.values() for one in each]
            present.append((bool(tags), len(documents)))
        return cosign(command)

    copied.signer = dataclasses.replace(a_signer(cosign), run=signing)
    done = copied.published(channel=a_release_channel(allow=()))
    assert present == [(True, 1)]
    assert [one.argv[1] for one in cosign.commands] == ["verify", "sign", "verify"]
    ((reference, *words),) = cosign.signed
    assert reference == done.reference
    assert f"--annotations=dev.warpfront.verification={done.attached[0].digest}" in words


def test_an_image_that_may_not_be_named_is_neither_documented_nor_signed(
    copied: World, tmp_path: Path
) -> None:
    newer = copied.build(content="b", created="2026-11-21T10:00:00+00:00")
    content_of(copied, newer, tmp_path / "newer")
    copied.published(channel=a_release_channel(allow=()))
    signed = set(cosign_of(copied).signed)
    older = copied.build()
    assert "latest is on a newer image" in failure(copied, allow=()).reason
    assert (REPOSITORY, older) not in copied.registry.attached
    assert cosign_of(copied).signed == signed


def test_other_bytes_than_were_sent_are_neither_signed_nor_tagged(copied: World) -> None:
    def swap(name: str) -> None:
        if name == "put_manifest":
            for key, (body, media_type) in tuple(copied.registry.manifests.items()):
                copied.registry.manifests[key] = (body + b" ", media_type)

    copied.registry.after_call = swap
    assert failure(copied, allow=()).exit_code == RegistryError.exit_code
    assert cosign_of(copied).signed == set()
    assert copied.public == {}


# --- another image ---


def test_an_immutable_tag_never_moves(world: World) -> None:
    channel = a_release_channel(tags=("{torch}",))
    first = world.build()
    world.published(channel=channel)
    world.build(content="b")
    world.registry.calls.clear()
    found = failure(world, tags=("{torch}",))
    assert found.exit_code == TagConflictError.exit_code
    assert set(world.public.values()) == {first}
    assert "put_blob" not in world.registry.calls


def test_an_alias_moves_and_keeps_where_it_was(world: World) -> None:
    first = world.build()
    world.published()
    second = world.build(content="b", created="2026-11-21T10:00:00+00:00")
    done = world.published()
    assert world.public["latest"] == second
    assert {one.before for one in done.tags if one.moves} == {first}


def test_an_older_image_does_not_take_an_alias_back(world: World) -> None:
    world.build(content="b", created="2026-11-21T10:00:00+00:00")
    world.published()
    public = world.public
    world.build()
    found = failure(world)
    assert "latest is on a newer image" in found.reason
    assert world.public == public


def test_a_yanked_image_is_not_published_again(world: World) -> None:
    world.build()
    held = held_image(world.registry, REPOSITORY, world.published().digest)
    assert held is not None
    attach_one(
        world.registry,
        REPOSITORY,
        held.manifest.descriptor,
        Artifact(
            artifact_type=YANK_TYPE,
            payload=b"{}",
            annotations={},
        ),
    )
    assert "it was yanked" in failure(world).reason


# --- attacks ---


def edit_verification(world: World, edit: Callable[[Verification], Verification]) -> None:
    found = world.store.load(CPU.id, "verify-x86-64", (Verification,))
    world.store.save(CPU.id, "verify-x86-64", edit(found))


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda one: dataclasses.replace(one, checks=(a_check(),)), "changed after it was made"),
        (lambda one: dataclasses.replace(one, ended=NOW), "changed after it was made"),
    ],
)
def test_an_edited_verification_lets_nothing_through(
    world: World, edit: Callable[[Verification], Verification], reason: str
) -> None:
    world.build(CPU, a_check(Outcome.FAILED))
    edit_verification(world, edit)
    assert reason in failure(world).reason
    assert world.registry.calls == []


def test_a_verification_of_an_older_image_lets_nothing_through(world: World) -> None:
    world.build()
    older = world.store.load(CPU.id, "verify-x86-64", (Verification,))
    world.build(CPU, a_check(Outcome.FAILED), content="b")
    edit_verification(world, lambda _one: older)
    assert "verified was another content" in failure(world).reason


def test_another_image_with_the_same_content_hash_is_another_image(world: World) -> None:
    """Whoever can build can write any label."""
    world.build()
    real = world.store.load(CPU.id, "verify-x86-64", (Verification,))
    world.build(labels={"evil": "yes"})
    edit_verification(world, lambda _one: real)
    assert "verified was another image" in failure(world).reason


def test_a_registry_that_holds_other_bytes_than_were_sent_is_found_out(world: World) -> None:
    world.build()
    other = a_cell(id="other", image="other")
    world.build(other, content="evil")
    evil = world.engine.parts[world.engine.image(other.local_reference).id]  # type: ignore[union-attr]

    def swap(name: str) -> None:
        if name == "put_manifest":
            for key in world.registry.tagged:
                body = evil[0]
                world.registry.manifests[REPOSITORY, digest_of_bytes(body)] = (body, IMAGE_MANIFEST)
                world.registry.blobs[REPOSITORY, digest_of_bytes(evil[1])] = evil[1]
                world.registry.tagged[key] = digest_of_bytes(body)

    world.registry.after_call = swap
    found = failure(world)
    assert "not the image that was sent" in found.reason
    assert world.public == {}


@pytest.mark.parametrize(
    "config",
    [
        b"{}",
        b"[]",
        b"not json",
        b'{"config": []}',
        b'{"config": {"Labels": ["a"]}}',
        b'{"config": {"Labels": {"dev.warpfront.content-hash": ["x"]}}}',
    ],
)
def test_an_image_that_says_anything_but_labels_has_none_or_is_none(
    world: World, config: bytes
) -> None:
    """Whoever runs the registry may answer anything; nothing of it is a bug of ours."""
    manifest, _, layer = image_parts("a", {})
    body = json.loads(manifest)
    body["config"] |= {"digest": digest_of_bytes(config), "size": len(config)}
    world.registry.blobs[REPOSITORY, digest_of_bytes(config)] = config
    world.registry.blobs[REPOSITORY, digest_of_bytes(layer)] = layer
    world.registry.put_manifest(REPOSITORY, FIXED, json.dumps(body).encode(), IMAGE_MANIFEST)
    world.build()
    assert failure(world).exit_code in {RegistryError.exit_code, TagConflictError.exit_code}


def test_a_document_that_the_registry_loses_stops_the_tags(world: World) -> None:
    world.build()
    world.registry.after_call = lambda name: (
        world.registry.attached.clear() if name == "attach" else None
    )
    assert "not listed" in failure(world).reason
    assert world.public == {}


def test_a_document_that_another_publisher_overwrote_is_attached_again(world: World) -> None:
    world.build()
    lost: list[bool] = []

    def lose_once(name: str) -> None:
        if name == "attach" and not lost:
            lost.append(True)
            world.registry.attached.clear()

    world.registry.after_call = lose_once
    assert world.published().stage is Stage.DONE


# --- two at once ---


def test_of_two_publishers_of_one_alias_the_loser_says_so(world: World) -> None:
    world.build()
    rival = "sha256:" + "12" * 32

    def overtake(name: str) -> None:
        if name == "put_manifest" and (REPOSITORY, "2.13.0-cpu") in world.registry.tagged:
            world.registry.manifests[REPOSITORY, rival] = (b"{}", "x/y")
            world.registry.tagged[REPOSITORY, "2.13.0-cpu"] = rival

    world.registry.after_call = overtake
    found = failure(world)
    assert found.exit_code == TagConflictError.exit_code
    assert "another run moved it" in found.reason


def test_an_alias_that_was_moved_meanwhile_is_not_moved_back(world: World) -> None:
    world.build()

    def overtake(name: str) -> None:
        if name == "attach" and (REPOSITORY, FIXED) in world.registry.tagged:
            body = world.registry.manifests[REPOSITORY, world.public[FIXED]][0] + b" "
            world.registry.manifests[REPOSITORY, digest_of_bytes(body)] = (body, IMAGE_MANIFEST)
            world.registry.tagged[REPOSITORY, "latest"] = digest_of_bytes(body)

    world.registry.after_call = overtake
    found = failure(world)
    assert "latest is on" in found.reason
    assert world.public["latest"] != world.public[FIXED]


# --- death at every call ---


class Killed(BaseException):
    """SIGKILL: nothing of ours runs afterwards that the test looks at."""


def proven(world: World) -> dict[str, bool]:
    """Whether each public tag is on a digest with a whole, passing verification attached."""
    found = {}
    for tag in world.public:
        held = held_image(world.registry, REPOSITORY, tag)
        assert held is not None
        evidence = attached_evidence(world.registry, REPOSITORY, CPU, held)
        found[tag] = admission(evidence, a_channel(), now=NOW).admitted
    return found


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A release is out; the next one is ready, its blobs to be read."""
    folder = tmp_path_factory.mktemp("prepared")
    world = a_world(folder)
    world.signer = a_signer(FakeCosign())
    world.build()
    world.published()
    content_of(world, world.build(content="b", created="2026-11-21T10:00:00+00:00"), folder)
    return world


def calls_of_a_run(prepared: World) -> int:
    world = copy.deepcopy(prepared)
    world.registry.calls.clear()
    world.published()
    return len(world.registry.calls)


@pytest.mark.parametrize("moment", ["on_call", "after_call"])
@pytest.mark.parametrize(
    ("way", "remainder"), [*(("copied", one) for one in range(4)), ("pushed", 2)]
)
def test_whoever_dies_at_any_call_leaves_nothing_unproven_and_a_rerun_ends_right(
    prepared: World, moment: str, way: str, remainder: int
) -> None:
    if way == "pushed":
        prepared = copy.deepcopy(prepared)
        prepared.engine.contents.clear()
    count = calls_of_a_run(prepared)
    assert count > 20
    for deadly in range(1 + remainder, count + 1, 4):
        world = copy.deepcopy(prepared)
        before = world.public
        made: list[str] = []

        def die(name: str, made: list[str] = made, deadly: int = deadly) -> None:
            made.append(name)
            if len(made) >= deadly:
                raise Killed

        setattr(world.registry, moment, die)
        died = False
        try:
            world.publish()
        except Killed:
            died = True
        world.registry.on_call = world.registry.after_call = nothing
        assert all(proven(world).values()), f"call {deadly}"
        assert set(before) <= set(world.public)
        done = world.published()
        assert {world.public[one.tag] for one in done.tags} == {done.digest}
        if not died:  # fewer calls end than begin
            assert moment == "after_call"
            break


def nothing(_name: str) -> None: ...


@pytest.mark.parametrize("fault", list(RegistryFault))
def test_a_registry_that_fails_at_any_call_costs_the_cell_and_leaves_nothing_unproven(
    prepared: World, fault: RegistryFault
) -> None:
    """Each call once, each time in another of the ways."""
    first, ways = list(RegistryFault).index(fault) + 1, len(RegistryFault)
    for deadly in range(first, calls_of_a_run(prepared) + 1, ways):
        world = copy.deepcopy(prepared)
        made: list[str] = []

        def fail(name: str, made: list[str] = made, deadly: int = deadly) -> None:
            made.append(name)
            if len(made) == deadly:
                raise RegistryError("no", registry="r", step=name, fault=fault, hint="wait")

        world.registry.on_call = fail
        (result,) = world.publish().values()
        world.registry.on_call = nothing
        if isinstance(result, Failed):  # a push that could not connect is tried again
            assert (result.exit_code, result.hint) == (RegistryError.exit_code, "wait")
        assert all(proven(world).values())
        assert world.published().stage is Stage.DONE


# --- signatures ---


def test_the_digest_is_signed_with_its_documents_before_it_gets_a_tag(world: World) -> None:
    cosign = FakeCosign()
    world.signer = a_signer(cosign)
    world.build()
    done = world.published(channel=a_release_channel(allow=()))
    (signed,) = cosign.signed
    (proof,) = done.attached
    assert signed[0] == done.reference
    assert f"--annotations=dev.warpfront.verification={proof.digest}" in signed
    assert proof.artifact_type == VERIFICATION_TYPE
    world.published(channel=a_release_channel(allow=()))
    assert len([one for one in cosign.commands if one.argv[1] == "sign"]) == 1


def test_what_cannot_be_signed_gets_no_tag(world: World) -> None:
    world.signer = a_signer(FakeCosign(wrong="decrypt: encrypted key"))
    world.build()
    found = failure(world)
    assert found.exit_code == SignatureError.exit_code
    assert "decrypt" in found.reason
    assert world.public == {}


def test_without_a_key_nothing_is_published_but_where_the_channel_says_so(world: World) -> None:
    world.build()
    assert failure(world, allow=()).reason == "there is no key to sign it with"
    assert world.registry.calls == []
    done = world.published(channel=a_release_channel(allow=("unsigned",)))
    assert done.noted == ("there is no key to sign it with",)


# --- what is written down ---


def test_the_ledger_says_how_far_a_run_that_died_had_come(world: World) -> None:
    world.build()

    def die(name: str) -> None:
        if name == "put_manifest" and FIXED in world.public:
            raise Killed

    world.registry.on_call = die
    with pytest.raises(Killed):
        world.publish()
    (publication,) = world.ledger().publications
    assert publication.stage is Stage.UNSIGNED, "there is no key"
    assert [(one.tag, one.done) for one in publication.tags] == [
        (FIXED, True),
        ("2.13.0-cpu", False),
        ("latest", False),
    ]


def test_what_was_let_pass_is_written_beside_the_image(world: World) -> None:
    world.build(labels={"dev.warpfront.base-source": "bootstrap"})
    done = world.published(channel=a_release_channel(allow=("bootstrap", "unsigned")))
    (attached,) = (
        one
        for one in world.registry.attached[REPOSITORY, done.digest]
        if one.artifact_type == VERIFICATION_TYPE
    )
    assert "made by a bootstrap" in attached.annotations["dev.warpfront.noted"]
    assert "made by a bootstrap" in done.noted[0]
    path = world.store.folder / "release" / f"{world.run_name}.json"
    assert json.loads(path.read_text())["value"]["publications"][0]["noted"] == list(done.noted)


def test_four_targets_of_which_two_were_verified_are_published_as_two(world: World) -> None:
    cell = a_cell(id="cuda", vendor="nvidia", targets=("sm_80", "sm_90", "sm_100", "sm_120"))
    world.build(cell)
    for target in ("sm_100", "sm_120"):
        world.store.drop(cell.id, f"verify-{target}")
    channel = a_release_channel(cell, tags=("{torch}-{targets}",), targets="any", aliases=())
    done = world.published(cell, channel=channel)
    assert (done.targets, [*world.public]) == (("sm_80", "sm_90"), ["2.13.0-sm80_sm90"])


def test_what_is_documented_of_an_image_was_verified_in_it(world: World) -> None:
    """The verification on sm_90 is of an older content, with another torch."""
    cell = a_cell(id="cuda", vendor="nvidia", targets=("sm_80", "sm_90"))
    world.build(cell, facts={"torch": "2.12.0+cpu"})
    older = world.store.load(cell.id, "verify-sm_90", (Verification,))
    world.build(cell, content="b")
    world.store.save(cell.id, "verify-sm_90", older)
    channel = a_release_channel(cell, tags=("{torch}-{targets}",), targets="any", aliases=())
    documented: list[list[str]] = []

    def papers(_publication: Publication, evidence: Evidence) -> tuple[Artifact, ...]:
        documented.append([*evidence.verifications])
        return ()

    shop = dataclasses.replace(world.shop(channel), documents=papers)
    (done,) = publish_cells(
        (cell,),
        (cell,),
        shop,
        find=lambda one: local_evidence(one, world.store, world.engine),
        dry_run=False,
    ).values()
    assert isinstance(done, Publication), done
    assert (done.targets, documented) == (("sm_80",), [["sm_80"]])
    held = held_image(world.registry, REPOSITORY, done.digest)
    assert held is not None
    attached = attached_evidence(world.registry, REPOSITORY, cell, held)
    assert [*attached.verifications] == ["sm_80"]


def test_an_alias_is_only_for_those_it_is_for(world: World) -> None:
    world.build()
    alias = Alias(tag="latest", cells=frozenset({"another"}))
    world.published(channel=a_release_channel(aliases=(alias,)))
    assert [*world.public] == [FIXED]


def test_a_run_without_a_key_never_prints_that_it_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    monkeypatch.setattr(Quiet, "step", lambda _self, _cell, text: steps.append(text))
    for signer, word in ((None, "unsigned"), (a_signer(FakeCosign()), "signed")):
        world = a_world(tmp_path / word)
        world.signer = signer
        world.build()
        steps.clear()
        world.published(channel=a_release_channel(allow=("unsigned",)))
        assert [text for text in steps if text.endswith("signed")] == [f"publishing: {word}"]


# --- attestations ---


SBOM = Artifact(
    name="spdx",
    artifact_type="application/spdx+json",
    payload=b'{"name": "a"}',
    predicate=Predicate(name="spdx", type="https://spdx.dev/Document", content={"name": "a"}),
)


def with_sbom(world: World, *documents: Artifact) -> PublishContext:
    shown = documents or (SBOM,)
    return dataclasses.replace(
        world.shop(a_release_channel(allow=())), documents=lambda _publication, _evidence: shown
    )


def published_with(world: World, shop: PublishContext) -> Publication:
    (result,) = publish_cells(
        (CPU,),
        (CPU,),
        shop,
        find=lambda cell: local_evidence(cell, world.store, world.engine),
        dry_run=False,
    ).values()
    assert isinstance(result, Publication), result
    return result


def test_statements_and_sboms_are_attested_before_any_tag_and_the_result_says_so(
    copied: World,
) -> None:
    cosign, seen = cosign_of(copied), list[int]()

    def watched(command: Command) -> Completed:
        seen.append(len(copied.public))
        return cosign(command)

    copied.signer = dataclasses.replace(a_signer(cosign), run=watched)
    done = published_with(copied, with_sbom(copied))
    assert (done.signed_by, done.attested) == ("cosign by key", ("spdx",))
    assert cosign.attested == [(done.reference, "https://spdx.dev/Document", {"name": "a"})]
    assert set(seen) == {0}
    verbs = [one.argv[1] for one in cosign.commands]
    attesting = ["verify-attestation", "attest", "verify-attestation"]
    assert verbs == [*attesting, "verify", "sign", "verify"]


def test_a_run_that_is_repeated_attests_nothing_twice(copied: World) -> None:
    first = published_with(copied, with_sbom(copied))
    again = published_with(copied, with_sbom(copied))
    assert (again.attested, again.digest) == (first.attested, first.digest)
    assert len(cosign_of(copied).attested) == 1


def test_what_a_run_attested_before_it_died_is_found_by_the_next(world: World) -> None:
    cosign = FakeCosign()
    world.build()

    def dying(command: Command) -> Completed:
        done = cosign(command)
        if command.argv[1:3] == ("sign", "--yes") and len(cosign.commands) < 6:
            raise KeyboardInterrupt
        return done

    world.signer = dataclasses.replace(a_signer(cosign), run=dying)
    with pytest.raises(KeyboardInterrupt):
        published_with(world, with_sbom(world))
    assert len(cosign.attested) == 1
    assert published_with(world, with_sbom(world)).attested == ("spdx",)
    assert len(cosign.attested) == 1


def test_without_a_key_nothing_is_attested_and_the_result_says_so(world: World) -> None:
    world.build()
    done = world.published()
    assert (done.signed_by, done.attested) == ("", ())


def test_an_attestation_that_does_not_hold_keeps_every_tag_away(copied: World) -> None:
    cosign = cosign_of(copied)

    def losing(command: Command) -> Completed:
        done = cosign(command)
        cosign.attested.clear()
        return done

    copied.signer = dataclasses.replace(a_signer(cosign), run=losing)
    found = publish_cells(
        (CPU,),
        (CPU,),
        with_sbom(copied),
        find=lambda cell: local_evidence(cell, copied.store, copied.engine),
        dry_run=False,
    )[CPU.id]
    assert isinstance(found, Failed)
    assert "spdx of" in found.reason
    assert found.exit_code == SignatureError.exit_code
    assert copied.public == {}


# --- the page of a tag ---


def bill_referrer(*wheels: tuple[str, str]) -> Artifact:
    document = {
        "components": [
            {"purl": f"pkg:pypi/{name}@{version}", "name": name, "version": version}
            for name, version in wheels
        ],
        "metadata": {
            "component": {"properties": [{"name": "dev.warpfront:folder:/usr/lib", "value": "9"}]}
        },
    }
    return Artifact(
        name="cyclonedx",
        artifact_type="application/vnd.cyclonedx+json",
        payload=json.dumps(document).encode(),
        annotations={DOCUMENT: "cyclonedx"},
    )


def test_each_publication_leaves_a_page_with_what_changed_since_the_image_before(
    world: World,
) -> None:
    world.signer = a_signer(FakeCosign())
    world.build()
    first = published_with(world, with_sbom(world, bill_referrer(("torch", "1"))))
    page = world.store.load(CPU.id, PAGE, (TagPage,))
    assert (page.before, page.now.wheels) == (None, {"torch": "1"})
    world.build(content="b", created="2026-11-21T10:00:00+00:00")
    later = with_sbom(world, bill_referrer(("torch", "2"), ("numpy", "1")))
    second = published_with(world, later)
    for _ in range(2):  # a run that is repeated says the same
        page = world.store.load(CPU.id, PAGE, (TagPage,))
        assert (page.before.digest, page.now.digest) == (first.digest, second.digest)
        assert page.before.wheels == {"torch": "1"}
        published_with(world, later)
    text = (world.store.cell_folder(CPU.id) / "tag.md").read_text("utf-8")
    assert "### Wheels: 1 added, 0 removed, 1 changed" in text
    assert "Not determined" not in text


def test_an_sbom_that_nobody_trusted_signed_is_not_read_and_without_one_nothing_is_claimed(
    world: World,
) -> None:
    world.signer = a_signer(FakeCosign())
    world.build()
    done = published_with(world, with_sbom(world, bill_referrer(("torch", "1"))))
    subject = world.registry.head(REPOSITORY, done.digest)
    assert subject is not None
    attach_one(world.registry, REPOSITORY, subject, bill_referrer(("evil", "1")))
    found = read_tag_contents(world.registry, REPOSITORY, done.digest, signer=world.signer)
    assert found.wheels == {"torch": "1"}
    unsigned = read_tag_contents(world.registry, REPOSITORY, done.digest)
    assert (unsigned.wheels, len(unsigned.unread)) == ({}, 1)
    assert "2 different SBOMs are attached" in unsigned.unread[0]
    stranger = a_signer(FakeCosign())
    other = read_tag_contents(world.registry, REPOSITORY, done.digest, signer=stranger)
    assert "no signed SBOM is attached" in other.unread[0]


def test_an_image_whose_page_cannot_be_made_is_published_all_the_same(world: World) -> None:
    world.build()

    def gone(name: str) -> None:
        if name == "manifest" and len(world.public) == 3:
            raise world.registry.error(name, "gone")

    world.registry.on_call = gone
    assert world.published().stage is Stage.DONE
    assert world.store.load(CPU.id, PAGE, (TagPage,)) is None
