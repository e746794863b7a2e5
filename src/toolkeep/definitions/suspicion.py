"""Instructions to the model in the words of a tool from elsewhere: named rules, each with its reason.

Comes in: a definition, cleaned, and what cleaning took out. Goes out: what a person should look at before the
tool answers. It reads words, not intentions: text that persuades without these turns of phrase passes, so
policy, approval and sandbox do not rely on it.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from toolkeep.characters import Unseen
from toolkeep.definitions.cleaning import Removal, words_of
from toolkeep.definitions.tool import ToolDefinition

_EXCERPT_CHARS: Final = 80
_SUSPICIONS: Final = 20
"""More say no more to a person."""


class Suspicion(msgspec.Struct, frozen=True):
    """One reason to look at a tool before it answers."""

    rule: str
    place: str
    reason: str
    excerpt: str = ""

    def __str__(self) -> str:
        quoted = f": “{self.excerpt}”" if self.excerpt else ""
        return f"{self.place} {self.reason}{quoted}"


class _Rule(msgspec.Struct, frozen=True):
    name: str
    reason: str
    pattern: re.Pattern[str]


def _rule(name: str, reason: str, *patterns: str) -> _Rule:
    return _Rule(name, reason, re.compile("|".join(patterns)))


_ANY: Final = r"(?:[^ ]{1,24} ){0,%d}"
"""Up to so many words between two that matter; bounded, so that no text takes long."""
_TELLING: Final = "(?:tell|mention|inform|reveal|disclose|notify|alert|warn|let)"
_LOOT: Final = (
    r"(?:system prompt|chat history|conversation history|(?:whole|entire|full) conversation|chat log|"
    r"api keys?|secret keys?|private keys?|ssh keys?|access tokens?|passwords?|credentials|"
    r"environment variables)"
)

_RULES: Final = (
    _rule(
        "overrides-instructions",
        "tells the model to set other instructions aside",
        r"\b(?:ignore|disregard|forget|override|bypass|overrule)s? (?:(?:all|any|every|of|the|your|"
        r"my|our|these|those|other|its) ){0,3}"
        r"(?:(?:previous|prior|above|earlier|preceding|existing|original|safety|system|former) ){1,2}"
        r"(?:and )?(?:[^ ]{1,20} )?(?:instruction|prompt|rule|guideline|directive|message|command|"
        r"polic|restriction)",
        r"\b(?:ignore|disregard|forget|override) (?:all|any|everything|your) (?:of )?(?:your |the )?"
        r"(?:instructions|rules|guidelines|safety|restrictions|programming)\b",
        r"\bforget everything (?:above|before|you)",
    ),
    _rule(
        "poses-as-system",
        "poses as the system or as another speaker of the conversation",
        r"<\|?/?(?:im.start|im.end|system|assistant|start.header.id|eot.id)\|?>|\[/?inst\]|<<sys>>",
        r"(?:^|[.:!?] |# )(?:new |updated )?system (?:prompt|message|instruction|override|note|notice) ?:",
        r"\bas (?:an? |the )?(?:ai|language model|assistant),? you (?:must|should always|are required)",
        r"</?(?:important|system|instructions?|secret|admin|hidden)>",
    ),
    _rule(
        "hides-from-user",
        "asks the model to keep something from the user",
        rf"\b(?:do not|don t|dont|never|must not|should not|without) {_ANY % 2}{_TELLING}(?:ing|"
        rf"s)? {_ANY % 5}(?:the )?(?:user|human|person|customer|operator|developer)s?\b",
        rf"\b(?:hide|conceal|keep) {_ANY % 4}from (?:the )?(?:user|human|operator)s?\b",
        r"\bwithout (?:the )?(?:user|human|operator)(?: s)? (?:knowing|noticing|knowledge|awareness)\b",
        r"\b(?:user|human|operator)s? (?:must|should|may|can) (?:not|never) (?:know|notice|see|"
        r"be (?:told|informed|aware))\b",
        r"\b(?:secretly|silently|covertly|quietly) (?:also )?(?:send|copy|forward|upload|read|"
        r"include|append|bcc|call|exfiltrat)",
    ),
    _rule(
        "asks-for-secrets",
        "asks for secrets of the user or of the conversation",
        rf"\b(?:read|open|cat|load|fetch|get|access|include|paste|copy|provide|attach|pass|send)"
        rf" {_ANY % 5}(?:~/|/home/|/root/|/etc/)?[^ ]{{0,40}}"
        r"(?:\.ssh|id_rsa|id_ed25519|\.aws/credentials|\.netrc|\.npmrc|/etc/passwd|/etc/shadow|"
        r"\.cursor/mcp\.json|mcp\.json|\.kube/config|\.git-credentials)",
        rf"\b(?:send|forward|upload|post|transmit|exfiltrat\w{{1,3}}|leak|email|append|paste|include|"
        rf"put|pass) {_ANY % 4}{_LOOT} {_ANY % 4}(?:to|in|into|as|here|with|of)\b(?: (?:this|the|a|"
        rf"an))?(?: {_ANY % 2}(?:parameter|field|argument|note|sidenote|context|url|https?:|endpoint|"
        rf"server|address))",
        r"\b(?:contents?|value) of (?:your|the) (?:system prompt|instructions|context window|"
        r"conversation|chat history)\b",
    ),
    _rule(
        "commands-other-tools",
        "tells the model how to use tools that are not its own",
        r"\bbefore (?:using|calling|invoking|running|you (?:use|call|invoke|run)) (?:any|all|"
        r"every)(?: of the)?(?: other)? tools?\b",
        r"\b(?:after|whenever|when|each time|every time) (?:you )?(?:use|using|call|calling|invoke|"
        r"invoking) (?:any|all|every)(?: of the)?(?: other)? tools?\b",
        rf"\b(?:do not|don t|never|stop) (?:use|using|call|calling)"
        rf" {_ANY % 2}(?:any )?other tools?\b(?! (?:for|to) )",
        r"\ball (?:emails?|messages?|payments?|transfers?|requests?|files?) (?:must|should|have to)"
        r" (?:first )?be (?:sent|forwarded|routed|redirected|copied) (?:to|through|via) ",
    ),
    _rule(
        "changes-role",
        "gives the model another role",
        r"\byou are now (?:a|an|the|in|no longer|going|acting|free|dan|unrestricted)\b",
        r"\byour (?:new|real|true|actual|updated) (?:role|instructions?|task|goal|objective|purpose|"
        r"identity|system prompt) (?:is|are)\b",
        r"\b(?:enter|enable|activate|switch to) (?:developer|debug|god|admin|unrestricted|jailbreak|"
        r"dan) mode\b",
        r"\bfrom now on,? you (?:must|will|are|should)\b",
    ),
    _rule(
        "skips-approval",
        "speaks as if a person had agreed already, or need not be asked",
        r"\b(?:user|human|operator|administrator)s? (?:has|have) (?:already |previously |"
        r"pre ?)?(?:approved|authori[sz]ed|consented|agreed|granted permission)\b",
        r"\b(?:without|skip|bypass|do not (?:ask|wait) for|don t (?:ask|wait) for|"
        r"no need (?:to ask )?for) (?:asking (?:for )?|any |the |user |human |"
        r"further )*(?:confirmation|approval|consent|permission) (?:from|of) the (?:user|human|operator)\b",
        r"\b(?:skip|bypass|disable|circumvent) (?:all |any |the )*(?:user |human |safety |"
        r"security )+(?:confirmation|approval|consent|check|permission)s?\b",
    ),
)
_COMMENT: Final = re.compile(r"<!--[^>]{12}|display ?: ?none|visibility ?: ?hidden")
_FAR_AWAY: Final = re.compile(r"(?:[ \t]*\n){25}|[ \t\u00a0\u2000-\u200a\u3000]{120}")
_BLOB: Final = re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{120,}={0,2}(?![A-Za-z0-9+/])")
_SAMPLE: Final = re.compile(r"/examples?(?:/|$)")
"""Where an image or a file is shown as it would be sent."""
_SPELLED: Final = re.compile(r"(?<![^\W_])(?:[^\W_][ .\-_]){4,}[^\W_](?![^\W_])")
_NOISE: Final = re.compile(r"[*_`\"'~“”‘’„«»´]+")
_SPACE: Final = re.compile(r"[\s\u2010-\u2015-]+")
_LOOKALIKES: Final = str.maketrans("аеорсухіјѕԁһкмтвнгԛѡαεορτυνκιχβ", "aeopcyxijsdhkmtbhrqwaeoptuvkixb")
"""Cyrillic and Greek letters that look like Latin ones."""


def suspicions_of(definition: ToolDefinition, removed: Iterable[Removal] = ()) -> tuple[Suspicion, ...]:
    """Everything that a person should look at, at most `_SUSPICIONS`."""
    found = [*_hidden(removed)]
    for place, text in _texts(definition):
        found += _in_text(place, text)
    return tuple(dict.fromkeys(found))[:_SUSPICIONS]


def held_back_for(suspicions: Iterable[Suspicion]) -> str:
    """Why a tool is quarantined, in one line; empty where nothing was found."""
    return "; ".join(map(str, suspicions))


def _texts(definition: ToolDefinition) -> Iterator[tuple[str, str]]:
    yield "description", definition.description
    if definition.source.name:
        yield "name", definition.source.name
    yield from words_of(definition.parameters, "parameters")
    yield from words_of(definition.output_schema, "output_schema")


def _hidden(removed: Iterable[Removal]) -> Iterator[Suspicion]:
    for removal in removed:
        if removal.is_left:
            reason = f"holds {removal.count} {removal.kind.value}, which stay because calls must match them"
            yield Suspicion("hidden-in-name", removal.place, reason)
        elif removal.count >= _TOO_MANY[removal.kind]:
            yield Suspicion("hidden-text", removal.place, f"held {removal.count} {removal.kind.value}")


_TOO_MANY: Final = {
    Unseen.CONTROL: 4, Unseen.BIDI: 4, Unseen.ZERO_WIDTH: 16, Unseen.TAG: 1, Unseen.SELECTOR: 8,
    Unseen.BLANK: 8, Unseen.PRIVATE: 16, Unseen.ESCAPE: 1,
}  # fmt: skip
"""From how many on they are no slip of an editor: enough to carry letters, or of a kind nobody types."""


def _in_text(place: str, text: str) -> Iterator[Suspicion]:
    if len(text) < 8:
        return
    for name, reason, pattern in _ON_TEXT:
        is_sample = name == "encoded" and _SAMPLE.search(place) is not None
        if not is_sample and (found := pattern.search(text)):
            yield Suspicion(name, place, reason, _excerpt(found[0]))
    plain = _plain(text)
    for rule in _RULES:
        if found := rule.pattern.search(plain):
            yield Suspicion(rule.name, place, rule.reason, _excerpt(found[0]))


_ON_TEXT: Final = (
    ("hidden-in-markup", "has a part that is not shown where it is rendered", _COMMENT),
    ("pushed-out-of-sight", "pushes text away with blanks", _FAR_AWAY),
    ("encoded", "holds a long text in a code that no reader can read", _BLOB),
)


def _plain(text: str) -> str:
    """The text as a hasty reader takes it: one case, plain letters, words with single spaces."""
    if not text.isascii():
        decomposed = unicodedata.normalize("NFKD", text)
        text = "".join(char for char in decomposed if not unicodedata.combining(char))
    text = text.casefold().translate(_LOOKALIKES)
    text = _SPELLED.sub(lambda spelled: re.sub(r"[ .\-_]", "", spelled[0]), text)
    return _SPACE.sub(" ", _NOISE.sub(" ", text)).strip()


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _EXCERPT_CHARS else line[: _EXCERPT_CHARS - 1] + "…"
