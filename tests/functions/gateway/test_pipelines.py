from __future__ import annotations

import httpx
import msgpack  # type: ignore[import-untyped]
import pytest
from blake3 import blake3

from tests.functions.gateway.media import data_url, png, text_of, wav


def test_pipelines_are_listed_and_described(http: httpx.Client) -> None:
    listed = http.get("/v1/pipelines").json()["data"]
    assert [pipeline["id"] for pipeline in listed] == ["chat", "describe", "embed", "speak", "transcribe"]
    described = http.get("/v1/pipelines/transcribe").json()
    assert described["inputs"] == {"media": "required", "options": "optional"}
    assert described["stages"] == [
        {"name": "fetch", "function": "media.fetch", "after": []},
        {"name": "listen", "function": "parrot.listen", "after": ["fetch"]},
    ]


@pytest.mark.parametrize("value", ["text", 7, 0.5, True, [1, [2]], {"a": None}, "日本語"])
def test_json_inputs_arrive_as_they_are(http: httpx.Client, value: object) -> None:
    response = http.post("/v1/pipelines/describe", json={"value": value})
    body = response.json()
    assert body["outputs"] == {"kind": type(value).__name__, "value": value}
    assert body["id"] == response.headers["x-request-id"]


@pytest.mark.parametrize("value", ["18446744073709551616", '"\\ud800"', "[" * 300 + "]" * 300])
def test_a_value_that_no_event_can_carry_is_400(http: httpx.Client, value: str) -> None:
    headers = {"content-type": "application/json"}
    response = http.post("/v1/pipelines/describe", content='{"value": ' + value + "}", headers=headers)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["code"] == "invalid_input"


@pytest.mark.parametrize(
    ("body", "place", "said"),
    [
        ('{"value": NaN}', "value", "nan"),
        ('{"value": [0.5, {"deep": [1, -Infinity]}]}', "value.1.deep.1", "-inf"),
        ('{"other": "NaN", "value": 1e999}', "value", "inf"),
        ('{"value": ' + "9" * 400 + ".5}", "value", "inf"),
    ],
)
def test_a_number_that_is_not_finite_is_refused_by_its_place(
    http: httpx.Client, body: str, place: str, said: str
) -> None:
    response = http.post("/v1/pipelines/describe", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["param"], error["message"]) == (place, f"{place}: {said} is not a finite number")


@pytest.mark.parametrize("value", ["NaN", 1e300, -1e-300, [{"Infinity": "1e999"}]])
def test_what_only_looks_like_it_arrives(http: httpx.Client, value: object) -> None:
    response = http.post("/v1/pipelines/describe", json={"value": value})
    assert response.json()["outputs"]["value"] == value


def test_msgpack_goes_in_and_comes_out(http: httpx.Client) -> None:
    response = http.post(
        "/v1/pipelines/describe",
        content=msgpack.packb({"value": b"\x00\xff"}),
        headers={"content-type": "application/msgpack", "accept": "application/msgpack"},
    )
    assert msgpack.unpackb(response.content)["outputs"] == {"kind": "bytes", "value": b"\x00\xff"}


def test_a_raw_body_is_the_one_input(http: httpx.Client) -> None:
    def describe(content: bytes, media_type: str) -> dict[str, object]:
        response = http.post("/v1/pipelines/describe", content=content, headers={"content-type": media_type})
        outputs: dict[str, object] = response.json()["outputs"]
        return outputs

    assert describe("grüezi".encode(), "text/plain; charset=utf-8") == {"kind": "str", "value": "grüezi"}
    assert describe(b"\x00\xff", "application/octet-stream") == {"kind": "bytes", "value": "AP8="}
    large = bytes(range(256)) * 600
    described = describe(large, "application/octet-stream")
    assert described["kind"] == "reference to 153600 bytes"
    assert described["value"] == {
        "digest": blake3(large).hexdigest(),
        "nbytes": 153600,
        "media_type": "application/octet-stream",
        "key": f"media/{blake3(large).hexdigest()}",
    }


def test_media_go_in_by_body_base64_or_data_url(http: httpx.Client) -> None:
    clip = wav(1.5)
    bodies = [
        {"content": clip, "headers": {"content-type": "audio/wav"}},
        {"json": {"media": [{"data": text_of(clip), "name": "a.wav"}]}},
        {"json": {"media": [{"url": data_url(clip, "audio/wav")}]}},
        {
            "content": msgpack.packb({"media": [{"data": clip, "modality": "audio"}]}),
            "headers": {"content-type": "application/msgpack"},
        },
    ]
    for body in bodies:
        outputs = http.post("/v1/pipelines/transcribe", **body).json()["outputs"]  # type: ignore[arg-type]
        assert [transcript["text"] for transcript in outputs["transcripts"]] == ["loud quiet"]


def test_media_of_an_output_can_be_fetched(http: httpx.Client) -> None:
    outputs = http.post("/v1/pipelines/speak", json={"text": "hello"}).json()["outputs"]
    reference = outputs["speech"]["audio"]
    response = http.get(f"/v1/media/{reference['digest']}")
    assert len(response.content) == reference["nbytes"]
    assert blake3(response.content).hexdigest() == reference["digest"]
    assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["0" * 64, "..", "%2e%2e%2fplans", "x/y"])
def test_media_that_are_not_there_are_404(http: httpx.Client, path: str) -> None:
    assert http.get(f"/v1/media/{path}").status_code in (400, 404)


@pytest.mark.parametrize(
    ("content", "media_type", "word"),
    [
        (b"{", "application/json", "not JSON"),
        (b"[1]", "application/json", "map of inputs"),
        (b"\xff\xfe", "application/json", "not JSON"),
        (b"\xc1", "application/msgpack", "not msgpack"),
        (b"{}", "application/json", "'value' is missing"),
        (b'{"value": 1, "valeu": 2}', "application/json", "'valeu' is not an input"),
        (b"", "application/json", "'value' is missing"),
        (b"\xff", "text/plain", "UTF-8"),
    ],
)
def test_a_body_that_is_not_the_inputs_is_refused(
    http: httpx.Client, content: bytes, media_type: str, word: str
) -> None:
    response = http.post("/v1/pipelines/describe", content=content, headers={"content-type": media_type})
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["code"] == "invalid_input"
    assert word in error["message"]
    assert error["request_id"] == response.headers["x-request-id"]


def test_an_unknown_pipeline_is_404_with_the_nearest_name(http: httpx.Client) -> None:
    response = http.post("/v1/pipelines/decsribe", json={})
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "unknown_pipeline"
    assert "describe" in response.json()["error"]["message"]


def test_media_that_are_wrong_are_refused(http: httpx.Client) -> None:
    for item in (
        {"data": "%"},
        {"url": "data:nonsense"},
        {"surprise": 1},
        {},
        {"modality": "smell", "url": "http://x"},
    ):
        response = http.post("/v1/pipelines/transcribe", json={"media": [item]})
        assert response.status_code == 400, item
    response = http.post("/v1/pipelines/transcribe", json={"media": [{"data": text_of(png()), "modality": "audio"}]})
    assert response.status_code == 415
