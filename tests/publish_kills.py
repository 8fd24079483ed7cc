"""`warpfront publish` of a small image to a real registry, killed at random moments: whatever the
moment, no public tag is on anything unproven or half, and the same command then ends right.

What is in the registry is judged without our client: by requests, and by cosign. The counts are
kept in docs/results/publish-kills.json and publish-kills.md.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
import requests
from projects import REPOSITORY, Running
from real_releases import CELL, Release, real_release
from registries import PASSWORD, USER

from warpfront.errors import NotPublishableError
from warpfront.images.engine.protocol import connect
from warpfront.system.process import cache_folder, environment, run
from warpfront.wheels.sources import read_site
from warpfront.wheels.store.sdists import install_toolbox
from warpfront.wheels.store.wheelhouse import Wheelhouse

RESULTS = REPOSITORY / "docs" / "results"
# `invoke` with a fault in publish, for the oracle to find.
SOWN = Path(__file__).with_name("sown_publish.py")
PROOF = "application/vnd.warpfront.verification.v1+json"
ALIASES = ("latest", "2.13.0-cpu-py3.11")
ATTESTED = ("slsaprovenance1", "spdxjson", "cyclonedx")
FIFTHS = 5
UNPROVEN_IN = 0.15
CONTENT = "dev.warpfront.content-hash"
# Every kind of manifest: who is asked for a tag has to send it as it is.
_ACCEPT = ", ".join(
    f"application/vnd.{kind}"
    for kind in (
        "oci.image.manifest.v1+json",
        "oci.image.index.v1+json",
        "docker.distribution.manifest.v2+json",
    )
)


@dataclass(kw_only=True)
class Oracle:
    """What a repository holds, by a stranger's means."""

    release: Release
    path: str
    proven: set[str] = field(default_factory=set)
    _judged: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def tags(self) -> dict[str, str]:
        """Every public tag, and the digest that it is on."""
        with self._line() as line:
            names = line.get(self._url("tags/list"), timeout=20).json().get("tags") or ()
            return {name: self._manifest(line, name)[0] for name in names if _is_public(name)}

    def wrong(self) -> list[str]:
        """What is unproven or half under a public tag, and aliases that came before the tags that
        never move.
        """
        tags = self.tags()
        fixed = {digest for tag, digest in tags.items() if tag not in ALIASES}
        found = [f"{tag} is on what has no other tag" for tag in _astray(tags, fixed)]
        for tag, digest in tags.items():
            if digest not in self._judged:
                self._judged[digest] = tuple(self._wrong_with(digest))
            found += [f"{tag}: {one}" for one in self._judged[digest]]
        return found

    def _wrong_with(self, digest: str) -> Iterator[str]:
        with self._line() as line:
            _, image = self._manifest(line, digest)
            for part in (image["config"], *image["layers"]):
                yield from self._wrong_blob(line, part)
            config = line.get(self._url(f"blobs/{image['config']['digest']}"), timeout=20).json()
            content = config["config"]["Labels"][CONTENT]
            if content not in self.proven:
                yield f"the content {content[:12]} was never proven"
            proofs = list(self._proofs(line, digest, content))
        if not any(self._is_signed(digest, proof) for proof in proofs):
            yield f"none of its {len(proofs)} verifications is signed with it"
        for kind in ATTESTED:
            count = self._attestations(digest, kind)
            if count != 1:
                yield f"{count} attestations of {kind} hold for it, not one"

    def _wrong_blob(self, line: requests.Session, part: Mapping[str, Any]) -> Iterator[str]:
        body = line.get(self._url(f"blobs/{part['digest']}"), timeout=60).content
        if f"sha256:{hashlib.sha256(body).hexdigest()}" != part["digest"]:
            yield f"{part['digest']} is not there whole"

    def _proofs(self, line: requests.Session, digest: str, content: str) -> Iterator[str]:
        """The attached verifications that are of this image and passed."""
        listed = line.get(
            self._url(f"manifests/{digest.replace(':', '-')}"),
            headers={"Accept": _ACCEPT},
            timeout=20,
        )
        for one in listed.json().get("manifests", ()) if listed.ok else ():
            if one.get("artifactType") != PROOF:
                continue
            _, artifact = self._manifest(line, one["digest"])
            payload = line.get(
                self._url(f"blobs/{artifact['layers'][0]['digest']}"), timeout=20
            ).json()
            of_this = artifact["subject"]["digest"] == digest == payload["image"]["digest"]
            passed = all(
                verification["content_hash"] == content
                and all(check["outcome"] == "passed" for check in verification["checks"])
                for verification in payload["verifications"]
            )
            if of_this and passed and payload["verifications"]:
                yield str(one["digest"])

    def _is_signed(self, digest: str, proof: str) -> bool:
        said = f"--annotations=dev.warpfront.verification={proof}"
        return self._cosign(digest, "verify", said).returncode == 0

    def _attestations(self, digest: str, kind: str) -> int:
        """How many envelopes cosign prints as verified, one a line."""
        return len(self._cosign(digest, "verify-attestation", "--type", kind).stdout.splitlines())

    def _cosign(self, digest: str, *words: str) -> subprocess.CompletedProcess[bytes]:
        argv = (
            "cosign",
            *words,
            "--key",
            str(self.release.key.with_suffix(".pub")),
            "--insecure-ignore-tlog=true",
            "--allow-http-registry",
            "--allow-insecure-registry",
            f"{self.release.registry.host}/{self.path}@{digest}",
        )
        environment = dict(self.release.environment)
        return subprocess.run(argv, env=environment, capture_output=True, check=False)

    def _manifest(self, line: requests.Session, reference: str) -> tuple[str, Any]:
        answer = line.get(
            self._url(f"manifests/{reference}"), headers={"Accept": _ACCEPT}, timeout=20
        )
        answer.raise_for_status()
        return f"sha256:{hashlib.sha256(answer.content).hexdigest()}", answer.json()

    def _url(self, rest: str) -> str:
        return f"https://{self.release.registry.host}/v2/{self.path}/{rest}"

    @contextlib.contextmanager
    def _line(self) -> Iterator[requests.Session]:
        with requests.Session() as line:
            line.trust_env = False  # SSL_CERT_FILE of this machine would count for more
            line.auth, line.verify = (USER, PASSWORD), str(self.release.registry.ca)
            yield line


