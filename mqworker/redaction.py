"""Redaction: hides secrets in whatever is about to be shown, be it a log line, an error or a status page.

When in doubt it hides too much: a lost host name costs a moment, a leaked password costs the server.
"""

import re
from urllib.parse import unquote

MASK = "***"

_SENSITIVE = r"(?:password|passwd|token|secret|authorization|cookie|api[-_. ]?key)"
_SENSITIVE_NAME = re.compile(_SENSITIVE, re.IGNORECASE)

# Every repetition below is bounded or cannot overlap its neighbour: hostile text is scanned in linear time.
_QUERY_VALUE = re.compile(r"([?&])([^?&=]*)=([^&]*)")
_AFTER_SCHEME = re.compile(r"(?<=://)\S+")
_NAMED_VALUE = re.compile(
    rf"""
    ( {_SENSITIVE} [\w-]{{0,32}} \\{{0,4}} ["']? \s{{0,4}} [=:] \s{{0,4}} )
    (?: b? "  (?: \\[\s\S] | [^"\\] )* (?: " | \Z )
      | b? '  (?: \\[\s\S] | [^'\\] )* (?: ' | \Z )
      | \\{{1,4}} " [\s\S]*? (?: \\{{1,4}} " | \Z )
      | (?: bearer | basic | digest ) \s{{1,4}} \S+
      | [^\s,;&)}}\]]+
    )
    """,
    re.IGNORECASE | re.VERBOSE,
)
# What a traceback shows of one frame: where it is, and the lines of source that belong to it.
_FRAME = re.compile(
    r"""^([ ]{2}File[ ]"[^"\n]*",[ ]line[ ][0-9]+,[ ]in[ ][^\n]*\n)((?:[ ]{4}[^\n]*(?:\n|\Z))*)""",
    re.MULTILINE,
)
_QUOTED_VALUE = re.compile(
    rf"""
    ( {_SENSITIVE} [\w-]{{0,32}} ["']? \s{{0,4}} [=:] \s{{0,4}} )
    (?: b? " (?: \\. | [^"\\\n] )* " | b? ' (?: \\. | [^'\\\n] )* ' )
    """,
    re.IGNORECASE | re.VERBOSE,
)
# The value of these headers has spaces and semicolons of its own, so it ends with the line.
_HEADER_LINE = re.compile(
    r"\b((?:proxy-)?authorization|(?:set-)?cookie)([ \t]{0,4}:[ \t]{0,4})(?![\"'])[^\r\n]+", re.IGNORECASE
)


def is_secret_name(name: str) -> bool:
    """Whether a value under this name is never shown: password, token, secret and their kind."""
    return _SENSITIVE_NAME.search(name) is not None


def masked_url(url: str) -> str:
    """The URL without its password, wherever it stands; the user name, host and path stay readable."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}{_masked_rest(rest)}" if separator else _masked_rest(url)


def masked_text(text: str) -> str:
    """Free text, such as a traceback, without passwords of URLs and without values like `token=...`."""
    text = _AFTER_SCHEME.sub(lambda found: _masked_rest(found[0]), text)
    text = _HEADER_LINE.sub(rf"\1\2{MASK}", text)
    return _NAMED_VALUE.sub(rf"\1{MASK}", text)


def masked_traceback(text: str) -> str:
    """A traceback; of its lines of source only URLs and quoted texts under a telling name are masked."""
    parts: list[str] = []
    behind = 0
    for frame in _FRAME.finditer(text):
        parts += [masked_text(text[behind : frame.start()]), frame[1], _masked_source(frame[2])]
        behind = frame.end()
    return "".join([*parts, masked_text(text[behind:])])


def _masked_source(lines: str) -> str:
    lines = _AFTER_SCHEME.sub(lambda found: _masked_rest(found[0]), lines)
    return _QUOTED_VALUE.sub(rf"\1{MASK}", lines)


def _masked_rest(rest: str) -> str:
    """Mask what follows `://`. A password may hold `@`, `/` and `?`, so the last `@` ends the user part."""
    masked = _QUERY_VALUE.sub(_masked_query_value, rest)
    if "@" in rest and "@" not in masked:
        # Either the query's secret holds an `@`, or the user part holds a `?`: nobody can tell which.
        return MASK
    user_part, at, place = masked.rpartition("@")
    if not at:
        return masked
    user, colon, _password = user_part.partition(":")
    return f"{user}:{MASK}@{place}" if colon else f"{MASK}@{place}"


def _masked_query_value(found: re.Match[str]) -> str:
    # A percent-encoded name (`pass%77ord`) means the same to the server's client.
    return f"{found[1]}{found[2]}={MASK}" if is_secret_name(unquote(found[2])) else found[0]
