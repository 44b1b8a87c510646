"""Numbers that people have written somewhere as text: in annotations, in flags."""

from __future__ import annotations


def number_of(text: str, highest: int) -> int | None:
    """A whole number from 0 on, in plain digits; None for anything else, and for what is beyond the highest.

    Counted before it is converted: Python refuses to read some thousands of digits, and that is not the reader's worry.
    """
    is_plain = text.isascii() and text.isdecimal() and len(text.lstrip("0")) <= len(str(highest))
    number = int(text.lstrip("0") or "0") if is_plain else highest + 1
    return number if number <= highest else None