def _is_public(tag: str) -> bool:
    return not tag.startswith(("candidate-", "sha256-"))


def _astray(tags: Mapping[str, str], fixed: set[str]) -> list[str]:
    return [tag for tag in ALIASES if tag in tags and tags[tag] not in fixed]


@dataclass(kw_only=True)
class Counts:
    """What was done, and what came of it; `wrong`: a line for each thing that was not right."""

    kills: Counter[str] = field(default_factory=Counter)
    stages: Counter[str] = field(default_factory=Counter)
    moments: Counter[str] = field(default_factory=Counter)
    ended_before: int = 0
    reruns: Counter[str] = field(default_factory=Counter)
    left_names: int = 0
    wrong: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        return {
            name: dict(sorted(value.items())) if isinstance(value, Counter) else value
            for name, value in vars(self).items()
        }


class Kills:
    """One repository, to which one small image after another is published."""

    def __init__(self, release: Release, seed: int, path: str = "kills/torch") -> None:
        self.release = release
        self.random = random.Random(seed)
        self.oracle = Oracle(release=release, path=path)
        self.counts = Counts()
        self.seconds = self.way = 0.0

    def start(self, program: tuple[str, ...] = ("-m", "invoke")) -> Running:
        to = f"{self.release.registry.host}/{self.oracle.path.rpartition('/')[0]}"
        words = ("publish", "--channel", "trial", "--to", to, "--only", CELL)
        project = self.release.project
        folder = Path(tempfile.mkdtemp(prefix="output-", dir=project.root))
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
            child = subprocess.Popen(
                (sys.executable, *program, *words),
                cwd=project.root,
                env={**project.environment, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        return Running(child=child, folder=folder)

    def undisturbed(self) -> None:
        """How long it takes where nothing happens, all of it and from its ledger on, and that the
        oracle is content then.
        """
        for _ in range(2):
            self.oracle.proven.add(self.release.renew())
            before, child = self._ledgers(), self.start()
            self._await_ledger(child, before)
            began = time.monotonic()
            self.seconds = child.wait().expect(0).seconds
            self.way = time.monotonic() - began
        assert self.oracle.wrong() == []

    def round(self) -> None:
        """An image, killed on its way; what is public then; and the same command again."""
        proven = self.random.random() >= UNPROVEN_IN
        content = self.release.renew(failed=not proven)
        if proven:
            self.oracle.proven.add(content)
        before, share, ledgers = self.oracle.tags(), self.random.random(), self._ledgers()
        child = self.start()
        if proven:  # what is not proven is refused before it has anything to do
            self._await_ledger(child, ledgers)
        began = time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.child.wait(share * (self.way if proven else self.seconds))
        if child.child.poll() is not None:
            self.counts.ended_before += 1
            if proven:  # a busy machine is less busy now: where the way ends is what is guessed
                self.way = min(self.way, time.monotonic() - began)
        else:
            self._kill(child, share, "proven" if proven else "unproven")
            self.counts.stages[self._stage(ledgers)] += 1
        what = f"kill {self.counts.kills.total()} at {share:.2f}"
        self.counts.wrong += [f"{what}: {one}" for one in self.oracle.wrong()]
        self._again(what, content, before, proven=proven)
        print(f"{what}: {len(self.counts.wrong)} wrong so far", flush=True)

    def _kill(self, child: Running, share: float, kind: str) -> None:
        (child.send_group if self.random.random() < 0.5 else child.send)(signal.SIGKILL)
        child.child.wait()
        self.counts.kills[kind] += 1
        self.counts.moments[f"{int(share * FIFTHS) + 1} of {FIFTHS}"] += 1

    def _await_ledger(self, child: Running, before: set[Path]) -> None:
        """Until the run has written what it is about to do: its next act is its first request."""
        while child.child.poll() is None and self._ledgers() == before:
            time.sleep(0.002)

    def _ledgers(self) -> set[Path]:
        return set((self.release.project.root / "build" / "release").glob("*.json"))

    def _stage(self, before: set[Path]) -> str:
        """How far the ledger of the run says that it had come."""
        own = self._ledgers() - before
        if not own:
            return "before its ledger"
        publications = json.loads(own.pop().read_text("utf-8"))["value"]["publications"]
        return str(publications[0]["stage"]) if publications else "refused"

    def _again(self, what: str, content: str, before: Mapping[str, str], *, proven: bool) -> None:
        """A rerun names what is proven and nothing else."""
        ended, tags = self.start().wait(), self.oracle.tags()
        self.counts.wrong += [f"{what}, again: {one}" for one in self.oracle.wrong()]
        expected = 0 if proven else NotPublishableError.exit_code
        fixed = next((one for tag, one in tags.items() if content[:12] in tag), "")
        right = {**before, **dict.fromkeys(ALIASES, fixed)} if proven else dict(before)
        right |= {tag: fixed for tag in tags if proven and content[:12] in tag}
        if ended.code == expected and tags == right and bool(fixed) == proven:
            self.counts.reruns["published" if proven else "refused"] += 1
            return
        said = ended.said.strip()[-400:]
        self.counts.wrong.append(f"{what}: the rerun ended {ended.code}, {tags}: {said}")

    def end(self) -> None:
        """Count the names that the killed left in the engine."""
        for image in self.release.client.images.list():
            for name in image.tags:
                if name.startswith(self.release.registry.host) and ":candidate-" in name:
                    self.counts.left_names += 1
                    self.release.client.images.remove(name)


@contextlib.contextmanager
def own_release(folder: Path, cell: str = CELL) -> Iterator[Release]:
    """For who runs this without the fixtures of the tests."""
    site = read_site(run)
    install_toolbox(
        cache_folder(),
        Wheelhouse(cache_folder() / "wheelhouse"),
        site=lambda: site,
        on_progress=lambda *_: None,
    )
    engine = connect(environment())
    client = docker.DockerClient(base_url=engine.name)
    here = {**os.environ, "DOCKER_HOST": engine.name}
    with (
        contextlib.closing(client),
        real_release(folder, here, engine, client, cell) as release,
    ):
        yield release


def killed(seed: int, kills: int, *, seconds: float) -> dict[str, Any]:
    """The counts of `kills` kills, or of those that there was time for."""
    deadline = time.monotonic() + seconds
    with (
        tempfile.TemporaryDirectory(prefix="warpfront-kills-") as name,
        own_release(Path(name)) as release,
        release.small(),
    ):
        found = Kills(release, seed)
        try:
            found.undisturbed()
            while found.counts.kills.total() < kills and time.monotonic() < deadline:
                found.round()
        finally:
            found.end()
    took = {"seconds": round(found.seconds, 2), "way": round(found.way, 2)}
    return {"seed": seed, **took, **found.counts.document()}


def page(document: Mapping[str, Any]) -> str:
    """The same for people."""
    kills, reruns = document["kills"], document["reruns"]
    lines = [
        "<!-- Written by tools/publish-kills. -->",
        "",
        f"`tools/publish-kills --seed {document['seed']}`: `warpfront publish` of a small image to",
        "Debian's docker-registry, by TLS and password, signed by cosign; SIGKILL to the command",
        f"or to its group, {sum(kills.values())} times, and then the same command again. A proven",
        "image's run is killed at a random moment between its first request and its end",
        f"({document['way']} s undisturbed), one that is not proven at any moment of its run",
        f"({document['seconds']} s). After each kill and each rerun a stranger (requests, cosign)",
        "looks at every public tag: its image is there whole, was proven, the proof is attached",
        "and signed with it, one attestation of provenance, SPDX and CycloneDX each holds, and no",
        "alias came before the tag that never moves.",
        "",
        "| | killed | then ended right |",
        "|---|---:|---:|",
        f"| a proven image | {kills.get('proven', 0)} | {reruns.get('published', 0)} published |",
        f"| one that is not | {kills.get('unproven', 0)} | {reruns.get('refused', 0)} refused |",
        "",
        f"Ended before the kill: {document['ended_before']} (their reruns are among the right).",
    ]
    for title, name in (
        ("How far the ledger said it had come, when it was killed", "stages"),
        ("Moments, in fifths of that time", "moments"),
    ):
        said = ", ".join(f"{key}: {count}" for key, count in document[name].items())
        lines += ["", f"{title}: {said or 'none'}."]
    lines += ["", f"Names of candidates left in the engine: {document['left_names']}"]
    lines[-1] += " (`warpfront clean` removes them)." if document["left_names"] else "."
    wrong = document["wrong"]
    lines += ["", f"Not right: {len(wrong) or 'none'}.", *(f"* {one[:300]}" for one in wrong)]
    return "\n".join(lines) + "\n"


def write(document: Mapping[str, Any]) -> None:
    text = json.dumps(document, indent=1, sort_keys=True)
    (RESULTS / "publish-kills.json").write_text(f"{text}\n", encoding="utf-8")
    (RESULTS / "publish-kills.md").write_text(page(document), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/publish-kills", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=120.0, help="begin no round after these")
    options = parser.parse_args()
    document = killed(options.seed, options.kills, seconds=options.minutes * 60)
    write(document)
    print(page(document))
    return int(bool(document["wrong"]))


if __name__ == "__main__":
    raise SystemExit(main())
