"""People sign in to the page in a real browser, by the pages of a real provider (IDN-2)."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.mcp_server.sign_in_rounds import World, open_world
from tests.server.web.conftest import PATIENCE_MS
from toolkeep.server.web.app import PageApp

POLICY = '@id("mine")\npermit (principal, action, resource);'


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with open_world(tmp_path_factory.mktemp("office")) as made:
        yield made


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    with browser.new_context(reduced_motion="reduce") as context:
        context.set_default_timeout(PATIENCE_MS)
        # The provider's pages take a font from elsewhere.
        context.route(lambda url: not url.startswith("http://127.0.0.1:"), lambda route: route.abort())
        yield context


def authenticate(page: Page, name: str) -> None:
    """On the provider's page."""
    page.get_by_placeholder("Enter any login").fill(name)
    page.get_by_placeholder("and password").fill("x")
    page.get_by_role("button", name="Sign-in").click()


def sign_in(page: Page, world: World, name: str) -> None:
    page.goto(f"{world.server.url}/ui/")
    page.get_by_role("button", name="Sign in with Login").click()
    authenticate(page, name)
    page.get_by_role("button", name="Continue").click()
    page.wait_for_url("**/ui/")


def log_out(page: Page, world: World) -> None:
    """At the provider, which tells this server."""
    page.goto(f"{world.provider.url}/session/end")
    page.get_by_role("button", name="Yes, sign me out").click()
    page.wait_for_url("**/session/end/success*")
    assert world.provider.said("backchannel.success")


def is_at_the_door(page: Page, world: World) -> bool:
    page.goto(f"{world.server.url}/ui/approvals")
    return page.url == f"{world.server.url}/ui/sign-in"


@pytest.mark.spec("IDN-2")
def test_a_person_approves_by_name_and_is_out_after_their_logout(
    world: World, context: BrowserContext
) -> None:
    page = context.new_page()
    sign_in(page, world, "bob")
    expect(page.get_by_role("contentinfo", name="Status")).to_contain_text(
        "staff, signed in as bob: approver"
    )
    assert context.request.get(f"{world.server.url}/ui/tokens").status == 403  # an approver, and no more
    waiting = world.ask("/v1/tools/order:call", {"arguments": {"title": "Emma"}})
    page.goto(f"{world.server.url}/ui/approvals/{waiting['approval']}")
    page.get_by_role("button", name="Approve once").click()
    issuer = world.provider.url
    expect(page.locator(".answers")).to_contain_text(f"bob ({issuer})")
    (approval,) = world.records("Approval")
    assert approval["identity"] == {"client": "page", "issuer": issuer, "subject": "bob"}
    assert (approval["approver"], approval["way"]) == (f"bob ({issuer})", "page")
    log_out(page, world)
    assert is_at_the_door(page, world)


@pytest.mark.spec("IDN-2")
def test_what_is_put_in_force_needs_credentials_given_anew(world: World, context: BrowserContext) -> None:
    page = context.new_page()
    sign_in(page, world, "eve")
    page.goto(f"{world.server.url}/ui/policies/edit")
    page.get_by_label("Name", exact=True).fill("mine")
    page.locator("#policy-form .cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(POLICY)
    page.get_by_label("Type its name to confirm").fill("mine")
    page.get_by_role("button", name="Put in force").click()
    # The provider's session lasts, and does not count: nobody says when they gave their password.
    expect(page.locator("#messages")).to_contain_text("older than five minutes")
    with context.expect_page() as opened:
        page.get_by_role("link", name="Sign in again").click()
    again = opened.value
    again.get_by_role("button", name="Sign in with Login").click()
    authenticate(again, "eve")
    again.wait_for_url("**/ui/")
    asked = world.provider.said("authorization.success")[-1]
    assert asked["prompt"] == "login"
    again.close()
    page.bring_to_front()
    page.get_by_role("button", name="Put in force").click()
    page.wait_for_url("**/ui/policies")
    (change,) = world.records("OperatorChange")
    assert change["person"] == f"eve ({world.provider.url})"


@pytest.mark.spec("IDN-2")
def test_a_session_ends_with_the_id_token(world: World, context: BrowserContext) -> None:
    page = context.new_page()
    sign_in(page, world, "ada")
    assert not is_at_the_door(page, world)
    (sessions,) = [app.sessions for app in world.server.app._mounts.values() if isinstance(app, PageApp)]
    now: Any = sessions._clock
    try:
        sessions._clock = lambda: now() + 600
        assert is_at_the_door(page, world)
    finally:
        sessions._clock = now
