"""Attestations by real cosigns on a real registry, verified by real cosigns: both versions that
Debian has, each with what the other wrote; and by the policies that docs/release.md shows.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from projects import REPOSITORY
from registries import RealRegistry, cosign_3, real_registry, strangers_program
from stub_registry import Fault, attach_one, serve_registry

from warpfront.errors import SignatureError
from warpfront.release.registry.client import connect
from warpfront.release.registry.contract import (
    IMAGE_MANIFEST,
    Artifact,
    Predicate,
    bytes_blob,
    digest_of_bytes,
)
from warpfront.release.signing import Signer
from warpfront.release.statements.statement import (
    MEDIA_TYPE,
    predicate_of,
    statement_text,
)
from warpfront.system.process import run
from warpfront.system.references import fallback_tag

pytestmark = pytest.mark.process

PATH = "demo/torch"
PROVENANCE = {
    "buildDefinition": {
        "buildType": "https://github.com/warpfront/warpfront/blob/main/docs/sbom.md#build-v1",
        "externalParameters": {"cell": "cpu-x86_64-py311-torch2130-torch", "torch": ["2.13.0+cpu"]},
        "internalParameters": {"lock": "0" * 64},
        "resolvedDependencies": [{"uri": "pkg:pypi/torch@2.13.0", "digest": {"sha256": "1" * 64}}],
    },
    "runDetails": {
        "builder": {
            "id": "https://github.com/me/mine/.github/workflows/release.yml@refs/heads/main"
        },
        "metadata": {
            "finishedOn": "2026-11-01T00:00:00+00:00",
            "invocationId": "https://github.com/me/mine/actions/runs/7/attempts/1",
        },
    },
}
TESTED = {"cell": "cpu-x86_64-py311-torch2130-torch", "result": "passed", "noted": []}
# The names that users type, and the document that each is to find.
TYPES = {"slsaprovenance1": "provenance", "spdxjson": "spdx", "cyclonedx": "cyclonedx"}


@dataclass(frozen=True, kw_only=True)
class Attested:
    """An image whose documents one version of cosign attested."""

    registry: RealRegistry
    digest: str
    public_key: Path
    environment: Mapping[str, str]
    predicates: Mapping[str, Predicate]

    @property
    def reference(self) -> str:
        return f"{self.registry.host}/{PATH}@{self.digest}"

    def cosign(self, version: str, *words: str) -> subprocess.CompletedProcess[str]:
        argv = (program(version), *words, "--allow-http-registry", self.reference)
        return subprocess.run(
            argv, env=dict(self.environment), capture_output=True, text=True, check=False
        )

    def verify(
        self, version: str, kind: str, *words: str, key: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        by = ("--key", str(key or self.public_key), "--insecure-ignore-tlog=true")
        return self.cosign(version, "verify-attestation", "--type", kind, *by, *words)


def program(version: str) -> str:
    return str(strangers_program("cosign") if version == "2" else cosign_3())


def documents(digest: str) -> list[Artifact]:
    def statement(kind: str, predicate: Mapping[str, Any]) -> bytes:
        text = statement_text(predicate, name="x", digest=digest, predicate_type=kind)
        return text.encode()

    tested = "https://github.com/warpfront/warpfront/blob/main/docs/sbom.md#verification-v1"
    slsa = "https://slsa.dev/provenance/v1"
    spdx = {"spdxVersion": "SPDX-2.3", "name": "a < b & é", "packages": [{"size": 3_000_000_000}]}
    return [
        Artifact(name="provenance", artifact_type=MEDIA_TYPE, payload=statement(slsa, PROVENANCE)),
        Artifact(name="tested", artifact_type=MEDIA_TYPE, payload=statement(tested, TESTED)),
        Artifact(
            name="spdx", artifact_type="application/spdx+json", payload=json.dumps(spdx).encode()
        ),
        Artifact(
            name="cyclonedx",
            artifact_type="application/vnd.cyclonedx+json",
            payload=b'{"bomFormat": "CycloneDX", "specVersion": "1.6"}',
        ),
    ]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRegistry]:
    with real_registry(tmp_path_factory.mktemp("registry"), tls=False) as started:
        yield started


@pytest.fixture(scope="module", params=["2", "3"])
def attested(
    request: pytest.FixtureRequest, registry: RealRegistry, tmp_path_factory: pytest.TempPathFactory
) -> Attested:
    """Attested and signed before the image arrives, as `publish` does beside the upload."""
    version, folder = str(request.param), tmp_path_factory.mktemp("keys")
    here = {**registry.environment, "COSIGN_PASSWORD": "x"}
    pair = (program(version), "generate-key-pair", "--output-key-prefix", str(folder / "my"))
    subprocess.run(pair, env=here, check=True, capture_output=True)
    signer = Signer(
        run=run,
        key=str(folder / "my.key"),
        public_key=str(folder / "my.pub"),
        environment=here,
        program=program(version),
    )
    line = connect(registry.host, dict(registry.environment), run)
    config = json.dumps({"architecture": "amd64", "os": "linux", "x": version}).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": IMAGE_MANIFEST,
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": digest_of_bytes(config),
                "size": len(config),
            },
            "layers": [],
        }
    ).encode()
    digest = digest_of_bytes(manifest)
    reference = f"{registry.host}/{PATH}@{digest}"
    predicates = {}
    for document in documents(digest):
        found = predicate_of(document.name, document.artifact_type, document.payload)
        assert found is not None
        signer.attest(reference, found)
        signer.attest(reference, found)
        predicates[document.name] = found
    signer.sign(reference, {"dev.warpfront.channel": "release"})
    line.put_blob(PATH, bytes_blob(config))
    put = line.put_manifest(PATH, f"v{version}", manifest, IMAGE_MANIFEST)
    for document in documents(digest):
        attach_one(line, PATH, put, document)
    return Attested(
        registry=registry,
        digest=digest,
        public_key=folder / "my.pub",
        environment=here,
        predicates=predicates,
    )


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("kind", TYPES)
def test_each_cosign_verifies_what_each_attested_by_the_names_that_users_type(
    attested: Attested, version: str, kind: str, tmp_path: Path
) -> None:
    done = attested.verify(version, kind)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1, "attested twice, kept once"
    assert statement_in(done.stdout)["predicate"] == attested.predicates[TYPES[kind]].content
    stranger = tmp_path / "other"
    pair = (program("2"), "generate-key-pair", "--output-key-prefix", str(stranger))
    subprocess.run(pair, env=dict(attested.environment), check=True, capture_output=True)
    assert attested.verify(version, kind, key=stranger.with_suffix(".pub")).returncode != 0


@pytest.mark.parametrize("version", ["2", "3"])
def test_each_cosign_verifies_the_signature_of_each(attested: Attested, version: str) -> None:
    key = ("--key", str(attested.public_key), "--insecure-ignore-tlog=true")
    done = attested.cosign(version, "verify", *key, "--annotations=dev.warpfront.channel=release")
    assert done.returncode == 0, done.stderr
    other = attested.cosign(version, "verify", *key, "--annotations=dev.warpfront.channel=other")
    assert other.returncode != 0


def statement_in(printed: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(base64.b64decode(json.loads(printed)["payload"]))
    return found


@pytest.mark.parametrize("version", ["2", "3"])
def test_an_attestation_that_was_tampered_with_does_not_hold(
    attested: Attested, version: str
) -> None:
    """The payload of one envelope is changed, as somebody who may push can; so are its digests."""
    registry = attested.registry
    line = connect(registry.host, dict(registry.environment), run)
    tag = f"{fallback_tag(attested.digest)}.att"
    kept = line.manifest(PATH, tag)
    assert kept is not None
    document = json.loads(kept.body)
    for layer in document["layers"]:
        envelope = json.loads(line.blob(PATH, layer["digest"], 1 << 20))
        statement = json.loads(base64.b64decode(envelope["payload"]))
        if statement["predicateType"] == "https://slsa.dev/provenance/v1":
            statement["predicate"]["runDetails"]["builder"]["id"] = "https://evil.test"
            envelope["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
            body = json.dumps(envelope).encode()
            line.put_blob(PATH, bytes_blob(body))
            layer |= {"digest": digest_of_bytes(body), "size": len(body)}
    line.put_manifest(PATH, tag, json.dumps(document).encode(), kept.descriptor.media_type)
    try:
        assert attested.verify(version, "slsaprovenance1").returncode != 0
        assert attested.verify(version, "spdxjson").returncode == 0, "that one was left alone"
    finally:
        line.put_manifest(PATH, tag, kept.body, kept.descriptor.media_type)
    assert attested.verify(version, "slsaprovenance1").returncode == 0


def test_oras_pulls_attached_documents_as_files(attested: Attested, tmp_path: Path) -> None:
    oras = str(strangers_program("oras"))
    name = f"{attested.registry.host}/{PATH}"
    shown = subprocess.run(
        (oras, "discover", "--plain-http", "--format", "json", f"{name}@{attested.digest}"),
        env=dict(attested.environment),
        capture_output=True,
        text=True,
        check=True,
    )
    for one in json.loads(shown.stdout)["manifests"]:
        if "sigstore" in one["artifactType"]:
            continue
        pull = (oras, "pull", "--plain-http", f"{name}@{one['digest']}")
        subprocess.run(
            pull, cwd=tmp_path, env=dict(attested.environment), check=True, capture_output=True
        )
    wanted = {"provenance.json", "tested.json", "sbom.spdx.json", "sbom.cdx.json"}
    assert {path.name for path in tmp_path.iterdir()} == wanted
    for document in documents(attested.digest):
        name = str(document.title)
        assert (tmp_path / name).read_bytes() == document.payload


# --- a registry that fails meanwhile ---

FAULTS = {
    "500 always": Fault(status=500),
    "500 once": Fault(status=500, times=1),
    "403": Fault(status=403),
    "says made, does nothing": Fault(status=201),
    "cut": Fault(cut_at=0, times=2),
    "third fails": Fault(status=500, spare=2),
}


ALWAYS = {("2", "put manifest", "third fails"), ("3", "put manifest", "says made, does nothing")}


@pytest.mark.parametrize(
    ("version", "step", "fault"),
    [
        pytest.param(*case, marks=[] if case in ALWAYS else [pytest.mark.exhaustive])
        for case in product(("2", "3"), ("put manifest", "close", "get manifest"), FAULTS)
    ],
)
def test_a_registry_that_fails_while_cosign_attests_leaves_an_error_and_a_rerun_ends_right(
    version: str, step: str, fault: str, tmp_path: Path
) -> None:
    """Never two attestations of one predicate, and never a success that does not hold."""
    here = {"COSIGN_PASSWORD": "x", "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    pair = (program(version), "generate-key-pair", "--output-key-prefix", str(tmp_path / "my"))
    subprocess.run(pair, env=here, check=True, capture_output=True)
    signer = Signer(
        run=run,
        key=str(tmp_path / "my.key"),
        public_key=str(tmp_path / "my.pub"),
        environment=here,
        program=program(version),
    )
    digest = f"sha256:{'5' * 64}"
    stated = [
        found
        for one in documents(digest)[:2]
        if (found := predicate_of(one.name, one.artifact_type, one.payload))
    ]
    with serve_registry(referrers=False) as stub:
        reference = f"{stub.host}/{PATH}@{digest}"
        stub.fail(step, FAULTS[fault])
        for one in stated:
            with contextlib.suppress(SignatureError):
                signer.attest(reference, one)
                assert signer.is_attested(reference, one), "no success without the attestation"
        stub.heal()
        for one in stated:
            signer.attest(reference, one)
            verb = ("verify-attestation", "--type", one.type)
            printed = signer.verify_command(reference, {}, *verb)
            assert len(run(printed).stdout.splitlines()) == 1, "kept once"


# --- the policies of docs/release.md ---


def policies() -> Iterator[Any]:
    text = (REPOSITORY / "docs" / "release.md").read_text("utf-8")
    for block in re.findall(r"```yml\n(apiVersion:.*?)```", text, re.DOTALL):
        yield yaml.safe_load(block)


def controller_policies() -> list[dict[str, Any]]:
    """What policy-controller has to find attested, each with its CUE."""
    return [
        one
        for policy in policies()
        if policy["kind"] == "ClusterImagePolicy"
        for authority in policy["spec"]["authorities"]
        for one in authority["attestations"]
    ]


# https://github.com/sigstore/policy-controller, `validPredicateTypes` of v1beta1's validation.
CONTROLLER_TYPES = {"custom", "slsaprovenance", "spdx", "spdxjson", "cyclonedx", "link", "vuln"}


@pytest.mark.parametrize("version", ["2", "3"])
def test_the_policy_for_policy_controller_admits_ours_and_refuses_another_builder(
    attested: Attested, version: str, tmp_path: Path
) -> None:
    """cosign evaluates CUE by the code that policy-controller has from it."""
    wanted = controller_policies()
    assert {one["predicateType"] for one in wanted} == {
        "https://slsa.dev/provenance/v1",
        "https://spdx.dev/Document",
    }
    for one in wanted:
        assert "://" in one["predicateType"] or one["predicateType"] in CONTROLLER_TYPES
        assert one["policy"]["type"] == "cue"
        policy = tmp_path / "policy.cue"
        policy.write_text(one["policy"]["data"])
        done = attested.verify(version, one["predicateType"], "--policy", str(policy))
        assert done.returncode == 0, done.stderr
        broken = one["policy"]["data"].replace("SPDX-2.3", "SPDX-9").replace("me/mine", "evil")
        assert broken != one["policy"]["data"]
        policy.write_text(broken)
        assert attested.verify(version, one["predicateType"], "--policy", str(policy)).returncode


def test_the_policy_for_kyverno_is_met_by_what_is_attested(attested: Attested) -> None:
    """Kyverno compares an attestation's `type` with the statement's predicate type, and reads its
    conditions' keys as JMESPath in the predicate; these are plain paths.
    """
    (policy,) = (one for one in policies() if one["kind"] == "ClusterPolicy")
    (rule,) = policy["spec"]["rules"]
    (images,) = rule["verifyImages"]
    stated = {one.type: one.content for one in attested.predicates.values()}
    conditions = 0
    for one in images["attestations"]:
        predicate = stated[one["type"]]
        for condition in (each for group in one["conditions"] for each in group["all"]):
            value: Any = predicate
            for name in condition["key"].strip("{} ").split("."):
                value = value[name]
            assert (condition["operator"], value) == ("Equals", condition["value"])
            conditions += 1
        (attestor,) = one["attestors"]
        (entry,) = attestor["entries"]
        assert entry["keys"]["rekor"] == {"ignoreTlog": True}, "a key signs without the log"
    assert conditions >= 2
