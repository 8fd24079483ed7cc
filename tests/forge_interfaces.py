"""Stand-ins for the interfaces of GitHub and GitLab, on loopback: neither can be reached here.

Their rules, and where each is from:
* GitHub lists 100 entries a page at most, inside `jobs`, `runners`, `workflow_runs`; issues are a
  bare list. https://docs.github.com/en/rest/actions/workflow-jobs,
  https://docs.github.com/en/rest/actions/self-hosted-runners,
  https://docs.github.com/en/rest/actions/workflow-runs, https://docs.github.com/en/rest/issues/issues
* `filter=latest` lists the jobs of the last attempt alone, not those that it did not run again:
  https://github.com/r-universe-org/help/issues/607
* A run has the moment it was created (`created_at`), a commit that of its committer, both in UTC:
  https://docs.github.com/en/rest/commits/commits#get-a-commit
* GitHub puts a file by its text in base64, with the sha of its blob where it is there (409 or 422
  else); a reference is created once, and moved by PATCH; a branch has one open pull request.
  https://docs.github.com/en/rest/repos/contents, https://docs.github.com/en/rest/git/refs,
  https://docs.github.com/en/rest/pulls/pulls
* GitLab lists bare lists, 100 entries a page at most, and leaves retried jobs out.
  https://docs.gitlab.com/api/jobs/#list-pipeline-jobs, https://docs.gitlab.com/api/issues/,
  https://docs.gitlab.com/api/runners/#list-projects-runners
* GitLab makes a commit of actions on a branch, which `force` sets anew from `start_branch`;
  `update` is for a file that is there, `create` for one that is not.
  https://docs.gitlab.com/api/commits/
* A job's token of GitLab reads the jobs of a pipeline from 18.0 on, and neither issues nor runners:
  https://docs.gitlab.com/ci/jobs/fine_grained_permissions/. The rest answers 401 or 404.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from loopback import running

Answer = tuple[int, Any]


@dataclass
class ForgeInterface:
    """What a forge knows, and the requests that came. `refuses` are parts of paths that the token
    may not read.
    """

    jobs: list[dict[str, Any]] = field(default_factory=list)
    jobs_of: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    runners: list[dict[str, Any]] = field(default_factory=list)
    issues: list[dict[str, Any]] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    commits: dict[str, str] = field(default_factory=dict)
    refuses: dict[str, int] = field(default_factory=dict)
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    hooks: list[Any] = field(default_factory=list)
    refs: dict[str, str] = field(default_factory=lambda: {"heads/main": "c0ffee"})
    files: dict[str, str] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    pulls: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    address: str = ""

    def action_for(self, action: dict[str, str]) -> str:
        """GitLab refuses `create` of a file that is on the start branch, and `update` of none."""
        return "update" if action["file_path"] in self.files else "create"

    def repository(  # noqa: PLR0911 - a case for each address
        self, verb: str, parts: list[str], query: dict[str, str], body: Any
    ) -> Answer:
        """GitHub's addresses of references, files and pull requests."""
        match [verb, *parts]:
            case ["GET", "git", "ref", *name]:
                return 200, {"object": {"sha": self.refs["/".join(name)]}}
            case ["GET", "git", "matching-refs", *name]:
                found = [one for one in self.refs if one.startswith("/".join(name))]
                return 200, [{"ref": f"refs/{one}"} for one in found]
            case ["POST", "git", "refs"]:
                name = body["ref"].removeprefix("refs/")
                if name in self.refs:
                    return 422, {}
                self.refs[name] = body["sha"]
                return 201, {}
            case ["PATCH", "git", "refs", *name]:
                self.refs["/".join(name)] = body["sha"]
                return 200, {}
            case ["GET", "contents", *folder]:
                found = [one for one in self.files if one.split("/")[:-1] == folder]
                return 200, [{"path": one, "sha": f"blob-{one}"} for one in found]
            case ["PUT", "contents", *name]:
                path = "/".join(name)
                if (path in self.files) != (body.get("sha") == f"blob-{path}"):
                    return 409, {}
                self.files[path] = base64.b64decode(body["content"]).decode()
                return 200, {}
            case ["GET", "pulls"]:
                return 200, page(
                    [one for one in self.pulls if one["state"] == query["state"]], query
                )
            case ["POST", "pulls"]:
                number = len(self.pulls) + 1
                made = {**body, "head": {"ref": body["head"]}, "number": number, "state": "open"}
                self.pulls.append({**made, "html_url": f"pull/{number}"})
                return 201, self.pulls[-1]
            case ["PATCH", "pulls", number]:
                self.pulls[int(number) - 1] |= body
                return 200, self.pulls[int(number) - 1]
            case _:
                return 404, {}

    def github(  # noqa: PLR0911, PLR0912 - a case for each address
        self, verb: str, path: str, query: dict[str, str], body: Any
    ) -> Answer:
        if path == "/repos/me/mine":
            return 200, {"default_branch": "main"}
        parts = path.removeprefix("/repos/me/mine/").split("/")
        if parts[0] in {"git", "contents", "pulls"}:
            return self.repository(verb, parts, query, body)
        match [verb, *parts]:
            case ["GET", "actions", "runs", run, "jobs"]:
                jobs = self.jobs_of.get(run, self.jobs)
                if query["filter"] == "latest":
                    last = max((one.get("run_attempt", 1) for one in jobs), default=1)
                    jobs = [one for one in jobs if one.get("run_attempt", 1) == last]
                return 200, {"jobs": page(jobs, query)}
            case ["GET", "actions", "runners"]:
                return 200, {"runners": page(self.runners, query)}
            case ["GET", "actions", "workflows", "warpfront.yml", "runs"]:
                found = [one for one in self.runs if one["status"] == query["status"]]
                return 200, {"workflow_runs": page(found, query)}
            case ["GET", "actions", "workflows", "warpfront-gpu.yml", "runs"]:
                found = [one for one in self.runs if one["conclusion"] == query["status"]]
                found = [one for one in found if one["head_sha"] == query["head_sha"]]
                return 200, {"workflow_runs": page(found, query)}
            case ["GET", "commits", commit] if commit in self.commits:
                return 200, {"commit": {"committer": {"date": self.commits[commit]}}}
            case ["POST", "actions", "runs", run, "cancel"]:
                self.cancelled.append(run)
                return 202, {}
            case ["GET", "issues"]:
                found = [one for one in self.issues if query["labels"] in one["labels"]]
                return 200, page([one for one in found if one["state"] == query["state"]], query)
            case ["POST", "issues"]:
                number = len(self.issues) + 1
                made = {**body, "number": number, "state": "open", "html_url": f"issue/{number}"}
                self.issues.append(made)
                return 201, made
            case ["PATCH", "issues", number]:
                self.issues[int(number) - 1] |= body
                return 200, self.issues[int(number) - 1]
            case ["POST", "issues", _, "comments"]:
                return 201, {}
            case _:
                return 404, {}

    def gitlab(  # noqa: PLR0911, PLR0912 - a case for each address
        self, verb: str, path: str, query: dict[str, str], body: Any
    ) -> Answer:
        if path == "/projects/7":
            return 200, {"default_branch": "main"}
        parts = path.removeprefix("/projects/7/").split("/")
        match [verb, *parts]:
            case ["GET", "pipelines", "1234", "jobs"]:
                return 200, page(self.jobs, query)
            case ["GET", "runners"]:
                tags = set(query["tag_list"].split(","))
                found = [one for one in self.runners if tags <= set(one["tag_list"])]
                return 200, page([o for o in found if o["status"] == query["status"]], query)
            case ["GET", "issues"]:
                found = [one for one in self.issues if query["labels"] == one["labels"]]
                return 200, page([one for one in found if one["state"] == query["state"]], query)
            case ["POST", "issues"]:
                number = len(self.issues) + 1
                made = {**body, "iid": number, "state": "opened", "web_url": f"issue/{number}"}
                self.issues.append(made)
                return 201, made
            case ["PUT", "issues", number]:
                closes = {"state": "closed"} if body.get("state_event") == "close" else {}
                self.issues[int(number) - 1] |= body | closes
                return 200, self.issues[int(number) - 1]
            case ["POST", "issues", _, "notes"]:
                return 201, {}
            case ["GET", "repository", "tree"]:
                return 200, page([{"path": one} for one in self.files], query)
            case ["POST", "repository", "commits"]:
                branch = f"heads/{body['branch']}"
                if branch in self.refs and not body["force"]:
                    return 400, {}
                self.refs[branch] = self.refs[f"heads/{body['start_branch']}"]
                (action,) = body["actions"]
                self.written[action["file_path"]] = action["content"]
                return (201 if action["action"] == self.action_for(action) else 400), {}
            case ["GET", "merge_requests"]:
                found = [one for one in self.pulls if one["state"] == query["state"]]
                return 200, page(found, query)
            case ["POST", "merge_requests"]:
                number = len(self.pulls) + 1
                self.pulls.append(
                    {**body, "iid": number, "state": "opened", "web_url": f"mr/{number}"}
                )
                return 201, self.pulls[-1]
            case ["PUT", "merge_requests", number]:
                self.pulls[int(number) - 1] |= body
                return 200, self.pulls[int(number) - 1]
            case _:
                return 404, {}


