"""Find prompt injection in the text of imported tools: named rules, each with its reason.

In: a sanitized definition, and what sanitizing removed. Out: what a person should review before the tool is
offered. The rules match phrases, not intentions: text that persuades in other words passes. Policy, approval
and sandbox therefore do not rely on this scan.
"""

import itertools
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from toolkeep.definitions.sanitize import Removal, texts_in, words_of
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.text.unicode import Invisible

_EXCERPT_CHARS: Final = 80
"""Enough of a match to judge it; the text is a stranger's."""
_SUSPICIONS: Final = 20
"""A person reads no more than this."""


class InjectionFinding(msgspec.Struct, frozen=True):
    """One reason to review a tool before it is offered."""

    rule: str
    place: str
    reason: str
    excerpt: str = ""

    def __str__(self) -> str:
        quoted = f": “{self.excerpt}”" if self.excerpt else ""
        return f"{self.place} {self.reason}{quoted}"


class Turn(msgspec.Struct, frozen=True):
    """A phrase: its pattern, and words of which each match holds one of each group.

    The rarest group comes first. Searching for a word takes a hundredth of the time of the pattern.
    """

    pattern: re.Pattern[str]
    needed: tuple[tuple[str, ...], ...]


def _turn(*needed: str, pattern: str) -> Turn:
    return Turn(re.compile(pattern), tuple(tuple(group.split("|")) for group in needed))


class Rule(msgspec.Struct, frozen=True):
    """What a person is told, and the phrases that trigger it."""

    name: str
    reason: str
    turns: tuple[Turn, ...]


def _rule(name: str, reason: str, *turns: Turn) -> Rule:
    return Rule(name, reason, turns)


_ANY: Final = r"(?:[^ ]{1,24} ){0,%d}"
"""Up to this many words between two that matter. Bounded, so that no text makes the pattern slow."""
_TELLING: Final = "(?:tell|mention|inform|reveal|disclose|notify|alert|warn|let)"
_LOOT: Final = (
    r"(?:system prompt|chat history|conversation history|(?:whole|entire|full) conversation|chat log|"
    r"api keys?|secret keys?|private keys?|ssh keys?|access tokens?|passwords?|credentials|"
    r"environment variables)"
)

_ASIDE: Final = "ignore|disregard|forget|override|bypass|overrule"
_PEOPLE: Final = "user|human|operator"

