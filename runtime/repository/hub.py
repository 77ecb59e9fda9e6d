"""What a Hugging Face repository holds, asked before anything is downloaded.

Source: `GET /api/models/{repo}/revision/{revision}` of the Hub API, https://huggingface.co/docs/hub/api
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from bus.errors import ModelSourceError
from runtime.repository.registries import hub_endpoint


@dataclass(frozen=True, slots=True)
class HubListing:
    """One commit of a repository.

    Attributes:
        repo: `org/name`.
        commit: Its id, whatever branch or tag was asked for.
        files: Paths in it.
        digests: SHA-256 of those that the hub knows it of: large files, such as weights.
        license: SPDX id or another name; None: it does not say.
    """

    repo: str
    commit: str
    files: tuple[str, ...]
    digests: Mapping[str, str]
    license: str | None


def list_hub(repo: str, revision: str) -> HubListing:
    """Ask for a repository's files.

    Args:
        repo: `org/name`.
        revision: A branch, a tag or a commit.

    Raises:
        ModelSourceError: (retryable unless it was refused) no such repository, or no answer.
    """
    import httpx

    endpoint, token = hub_endpoint()
    url = f"{endpoint}/api/models/{repo}/revision/{quote(revision, safe='')}?blobs=true"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        response = httpx.get(url, headers=headers, follow_redirects=True, timeout=60.0)
        response.raise_for_status()
        about = response.json()
        card = about.get("cardData") or {}
        files = tuple(str(one["rfilename"]) for one in about["siblings"])
        digests = {
            str(one["rfilename"]): str(one["lfs"]["sha256"]) for one in about["siblings"] if one.get("lfs") is not None
        }
        return HubListing(repo, str(about["sha"]), files, digests, card.get("license"))
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        raise ModelSourceError(f"hf://{repo}@{revision} answers {status}", retryable=status >= 500) from error
    except httpx.HTTPError as error:
        raise ModelSourceError(f"hf://{repo}@{revision} does not answer: {error or type(error).__name__}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelSourceError(f"hf://{repo}@{revision} gave no listing: {error!r}", retryable=False) from error
