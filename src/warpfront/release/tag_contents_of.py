"""Contents of published tags, and the page of each tag. Path."""

from __future__ import annotations

import dataclasses

from warpfront.errors import InputError
from warpfront.release.evidence import DOCUMENT
from warpfront.release.ledger import Publication
from warpfront.release.publication import held_image, target_before
from warpfront.release.registry.contract import Registry, attached_payload
from warpfront.release.signing import Signer
from warpfront.release.tag_contents import TagContents, TagPage, contents_by_sbom, tag_page
from warpfront.step_results import attempt
from warpfront.system.progress import Watch
from warpfront.system.store import Store, write_text

PAGE = "tag-page"
"""How a cell's folder calls the page of its last publication."""
_SBOM = "cyclonedx"


def read_tag_contents(
    registry: Registry, path: str, reference: str, *, signer: Signer | None = None
) -> TagContents:
    """Return the contents of an image. With a `signer`, only an SBOM counts that is signed together
    with the image. Raises `InputError` where there is no such image.
    """
    registry_image = held_image(registry, path, reference)
    name = f"{registry.host}/{path}{'@' if reference.startswith('sha256:') else ':'}{reference}"
    if registry_image is None:
        raise InputError(f"there is no {name}", hint="`warpfront release list` lists what there is")
    image = TagContents(
        reference=name,
        digest=registry_image.digest,
        created=registry_image.created,
        size_bytes=registry_image.size_bytes,
    )
    pinned = f"{registry.host}/{path}@{registry_image.digest}"
    listed = [
        entry
        for entry in registry.referrers(path, registry_image.digest)
        if entry.annotations.get(DOCUMENT) == _SBOM
        and (signer is None or signer.is_signed(pinned, {f"dev.warpfront.{_SBOM}": entry.digest}))
    ]
    texts = {attached_payload(registry, path, entry.digest) for entry in listed}
    if len(texts) != 1:
        signed = "signed " if signer else ""
        reason = f"{len(texts)} different {signed}SBOMs are" if texts else f"no {signed}SBOM is"
        return dataclasses.replace(image, unread=(f"{reason} attached to {name}",))
    return contents_by_sbom(texts.pop(), image)


def leave_page(
    publication: Publication, registry: Registry, store: Store, watch: Watch, signer: Signer | None
) -> None:
    """Write build/<cell>/tag.md and what `report` makes its own page of. Without them the image is
    published all the same.
    """
    page = attempt(publication.cell_id, "publish", _page, publication, registry, signer)
    if isinstance(page, TagPage):
        store.save(publication.cell_id, PAGE, page)
        write_text(store.cell_folder(publication.cell_id) / "tag.md", tag_page(page))
    else:
        watch.say(f"warning: {publication.cell_id}: no page of its tag: {page.reason}")


def _page(publication: Publication, registry: Registry, signer: Signer | None) -> TagPage:
    path, digest = publication.path, publication.digest
    befores = (
        target_before(registry, path, tag.tag, digest) for tag in publication.tags if tag.moves
    )
    before = next((before for before in befores if before), "")
    return TagPage(
        tags=tuple(tag.tag for tag in publication.tags),
        now=read_tag_contents(registry, path, digest, signer=signer),
        before=read_tag_contents(registry, path, before, signer=signer) if before else None,
    )
