"""Hub models through the real client against a local server: metadata by header bytes, files, every failure."""

from __future__ import annotations

import dataclasses
import json
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from twofold.profiles.errors import CorruptFile, ModelNotFound, UnsafeFile
from twofold.profiles.sources import download_bytes, fetch, identify, read_spec, resolve

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LLAMA = {
    "model_type": "llama", "vocab_size": 128, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "tie_word_embeddings": True,
}  # fmt: skip


@dataclass
class Hub:
    """What the server has, and what was asked of it."""

    url: str = ""
    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refusals: dict[str, tuple[int, str]] = field(default_factory=dict)
    hang_seconds: float = 0.0
    ignores_ranges: bool = False
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    sent_bytes: int = 0


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, body: bool) -> None:
            hub.requests.append((self.command, self.path, self.headers.get("Range")))
            if hub.hang_seconds:
                time.sleep(hub.hang_seconds)
            path = self.path.split("?")[0].strip("/")
            parts = path.split("/")
            repo = "/".join(parts[2:4]) if parts[0] == "api" else "/".join(parts[:2])
            if repo in hub.refusals:
                status, code = hub.refusals[repo]
                return self._send(status, b"{}", body, {"X-Error-Code": code, "X-Error-Message": "refused"})
            if repo not in hub.repos:
                return self._send(404, b"{}", body, {"X-Error-Code": "RepoNotFound"})
            revision = parts[5] if parts[0] == "api" and len(parts) > 5 else (parts[3] if len(parts) > 3 else "main")
            if parts[0] != "api" and revision not in ("main", COMMIT):
                return self._send(404, b"{}", body, {"X-Error-Code": "RevisionNotFound"})
            if parts[0] == "api":
                if len(parts) > 5 and revision not in ("main", COMMIT):
                    return self._send(404, b"{}", body, {"X-Error-Code": "RevisionNotFound"})
                return self._send(200, json.dumps(self._info(repo)).encode(), body, {})
            return self._file(hub.repos[repo], "/".join(parts[4:]), body)

        def _info(self, repo: str) -> dict[str, Any]:
            files = [{"rfilename": name, "size": len(data)} for name, data in hub.repos[repo].items()]
            return {"id": repo, "modelId": repo, "sha": COMMIT, "siblings": files, "private": False, "tags": []}

        def _file(self, files: dict[str, bytes], name: str, body: bool) -> None:
            if name not in files:
                return self._send(404, b"", body, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
            data, status = files[name], 200
            headers = {"ETag": f'"{abs(hash(data)):x}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
            asked = self.headers.get("Range")
            if asked and not hub.ignores_ranges:
                low, high = asked.removeprefix("bytes=").split("-")
                end = int(high) + 1 if high else len(data)
                headers["Content-Range"] = f"bytes {low}-{end - 1}/{len(data)}"
                data, status = data[int(low) : end], 206
            return self._send(status, data, body, headers)

        def _send(self, status: int, data: bytes, body: bool, headers: dict[str, str]) -> None:
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if body:
                try:
                    self.wfile.write(data)
                    hub.sent_bytes += len(data)
                except ConnectionError:
                    pass

    return Handler


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    from huggingface_hub import constants

    state = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(state))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("HF_ENDPOINT", state.url)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub-cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    yield state
    server.shutdown()
    server.server_close()


def safetensors_bytes(**tensors: int) -> bytes:
    """A safetensors file of F32 vectors."""
    entries: dict[str, Any] = {}
    offset = 0
    for name, length in tensors.items():
        entries[name] = {"dtype": "F32", "shape": [length], "data_offsets": [offset, offset + 4 * length]}
        offset += 4 * length
    header = json.dumps(entries).encode()
    return struct.pack("<Q", len(header)) + header + bytes(offset)


def model_files() -> dict[str, bytes]:
    return {
        "config.json": json.dumps(LLAMA).encode(),
        "tokenizer.json": b"{}",
        "model.safetensors": safetensors_bytes(a=100_000),
        "pytorch_model.bin": b"pickle",
        "consolidated.safetensors": safetensors_bytes(a=7),
        "original/model.safetensors": safetensors_bytes(a=9),
        "modeling_evil.py": b"import os",
    }


def test_spec_comes_from_config_and_file_sizes_without_weights(hub: Hub) -> None:
    hub.repos["org/tiny"] = model_files()
    spec = read_spec(resolve("org/tiny"))
    assert (spec.architecture, spec.n_layers, spec.runnable_reason) == ("llama", 2, None)
    assert spec.weights_bytes == len(model_files()["model.safetensors"])
    assert not [path for _, path, _ in hub.requests if "safetensors" in path]
    assert hub.sent_bytes < 5_000


def test_fetch_brings_safetensors_and_tokenizer_never_pickles_or_code(hub: Hub) -> None:
    hub.repos["org/tiny"] = model_files()
    ref, calls = resolve("org/tiny"), []
    wanted = ("config.json", "tokenizer.json", "model.safetensors")
    expected = sum(len(model_files()[name]) for name in wanted)
    assert download_bytes(ref).value == expected
    folder = fetch(ref, lambda done, total: calls.append((done, total)))
    assert {path.name for path in folder.iterdir()} == set(wanted)
    assert (folder / "model.safetensors").read_bytes() == model_files()["model.safetensors"]
    assert calls[-1] == (expected, expected)
    assert calls == sorted(calls)
    assert download_bytes(ref).value == 0


def test_fetched_models_work_without_the_hub(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    hub.repos["org/tiny"] = model_files()
    ref = resolve("org/tiny")
    folder = fetch(ref)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    n_requests = len(hub.requests)
    assert fetch(ref) == folder
    assert read_spec(ref).n_layers == 2
    assert len(hub.requests) == n_requests


def test_own_checkpoints_on_the_hub_are_identified_and_fetched_whole(hub: Hub) -> None:
    quantization = {"quant_method": "twofold", "version": 1, "residual": {"bits": 6}}
    shards = ["dense.safetensors", "base-00001-of-00001.safetensors", "residual-00001-of-00001.safetensors"]
    files = {name: safetensors_bytes(**{name.split("-")[0].split(".")[0]: 50}) for name in shards}
    index = {"weight_map": dict(zip(["dense", "base", "residual"], shards, strict=True))}
    hub.repos["org/tiny-twofold"] = files | {
        "config.json": json.dumps(LLAMA | {"quantization_config": quantization}).encode(),
        "model.safetensors.index.json": json.dumps(index).encode(),
    }
    hub.repos["org/tiny"] = model_files()
    assert identify(resolve("org/tiny")).kind == "hub"
    ref = identify(resolve("org/tiny-twofold"))
    assert (ref.kind, ref.path, ref.name) == ("checkpoint", None, "org--tiny-twofold")
    assert read_spec(ref).runnable_reason is None
    assert {path.name for path in fetch(ref).iterdir()} == set(hub.repos["org/tiny-twofold"])
    assert fetch(ref) == fetch(ref)


def test_without_a_package_index_the_default_model_comes_from_the_hub(
    hub: Hub, smollm2_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from twofold.profiles.sources import aliases

    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    model = dataclasses.replace(aliases.SMOLLM2, hub_revision=COMMIT)
    monkeypatch.setitem(aliases.ALIASES, "smollm2", model)
    hub.repos[model.hub_repo] = {model.file_name: b"another file"}
    with pytest.raises(CorruptFile, match="not the expected file"):
        fetch(resolve("smollm2"))
    hub.repos[model.hub_repo] = {model.file_name: smollm2_gguf.read_bytes()}
    path = fetch(resolve("smollm2"))
    assert path.stat().st_size == model.file_bytes
    assert [item.name for item in path.parent.iterdir() if not item.name.endswith(".lock")] == [model.file_name]


def test_shipped_facts_need_no_request(hub: Hub) -> None:
    spec = read_spec(resolve("google/gemma-4-31B"))
    assert spec.n_layers == 60
    assert hub.requests == []


def test_revision_is_sent(hub: Hub) -> None:
    hub.repos["org/tiny"] = model_files()
    read_spec(resolve(f"org/tiny@{COMMIT}"))
    assert any(f"/revision/{COMMIT}" in path for _, path, _ in hub.requests)
    with pytest.raises(ModelNotFound, match="no revision nosuch"):
        read_spec(resolve("org/tiny@nosuch"))


def test_gguf_repository_is_read_by_ranges(hub: Hub, smollm2_gguf: Path) -> None:
    data = smollm2_gguf.read_bytes()
    hub.repos["org/smol-GGUF"] = {"smol-Q4_1.gguf": data, "smol-Q2_K.gguf": b"other", "mmproj-F16.gguf": b"other"}
    spec = read_spec(resolve("org/smol-GGUF"))
    assert (spec.n_layers, spec.hidden_size, spec.weights_bytes) == (30, 576, len(data))
    assert "smol-Q4_1.gguf" in spec.facts_source
    assert hub.sent_bytes < 8 << 20
    assert all(asked for command, path, asked in hub.requests if path.endswith(".gguf"))
    assert download_bytes(resolve("org/smol-GGUF")).value == len(data)
    named = read_spec(resolve("org/smol-GGUF/smol-Q4_1.gguf"))
    assert named.layers == spec.layers


def test_a_server_without_ranges_does_not_make_us_read_the_model(hub: Hub) -> None:
    hub.repos["org/smol-GGUF"] = {"smol.gguf": b"GGUF" + bytes(64)}
    hub.ignores_ranges = True
    with pytest.raises(ModelNotFound, match="does not give parts"):
        read_spec(resolve("org/smol-GGUF"))


def test_pickles_only_are_refused_before_a_download(hub: Hub) -> None:
    hub.repos["org/old"] = {"config.json": json.dumps(LLAMA).encode(), "pytorch_model.bin": b"pickle"}
    for ask in (fetch, download_bytes):
        with pytest.raises(UnsafeFile, match="pickled") as caught:
            ask(resolve("org/old"))
        assert caught.value.needed == "*.safetensors"
    assert not [path for _, path, _ in hub.requests if ".bin" in path]


@pytest.mark.parametrize(
    ("status", "code", "what", "hint"),
    [
        (401, "GatedRepo", "gated", "hf auth login"),
        (403, "GatedRepo", "gated", "hf auth login"),
        (401, "RepoNotFound", "no model org/closed", "hf auth login"),
        (404, "RepoNotFound", "no model org/closed", "hf auth login"),
        (500, "", "error for org/closed", "later"),
    ],
)
def test_refusals_say_what_to_do(hub: Hub, status: int, code: str, what: str, hint: str) -> None:
    hub.refusals["org/closed"] = (status, code)
    for ask in (read_spec, fetch):
        with pytest.raises(ModelNotFound, match=what) as caught:
            ask(resolve("org/closed"))  # type: ignore[operator]
        assert hint in str(caught.value.hint)


def test_a_near_miss_of_a_known_id_is_suggested(hub: Hub) -> None:
    with pytest.raises(ModelNotFound) as caught:
        read_spec(resolve("google/gemma-4-31B-itt"))
    assert "google/gemma-4-31B-it" in str(caught.value.hint)


@pytest.mark.slow
def test_a_hanging_server_is_given_up(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    from twofold.profiles.sources import hub as module

    assert module.TIMEOUT_SECONDS <= 10
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 1.0)
    hub.hang_seconds = 30.0
    started = time.monotonic()
    with pytest.raises(ModelNotFound, match="cannot be reached"):
        read_spec(resolve("org/slow"))
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("ask", [read_spec, fetch])
def test_no_server_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ask: Callable[[Any], Any]) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelNotFound, match="cannot be reached") as caught:
        ask(resolve("org/tiny"))
    assert "smollm2" in str(caught.value.hint)
    assert download_bytes(resolve("org/tiny")).source == "unknown"


@pytest.mark.parametrize("ask", [read_spec, fetch])
def test_offline(hub: Hub, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Any], Any]) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelNotFound, match="HF_HUB_OFFLINE") as caught:
        ask(resolve("org/tiny"))
    assert caught.value.hint
    assert hub.requests == []
