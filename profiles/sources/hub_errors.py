"""Why the Hub is not asked, and the Hub client's exceptions, as messages to act on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from twofold.profiles.errors import ModelNotFound
from twofold.profiles.settings import get_settings


def refuse_offline(what: str) -> None:
    """Stop before the network is asked for `what`, where the setting `offline` says so.

    Raises:
        ModelNotFound: naming the setting.
    """
    if get_settings().offline:
        raise ModelNotFound(
            f"{what} cannot be fetched: twofold is set to stay offline",
            hint="TWOFOLD_OFFLINE=0, or set offline = false in the settings (twofold doctor says where they are)",
        )


@contextlib.contextmanager
def explained(repo: str, revision: str | None) -> Iterator[None]:
    """Turn a failed request about `repo` into `ModelNotFound`; a full disk and our own errors pass."""
    from huggingface_hub import errors

    # The client's HTTP library has changed between its versions; its errors module always exports the base class.
    http_error: type[Exception] = errors.HTTPError  # type: ignore[attr-defined]
    try:
        yield
    except errors.GatedRepoError as error:
        raise ModelNotFound(
            f"{repo} is gated: its owner asks you to accept terms first",
            found="no token, or one of an account without access",
            hint=f"accept the terms on the page of {repo} on the Hub, then: hf auth login",
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ModelNotFound(f"{repo} has no revision {revision}", hint=f"leave out @{revision}") from error
    except errors.RepositoryNotFoundError as error:
        raise ModelNotFound(
            f"there is no model {repo} on the Hub, or it is private",
            hint=_near(repo) or "check the spelling; for a private model: hf auth login",
        ) from error
    except errors.OfflineModeIsEnabled as error:
        raise ModelNotFound(
            f"{repo} is not in the cache, and the Hub is switched off (HF_HUB_OFFLINE)",
            hint="unset HF_HUB_OFFLINE, or use a local model",
        ) from error
    except errors.LocalEntryNotFoundError as error:
        raise _unreachable(repo, error) from error
    except errors.EntryNotFoundError as error:
        raise ModelNotFound(f"a file of {repo} is missing on the Hub", hint="check the model's files") from error
    except errors.HfHubHTTPError as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status == 401:
            raise ModelNotFound(f"the Hub refused the token for {repo}", hint="hf auth login") from error
        raise ModelNotFound(
            f"the Hub answered with an error for {repo}", found=f"HTTP status {status}", hint="try again later"
        ) from error
    except http_error as error:
        raise _unreachable(repo, error) from error
    except (ConnectionError, TimeoutError, ValueError) as error:  # ValueError: a proxy or address of an unknown kind
        raise _unreachable(repo, error) from error


def _unreachable(repo: str, error: Exception) -> ModelNotFound:
    return ModelNotFound(
        f"the Hub cannot be reached for {repo}",
        found=f"{type(error).__name__}: {error}".splitlines()[0][:200],
        hint="check the network, or use smollm2, a local folder or a .gguf file",
    )


def _near(repo: str) -> str | None:
    from twofold.profiles.sources.resolve import nearest

    names = nearest(repo)
    return f"did you mean {' or '.join(names)}? for a private model: hf auth login" if names else None