RULES: Final = (
    _rule(
        "overrides-instructions",
        "tells the model to set other instructions aside",
        _turn(
            _ASIDE,
            "instruction|prompt|rule|guideline|directive|message|command|polic|restriction",
            pattern=rf"\b(?:{_ASIDE})s? "
            r"(?:(?:all|any|every|of|the|your|my|our|these|those|other|its) ){0,3}"
            r"(?:(?:previous|prior|above|earlier|preceding|existing|original|safety|system|former) ){1,2}"
            r"(?:and )?(?:[^ ]{1,20} )?(?:instruction|prompt|rule|guideline|directive|message|command|"
            r"polic|restriction)",
        ),
        _turn(
            _ASIDE,
            "instructions|rules|guidelines|safety|restrictions|programming",
            pattern=r"\b(?:ignore|disregard|forget|override) (?:all|any|everything|your) (?:of )?"
            r"(?:your |the )?(?:instructions|rules|guidelines|safety|restrictions|programming)\b",
        ),
        _turn("forget everything", pattern=r"\bforget everything (?:above|before|you)"),
    ),
    _rule(
        "poses-as-system",
        "poses as the system or as another speaker of the conversation",
        _turn(
            "<|[",
            pattern=r"<\|?/?(?:im.start|im.end|system|assistant|start.header.id|eot.id)\|?>|\[/?inst\]|<<sys>>",
        ),
        _turn(
            "system ",
            "prompt|message|instruction|override|note|notice",
            pattern=r"(?:^|[.:!?] |# )(?:new |updated )?"
            r"system (?:prompt|message|instruction|override|note|notice) ?:",
        ),
        _turn(
            "you must|you should always|you are required",
            pattern=r"\bas (?:an? |the )?(?:ai|language model|assistant),? "
            r"you (?:must|should always|are required)",
        ),
        _turn("<", pattern=r"</?(?:important|system|instructions?|secret|admin|hidden)>"),
    ),
    _rule(
        "hides-from-user",
        "asks the model to keep something from the user",
        _turn(
            "tell|mention|inform|reveal|disclose|notify|alert|warn|let",
            "not |don t |dont |never |without ",
            "user|human|person|customer|operator|developer",
            pattern=rf"\b(?:do not|don t|dont|never|must not|should not|without) {_ANY % 2}{_TELLING}(?:ing|"
            rf"s)? {_ANY % 5}(?:the )?(?:user|human|person|customer|operator|developer)s?\b",
        ),
        _turn(
            "hide|conceal|keep",
            "from ",
            _PEOPLE,
            pattern=rf"\b(?:hide|conceal|keep) {_ANY % 4}from (?:the )?(?:{_PEOPLE})s?\b",
        ),
        _turn(
            "without ",
            "knowing|noticing|knowledge|awareness",
            pattern=rf"\bwithout (?:the )?(?:{_PEOPLE})(?: s)? (?:knowing|noticing|knowledge|awareness)\b",
        ),
        _turn(
            "not |never ",
            _PEOPLE,
            "know|notice|see|be told|be informed|be aware",
            pattern=rf"\b(?:{_PEOPLE})s? (?:must|should|may|can) (?:not|never) (?:know|notice|see|"
            r"be (?:told|informed|aware))\b",
        ),
        _turn(
            "secretly|silently|covertly|quietly",
            pattern=r"\b(?:secretly|silently|covertly|quietly) (?:also )?(?:send|copy|forward|upload|read|"
            r"include|append|bcc|call|exfiltrat)",
        ),
    ),
    _rule(
        "asks-for-secrets",
        "asks for secrets of the user or of the conversation",
        _turn(
            ".ssh|id_rsa|id_ed25519|.aws/credentials|.netrc|.npmrc|/etc/passwd|/etc/shadow|mcp.json|"
            ".kube/config|.git-credentials",
            pattern=r"\b(?:read|open|cat|load|fetch|get|access|include|paste|copy|provide|attach|pass|send)"
            rf" {_ANY % 5}(?:~/|/home/|/root/|/etc/)?[^ ]{{0,40}}"
            r"(?:\.ssh|id_rsa|id_ed25519|\.aws/credentials|\.netrc|\.npmrc|/etc/passwd|/etc/shadow|"
            r"\.cursor/mcp\.json|mcp\.json|\.kube/config|\.git-credentials)",
        ),
        _turn(
            "system prompt|history|conversation|chat log| key|token|password|credentials|environment var",
            "parameter|field|argument|note|context|url|http|endpoint|server|address",
            "send|forward|upload|post|transmit|exfiltrat|leak|email|append|paste|include|put|pass",
            pattern=r"\b(?:send|forward|upload|post|transmit|exfiltrat\w{1,3}|leak|email|append|paste|include|"
            rf"put|pass) {_ANY % 4}{_LOOT} {_ANY % 4}(?:to|in|into|as|here|with|of)\b(?: (?:this|the|a|"
            rf"an))?(?: {_ANY % 2}(?:parameter|field|argument|note|sidenote|context|url|https?:|endpoint|"
            rf"server|address))",
        ),
        _turn(
            "content of |contents of |value of ",
            "system prompt|instructions|context window|conversation|chat history",
            pattern=r"\b(?:contents?|value) of (?:your|the) (?:system prompt|instructions|context window|"
            r"conversation|chat history)\b",
        ),
    ),
    _rule(
        "commands-other-tools",
        "tells the model how to use tools that are not its own",
        _turn(
            "before ",
            " tool",
            pattern=r"\bbefore (?:using|calling|invoking|running|you (?:use|call|invoke|run)) (?:any|all|"
            r"every)(?: of the)?(?: other)? tools?\b",
        ),
        _turn(
            "after |when |whenever |time ",
            " tool",
            pattern=r"\b(?:after|whenever|when|each time|every time) (?:you )?"
            r"(?:use|using|call|calling|invoke|invoking) (?:any|all|every)(?: of the)?(?: other)? tools?\b",
        ),
        _turn(
            "other tool",
            pattern=r"\b(?:do not|don t|never|stop) (?:use|using|call|calling)"
            rf" {_ANY % 2}(?:any )?other tools?\b(?! (?:for|to) )",
        ),
        _turn(
            "be sent|be forwarded|be routed|be redirected|be copied",
            pattern=r"\ball (?:emails?|messages?|payments?|transfers?|requests?|files?)"
            r" (?:must|should|have to) (?:first )?be (?:sent|forwarded|routed|redirected|copied)"
            r" (?:to|through|via) ",
        ),
    ),
    _rule(
        "changes-role",
        "gives the model another role",
        _turn(
            "you are now ",
            pattern=r"\byou are now (?:a|an|the|in|no longer|going|acting|free|dan|unrestricted)\b",
        ),
        _turn(
            "your ",
            "new |real |true |actual |updated ",
            pattern=r"\byour (?:new|real|true|actual|updated) (?:role|instructions?|task|goal|objective|"
            r"purpose|identity|system prompt) (?:is|are)\b",
        ),
        _turn(
            " mode",
            "enter|enable|activate|switch to",
            pattern=r"\b(?:enter|enable|activate|switch to) (?:developer|debug|god|admin|unrestricted|"
            r"jailbreak|dan) mode\b",
        ),
        _turn("from now on", pattern=r"\bfrom now on,? you (?:must|will|are|should)\b"),
    ),
    _rule(
        "skips-approval",
        "speaks as if a person had agreed already, or need not be asked",
        _turn(
            "approved|authori|consented|agreed|granted",
            "has |have ",
            pattern=rf"\b(?:{_PEOPLE}|administrator)s? (?:has|have) (?:already |previously |"
            r"pre ?)?(?:approved|authori[sz]ed|consented|agreed|granted permission)\b",
        ),
        _turn(
            "confirmation |approval |consent |permission ",
            "the user|the human|the operator",
            pattern=r"\b(?:without|skip|bypass|do not (?:ask|wait) for|don t (?:ask|wait) for|"
            r"no need (?:to ask )?for) (?:asking (?:for )?|any |the |user |human |"
            rf"further )*(?:confirmation|approval|consent|permission) (?:from|of) the (?:{_PEOPLE})\b",
        ),
        _turn(
            "skip|bypass|disable|circumvent",
            "confirmation|approval|consent|check|permission",
            pattern=r"\b(?:skip|bypass|disable|circumvent) (?:all |any |the )*(?:user |human |safety |"
            r"security )+(?:confirmation|approval|consent|check|permission)s?\b",
        ),
    ),
)
"""For text as `_plain` normalizes it."""

