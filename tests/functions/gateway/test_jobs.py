from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import pytest
from blake3 import blake3

_ASYNC = {"prefer": "respond-async"}


def _until(http: httpx.Client, location: str, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        body: dict[str, Any] = http.get(location).json()
        if done(body):
            return body
    raise AssertionError(f"never happened: {body}")


def _has_ended(body: dict[str, Any]) -> bool:
    return body["status"] not in ("queued", "running")


def _chat(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "chat", "messages": [{"role": "user", "content": text}], **fields}


def test_a_request_can_be_started_now_and_read_later(http: httpx.Client) -> None:
    accepted = http.post("/v1/pipelines/describe", json={"value": 7}, headers=_ASYNC)
    assert accepted.status_code == 202
    assert accepted.headers["preference-applied"] == "respond-async"
    location = accepted.headers["location"]
    assert location == f"/v1/requests/{accepted.json()['id']}"
    ended = _until(http, location, _has_ended)
    assert ended["status"] == "succeeded"
    assert ended["pipeline"] == "describe"
    assert ended["outputs"] == {"kind": "int", "value": 7}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", _chat("hi")),
        ("/v1/audio/speech", {"model": "speak", "input": "hi", "voice": "alloy"}),
        ("/v1/embeddings", {"model": "embed", "input": "hi"}),
    ],
)
def test_every_door_answers_later_when_asked_to(http: httpx.Client, path: str, body: dict[str, Any]) -> None:
    accepted = http.post(path, json=body, headers=_ASYNC)
    assert accepted.status_code == 202
    assert _until(http, accepted.headers["location"], _has_ended)["status"] == "succeeded"


def test_the_same_idempotency_key_is_the_same_request(http: httpx.Client) -> None:
    headers = {**_ASYNC, "idempotency-key": "order 66"}
    first = http.post("/v1/pipelines/describe", json={"value": 1}, headers=headers)
    second = http.post("/v1/pipelines/describe", json={"value": 1}, headers=headers)
    other = http.post("/v1/pipelines/describe", json={"value": 1}, headers={**_ASYNC, "idempotency-key": "order 67"})
    assert first.json()["id"] == second.json()["id"] != other.json()["id"]
    _until(http, first.headers["location"], _has_ended)
    spans = http.get(f"{first.headers['location']}/trace").json()["spans"]
    assert [span["stage"] for span in spans] == ["describe"]


def test_a_failed_request_says_why(http: httpx.Client) -> None:
    accepted = http.post("/v1/chat/completions", json=_chat("fail context_length_exceeded"), headers=_ASYNC)
    ended = _until(http, accepted.headers["location"], _has_ended)
    assert ended["status"] == "failed"
    assert ended["error"]["code"] == "context_length_exceeded"
    assert ended["error"]["stage"] == "answer"


def test_a_running_request_can_be_cancelled(http: httpx.Client) -> None:
    location = http.post("/v1/chat/completions", json=_chat("wait"), headers=_ASYNC).headers["location"]
    assert http.delete(location).json()["status"] == "cancelled"
    _until(http, location, lambda body: body["status"] == "cancelled" and "finished_s" in body)
    assert http.delete(location).json()["status"] == "cancelled"


def test_cancelling_what_has_ended_changes_nothing(http: httpx.Client) -> None:
    accepted = http.post("/v1/pipelines/describe", json={"value": 7}, headers=_ASYNC)
    _until(http, accepted.headers["location"], _has_ended)
    assert http.delete(accepted.headers["location"]).json()["status"] == "succeeded"


def test_a_request_that_cannot_start_is_refused_at_once(http: httpx.Client) -> None:
    assert http.post("/v1/pipelines/describe", json={}, headers=_ASYNC).status_code == 400
    assert http.post("/v1/pipelines/nothing", json={}, headers=_ASYNC).status_code == 404


@pytest.mark.parametrize("request_id", ["nobody", "*", ">", "a.b", "x" * 65, "%2a"])
def test_an_unknown_request_is_404(http: httpx.Client, request_id: str) -> None:
    for response in (
        http.get(f"/v1/requests/{request_id}"),
        http.delete(f"/v1/requests/{request_id}"),
        http.get(f"/v1/requests/{request_id}/trace"),
    ):
        assert response.status_code == 404
        assert response.json()["error"]["code"] == "unknown_request"


def test_the_request_id_finds_the_trace_of_every_stage(http: httpx.Client) -> None:
    request_id = http.post("/v1/chat/completions", json=_chat("hi")).headers["x-request-id"]
    body = _until(http, f"/v1/requests/{request_id}/trace", lambda body: len(body.get("spans", ())) == 2)
    assert {span["stage"] for span in body["spans"]} == {"answer", "assemble"}
    assert all(span["status"] == "ok" and span["finished_s"] >= span["started_s"] for span in body["spans"])


def test_a_deadline_that_passes_is_504(http: httpx.Client) -> None:
    response = http.post("/v1/chat/completions", json=_chat("wait"), headers={"x-omnibus-timeout-s": "0.2"})
    assert response.status_code == 504
    assert response.json()["error"]["code"] == "deadline_exceeded"


def test_a_deadline_that_passes_in_a_stream_is_its_last_event(http: httpx.Client) -> None:
    headers = {"x-omnibus-timeout-s": "0.3"}
    response = http.post("/v1/chat/completions", json=_chat("so wait", stream=True), headers=headers)
    assert response.status_code == 200
    assert '"content":"so"' in response.text
    assert '"code":"deadline_exceeded"' in response.text
    assert response.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("header", "value"),
    [("x-omnibus-timeout-s", "soon"), ("x-omnibus-timeout-s", "-1"), ("x-omnibus-timeout-s", "nan"),
     ("x-omnibus-timeout-s", "1e9"), ("x-omnibus-lane", "fast")],
)  # fmt: skip
def test_a_header_outside_its_contract_is_named(http: httpx.Client, header: str, value: str) -> None:
    response = http.post("/v1/pipelines/describe", json={"value": 1}, headers={header: value})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == header


def test_lane_trace_context_and_labels_travel(http: httpx.Client) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = {"x-omnibus-lane": "batch", "traceparent": parent, "x-mm-context": "demo"}
    request_id = http.post("/v1/pipelines/describe", json={"value": 1}, headers=headers).headers["x-request-id"]
    body = _until(http, f"/v1/requests/{request_id}/trace", lambda body: bool(body.get("spans")))
    assert body["spans"][0]["traceparent"] == parent


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_cancels_its_request(gateway_url: str, http: httpx.Client, stream: bool) -> None:
    text = f"so wait {uuid4()}"
    body = httpx.Request("POST", gateway_url, json=_chat(text, stream=stream)).content
    host, port = gateway_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as client:
        head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        client.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        if stream:
            received = b""
            while b'"content":" wait"' not in received:
                received += client.recv(65536)
        else:
            _until_media(http, f"began: {text}")
    _until_media(http, f"cancelled: {text}")


def _until_media(http: httpx.Client, text: str) -> None:
    deadline = time.monotonic() + 20
    while http.get(f"/v1/media/{blake3(text.encode()).hexdigest()}").text != text:
        assert time.monotonic() < deadline
