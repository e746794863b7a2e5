"""Arguments in the styles of OpenAPI: the table of its specification, and nothing that breaks out of its place."""

from typing import Any
from urllib.parse import parse_qsl, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkeep.network.http_endpoint import Endpoint
from toolkeep.network.parameter_styles import ArgumentUnfit, Placement, form_body

RGB = {"R": 100, "G": 200}
COLORS = ["blue", "black"]


def place(where: str, style: str, *, explode: bool = False, name: str = "color", **more: Any) -> Placement:
    data = {"argument": "a", "in": where, "name": name, "style": style, "explode": explode, **more}
    return Placement.read(data)


@pytest.mark.parametrize(
    ("style", "explode", "value", "written"),
    [
        ("simple", False, "blue", "blue"), ("simple", False, COLORS, "blue,black"),
        ("simple", False, RGB, "R,100,G,200"), ("simple", True, RGB, "R=100,G=200"),
        ("label", False, "blue", ".blue"), ("label", False, COLORS, ".blue,black"),
        ("label", True, COLORS, ".blue.black"), ("label", False, RGB, ".R,100,G,200"),
        ("label", True, RGB, ".R=100.G=200"), ("matrix", False, "blue", ";color=blue"),
        ("matrix", False, COLORS, ";color=blue,black"), ("matrix", True, COLORS, ";color=blue;color=black"),
        ("matrix", False, RGB, ";color=R,100,G,200"), ("matrix", True, RGB, ";R=100;G=200"),
        ("json", False, {"a": [1, "é/"]}, "%7B%22a%22%3A%5B1%2C%22%C3%A9%2F%22%5D%7D"),
        ("simple", False, "a/b?c#d%", "a%2Fb%3Fc%23d%25"), ("simple", False, True, "true"), ("simple", False, 1.5, "1.5"),
    ],
)  # fmt: skip
def test_in_a_path(style: str, explode: bool, value: Any, written: str) -> None:
    assert place("path", style, explode=explode).in_path(value) == written


@pytest.mark.parametrize(
    ("style", "explode", "value", "written"),
    [
        ("form", True, "blue", ["color=blue"]), ("form", True, COLORS, ["color=blue", "color=black"]),
        ("form", False, COLORS, ["color=blue,black"]), ("form", True, RGB, ["R=100", "G=200"]),
        ("form", False, RGB, ["color=R,100,G,200"]), ("spaceDelimited", False, COLORS, ["color=blue%20black"]),
        ("pipeDelimited", False, COLORS, ["color=blue%7Cblack"]), ("deepObject", True, RGB, ["color[R]=100", "color[G]=200"]),
        ("deepObject", True, {"a": {"b": 1}, "c": ["x", "y"]}, ["color[a][b]=1", "color[c]=x", "color[c]=y"]),
        ("form", True, [], []), ("form", True, "", ["color="]), ("form", True, [None, 1], ["color=1"]),
        ("json", False, {"a": 1}, ["color=%7B%22a%22%3A1%7D"]), ("form", False, ["a,b", "c"], ["color=a%2Cb,c"]),
        ("form", True, "a&b=c#d+e f", ["color=a%26b%3Dc%23d%2Be%20f"]),
    ],
)  # fmt: skip
def test_in_a_query(style: str, explode: bool, value: Any, written: list[str]) -> None:
    assert place("query", style, explode=explode).in_query(value) == written


def test_reserved_characters_stay_where_they_do_no_harm() -> None:
    reserved = place("query", "form", reserved=True)
    assert reserved.in_query("a/b:c?d&e=f#g+h") == ["color=a/b:c?d%26e%3Df%23g%2Bh"]


@pytest.mark.parametrize(
    ("value", "explode", "written"),
    [("x", False, "x"), (COLORS, False, "blue,black"), (RGB, True, "R=100,G=200"), (RGB, False, "R,100,G,200"), (7, False, "7")],
)  # fmt: skip
def test_in_a_header(value: Any, explode: bool, written: str) -> None:
    assert place("header", "simple", explode=explode).in_header(value) == written


