"""One file per framework, and the list of them.

A framework is a class of facts and a few pure functions (`api.framework`). Ours stand in `BUILT_IN`, in the order
in which they are listed everywhere; others come from installed packages through the entry point
`trainmaster.frameworks` (an instance or a class), appended sorted by name. Start reading at `jax`, the smallest.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points

from trainmaster.api.framework import Framework
from trainmaster.frameworks.jax import JAX
from trainmaster.frameworks.mindspore import MindSpore
from trainmaster.frameworks.mpi import MPI
from trainmaster.frameworks.mxnet import MXNet
from trainmaster.frameworks.paddle import Paddle
from trainmaster.frameworks.paddle_batch import PaddleBatch
from trainmaster.frameworks.pytorch import PyTorch
from trainmaster.frameworks.tensorflow import TensorFlow
from trainmaster.frameworks.xgboost import XGBoost
from trainmaster.objects.resource import Resource

ENTRY_POINT = "trainmaster.frameworks"
BUILT_IN: tuple[Framework, ...] = (
    *(TensorFlow(), PyTorch(), MPI(), XGBoost(), MXNet(), Paddle(), JAX()),
    *(MindSpore(), PaddleBatch()),
)

__all__ = ["BUILT_IN", "ENTRY_POINT", "UnknownScheme", "enabled", "registered", "serving"]


class UnknownScheme(ValueError):
    """A kind was asked for that no framework declares."""


@cache
def registered() -> tuple[Framework, ...]:
    loaded = [(point.name, point.load()) for point in entry_points(group=ENTRY_POINT)]
    foreign = [item() if isinstance(item, type) else item for _, item in sorted(loaded, key=lambda pair: pair[0])]
    return (*BUILT_IN, *foreign)


def enabled(schemes: tuple[str, ...]) -> tuple[Framework, ...]:
    """The frameworks behind these kinds, whatever their case; all of them if none is named.

    `KIND.GROUP` tells two kinds of one name apart.
    """
    if not schemes:
        return registered()
    wanted = {scheme.lower() for scheme in schemes}
    kinds = {framework: set(_names(framework)) for framework in registered()}
    unknown = wanted.difference(*kinds.values())
    if unknown:
        known = ", ".join(dict.fromkeys(framework.kind for framework in registered()))
        raise UnknownScheme(f"unknown scheme {', '.join(sorted(unknown))}; known are {known}")
    return tuple(framework for framework in registered() if kinds[framework] & wanted)


def _names(framework: Framework) -> Iterator[str]:
    for resource in framework.served:
        yield from (resource.kind.lower(), f"{resource.kind}.{resource.group}".lower())


def serving(api_version: object, kind: object) -> tuple[Framework, Resource] | None:
    """The framework that runs objects of this apiVersion and kind, and the resource they are stored under."""
    for framework in registered():
        for resource in framework.served:
            older = framework.older_versions if resource == framework.resource else ()
            versions = [f"{resource.group}/{version}" for version in (resource.version, *older)]
            if kind == resource.kind and api_version in versions:
                return framework, resource
    return None
