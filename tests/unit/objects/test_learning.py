"""Threads that meet the same type for the first time at the same time crash the process: none may be left to be met."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import importlib, pkgutil, sys
import msgspec, trainmaster

for found in pkgutil.walk_packages(trainmaster.__path__, "trainmaster."):
    if not found.name.startswith("trainmaster.testing") and not found.name.endswith("__main__"):
        importlib.import_module(found.name)

def kinds(base):
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)

met = []
def notice(frame, event, argument):
    if event == "call" and frame.f_code.co_name == "get_class_annotations":
        met.append(frame.f_locals["obj"].__qualname__)

ours = [kind for kind in kinds(msgspec.Struct) if kind.__module__.startswith("trainmaster.")]
class Stranger(msgspec.Struct):
    pass
sys.setprofile(notice)
for kind in (*ours, Stranger):
    msgspec.json.Decoder(kind)
sys.setprofile(None)
print(len(ours), *met)
"""


def test_every_type_that_is_decoded_was_learnt_when_its_module_was_imported() -> None:
    """In a process of its own: in this one, other tests have met them all."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)

    count, *met = ran.stdout.split()
    assert int(count) > 20
    assert met == ["Stranger"]  # the way to find them finds what has not been learnt
