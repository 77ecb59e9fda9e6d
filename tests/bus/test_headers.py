"""What is told of work beside its body."""

from __future__ import annotations

from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st

from bus.contracts import Event, Request
from bus.headers import (
    LONGEST_LABEL,
    event_headers,
    plan_of,
    request_headers,
    stages_of,
    tenant_label,
    tenant_of,
)


def event(tenant: str, plan: str = "") -> Event:
    return Event(request="r", stage="s", function="f", pipeline="p", created_s=0.0, tenant=tenant, plan=plan)


@given(st.text(alphabet=st.characters(), max_size=80))
def test_a_tenant_is_one_harmless_value_of_a_header(tenant: str) -> None:
    label = tenant_of(event_headers(event(tenant)))
    request = Request(request="r", pipeline="p", tenant=tenant)
    assert label == tenant_label(tenant) == tenant_of(request_headers(request))
    assert label.isascii()
    assert not set(label) & set("\r\n: ")
    assert len(label) <= LONGEST_LABEL


@given(st.text(max_size=5))
def test_a_short_name_is_readable_and_a_long_one_is_told_from_others(tenant: str) -> None:
    assert unquote(tenant_label(tenant)) == tenant
    assert tenant_label("x" * 500 + tenant + "y") != tenant_label("x" * 500 + tenant)


def test_what_is_usual_takes_no_header() -> None:
    headers = event_headers(event("default"))
    assert not {"ce-tenant", "ce-plan"} & headers.keys()
    assert (tenant_of(headers), plan_of(headers)) == ("default", "")
    assert plan_of(event_headers(event("default", plan="abc"))) == "abc"
    assert plan_of({"ce-plan": "*.>"}) == plan_of({"ce-plan": "a" * 5_000}) == ""


def test_stages_that_are_ahead_are_told() -> None:
    assert stages_of(event_headers(event("default"), ["fuse", "generate"])) == {"fuse", "generate"}
    assert stages_of(event_headers(event("default"))) == set()


def test_what_others_write_is_not_longer_than_what_we_do() -> None:
    assert len(tenant_of({"ce-tenant": "x" * 1_000_000})) == LONGEST_LABEL
    assert stages_of({"ce-stages": "x," * 100_000}) == set()
