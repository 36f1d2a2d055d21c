# ruff: noqa: E501  (templates read best on one line)
"""Tools that people really declare, and how they ask for them; beside them `tools` makes up random ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.mini.skills.base import Source

_STRING, _INTEGER, _BOOLEAN = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}

Values = dict[str, Any]


@dataclass(frozen=True)
class Everyday:
    """A tool with questions that need it. `result` makes what it might return."""

    name: str
    description: str
    properties: dict[str, dict[str, Any]]
    questions: tuple[str, ...]
    values: Callable[[Source], Values]
    result: Callable[[Source], Any]


def _degrees(s: Source) -> Values:
    return {"condition": s.term("adjective"), "temperature": s.integer(-9, 40)}


EVERYDAY: tuple[Everyday, ...] = (
    Everyday(
        "get_weather", "Get the weather in a city", {"city": _STRING},
        ("What is the weather in {city}?", "What's the weather in {city}?", "How is the weather in {city} today?",
         "Weather in {city}?", "Tell me the weather in {city}.", "Is it cold in {city}?"),
        lambda s: {"city": s.city()}, _degrees,
    ),
    Everyday(
        "get_time", "Get the time in a city", {"city": _STRING},
        ("What time is it in {city}?", "Tell me the time in {city}.", "How late is it in {city}?"),
        lambda s: {"city": s.city()}, lambda s: {"time": s.time()},
    ),
    Everyday(
        "search", "Search the web", {"query": _STRING},
        ("Search for {query}.", "Find pages about {query}.", "Look up {query}."),
        lambda s: {"query": s.phrase(1, 3)}, lambda s: {"title": s.phrase(1, 2)},
    ),
    Everyday(
        "add", "Add two numbers", {"a": _INTEGER, "b": _INTEGER},
        ("What is {a} + {b}?", "Add {a} and {b}.", "What is {a} plus {b}?", "Use the tool to add {a} and {b}."),
        lambda s: {"a": s.integer(2, 9999), "b": s.integer(2, 9999)}, lambda s: s.integer(2, 9999),
    ),
    Everyday(
        "multiply", "Multiply two numbers", {"a": _INTEGER, "b": _INTEGER},
        ("What is {a} * {b}?", "Multiply {a} by {b}.", "What is {a} times {b}?", "Use the tool to multiply {a} and {b}."),
        lambda s: {"a": s.integer(2, 999), "b": s.integer(2, 999)}, lambda s: s.integer(2, 9999),
    ),
    Everyday(
        "send_message", "Send a message to a person", {"recipient": _STRING, "text": _STRING},
        ('Tell {recipient} "{text}".', 'Send {recipient} the message "{text}".', "Write to {recipient}: {text}"),
        lambda s: {"recipient": s.name(), "text": s.sentence()}, lambda s: "sent",
    ),
    Everyday(
        "send_email", "Send an email", {"body": _STRING, "subject": _STRING, "to": _STRING},
        ('Send an email to {to} with subject "{subject}" and body "{body}".', "Mail {to}, subject {subject}: {body}"),
        lambda s: {"body": s.sentence(), "subject": s.phrase(1, 2), "to": s.email()}, lambda s: "sent",
    ),
    Everyday(
        "book_flight", "Book a flight", {"date": _STRING, "destination": _STRING, "origin": _STRING},
        ("Book a flight from {origin} to {destination} on {date}.", "I want to fly from {origin} to {destination} on {date}.",
         "Get me a flight to {destination} from {origin} for {date}."),
        lambda s: {"date": s.date(), "destination": s.city(), "origin": s.city()}, lambda s: {"flight": s.code()},
    ),
    Everyday(
        "book_table", "Book a table in a restaurant", {"guests": _INTEGER, "restaurant": _STRING, "time": _STRING},
        ("Book a table for {guests} at {restaurant} at {time}.", "Table for {guests} at {time} in {restaurant}, please."),
        lambda s: {"guests": s.integer(2, 12), "restaurant": s.name(), "time": s.time()}, lambda s: {"table": s.integer(1, 40)},
    ),
    Everyday(
        "set_alarm", "Set an alarm", {"time": _STRING},
        ("Wake me at {time}.", "Set an alarm for {time}.", "Alarm at {time}, please."),
        lambda s: {"time": s.time()}, lambda s: "ok",
    ),
    Everyday(
        "set_timer", "Set a timer", {"minutes": _INTEGER},
        ("Set a timer for {minutes} minutes.", "Remind me in {minutes} minutes.", "Timer, {minutes} minutes."),
        lambda s: {"minutes": s.integer(1, 90)}, lambda s: "ok",
    ),
    Everyday(
        "set_light", "Switch the light of a room", {"on": _BOOLEAN, "room": _STRING},
        ("Turn {on} the light in the {room}.", "Switch the {room} light {on}.", "Light {on} in the {room}."),
        lambda s: {"on": s.chance(0.5), "room": s.thing()}, lambda s: "ok",
    ),
    Everyday(
        "translate", "Translate a text", {"language": _STRING, "text": _STRING},
        ('Translate "{text}" to {language}.', 'How do you say "{text}" in {language}?', "Put {text} into {language}."),
        lambda s: {"language": s.term("language"), "text": s.phrase(1, 4)}, lambda s: s.made_up(),
    ),
    Everyday(
        "convert_currency", "Convert money", {"amount": {"type": "number"}, "from": _STRING, "to": _STRING},
        ("Convert {amount} {from} to {to}.", "How much is {amount} {from} in {to}?"),
        lambda s: {"amount": s.integer(1, 999), "from": s.pick(("euros", "dollars", "pounds")), "to": s.pick(("francs", "yen", "pesos"))},
        lambda s: {"amount": s.integer(1, 999)},
    ),
    Everyday(
        "get_stock_price", "Get the price of a stock", {"symbol": _STRING},
        ("What is the price of {symbol}?", "How much is {symbol} stock?", "Stock price of {symbol}?"),
        lambda s: {"symbol": s.made_up(lambda text: text.upper()[:5])}, lambda s: {"price": s.integer(2, 999)},
    ),
    Everyday(
        "find_user", "Find a user by name", {"name": _STRING},
        ("Find the user {name}.", "Who is {name}?", "Look for {name}."),
        lambda s: {"name": s.name()}, lambda s: {"id": s.integer(2, 9999)},
    ),
    Everyday(
        "delete_file", "Delete a file", {"path": _STRING},
        ("Delete the file {path}.", "Remove {path}.", "Please delete {path}."),
        lambda s: {"path": f"{s.thing()}/{s.made_up()}.txt"}, lambda s: "ok",
    ),
    Everyday(
        "cancel_order", "Cancel an order", {"order_id": _INTEGER},
        ("Cancel order {order_id}.", "Cancel my order number {order_id}.", "I do not want order {order_id}."),
        lambda s: {"order_id": s.integer(10, 99999)}, lambda s: "ok",
    ),
    Everyday(
        "play_music", "Play a song", {"song": _STRING},
        ("Play {song}.", 'Play the song "{song}".', "I want to hear {song}."),
        lambda s: {"song": s.phrase(1, 3)}, lambda s: "ok",
    ),
    Everyday(
        "get_current_time", "Get the current time", {},
        ("What time is it?", "What time is it now?", "Tell me the time.", "How late is it?"),
        lambda s: {}, lambda s: {"time": s.time()},
    ),
    Everyday(
        "create_note", "Save a note", {"text": _STRING, "title": _STRING},
        ('Make a note "{title}": {text}', 'Save a note with title "{title}" and text "{text}".'),
        lambda s: {"text": s.sentence(), "title": s.phrase(1, 2)}, lambda s: "saved",
    ),
)  # fmt: skip


def asked(source: Source, tool: Everyday, values: Values) -> str:
    """A question that needs the tool with these values."""
    words = {
        key: ("on" if value else "off") if isinstance(value, bool) else value for key, value in values.items()
    }
    return source.pick(tool.questions).format(**words)
