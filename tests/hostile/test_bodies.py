"""Bodies, headers, names and references that are no requests."""

from __future__ import annotations

import gzip
import json
import socket
from typing import Any

import pytest

from tests.hostile.stack import Stack, answered, refused
from tests.made.pictures import corners, saved

pytestmark = pytest.mark.models

CHAT = '{"model": "chat", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}'

BROKEN: dict[str, tuple[str | bytes, str]] = {
    "half of it": ('{"model":', "invalid_input"),
    "nothing": ("", "invalid_input"),
    "null": ("null", "invalid_input"),
    "a list": ("[]", "invalid_input"),
    "bytes that are no UTF-8": (b'{"model": "\xff\xfe"}', "http_400"),
    "200,000 brackets": ("[" * 200_000, "http_400"),
    "an object in an object, 100,000 times": ('{"a":' * 100_000 + "1" + "}" * 100_000, "http_400"),
    "a number of 5,000 digits": ('{"model": ' + "9" * 5_000 + "}", "http_400"),
    "100,000 wrong messages": (json.dumps({"model": "chat", "messages": [1] * 100_000}), "invalid_input"),
    "a role that is a list": ('{"model": "chat", "messages": [{"role": [1], "content": "a"}]}', "invalid_input"),
    "a role that nobody plays": ('{"model": "chat", "messages": [{"role": "king", "content": "a"}]}', "invalid_input"),
    "a part of no kind": (CHAT.replace('"Hi"', '[{"type": "file"}]'), "invalid_input"),
    "an image that is not there": (CHAT.replace('"Hi"', '[{"type": "image_url"}]'), "invalid_input"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_body_that_is_no_chat_is_refused(stack: Stack, what: str) -> None:
    body, code = BROKEN[what]
    refused(stack.http.post("/v1/chat/completions", content=body, headers=JSON), 400, code)


JSON = {"content-type": "application/json"}


@pytest.mark.parametrize("media_type", ["text/plain", "application/xml", "application/x-www-form-urlencoded", ";;", ""])
def test_a_body_of_another_type_gets_415_and_the_right_type(stack: Stack, media_type: str) -> None:
    response = stack.http.post("/v1/chat/completions", content=CHAT, headers={"content-type": media_type})
    refused(response, 415, "media_unsupported", "send application/json")


def test_json_instead_of_a_form_gets_415(stack: Stack) -> None:
    response = stack.http.post("/v1/audio/transcriptions", content="{}", headers=JSON)
    refused(response, 415, "media_unsupported", "send multipart/form-data")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/pipelines/embed"])
def test_a_compressed_body_is_refused(stack: Stack, path: str) -> None:
    bomb = gzip.compress(bytes(10_000_000))
    response = stack.http.post(path, content=bomb, headers={**JSON, "content-encoding": "gzip"})
    refused(response, 415, "media_unsupported", "uncompressed")


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (b"abc", "multipart/form-data"),
        (b"abc", "multipart/form-data; boundary=x"),
        (b"--x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nasr", "multipart/form-data; boundary=x"),
        (b"--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\na\r\n" * 2_000 + b"--x--",
         "multipart/form-data; boundary=x"),
    ],
    ids=["no boundary", "no part", "half a part", "2,000 files"],
)  # fmt: skip
def test_a_form_that_is_none_is_refused(stack: Stack, body: bytes, media_type: str) -> None:
    response = stack.http.post("/v1/audio/transcriptions", content=body, headers={"content-type": media_type})
    assert response.status_code == 400
    assert response.json()["error"]["request_id"] == response.headers["x-request-id"]


def test_a_body_over_the_limit_is_refused_before_it_is_read(stack: Stack) -> None:
    host, port = stack.http.base_url.host, stack.http.base_url.port
    with socket.create_connection((host, port or 80), timeout=10) as connection:
        connection.sendall(b"POST /v1/pipelines/ocr HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n")
        assert b" 413 " in connection.recv(4096).split(b"\r\n")[0]


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/9.9\r\n\r\n",
        b"\0\1\2\3\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 300_000 + b"\r\n\r\n",
        b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["version", "binary", "path", "length", "header", "chunk"],
)
def test_what_is_no_http_ends_its_own_connection_only(stack: Stack, sent: bytes) -> None:
    host, port = stack.http.base_url.host, stack.http.base_url.port
    with socket.create_connection((host, port or 80), timeout=10) as connection:
        connection.sendall(sent)
        assert b" 500 " not in connection.recv(4096).split(b"\r\n")[0]
    assert answered(stack.http.get("/v1/models"))["data"]


