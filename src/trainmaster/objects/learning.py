"""Types that msgspec is to decode, learnt while their module is imported.

msgspec looks at the fields of a type when it first decodes one, and takes note of what it has found so far before it is
done. A second thread that decodes the same type just then uses half a note, and the process crashes. So whoever defines
such a type has it learnt at once, at the end of the module: imports are one thread's work.
"""

from __future__ import annotations

import msgspec


def learn(*types: type[msgspec.Struct]) -> None:
    """These, and the types of their fields."""
    for each in types:
        msgspec.json.Decoder(each)