@pytest.mark.parametrize(
    "value", ["a\r\nEvil: 1", "a\nb", "a\0", "é", " a", "a ", ["ok", "a\rb"], {"a\r\n": 1}]
)
def test_no_argument_adds_a_line_to_a_head(value: Any) -> None:
    with pytest.raises(ArgumentUnfit):
        place("header", "simple").in_header(value)


def test_in_a_cookie() -> None:
    assert place("cookie", "form").in_cookie("a; b=c\r\n") == ["color=a%3B%20b%3Dc%0D%0A"]
    assert place("cookie", "form").in_cookie(COLORS) == ["color=blue%2Cblack"]
    with pytest.raises(ArgumentUnfit):
        place("cookie", "form", explode=True).in_cookie(RGB)


@pytest.mark.parametrize("value", [[["x"]], [{"a": 1}], {"a": [1]}, {"a": {"b": 1}}])
@pytest.mark.parametrize(("where", "style"), [("path", "simple"), ("path", "matrix"), ("query", "form"), ("query", "pipeDelimited")])  # fmt: skip
def test_what_a_style_cannot_write_is_refused(where: str, style: str, value: Any) -> None:
    made = place(where, style)
    with pytest.raises(ArgumentUnfit):
        made.in_path(value) if where == "path" else made.in_query(value)


def test_a_deep_object_has_a_bound() -> None:
    value: Any = 1
    for _ in range(20):
        value = {"a": value}
    with pytest.raises(ArgumentUnfit):
        place("query", "deepObject").in_query(value)


@pytest.mark.parametrize(
    "data",
    [
        None, {}, {"argument": "a"}, {"argument": "a", "in": "body", "name": "a"}, {"argument": 1, "in": "path", "name": "a"},
        {"argument": "a", "in": "path", "name": "a", "style": "form"}, {"argument": "a", "in": "query", "name": "a", "style": "simple"},
        {"argument": "a", "in": "header", "name": "a b"}, {"argument": "a", "in": "cookie", "name": "a=b"},
        {"argument": "a", "in": "query", "name": "a", "explode": 1}, {"argument": "a", "in": "query", "name": "a", "other": 1},
    ],
)  # fmt: skip
def test_a_place_that_cannot_be_is_refused_before_there_is_a_call(data: Any) -> None:
    with pytest.raises(ValueError, match="has "):
        Placement.read(data)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PLAIN = TEXTS | st.integers() | st.booleans()


@given(st.dictionaries(TEXTS.filter(bool), PLAIN | st.lists(TEXTS, min_size=1, max_size=3), max_size=4))
def test_a_form_is_read_back_as_it_was_written(fields: dict[str, Any]) -> None:
    pairs = parse_qsl(form_body(fields, {}).decode(), keep_blank_values=True)
    written = [
        (name, item)
        for name, value in fields.items()
        for item in (value if isinstance(value, list) else [value])
    ]
    assert [name for name, _ in pairs] == [name for name, _ in written]
    assert [value for _, value in pairs] == [v if isinstance(v, str) else str(v).lower() for _, v in written]


def test_what_is_deep_in_a_form_is_json_unless_its_style_says_otherwise() -> None:
    spread = {"rgb": Placement.read({"argument": "rgb", "in": "query", "name": "rgb", "style": "form"})}
    assert form_body({"rgb": RGB, "n": 1}, {}) == b"rgb=%7B%22R%22%3A100%2C%22G%22%3A200%7D&n=1"
    assert form_body({"a": [{"b": 1}], "c": [1, 2]}, {}) == b"a=%5B%7B%22b%22%3A1%7D%5D&c=1&c=2"
    assert form_body({"rgb": RGB, "n": 1}, spread) == b"R=100&G=200&n=1"


def test_no_member_that_is_spread_over_a_form_stands_for_another_field() -> None:
    spread = {"more": Placement.read({"argument": "more", "in": "query", "name": "more", "style": "form"})}
    with pytest.raises(ArgumentUnfit, match="another field"):
        form_body({"more": {"amount": 9}, "amount": 1}, spread)