PIPELINES: dict[str, tuple[str, str, int, str, str]] = {
    "an unknown pipeline": ("nobody", "{}", 404, "unknown_pipeline", "nobody"),
    "a pipeline with a long name": ("x" * 5_000, "{}", 404, "unknown_pipeline", "known: chat"),
    "a pipeline of NUL": ("%00", "{}", 404, "unknown_pipeline", "known: chat"),
    "no inputs": ("embed", "{}", 400, "invalid_input", "'texts' is missing"),
    "an unknown input": ("embed", '{"texts": ["a"], "x": 1}', 400, "invalid_input", "'x' is not an input"),
    "an input of another type": ("embed", '{"texts": "abc"}', 400, "invalid_input", "texts"),
    "a number past 64 bits": ("embed", '{"texts": [' + "9" * 40 + "]}", 400, "invalid_input", "64 bits"),
    "lists in lists": ("embed", '{"texts": ' + "[" * 150 + "]" * 150 + "}", 400, "invalid_input", "texts"),
    "lists without end": ("embed", '{"texts": ' + "[" * 900 + "]" * 900 + "}", 400, "invalid_input", "recursion"),
    "a value almost as large as a message": (
        "speak", json.dumps({"text": "hi", "options": {"voice": "x" * 1_047_000}}), 400, "invalid_input", "voice",
    ),
    "a value larger than a message": (
        "speak", json.dumps({"text": "hi", "options": {"voice": "x" * 1_048_576}}), 413, "payload_too_large", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", PIPELINES)
def test_a_pipeline_request_that_is_none_is_refused(stack: Stack, what: str) -> None:
    name, body, status, code, words = PIPELINES[what]
    refused(stack.http.post(f"/v1/pipelines/{name}", content=body, headers=JSON), status, code, words)


@pytest.mark.parametrize("body", [b"\xc1\xff", b"\x81\x01\x02", b"\x81\xa5texts" + b"\x91" * 2_000 + b"\x01"])
def test_msgpack_that_is_none_is_refused(stack: Stack, body: bytes) -> None:
    response = stack.http.post("/v1/pipelines/embed", content=body, headers={"content-type": "application/msgpack"})
    refused(response, 400, "invalid_input", "msgpack")


def made_up(**fields: Any) -> dict[str, Any]:
    return {"ref": {"digest": "0" * 64, "nbytes": 5, "media_type": "image/png", "key": "media/" + "0" * 64} | fields}


REFERENCES: dict[str, tuple[Any, int, str]] = {
    "a file of the host": (made_up(key="../../../etc/passwd"), 400, "invalid_input"),
    "an absolute path": (made_up(key="/etc/passwd"), 400, "invalid_input"),
    "another object": (made_up(key="tensors/" + "0" * 64), 400, "invalid_input"),
    "a key of NUL": (made_up(key="a\0b"), 400, "invalid_input"),
    "a key without end": (made_up(key="x" * 900_000), 400, "invalid_input"),
    "no digest": (made_up(digest="", key="media/"), 400, "invalid_input"),
    "fewer than no bytes": (made_up(nbytes=-5), 400, "invalid_input"),
    "what was never stored": (made_up(), 404, "object_missing"),
    "nothing": ({}, 400, "invalid_input"),
    "bad base64": ({"data": "@"}, 400, "invalid_input"),
    "a sense that nobody has": ({"data": "AAAA", "modality": "smell"}, 400, "invalid_input"),
    "a number": (5, 400, "invalid_input"),
}


@pytest.mark.parametrize("what", REFERENCES)
def test_media_that_nobody_sent_are_refused(stack: Stack, what: str) -> None:
    item, status, code = REFERENCES[what]
    refused(stack.post("/v1/pipelines/ocr", media=[item]), status, code)


@pytest.mark.parametrize("digest", ["%2e%2e", "%00", "x" * 3_000, "0" * 64, "*"])
def test_media_are_read_by_their_digest_alone(stack: Stack, digest: str) -> None:
    assert stack.http.get(f"/v1/media/{digest}").status_code in (400, 404)


@pytest.mark.parametrize("name", ["*", "%3e", "%00", "x" * 3_000, "a.b", "nobody"])
def test_a_request_id_is_never_a_wildcard(stack: Stack, name: str) -> None:
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/trace")):
        refused(stack.http.request(method, f"/v1/requests/{name}{path}"), 404, "unknown_request", "no ")


HEADERS = {
    "x-omnibus-timeout-s": ("nan", 400, "invalid_input"),
    "X-Omnibus-Timeout-S": ("0.0001", 504, "deadline_exceeded"),
    "x-omnibus-lane": ("vip", 400, "invalid_input"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_means_nothing_is_refused(stack: Stack, name: str) -> None:
    value, status, code = HEADERS[name]
    response = stack.http.post("/v1/pipelines/embed", json={"texts": ["a"]}, headers={name: value})
    refused(response, status, code)


@pytest.mark.parametrize(
    ("name", "value"),
    [("traceparent", "junk"), ("x-mm-context", "x" * 40_000), ("accept", "nonsense"), ("x-file-name", "../../a\tb")],
)
def test_a_header_that_does_no_harm_is_taken(stack: Stack, name: str, value: str) -> None:
    assert answered(stack.http.post("/v1/pipelines/embed", json={"texts": ["a"]}, headers={name: value}))["outputs"]


def test_unknown_models_paths_and_methods_are_told(stack: Stack) -> None:
    refused(stack.chat("Hi", model="gpt-9"), 404, "model_not_found", "'gpt-9'")
    refused(stack.chat("Hi", model="g" * 900_000), 404, "model_not_found", "smollm2")
    refused(stack.http.get("/v1/models/nobody"), 404, "model_not_found", "'nobody'")
    refused(stack.http.get("/nobody"), 404, "http_404", "/nobody")
    refused(stack.http.put("/v1/embeddings"), 405, "http_405", "PUT")


def test_a_name_and_a_type_of_media_are_only_told(stack: Stack) -> None:
    picture = saved(corners(), "PNG")
    headers = {"content-type": "image/png", "x-file-name": "n" * 30_000}
    assert answered(stack.http.post("/v1/pipelines/ocr", content=picture, headers=headers))["outputs"]["pages"]
