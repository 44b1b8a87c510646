"""Keeps the served kinds in step with the stored CustomResourceDefinitions, in both directions.

A definition that is written changes what is served at once. One that is deleted first takes its objects with it: it
stays, terminating, until the last of them is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainmaster.cluster.registry.admission import Object
from trainmaster.cluster.registry.custom_resources import CLEANUP, PREFIX, CustomRules, kinds_of
from trainmaster.cluster.registry.deletion import Deleter
from trainmaster.cluster.registry.kinds import Kind, Kinds
from trainmaster.cluster.registry.kinds_builtin import BUILTIN
from trainmaster.cluster.registry.status_error import ApiError
from trainmaster.cluster.registry.writing import Writer

DEFINITIONS = next(kind for kind in BUILTIN if kind.prefix == PREFIX)
_BACKGROUND = {"propagationPolicy": "Background"}


class Definitions:
    def __init__(self, kinds: Kinds, writer: Writer, deleter: Deleter) -> None:
        self._kinds = kinds
        self._writer = writer
        self._deleter = deleter

    def load(self) -> None:
        for entry in self._writer.store.list(PREFIX):
            self._serve(entry.value)

    def check_accepting(self, kind: Kind) -> None:
        """Objects of a kind that is going away are refused."""
        crd = self._definition_of(kind)
        if crd is not None and crd["metadata"].get("deletionTimestamp"):
            message = "create not allowed while custom resource definition is terminating"
            raise ApiError(405, "MethodNotAllowed", message, {"group": kind.group, "kind": kind.plural})

    async def written(self, kind: Kind, obj: Mapping[str, Any]) -> None:
        if kind.prefix == PREFIX:
            if self._writer.store.get(PREFIX, obj["metadata"]["name"]) is None:
                self._withdraw(obj)
            else:
                self._serve(obj)
        elif kind.custom and obj["metadata"].get("deletionTimestamp"):
            await self.emptied(kind)

    async def deleted(self, kind: Kind, obj: Mapping[str, Any]) -> None:
        """After a deletion was asked for: of a definition, or of an object that a terminating definition waits for."""
        if kind.prefix == PREFIX:
            await self._purge(obj)
        elif kind.custom:
            await self.emptied(kind)

    async def emptied(self, kind: Kind) -> None:
        """Lets a terminating definition go if its last object has gone."""
        crd = self._definition_of(kind)
        if crd is None or not crd["metadata"].get("deletionTimestamp") or self._writer.store.list(kind.prefix):
            return
        await self._release(crd)

    async def _purge(self, crd: Mapping[str, Any]) -> None:
        for kind in kinds_of(crd)[:1]:
            for entry in self._writer.store.list(kind.prefix):
                await self._deleter.delete_if_there(kind, entry, _BACKGROUND)
            if self._writer.store.list(kind.prefix):
                return
        await self._release(crd)

    async def _release(self, crd: Mapping[str, Any]) -> None:
        def without_cleanup(current: Object) -> Object:
            finalizers = [name for name in current["metadata"].get("finalizers") or () if name != CLEANUP]
            current["metadata"]["finalizers"] = finalizers
            return current

        name = crd["metadata"]["name"]
        try:
            await self._writer.modify(DEFINITIONS, "", name, without_cleanup)
        except ApiError as error:
            if error.status != 404:
                raise
        if self._writer.store.get(PREFIX, name) is None:
            self._withdraw(crd)

    def _serve(self, crd: Mapping[str, Any]) -> None:
        kinds = kinds_of(crd)
        for kind in kinds:
            self._writer.policies.add(kind, CustomRules(kind).policy)
        self._kinds.replace(crd["spec"]["group"], crd["spec"]["names"]["plural"], kinds)

    def _withdraw(self, crd: Mapping[str, Any]) -> None:
        self._kinds.replace(crd["spec"]["group"], crd["spec"]["names"]["plural"], ())

    def _definition_of(self, kind: Kind) -> Mapping[str, Any] | None:
        return self._writer.find(PREFIX, f"{kind.plural}.{kind.group}") if kind.custom else None
