"""Say a text on the pull request of this job: one comment, updated at the next push, never a second one.

    GITHUB_TOKEN=... python .ci/comment.py TEXT.md [NAME]

NAME keeps the comments of several runs apart. Reads what GitHub sets for a step: GITHUB_API_URL, GITHUB_REPOSITORY,
GITHUB_EVENT_PATH. The token needs `pull-requests: write`. Without a token, outside of a pull request, or where GitHub
refuses (pull requests from forks get a token that only reads) it says why and ends with 0: the job summary holds the
text as well. Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

MAX_CHARACTERS = 65_536  # of a comment on GitHub
PER_PAGE = 100
MAX_PAGES = 30  # as many comments as GitHub lists of an issue
PATIENCE_S = 30
CUT = "\n\n(cut here: the job summary has all of it)"


class Refused(Exception):
    """No comment was made; the message has the reason."""


def main(arguments: list[str], environment: Mapping[str, str]) -> str:
    """Make or update the comment; returns a line that says what was done."""
    name = arguments[1] if len(arguments) > 1 and arguments[1] else "ddprof"
    marker = f"<!-- ddprof: {re.sub('[^A-Za-z0-9_. -]', '', name)} -->\n"
    try:
        token = environment.get("GITHUB_TOKEN") or ""
        if not token:
            raise Refused("no token was given")
        place = f"/repos/{environment['GITHUB_REPOSITORY']}/issues"
        number = pull_request(environment)
        text = limited(marker + Path(arguments[0]).read_text(encoding="utf-8"))
        said = of_this_job(environment, token, f"{place}/{number}/comments", marker)
        if said is None:
            asked(environment, token, "POST", f"{place}/{number}/comments", {"body": text})
            return f"commented on pull request {number}"
        asked(environment, token, "PATCH", f"{place}/comments/{said}", {"body": text})
        return f"updated the comment on pull request {number}"
    except Refused as reason:
        return f"no comment: {reason}"


def pull_request(environment: Mapping[str, str]) -> int:
    """The number of the pull request that started the job. Raises Refused where none did."""
    file = environment.get("GITHUB_EVENT_PATH") or ""
    event = json.loads(Path(file).read_text(encoding="utf-8")) if file and Path(file).is_file() else {}
    number = (event.get("pull_request") or {}).get("number")
    if not isinstance(number, int):
        raise Refused("this job was not started by a pull request")
    return number


def limited(text: str) -> str:
    """The text, as long as GitHub takes it."""
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - len(CUT)] + CUT


def of_this_job(environment: Mapping[str, str], token: str, path: str, marker: str) -> int | None:
    """The identifier of the comment that an earlier run has left; comments of people are never touched."""
    for comment in comments(environment, token, path):
        begins = (comment.get("body") or "").replace("\r\n", "\n").startswith(marker)
        if begins and (comment.get("user") or {}).get("type") == "Bot":
            return int(comment["id"])
    return None


def comments(environment: Mapping[str, str], token: str, path: str) -> Iterator[dict[str, Any]]:
    """All comments, page by page."""
    for page in range(1, MAX_PAGES + 1):
        listed = asked(environment, token, "GET", f"{path}?per_page={PER_PAGE}&page={page}")
        yield from listed
        if len(listed) < PER_PAGE:
            return


def asked(
    environment: Mapping[str, str], token: str, method: str, path: str, body: dict[str, str] | None = None
) -> Any:
    """GitHub's answer. Raises Refused where there is none, or it is an error."""
    address = environment.get("GITHUB_API_URL", "https://api.github.com").rstrip("/") + path
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/vnd.github+json",
        "X-GitHub-Api-Version": "2022-11-28",
        "User-Agent": "ddprof",
    }
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        why = " (the token needs `pull-requests: write`)" if error.code in (401, 403, 404) else ""
        raise Refused(f"GitHub answered {error.code} to {method} {urllib.parse.urlsplit(address).path}{why}") from error
    except (OSError, ValueError) as error:
        raise Refused(f"GitHub could not be reached: {error}") from error


if __name__ == "__main__":
    print(f"ddprof: {main(sys.argv[1:], os.environ)}", file=sys.stderr)
