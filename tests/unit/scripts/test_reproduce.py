"""Two builds are one image, or it is said which file of which layer is not."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sys
import tarfile
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[3] / "tools"


def script(name: str) -> ModuleType:
    spec = spec_from_loader(name, SourceFileLoader(name, str(SCRIPTS / name)))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def a_layer(files: dict[str, bytes], *, mtime: int = 1, mode: int = 0o644) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(content), mtime, mode
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def an_archive(path: Path, *layers: bytes, **config: Any) -> str:
    """An OCI archive of these layers, as its path."""
    blobs: dict[str, bytes] = {}

    def blob(content: bytes) -> dict[str, str]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"digest": f"sha256:{digest}"}

    manifest = {
        "config": blob(json.dumps(config).encode()),
        "layers": [blob(layer) for layer in layers],
    }
    blobs["index.json"] = json.dumps({"manifests": [blob(json.dumps(manifest).encode())]}).encode()
    path.write_bytes(a_layer(blobs))
    return str(path)


FILES = {"etc/a": b"1", "etc/b": b"2"}


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (a_layer(FILES, mtime=2), "layer 1: etc/a: mtime 1 != 2"),
        (a_layer({**FILES, "etc/b": b"3"}), "layer 1: etc/b: sha256"),
        (a_layer(FILES, mode=0o600), "layer 1: etc/a: mode 420 != 384"),
        (a_layer({"etc/a": b"1"}), "layer 1: etc/b: only in one"),
        (a_layer(dict(reversed(FILES.items()))), "layer 1: the same files in another order"),
        (gzip.compress(a_layer(FILES)), "layer 1: the same files, packed otherwise"),
    ],
)
def test_what_differs_in_a_layer_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], other: bytes, said: str
) -> None:
    names = [an_archive(tmp_path / "a", a_layer(FILES)), an_archive(tmp_path / "b", other)]
    assert script("reproduce").main(names) == 1
    assert said in capsys.readouterr().out


def test_another_config_or_number_of_layers_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = an_archive(tmp_path / "a", a_layer(FILES), created="1980")
    assert script("reproduce").main([one, an_archive(tmp_path / "b", created="now")]) == 1
    printed = capsys.readouterr().out
    assert "config: created: '1980' != 'now'" in printed
    assert "1 layers, not 0" in printed


def test_one_image_is_the_same_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [an_archive(tmp_path / name, a_layer(FILES), created="1980") for name in "ab"]
    assert script("reproduce").main(names) == 0
    assert capsys.readouterr().out.endswith("the same image\n")


def a_bom(*components: dict[str, Any]) -> dict[str, Any]:
    return {"components": list(components)}


def test_bills_are_compared_by_what_their_purls_say_however_deep() -> None:
    aes = {"purl": "pkg:cargo/aes@0.8.4?package-id=1"}
    numpy = {"purl": "pkg:pypi/NumPy@2.4.6?file_name=x"}
    ours = a_bom({**numpy, "components": [aes]}, {"purl": "pkg:oci/python@sha256:00"})
    theirs = a_bom(aes, aes, {"purl": "pkg:pypi/numpy@2.4.6"}, {"purl": "pkg:nuget/x@1"})
    compare = script("compare-sbom")
    found = compare.compare(ours, theirs)
    assert {title: sorted(kind for kind, _, _ in parts) for title, parts in found.items()} == {
        "in both": ["cargo", "pypi"],
        "only in ours": ["oci"],
        "only in theirs": ["nuget"],
    }
    assert "only in theirs: 1 (1 nuget)" in list(compare.text(found, everything=False))
