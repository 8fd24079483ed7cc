"""`release:`: what a channel may say, and what is wrong with it at its line."""

from __future__ import annotations

import pytest

from warpfront.errors import MatrixError
from warpfront.matrix.compat import packaged
from warpfront.matrix.reading import Matrix, read_matrix
from warpfront_checks.check_options import SESSIONS

HEAD = """\
schema: 1
project: {name: d, source: https://example.test, licenses: MIT, repository: example.test/d}
bases:
  b:
    reference: example.test/b:1
    digest: sha256:2e32f7d302adc1c37428355c1e646897c0c53f4fd60b6a551245fb90ee129f91
    python: "3.11"
    interpreter: python3
    glibc: "2.36"
images:
  torch: {template: torch, title: PyTorch}
rows:
  - {vendor: cpu, targets: x86_64, torch: "2.13.0", python: "3.11", base: b, images: torch}
release:
"""


def read(release: str) -> Matrix:
    head = HEAD.replace("images: torch}", "images: [torch]}")
    return read_matrix(head + release, path="m.yaml", compat=packaged())


def refusal(release: str) -> str:
    with pytest.raises(MatrixError) as caught:
        read(release)
    return str(caught.value)


def test_a_channel_has_what_it_says_and_strict_defaults() -> None:
    (channel,) = read('  nightly: {tags: ["{torch}-{date}"]}\n').channels
    assert (channel.tags, channel.sessions) == (("{torch}-{date}",), SESSIONS)
    assert (channel.targets, channel.allow, channel.max_age_hours) == ("all", (), 168)


def test_an_alias_is_for_all_cells_or_for_those_that_it_chooses() -> None:
    text = "  n:\n    tags: [a]\n    aliases: [{tag: latest, where: {torch: '2.13.0'}}, {tag: x}]\n"
    matrix = read(text)
    (cell,) = matrix.cells
    assert [one.cells for one in matrix.channels[0].aliases] == [{cell.id}, {cell.id}]


@pytest.mark.parametrize(
    ("channel", "words"),
    [
        ("tags: []", "m.yaml:15: `tags` is empty"),
        ("tags: ['{torhc}']", "an image does not say `torhc` of itself"),
        ("tags: ['a b']", "is not a tag"),
        ("tags: ['{torch']", "is not a tag"),
        ("tags: ['{torch!r}']", "is not a tag"),
        ("tags: [a], sessions: [lod]", "there is no session `lod`"),
        ("tags: [a], allow: [failed]", "write one of: unavailable"),
        ("tags: [a], max_age_hours: 0", "write at least 1"),
        ("tags: [a], max_age_hours: '3'", "`max_age_hours` is no number"),
        ("tags: [a], targets: most", "write one of: all, any"),
        ("tags: [a], aliases: [{tag: b, where: {vendor: amd}}]", "the alias b is for no cell"),
    ],
)
def test_what_a_channel_cannot_be_is_said_at_its_line(channel: str, words: str) -> None:
    said = refusal(f"  nightly: {{{channel}}}\n")
    assert said.startswith("m.yaml:15: ")
    assert words in said
