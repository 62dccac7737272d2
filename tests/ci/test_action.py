"""The GitHub Action, reports always, then the gates, and workflows: they give their scripts what these ask for. Its
comment, against a server on loopback that speaks the endpoints it needs."""

import json
import os
import re
import runpy
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TOKEN, SCRIPT = "a-token", SimpleNamespace(**runpy.run_path(str(ROOT / ".ci" / "comment.py")))
Comment = Callable[..., str]
REAL = f'exec {sys.executable} -m ddprof.cli.main "$@"'


def _act(root: Path, folder: Path, program: str = REAL, **inputs: str) -> subprocess.CompletedProcess[str]:
    binary = folder / "bin" / "ddprof"
    binary.parent.mkdir()
    binary.write_text(f"#!/bin/sh\n{program}\n")
    binary.chmod(0o755)
    own = {"PATH": f"{binary.parent}:{os.environ['PATH']}", "REPORT": str(folder / "report.html")}
    environment = {**os.environ, **own, "GITHUB_STEP_SUMMARY": str(folder / "summary.md"), **inputs}
    command = ["bash", str(root / ".ci" / "action")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_a_failed_gate_leaves_its_evidence(repo_root: Path, tmp_path: Path, saved: Path) -> None:
    done = _act(repo_root, tmp_path, RUN=str(saved), FAIL_ON="host.*\nwarning\n")
    assert done.returncode == 3, done.stderr
    assert "gate failed: critical input.straggler" in done.stderr
    assert "Largest saving: " in (tmp_path / "summary.md").read_text()
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "report.json").read_text().startswith("{")


@pytest.mark.parametrize("limit", ["", "5%"])
def test_a_baseline_is_compared_with_and_the_gates_are_its(repo_root: Path, tmp_path: Path, limit: str) -> None:
    inputs = {"RUN": "run", "BASELINE": "base", "MAX_REGRESSION": limit, "FAIL_ON": "warning", "REPORT": "r.html"}
    done = _act(repo_root, tmp_path, 'echo "$*" | tee /dev/stderr', **inputs)
    regression = " --max-regression 5%" if limit else ""
    assert done.returncode == 0 and done.stderr.splitlines() == [
        *("analyze run -o r.json", "report run --against base -o r.html", "compare base r.json --format markdown"),
        *("analyze r.json --format markdown", f"compare base r.json --fail-on warning{regression}"),
    ]
    assert (tmp_path / "summary.md").read_text().splitlines() == done.stderr.splitlines()[2:4]


