"""Formats an alert as a Discord message with one embed, always within Discord's limits. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from prismline_alerting.alerts import Alert, State
from prismline_alerting.facts import Facts

#: Limits of texts, in UTF-16 code units, the strictest reading of Discord's "characters". With these an embed stays
#: below Discord's total limit of 6,000.
MAX_TITLE, MAX_DESCRIPTION, MAX_FIELD_NAME, MAX_FIELD_VALUE, MAX_FOOTER = 256, 1500, 256, 1000, 200
#: Longest error that is shown.
MAX_ERROR = 240

#: Colours of the embed's edge.
RED, GREEN = 0xD32F2F, 0x2E7D32

#: Replaces an empty text, because Discord refuses empty fields.
NOTHING = "-"


def message(alert: Alert, facts: Facts, environment: str) -> dict[str, Any]:
    """The message to post. It never mentions anybody, whatever text an error contains."""
    return {
        "username": "Prismline",
        "allowed_mentions": {"parse": []},
        "embeds": [_embed(alert, facts, environment)],
    }


def next_command(alert: Alert) -> str:
    """The command that shows more about the alert."""
    if alert.run_id is not None:
        return f"prismline failures {alert.run_id}"
    if alert.queue is None:
        return f"aws cloudwatch describe-alarm-history --alarm-name '{alert.name}' --max-items 5"
    return "prismline runs" if alert.state is State.OK else "prismline deadletters stats"


def _embed(alert: Alert, facts: Facts, environment: str) -> dict[str, Any]:
    red = alert.state is State.ALARM
    kind = "Run failed" if alert.run_id else "Alarm" if red else "OK again"
    fields = [_field("Since", f"{_moment(alert.at, 'f')} ({_moment(alert.at, 'R')})", inline=True)]
    if facts.depth is not None:
        above = f" (alarm above {alert.threshold:g})" if red and alert.threshold is not None else ""
        fields.insert(0, _field("Depth", f"{facts.depth} messages{above}", inline=True))
    if red and facts.oldest is not None:
        fields.append(_field("Oldest waits since", _moment(facts.oldest, "R"), inline=True))
    if red and facts.errors:
        lines = [f"{number}\u00d7 {_code(error)}" for error, number in facts.errors]
        fields.append(_field("Most frequent errors", "\n".join(lines)))
    if red or alert.queue is None:
        fields.append(_field("Why", _code(alert.reason, MAX_FIELD_VALUE - 2)))
    fields.append(_field("Next", _code(next_command(alert), MAX_FIELD_VALUE - 2)))
    return {
        "title": clip(f"{kind}: {plain(alert.name)}", MAX_TITLE),
        "color": RED if red else GREEN,
        "fields": fields,
        "footer": {"text": clip(f"Prismline {environment}", MAX_FOOTER)},
        "timestamp": alert.at.isoformat(timespec="seconds"),
    } | ({"description": clip(what, MAX_DESCRIPTION)} if (what := _what(alert)) else {})


def _what(alert: Alert) -> str:
    """The alarm's description, and whether the alarm is over."""
    what = plain(alert.what)
    return f"This is over: {what}" if what and alert.state is State.OK else what


def _field(name: str, value: str, *, inline: bool = False) -> dict[str, Any]:
    return {"name": clip(name, MAX_FIELD_NAME), "value": clip(value, MAX_FIELD_VALUE), "inline": inline}


def _code(text: str, most: int = MAX_ERROR) -> str:
    """Format text as code, so that Discord ignores markup in it."""
    return f"`{clip(' '.join(plain(text).split()), most)}`"


def _moment(moment: datetime, style: str) -> str:
    """Format a time so that Discord shows it in the reader's time zone."""
    return f"<t:{int(moment.timestamp())}:{style}>"


def plain(text: str) -> str:
    """Remove control characters, and replace backticks, which Discord reads as markup."""
    return "".join(character for character in text.replace("`", "'") if character.isprintable() or character == "\n")


def clip(text: str, most: int) -> str:
    """Cut `text` to `most` UTF-16 code units. The result is never empty and never ends within a character."""
    encoded = text.strip().encode("utf-16-le", errors="replace")
    if len(encoded) > 2 * most:
        encoded = encoded[: 2 * (most - 1)].decode("utf-16-le", errors="ignore").encode("utf-16-le") + b"\x26\x20"
    return encoded.decode("utf-16-le") or NOTHING
