"""Storages by URL: what cannot be used is refused within seconds, and never with a password."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from twofold.planner.search.space import Point, Space
from twofold.planner.search.storage import shown, storage_from_url, without_secrets
from twofold.planner.search.study import Outcome, search
from twofold.profiles.errors import InvalidOption, TwofoldError

Objective = Callable[[Point], Outcome]


@pytest.mark.parametrize(
    "url",
    [
        "redis://:hunter2secret@127.0.0.1:1/0",
        "postgresql://u:hunter2secret@127.0.0.1:1/d",
        "postgresql://u@127.0.0.1:1/d?password=hunter2secret",
        "postgresql://u:hunter2secret@[::1/d",
        "mysql://u:hunter2secret@127.0.0.1:1/d",
        "nonsense://u:hunter2secret@x",
        "sqlite:////nowhere/at/all.db?password=hunter2secret",
        "hunter2secret@plain",
        "",
    ],
)
def test_a_storage_that_does_not_answer_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        storage_from_url(url)
    error = refused.value
    assert "hunter2" not in f"{error} {error.found} {error.needed} {error.hint}"
    assert error.needed and error.hint
    assert error.__cause__ is None and (error.__context__ is None or error.__suppress_context__)


def test_a_server_that_accepts_and_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for url in (f"redis://:hunter2secret@127.0.0.1:{port}/0", f"postgresql://u:hunter2secret@127.0.0.1:{port}/d"):
            with pytest.raises(InvalidOption, match="cannot be used") as refused:
                storage_from_url(url, seconds=0.5)
            assert "hunter2" not in str(refused.value) + str(refused.value.found)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("postgresql+psycopg2://u:pw@h:5432/d?sslmode=require", "postgresql+psycopg2://u:***@h:5432/d"),
        ("redis://h/3", "redis://h/3"),
        ("sqlite:///a/b.db", "sqlite:///a/b.db"),
        ("redis://h:notaport/0", "redis://…"),
    ],
)
def test_a_url_is_shown_without_what_is_secret(url: str, text: str) -> None:
    assert shown(url) == text


def test_a_password_is_cut_out_however_it_is_written() -> None:
    url = "postgresql://u:p%40ss%2Fword@h/d"
    text = "failed for p@ss/word and p%40ss%2Fword at postgresql://u:p%40ss%2Fword@h/d"
    assert "ss" not in without_secrets(text, url).replace("postgresql", "").replace("pass", "")
    assert without_secrets("Error: ab is wrong", "redis://:ab@h") == "Error"


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(InvalidOption) as refused:
        storage_from_url("redis://127.0.0.1:1/0")
    assert refused.value.needed == "a driver for it"
    assert refused.value.hint == "pip install redis"


def test_sqlite_holds_a_study(tmp_path: Path, space: Space, objective: Objective, first: Point) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    one = search(space, objective, first, n_trials=24, storage=storage_from_url(url))
    two = search(space, objective, first, n_trials=4, seed=5, storage=storage_from_url(url))
    assert two.n_others > 0
    assert two.outcome.seconds == one.outcome.seconds  # found by the first, tried again by the second
    assert two.n_trials == 4


def test_a_database_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "study.db").write_bytes(b"this is not a database, and long enough to be looked at" * 40)
    with pytest.raises(InvalidOption, match="cannot be used"):
        storage_from_url(f"sqlite:///{tmp_path / 'study.db'}")


def test_a_storage_that_fails_half_way_says_so(
    tmp_path: Path, space: Space, objective: Objective, first: Point
) -> None:
    path = tmp_path / "study.db"
    storage = storage_from_url(f"sqlite:///{path}")

    def breaking(point: Point) -> Outcome:
        path.write_bytes(b"overwritten by somebody" * 4096)
        return objective(point)

    with pytest.raises(TwofoldError, match="storage failed") as refused:
        search(space, breaking, first, n_trials=3, storage=storage)
    assert refused.value.hint is not None
