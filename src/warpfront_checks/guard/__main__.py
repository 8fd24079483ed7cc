"""`warpfront-guard`: install, adopt, verify, relax, explain."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from .channels import environment_channels, given_environment
from .imports import read_start
from .manifest import read_manifest
from .measuring import installed
from .names import default_policy
from .places import ETC, HOME, Places, places_of_this_python
from .policy import GuardError, Policy, read_policy
from .sealing import read_reasons, relax, seal
from .verification import Depth, sentence, verify
from .visible import visible_json, visible_output


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 all is well, 1 findings, 2 the command cannot be done."""
    parser = argparse.ArgumentParser(prog="warpfront-guard", description=__doc__)
    parser.add_argument("--home", type=Path, default=HOME, help=argparse.SUPPRESS)
    parser.add_argument("--etc", type=Path, default=ETC, help=argparse.SUPPRESS)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("install", help="put the guard around this image's stack")
    command.add_argument("--policy", type=Path, required=True, help="what to protect")
    command.add_argument("--manifest", type=Path, help="what the wheels of the stack hold")
    command.set_defaults(act=_install)
    command = commands.add_parser("adopt", help="protect the torch that this Python already has")
    command.set_defaults(act=_adopt)
    command = commands.add_parser("verify", help="is the stack the one that was sealed?")
    depth = command.add_mutually_exclusive_group()
    depth.add_argument("--quick", action="store_true", help="sizes instead of hashes")
    depth.add_argument("--light", action="store_true", help="hashes of what is newer than the seal")
    command.add_argument("--json", action="store_true", help="findings as JSON")
    command.set_defaults(act=_verify)
    command = commands.add_parser("relax", help="let a package change, or go without its demands")
    command.add_argument(
        "name", nargs="?", help="a protected package, or one that asks for another"
    )
    command.add_argument("--reason", default="", help="why; kept, and shown by verify")
    command.add_argument("--from", type=Path, dest="file", help="a JSON file, name -> reason")
    command.set_defaults(act=_relax)
    command = commands.add_parser("explain", help="what is protected here, and what was relaxed")
    command.set_defaults(act=_explain)
    options = parser.parse_args(arguments)
    places = places_of_this_python(options.home, options.etc)
    with visible_output():
        try:
            return int(options.act(options, places))
        except GuardError as error:
            sys.stderr.write(f"warpfront-guard: {error}\n")
            return 2


def _install(options: argparse.Namespace, places: Places) -> int:
    manifest = read_manifest(options.manifest) if options.manifest else None
    policy = read_policy(options.policy)
    _say_sealed(seal(policy, places, python=sys.executable, manifest=manifest))
    return 0


def _adopt(options: argparse.Namespace, places: Places) -> int:
    del options
    policy = default_policy(places.site_packages, installed(places.site_packages))
    _say_sealed(seal(policy, places, python=sys.executable))
    # A base's own value stays, such as NGC's PIP_CONSTRAINT.
    environment, words = given_environment(), []
    for name, ours in environment_channels(places).items():
        value = " ".join(dict.fromkeys([*environment.get(name, "").split(), ours]))
        words.append(f'{name}="{value}"')
    print("the image still has to set: " + " ".join(words))
    return 0


def _verify(options: argparse.Namespace, places: Places) -> int:
    depth: Depth = "quick" if options.quick else "light" if options.light else "full"
    start = read_start(places)
    findings = verify(places, given_environment(), start=start, depth=depth)
    if options.json:
        print(visible_json(json.dumps([vars(finding) for finding in findings], indent=1)))
        return int(bool(findings))
    for finding in findings:
        print(finding)
    try:
        policy = read_policy(places.policy)
    except GuardError:
        return 1
    for name, reason in policy.relaxed.items():
        print(f"relaxed: {name}: {reason}")
    state = sentence(policy, installed(places.site_packages))
    print(f"{len(findings)} findings" if findings else state)
    return int(bool(findings))


def _relax(options: argparse.Namespace, places: Places) -> int:
    if bool(options.name) == bool(options.file):
        raise GuardError("give a NAME with its --reason, or --from FILE")
    reasons = read_reasons(options.file) if options.file else {options.name: options.reason}
    for line in relax(reasons, places):
        print(line)
    return 0


def _explain(options: argparse.Namespace, places: Places) -> int:
    del options
    policy = read_policy(places.policy)
    state = sentence(policy, installed(places.site_packages))
    print(f"built as {policy.title or policy.cell}: {state}")
    for name, version in policy.pinned().items():
        print(f"  {name} stays {version}")
    for name, accepted in policy.needed().items():
        print(f"  {name} may move within {accepted}, which the stack needs")
    print(f"  {len(policy.forbidden())} names must not come: " + " ".join(policy.forbidden()))
    for name, reason in policy.relaxed.items():
        print(f"  {name} is relaxed: {reason}")
    return 0


def _say_sealed(policy: Policy) -> None:
    protected = ", ".join(f"{name} {version}" for name, version in sorted(policy.pinned().items()))
    print(f"sealed: {protected}; {len(policy.forbidden())} names must not come")


if __name__ == "__main__":
    sys.exit(main())