_BLANK: Final = r"[ \t\u00a0\u2000-\u200a\u3000]"
ON_TEXT: Final = (
    _rule(
        "hidden-in-markup",
        "has a part that is not shown where it is rendered",
        _turn(
            "<!--|display|visibility",
            pattern=r"<!--[^>]{12}|display ?: ?none|visibility ?: ?hidden",
        ),
    ),
    _rule(
        "pushed-out-of-sight",
        "pushes text away with blanks",
        _turn(pattern=r"\n(?:[ \t]*\n){24}"),
        # the first blank on its own, so that the search skips everything else
        _turn(pattern=f"{_BLANK}{_BLANK}{{119}}"),
    ),
    _rule(
        "encoded",
        "holds a long text in a code that no reader can read",
        _turn(pattern=r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{120,}={0,2}(?![A-Za-z0-9+/])"),
    ),
)
"""For text as it is."""

_SAMPLE: Final = re.compile(r"/examples?(?:/|$)")
"""Examples may hold an image or a file as it would be sent."""
_SPELLED: Final = re.compile(r"(?<![^\W_])(?:[^\W_][ .\-_]){4,}[^\W_](?![^\W_])")
_MAYBE_SPELLED: Final = re.compile(r"[ .\-_](?:[^\W_][ .\-_]){3}")
"""Every spelled-out word contains this; found in a tenth of the time."""
_NOISE: Final = "*_`\"'~-"
_FOREIGN: Final = re.compile(r"[^\x00-\x7f]+")
_LOOKALIKES: Final = str.maketrans(
    "аеорсухіјѕԁһкмтвнгԛѡαεορτυνκιχβ“”‘’„«»´\u2010\u2011\u2012\u2013\u2014\u2015",
    "aeopcyxijsdhkmtbhrqwaeoptuvkixb" + '"' * 8 + "-" * 6,
)
"""Cyrillic and Greek homoglyphs of Latin letters, quotes and dashes."""


def scan_for_injection(
    definition: ToolDefinition, removed: Iterable[Removal] = ()
) -> tuple[InjectionFinding, ...]:
    """Everything that a person should review, at most `_SUSPICIONS`."""
    found = [*hidden_text(removed)]
    if known := _read(_texts(definition)):
        for place, text in _places(definition):
            found += _at_place(place, known.get(text, ()))
    return tuple(dict.fromkeys(found))[:_SUSPICIONS]


def quarantine_reasons(suspicions: Iterable[InjectionFinding]) -> str:
    """Why a tool is quarantined, in one line; empty if nothing was found."""
    return "; ".join(map(str, suspicions))


def _texts(definition: ToolDefinition) -> list[str]:
    words = texts_in(definition.parameters) + texts_in(definition.output_schema)
    return [definition.description, definition.source.name, *words]


def _places(definition: ToolDefinition) -> Iterator[tuple[str, str]]:
    yield "description", definition.description
    yield "name", definition.source.name
    yield from words_of(definition.parameters, "parameters")
    yield from words_of(definition.output_schema, "output_schema")


def hidden_text(removed: Iterable[Removal]) -> Iterator[InjectionFinding]:
    """The part of the scan that is about what was removed."""
    for removal in removed:
        if removal.is_left:
            reason = f"holds {removal.count} {removal.kind.value}, which stay because calls must match them"
            yield InjectionFinding("hidden-in-name", removal.place, reason)
        elif removal.count >= _TOO_MANY[removal.kind]:
            yield InjectionFinding("hidden-text", removal.place, f"held {removal.count} {removal.kind.value}")


_TOO_MANY: Final = {
    Invisible.CONTROL: 4, Invisible.BIDI: 4, Invisible.ZERO_WIDTH: 16, Invisible.TAG: 1,
    Invisible.SELECTOR: 8, Invisible.BLANK: 8, Invisible.PRIVATE: 16, Invisible.ESCAPE: 1,
}  # fmt: skip
"""From this number on it is no editor's accident: enough to encode letters, or of a kind that nobody
types."""


class _Pages:
    """Texts that are searched together."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self._all = "\n".join(texts)
        self._starts = [0, *itertools.accumulate(len(text) + 1 for text in texts)]

    def matching(self, turn: Turn) -> Iterator[tuple[int, re.Match[str]]]:
        """The texts that contain a phrase, by position."""
        for index in self._candidates(turn):
            if found := turn.pattern.search(self.texts[index]):
                yield index, found

    def _candidates(self, turn: Turn) -> Iterable[int]:
        if not turn.needed:
            return range(len(self.texts)) if turn.pattern.search(self._all) else ()
        rarest, *others = turn.needed
        return [
            index
            for index in sorted(self._holding(rarest))
            if all(any(word in self.texts[index] for word in group) for group in others)
        ]

    def _holding(self, words: Iterable[str]) -> set[int]:
        """The texts that contain one of the words."""
        holding: set[int] = set()
        for word in words:
            at = self._all.find(word)
            while at >= 0:
                index = bisect_right(self._starts, at)
                holding.add(index - 1)
                at = self._all.find(word, self._starts[index])
        return holding


_Finding = tuple[Rule, str]
"""A rule, and the excerpt that matched."""


def _read(texts: Iterable[str]) -> dict[str, list[_Finding]]:
    """The findings of each text that has any; equal texts are scanned once."""
    different = [text for text in dict.fromkeys(texts) if len(text) >= _SHORTEST]
    found: dict[str, list[_Finding]] = {}
    for rules, pages in ((ON_TEXT, _Pages(different)), (RULES, _Pages(_plain(different)))):
        for rule in rules:
            for index, match in _first_matches(rule, pages).items():
                found.setdefault(different[index], []).append((rule, _excerpt(match[0])))
    return found


_SHORTEST: Final = 8


def _first_matches(rule: Rule, pages: _Pages) -> dict[int, re.Match[str]]:
    """The first match of a rule in each text."""
    first: dict[int, re.Match[str]] = {}
    for turn in rule.turns:
        for index, match in pages.matching(turn):
            if index not in first or match.start() < first[index].start():
                first[index] = match
    return first


def _at_place(place: str, findings: Iterable[_Finding]) -> Iterator[InjectionFinding]:
    for rule, excerpt in findings:
        if rule.name != "encoded" or not _SAMPLE.search(place):
            yield InjectionFinding(rule.name, place, rule.reason, excerpt)


def _plain(texts: Sequence[str]) -> list[str]:
    """Normalize texts as a reader takes them: case, homoglyphs, spelled-out words and spaces.

    Without this, an upstream hides a phrase by writing it with Cyrillic letters, or with dots in between.
    """
    # All texts at once, joined by a character that nothing here changes: a tenth of the time.
    together = _FOREIGN.sub(_in_plain_letters, _BOUND.join(texts)).casefold()
    if _MAYBE_SPELLED.search(together):
        together = _SPELLED.sub(lambda spelled: re.sub(r"[ .\-_]", "", spelled[0]), together)
    for char in _NOISE:
        together = together.replace(char, " ")
    plain = [words.strip() for words in " ".join(together.split()).split(_BOUND)]
    if len(plain) != len(texts):  # one of the texts contains the separator
        return [" ".join(filter(None, _plain(text.split(_BOUND)))) for text in texts]
    return plain


_BOUND: Final = "\0"


def _in_plain_letters(foreign: re.Match[str]) -> str:
    decomposed = unicodedata.normalize("NFKD", foreign[0])
    letters = "".join(char for char in decomposed if not unicodedata.combining(char))
    return letters.casefold().translate(_LOOKALIKES)


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _EXCERPT_CHARS else line[: _EXCERPT_CHARS - 1] + "…"
