"""Structured logs on the standard library: a constant message and the fields that vary.

    log = logs.get(__name__)
    log.info("pods created", key=key, count=3)

`setup` is called once, by whoever owns the process; it chooses JSON (one object per line) or text. Every record made
during a reconcile carries its id. Fields whose names end in token, password or authorization are masked.
"""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal, TextIO

reconcile_id: ContextVar[str] = ContextVar("reconcile_id", default="")
"""Set by `controller` around each reconcile, so that its lines can be told from those of others."""

Format = Literal["json", "text", "auto"]

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_OTHERWISE = {"warn": "warning"}  # as Go's loggers say
_SECRETS = ("token", "password", "authorization")
_MASK = "***"
_FIXED = frozenset(("ts", "level", "logger", "msg"))
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "fields"}


class BadLevel(ValueError):
    """No level of logs has that name."""


class Logger:
    """The standard logger, with fields as keyword arguments."""

    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, msg: str, /, **fields: object) -> None:
        self._write(logging.DEBUG, msg, fields)

    def info(self, msg: str, /, **fields: object) -> None:
        self._write(logging.INFO, msg, fields)

    def warning(self, msg: str, /, **fields: object) -> None:
        self._write(logging.WARNING, msg, fields)

    def error(self, msg: str, /, **fields: object) -> None:
        self._write(logging.ERROR, msg, fields)

    def exception(self, msg: str, /, **fields: object) -> None:
        """An error with the traceback of the exception being handled."""
        self._write(logging.ERROR, msg, fields, with_traceback=True)

    def _write(self, level: int, msg: str, fields: dict[str, object], *, with_traceback: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            # Nested, because the standard library refuses an `extra` named like one of its own: name, module…
            self._logger.log(level, msg, exc_info=with_traceback, extra={"fields": fields}, stacklevel=3)


def get(name: str) -> Logger:
    return Logger(logging.getLogger(name))


def setup(level: str = "info", format: Format = "auto", stream: TextIO | None = None) -> None:
    """Sends the records of all loggers to the stream (stderr); `auto` means text on a terminal, else JSON."""
    name = _OTHERWISE.get(level.lower(), level.lower())
    if name not in _LEVELS:
        raise BadLevel(f"log level {level!r} is not one of {', '.join(_LEVELS)}")
    if format not in ("json", "text", "auto"):
        raise ValueError(f"log format {format!r} is not one of json, text, auto")
    stream = sys.stderr if stream is None else stream
    handler = _Handler(stream)
    is_text = format == "text" or (format == "auto" and stream.isatty())
    handler.setFormatter(TextFormatter() if is_text else JsonFormatter())
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(_LEVELS[name])


class _Handler(logging.StreamHandler[TextIO]):
    """Ours, so that a second `setup` replaces it and leaves others alone."""


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "ts": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        for name, value in _fields(record):
            line[f"{name}_" if name in _FIXED else name] = value
        if text := _exception(self, record):
            line["exception"] = text
        return json.dumps(line)


class TextFormatter(logging.Formatter):
    """`14:05:09 info pods created key=default/mnist count=3`, in local time: a person reads it now."""

    def format(self, record: logging.LogRecord) -> str:
        moment = self.formatTime(record, "%H:%M:%S")
        parts = [moment, record.levelname.lower(), record.getMessage()]
        parts += [f"{name}={_word(value)}" for name, value in _fields(record)]
        text = _exception(self, record)
        return " ".join(parts) + (f"\n{text}" if text else "")


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    """What was given as keywords, and what other libraries give as `extra`."""
    if identity := reconcile_id.get():
        yield "reconcile_id", identity
    given = getattr(record, "fields", None)
    extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    for name, value in {**extra, **(given if isinstance(given, Mapping) else {})}.items():
        yield name, _plain(name, value)


def _plain(name: str, value: object) -> object:
    """The value as JSON has it, secrets masked at any depth; logging never fails for want of an encoder."""
    if name.lower().endswith(_SECRETS):
        return _MASK
    if isinstance(value, Mapping):
        return {str(key): _plain(str(key), item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain("", item) for item in value]
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)


def _word(value: object) -> str:
    """Bare where it is one word, quoted where a reader could not see its end."""
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    is_bare = bool(value) and value.isprintable() and not set(value) & set(' "=')
    return value if is_bare else json.dumps(value, ensure_ascii=False)


def _exception(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if record.exc_info and record.exc_info[0] is not None:
        return formatter.formatException(record.exc_info)
    return record.exc_text or ""