def read(file: Path) -> dict[str, Any]:
    found = pytest.importorskip("yaml").safe_load(file.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_a_workflow_can_do_no_more_than_it_says(file: Path) -> None:
    workflow = read(file)
    assert workflow["permissions"] == {"contents": "read"}
    jobs = workflow["jobs"]
    assert all(step.keys() & {"run", "uses"} for job in jobs.values() for step in job["steps"])
    assert {name for job in jobs.values() for name in job.get("needs", [])} <= set(jobs)


def test_nothing_is_published_without_a_signed_tag() -> None:
    jobs = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    assert {"signed", "wheels", "source", "inventory"} <= set(jobs["publish"]["needs"])
    assert {name for name, job in jobs.items() if "write" in str(job.get("permissions", ""))} == {"publish", "release"}


def test_the_action_hands_every_input_to_its_script() -> None:
    action = read(ROOT / "action.yml")
    (step,) = [step for step in action["runs"]["steps"] if "env" in step]
    given = {name: re.findall(r"inputs\.([\w-]+)", value)[0] for name, value in step["env"].items()}
    assert set(given.values()) == set(action["inputs"])
    script = (ROOT / ".ci" / "action").read_text(encoding="utf-8")
    assert [name for name in given if not re.search(rf"\$\{{?{name}\b", script)] == []


class GitHub(HTTPServer):
    """Comments of pull request 7 of owner/name."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.comments: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.reads_only = False

    def add(self, body: str, kind: str = "User") -> dict[str, Any]:
        self.comments.append({"id": 100 + len(self.comments), "body": body, "user": {"type": kind}})
        return self.comments[-1]


class _Handler(BaseHTTPRequestHandler):
    server: GitHub

    def _answer(self, code: int, document: Any) -> None:
        data = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _any(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            return self._answer(401, {})
        if self.server.reads_only and self.command != "GET":
            return self._answer(403, {"message": "Resource not accessible by integration"})
        path, _, query = self.path.partition("?")
        if path == "/repos/owner/name/issues/7/comments" and self.command == "GET":
            asked = dict(part.split("=") for part in query.split("&"))
            size, page = int(asked["per_page"]), int(asked["page"])
            return self._answer(200, self.server.comments[size * (page - 1) : size * page])
        if path == "/repos/owner/name/issues/7/comments" and self.command == "POST":
            return self._answer(201, self.server.add(json.loads(sent)["body"], "Bot"))
        if (one := re.fullmatch(r"/repos/owner/name/issues/comments/(\d+)", path)) and self.command == "PATCH":
            (comment,) = [c for c in self.server.comments if c["id"] == int(one[1])]
            comment["body"] = json.loads(sent)["body"]
            return self._answer(200, comment)
        return self._answer(404, {})

    do_GET = do_POST = do_PATCH = _any

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on stderr."""


@pytest.fixture
def github() -> Iterator[GitHub]:
    server = GitHub()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.md"
    file.write_text("Slower by 5 ms", encoding="utf-8")
    return file


@pytest.fixture
def comment(github: GitHub, tmp_path: Path, text: Path) -> Comment:
    """Comments with the text, under a name, in a pull request's job whose environment is changed so."""
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 7}}))
    job = {"GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": f"http://127.0.0.1:{github.server_port}"}
    job |= {"GITHUB_REPOSITORY": "owner/name", "GITHUB_EVENT_PATH": str(event)}
    return lambda *name, **changed: str(SCRIPT.main([str(text), *name], job | changed))


def test_it_is_made_once_and_then_updated(comment: Comment, github: GitHub, text: Path) -> None:
    github.add("Nice work")
    assert comment() == "commented on pull request 7"
    text.write_text("Faster by 2 ms", encoding="utf-8")
    assert comment() == "updated the comment on pull request 7"
    assert [c["body"].partition("\n")[2] or c["body"] for c in github.comments] == ["Nice work", "Faster by 2 ms"]


# Comments of others -> names under which it is called, and the comments that are then its own.
OTHERS = {
    "a hundred and more": ([f"comment {number}" for number in range(130)], [(), ()], 1),
    "none, and two names": ([], [("small",), ("large",), ("small",)], 2),
    "a person who copies the marker": (["<!-- ddprof: ddprof -->\nmine"], [()], 1),
}


@pytest.mark.parametrize(("bodies", "names", "own"), OTHERS.values(), ids=OTHERS)
def test_it_is_found_among_comments_of_others_which_stay(comment: Comment, github, bodies, names, own: int) -> None:
    for body in bodies:
        github.add(body)
    for name in names:
        comment(*name)
    assert [c["body"] for c in github.comments[: len(bodies)]] == bodies and len(github.comments) == len(bodies) + own
    assert sum("page=2" in line for line in github.asked) == (len(names) if len(bodies) > 100 else 0)


def test_a_long_text_is_cut_and_says_so(comment: Comment, github: GitHub, text: Path) -> None:
    text.write_text("x" * 100_000, encoding="utf-8")
    comment()
    (made,) = github.comments
    assert len(made["body"]) == SCRIPT.MAX_CHARACTERS and made["body"].endswith(SCRIPT.CUT)


def test_what_refuses_a_comment_is_said_and_breaks_nothing(comment: Comment, github: GitHub, tmp_path: Path) -> None:
    assert "no token" in comment(GITHUB_TOKEN="")
    (tmp_path / "event.json").write_text('{"ref": "refs/heads/main"}')
    assert "not started by a pull request" in comment()
    (tmp_path / "event.json").write_text('{"pull_request": {"number": 7}}')
    github.reads_only = True
    assert "pull-requests: write" in comment()
    assert "401" in comment(GITHUB_TOKEN="another")
    assert "could not be reached" in comment(GITHUB_API_URL="http://127.0.0.1:9")
    assert github.comments == []
