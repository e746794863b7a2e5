"""The policies in force: checked as a whole, swapped as a whole, and the last good ones stay."""

import threading
from collections.abc import Iterable

import pytest

from tests.definitions.examples import made, with_properties
from toolkeep.calls import RegisteredTool
from toolkeep.policy.active_policies import ActivePolicies, read_all
from toolkeep.policy.cedar_engine import AgentEntity, CallFacts
from toolkeep.policy.policy_set import PoliciesRefused
from toolkeep.policy.policy_settings import PolicySource
from toolkeep.registry.admit import admit

pytestmark = pytest.mark.spec("POL-2")

TOOL = admit(
    made(name="pay", parameters=with_properties({"amount": {"type": "integer", "description": "n"}}))
)
OTHER = admit(made(name="think"))
AGENT = AgentEntity(id="local")

ALL = '@id("all") permit (principal, action, resource);'
HIDE = '@id("hide") forbid (principal, action == Action::"see", resource == Tool::"pay");'
LIMIT = """@id("limit") permit (principal, action == Action::"call", resource)
when { context.arguments has amount && context.arguments.amount < 6 };"""


def source(*texts: str) -> list[PolicySource]:
    return [PolicySource(name=f"file {n}", text=text) for n, text in enumerate(texts)]


def allows(book: ActivePolicies, **arguments: int) -> bool:
    return book.engine.decide(AGENT, TOOL, CallFacts(arguments=arguments)).is_allowed


def problem(book: ActivePolicies, *registered: RegisteredTool, agents: Iterable[str] = ("local",)) -> str:
    return book.problem(lambda: registered, agents)


def test_without_policies_what_is_not_forbidden_is_permitted() -> None:
    book = ActivePolicies()
    assert [policy.id for policy in book.engine.policies.policies] == [
        "toolkeep.call",
        "toolkeep.permissions",
        "toolkeep.see",
    ]
    assert allows(book)
    assert problem(book) == ""


def test_with_policies_nothing_else_permits_a_call() -> None:
    book = ActivePolicies(source(LIMIT))
    assert [policy.id for policy in book.engine.policies.policies] == [
        "limit",
        "toolkeep.permissions",
        "toolkeep.see",
    ]
    assert [allows(book, amount=5), allows(book, amount=6), allows(book)] == [True, False, False]


@pytest.mark.parametrize("text", ["", "// only a comment\n"])
def test_an_empty_file_of_policies_permits_nothing(text: str) -> None:
    assert not allows(ActivePolicies(source(text)))


BROKEN = {
    "no Cedar": "permit (",
    "no id": "permit (principal, action, resource);",
    "one of our ids": '@id("toolkeep.see") permit (principal, action, resource);',
    "an id of ours that is not taken": '@id("toolkeep.new") permit (principal, action, resource);',
    "the same id twice": f"{ALL} {ALL}",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_policies_that_cannot_be_read_never_come_into_force(text: str) -> None:
    with pytest.raises(PoliciesRefused):
        ActivePolicies(source(text))
    book = ActivePolicies(source(LIMIT))
    before = book.engine
    with pytest.raises(PoliciesRefused):
        book.swap(source(text), [TOOL], ["local"])
    assert book.engine is before


UNFIT = {
    "no such tool": '@id("a") permit (principal, action, resource == Tool::"nothing");',
    "no such agent": '@id("a") permit (principal == Agent::"nobody", action, resource);',
    "no such argument": '@id("a") forbid (principal, action == Action::"call", resource)'
    ' when { context.arguments.nothing == "x" };',
    "an argument that may be absent": '@id("a") forbid (principal, action == Action::"call", resource)'
    " when { context.arguments.amount > 5 };",
}


@pytest.mark.parametrize("text", UNFIT.values(), ids=UNFIT)
def test_policies_that_do_not_fit_the_tools_are_a_problem_and_no_swap(text: str) -> None:
    book = ActivePolicies(source(text))
    assert "policy 'a'" in problem(book, TOOL)
    assert "policy 'a'" in problem(book, TOOL)  # as long as it is so
    other = ActivePolicies(source(LIMIT))
    before = other.engine
    with pytest.raises(PoliciesRefused):
        other.swap(source(text), [TOOL], ["local"])
    assert other.engine is before
    assert allows(other, amount=5)


def test_policies_fit_once_the_tool_is_there() -> None:
    book = ActivePolicies(source('@id("a") permit (principal, action, resource == Tool::"think");'))
    assert problem(book, TOOL) != ""
    assert problem(book, TOOL, OTHER) == ""


def test_policies_are_checked_once() -> None:
    book = ActivePolicies(source(ALL))
    asked: list[int] = []

    def there() -> list[RegisteredTool]:
        asked.append(1)
        return [TOOL]

    assert [book.problem(there, ()) for _ in range(3)] == ["", "", ""]
    assert asked == [1]


def test_a_swap_is_whole() -> None:
    book = ActivePolicies(source(LIMIT))
    before = book.engine
    book.swap(source(ALL, HIDE), [TOOL], ["local"])
    assert allows(book, amount=6)
    assert book.engine is not before
    assert book.engine.policies.hash != before.policies.hash
    assert problem(book, TOOL) == ""
    assert not before.decide(AGENT, TOOL, CallFacts(arguments={"amount": 6})).is_allowed


def test_no_policies_are_swapped_in_as_well() -> None:
    book = ActivePolicies(source(LIMIT))
    book.swap([], [TOOL], [])
    assert book.engine.policies.hash == ActivePolicies().engine.policies.hash


def test_what_is_held_back_permits_nothing_until_others_take_its_place() -> None:
    book = ActivePolicies(held_back="nobody accepted them")
    assert problem(book, TOOL) == "nobody accepted them"
    with pytest.raises(PoliciesRefused):
        book.swap(source(BROKEN["no id"]), [TOOL], [])
    assert problem(book, TOOL) == "nobody accepted them"
    book.swap(source(ALL), [TOOL], [])
    assert problem(book, TOOL) == ""


HIDING = {
    ALL: False,
    HIDE: True,
    '@id("a") forbid (principal, action, resource) when { resource.danger > 3 };': True,
    '@id("a") forbid (principal, action in [Action::"see", Action::"call"], resource);': True,
    '@id("a") forbid (principal, action == Action::"call", resource);': False,
    '@id("a") permit (principal, action == Action::"see", resource == Tool::"pay");': False,
}


@pytest.mark.parametrize(("text", "hides"), HIDING.items())
def test_only_a_forbid_that_reaches_seeing_hides_tools(text: str, hides: bool) -> None:
    assert ActivePolicies(source(text)).hides_tools == hides
    book = ActivePolicies()
    book.swap(source(text), [TOOL], [])
    assert book.hides_tools == hides


def test_two_files_may_not_share_an_id() -> None:
    with pytest.raises(PoliciesRefused) as caught:
        read_all(source(ALL, ALL))
    assert "file 0" in str(caught.value)
    assert "file 1" in str(caught.value)


def test_threads_that_swap_and_check_at_once_always_find_a_whole_set() -> None:
    book = ActivePolicies(source(ALL))
    sets = [source(ALL), source(LIMIT)]
    hashes = {read_all(one).hash for one in sets}
    seen: set[str] = set()
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait()
        for turn in range(20):
            if number % 2:
                book.swap(sets[turn % 2], [TOOL], [])
            assert problem(book, TOOL) == ""
            seen.add(book.engine.policies.hash)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen <= hashes
