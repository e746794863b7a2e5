"""What `http_fetch` follows, and what it makes of a page."""

import urllib.error
import urllib.request
from email.message import Message
from io import BytesIO

import pytest

from toolkeep.tools.html_text import text_of_html
from toolkeep.tools.http_fetch import _Redirects


@pytest.mark.parametrize(
    ("start", "to", "is_followed"),
    [
        ("https://a.example/", "http://a.example/", False),
        ("https://a.example/", "ftp://a.example/", False),
        ("https://a.example/", "https://a.example/b", True),
        ("http://a.example/", "https://a.example/", True),
        ("http://a.example/", "http://a.example/b", True),
    ],
)
def test_what_was_said_in_confidence_is_not_sent_in_the_clear(start: str, to: str, is_followed: bool) -> None:
    request = urllib.request.Request(start, headers={"Authorization": "not-a-real-key"})  # noqa: S310 -- it is not opened
    given = (request, BytesIO(), 302, "Found", Message(), to)
    if is_followed:
        assert _Redirects().redirect_request(*given).full_url == to
    else:
        with pytest.raises(urllib.error.URLError, match="without TLS"):
            _Redirects().redirect_request(*given)


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<title>T</title><p>a<p>b", "T\n\na\n\nb"),
        ("a<script>x()</script>b<style>y</style>c", "abc"),
        ("<script><script></script>a", "a"),
        ("<ul><li>one<li>two</ul>", "- one\n- two"),
        ("<a href='/b?c'>x</a> <a href='#y'>y</a>", "x [https://a.example/b?c] y"),
        ("<a href='http://[bad'>x</a>", "x [http://[bad]"),
        ("&lt;b&gt; &amp;", "<b> &"),
        ("</div></script>a", "a"),
        ("", ""),
    ],
)
def test_a_page_is_read_as_a_person_would(html: str, text: str) -> None:
    assert text_of_html(html, "https://a.example/") == text