def page(entries: list[dict[str, Any]], query: dict[str, str]) -> list[dict[str, Any]]:
    size, number = min(int(query["per_page"]), 100), int(query["page"])
    return entries[size * (number - 1) : size * number]


@contextmanager
def standing_in(
    forge: ForgeInterface, answers: Callable[[str, str, dict[str, str], Any], Answer]
) -> Iterator[ForgeInterface]:
    """The interface on loopback; `/hook` is where a webhook arrives."""

    class Handler(BaseHTTPRequestHandler):
        def _any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            where = urlsplit(self.path)
            forge.headers.append(dict(self.headers))
            forge.requests.append((self.command, where.path, body))
            query = {name: values[0] for name, values in parse_qs(where.query).items()}
            refused = [code for part, code in forge.refuses.items() if part in where.path]
            if where.path == "/hook":
                forge.hooks.append(body)
                status, said = refused[0] if refused else 200, {}
            elif refused:
                status, said = refused[0], {"message": "no"}
            else:
                status, said = answers(self.command, where.path, query, body)
            content = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = _any  # noqa: N815 - http.server's names

        def log_message(self, *_: object) -> None: ...

    with running(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        forge.address = f"http://127.0.0.1:{server.server_port}"
        yield forge


def github_job(forge: ForgeInterface) -> dict[str, str]:
    """The variables of a job whose interface is the stand-in."""
    return {
        "GITHUB_ACTIONS": "true",
        "GITHUB_API_URL": forge.address,
        "GITHUB_REPOSITORY": "me/mine",
        "GITHUB_RUN_ID": "1234",
        "API_TOKEN": "the-token-of-the-job",
    }


def gitlab_job(forge: ForgeInterface) -> dict[str, str]:
    return {
        "GITLAB_CI": "true",
        "CI_API_V4_URL": forge.address,
        "CI_PROJECT_ID": "7",
        "CI_PIPELINE_ID": "1234",
        "CI_JOB_TOKEN": "the-token-of-the-job",
    }
