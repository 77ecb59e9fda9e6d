from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import httpx
import pytest


def test_every_answer_has_a_request_id_of_its_own(http: httpx.Client) -> None:
    responses = [http.get("/health"), http.get("/v1/models"), http.get("/nothing"), http.post("/v1/embeddings")]
    ids = {response.headers["x-request-id"] for response in responses}
    assert len(ids) == 4
    assert all(len(request_id) == 27 for request_id in ids)


def test_a_path_or_method_that_is_not_there_has_the_same_error_shape(http: httpx.Client) -> None:
    for response, status in ((http.get("/nothing"), 404), (http.put("/v1/embeddings"), 405)):
        assert response.status_code == status
        assert response.json()["error"]["code"] == f"http_{status}"
        assert response.json()["error"]["request_id"] == response.headers["x-request-id"]


@pytest.mark.parametrize("content", [b"{", b"", b"null", b"[]", b'{"model": "chat"'])
def test_malformed_json_is_400(http: httpx.Client, content: bytes) -> None:
    response = http.post("/v1/chat/completions", content=content, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_input"


def test_health_says_what_can_be_done(http: httpx.Client) -> None:
    health = http.get("/health").json()
    assert health["status"] == "READY"
    assert health["pipelines"]["chat"] == "ready"


def test_the_docs_show_every_endpoint(http: httpx.Client) -> None:
    page = http.get("/docs").text
    assert "swagger" in page.lower()
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert loaded, page
    for address in loaded:
        assert address.startswith("/"), f"{address} is on another host"
        assert http.get(address).status_code == 200
    paths = http.get("/openapi.json").json()["paths"]
    assert {
        "/v1/chat/completions",
        "/v1/audio/transcriptions",
        "/v1/audio/speech",
        "/v1/embeddings",
        "/v1/models",
        "/v1/pipelines",
        "/v1/pipelines/{name}",
        "/v1/media/{digest}",
        "/v1/requests/{request_id}",
        "/v1/requests/{request_id}/trace",
        "/health",
    } <= set(paths)


def test_a_request_without_the_key_is_401(guarded: httpx.Client) -> None:
    assert guarded.get("/v1/models").status_code == 200
    for value in (None, "Bearer wrong", "sesame", "Basic sesame", "Bearer sesame2"):
        guarded.headers.pop("authorization", None)
        response = guarded.get("/v1/models", headers={} if value is None else {"authorization": value})
        assert response.status_code == 401
        assert response.json()["error"]["type"] == "authentication_error"
        assert response.headers["www-authenticate"] == "Bearer"


def test_health_and_docs_need_no_key(guarded: httpx.Client) -> None:
    guarded.headers.pop("authorization")
    assert guarded.get("/health").status_code == 200
    assert guarded.get("/docs").status_code == 200


def test_a_body_over_the_limit_is_413_whether_or_not_its_length_is_told(guarded: httpx.Client) -> None:
    # The start of a form that is right so far: one that is wrong is refused for that, whichever comes first.
    form = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'

    def chunks() -> Iterator[bytes]:
        yield form
        for _ in range(7):
            yield b"x" * 8000

    for path, media_type in (
        ("/v1/pipelines/describe", "application/json"),
        ("/v1/chat/completions", "application/json"),
        ("/v1/audio/transcriptions", "multipart/form-data; boundary=x"),
    ):
        for content in (form + b"x" * 50_001, chunks()):
            response = guarded.post(path, content=content, headers={"content-type": media_type})
            assert response.status_code == 413, path
            assert response.json()["error"]["code"] == "payload_too_large"


def test_more_requests_than_there_is_room_for_get_429(guarded_url: str, guarded: httpx.Client) -> None:
    host, port = guarded_url.removeprefix("http://").split(":")
    head = (
        "POST /v1/pipelines/describe HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sesame\r\n"
        "content-type: application/json\r\nexpect: 100-continue\r\ncontent-length: 12\r\n\r\n"
    )
    with (
        socket.create_connection((host, int(port)), timeout=20) as one,
        socket.create_connection((host, int(port)), timeout=20) as two,
    ):
        for client in (one, two):
            client.sendall(head.encode())
            assert b"100 Continue" in client.recv(4096)
        refused = guarded.get("/v1/models")
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["error"]["type"] == "rate_limit_error"
        for client in (one, two):
            client.sendall(b'{"value": 1}')
            assert b"200 OK" in client.recv(4096)
    assert guarded.get("/v1/models").status_code == 200


def test_more_bytes_than_there_is_room_for_get_429(guarded_url: str, guarded: httpx.Client) -> None:
    host, port = guarded_url.removeprefix("http://").split(":")
    head = (
        "POST /v1/pipelines/describe HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sesame\r\n"
        "content-type: text/plain\r\ntransfer-encoding: chunked\r\nexpect: 100-continue\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=20) as slow:
        slow.sendall(head.encode())
        assert b"100 Continue" in slow.recv(4096)
        slow.sendall(b"9c40\r\n" + b"x" * 40_000 + b"\r\n")
        statuses = {guarded.post("/v1/pipelines/describe", json={"value": "x" * 30_000}).status_code for _ in range(50)}
        assert 429 in statuses
    outcome = [guarded.post("/v1/pipelines/describe", json={"value": "x" * 30_000}).status_code for _ in range(50)]
    assert outcome[-1] == 200


def test_requests_at_once_do_not_mix(http: httpx.Client) -> None:
    answers: dict[int, object] = {}

    def ask(number: int) -> None:
        answers[number] = http.post("/v1/pipelines/describe", json={"value": number}).json()["outputs"]["value"]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: number for number in range(40)}


def test_the_gateway_loads_no_engine_and_no_invoker() -> None:
    script = (
        "import sys, functions.gateway.app; from functions.registry import registry; registry.load('functions.stages');"
        "print([name for name in ('onnxruntime', 'functions.invoker', 'torch', 'av', 'minio') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"