TARGET = {
    "url": "https://shop.example/v1/{id}/x",
    "method": "GET",
    "headers": {"Authorization": "Basic {basic:login}"},
    "arguments": [
        {"argument": "id", "in": "path", "name": "id"},
        {"argument": "q", "in": "query", "name": "q"},
        {"argument": "trace", "in": "header", "name": "X-Trace"},
        {"argument": "flavour", "in": "cookie", "name": "flavour"},
    ],
    "secret_query": {"key": "apikey"},
}


def asked(**arguments: Any) -> Any:
    return Endpoint.read(TARGET).request(arguments, {"login": "ada:pass", "apikey": "s&cret"}.__getitem__)


def test_everything_stands_in_its_place() -> None:
    request = asked(id="7", q=["a", "b"], trace="t", flavour="x")
    assert request.url == "https://shop.example/v1/7/x?q=a&q=b&key=s%26cret"
    assert dict(request.headers) == {
        "Authorization": "Basic YWRhOnBhc3M=", "X-Trace": "t", "Cookie": "flavour=x",
    }  # fmt: skip
    assert "cret" not in repr(request)


@pytest.mark.parametrize(
    "value",
    [
        ".",
        "..",
        "../../admin",
        "a/../b",
        "%2e%2e",
        "%2e%2e%2fadmin",
        "..\\admin",
        "..;x",
        "%2e%2e;a=b",
        "",
        [],
        None,
    ],
)
def test_no_argument_leads_to_another_place_of_the_server(value: Any) -> None:
    with pytest.raises(ArgumentUnfit):
        asked(id=value)


@given(TEXTS.filter(lambda text: text.strip(".;,=")), TEXTS)
def test_a_path_keeps_its_steps_and_a_query_its_pairs(step: str, text: str) -> None:
    try:
        request = asked(id=step, q=text)
    except ArgumentUnfit:
        return
    path, _, query = request.url.removeprefix("https://shop.example").partition("?")
    assert path.split("/")[:2] == ["", "v1"]
    assert [unquote(part) for part in path.split("/")[2:]] == [step, "x"]
    assert parse_qsl(query, keep_blank_values=True) == [("q", text), ("key", "s&cret")]
    assert "#" not in request.url


@pytest.mark.parametrize(
    "change",
    [
        {"arguments": []}, {"arguments": {}}, {"arguments": [{"argument": "a", "in": "header", "name": "Host"}], "url": "https://a.example/"},
        {"retries": 9}, {"retries": 1, "method": "POST"}, {"retries": True}, {"secret_query": {"a": 1}}, {"secret_query": ["a"]},
        {"body": {"argument": "a", "content_type": "multipart/mixed"}}, {"body": []}, {"body": {"argument": 1}},
        {"body": {"argument": "a", "content_type": "image/png"}}, {"body": {"argument": "a", "content_type": "image/*", "file": True}},
        {"body": {"argument": "a", "content_type": "multipart/form-data", "parts": {"x": {"kind": "other"}}}},
        {"body": {"argument": "a", "content_type": "multipart/form-data", "parts": {"x": {"content_type": "a/b\r\nEvil: 1"}}}},
        {"body": {"argument": "a", "content_type": "multipart/form-data", "parts": {"x": {"whole": 1}}}}, {"body": {"argument": "a", "parts": [1]}},
        {"body": {"argument": "a", "content_type": "application/json\r\nEvil: 1"}},
    ],
)  # fmt: skip
def test_a_plan_that_cannot_be_is_refused_before_there_is_a_call(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="has "):
        Endpoint.read({**TARGET, **change})


def test_no_argument_stands_where_a_secret_does() -> None:
    target = {
        **TARGET,
        "arguments": [*TARGET["arguments"], {"argument": "more", "in": "query", "name": "more"}],
    }
    with pytest.raises(ArgumentUnfit):
        Endpoint.read(target).request({"id": "1", "more": {"key": "mine"}}, lambda _: "s")
