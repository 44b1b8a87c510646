"""Where the embedded server may differ from a real one, each with its reason; nothing else may.

The real one is Kubernetes 1.20, the youngest that can be built from Debian's sources; the embedded one follows 1.32.
`scenario`, `step` and `field` are patterns as those of file names, several parted by `|`, in which `[` stands for
itself; `real` and `ours` are regular expressions that are found in what the two said.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from tests.kubernetes.exchange import Mismatch

ABSENT = r"^\(absent\)$"


@dataclass(frozen=True, slots=True)
class Difference:
    why: str
    scenario: str = "*"
    step: str = "*"
    field: str = "*"
    real: str = ""
    ours: str = ""

    def covers(self, mismatch: Mismatch) -> bool:
        pairs = ((self.scenario, mismatch.scenario), (self.step, mismatch.step), (self.field, mismatch.field))
        if not all(_fits(patterns, value) for patterns, value in pairs):
            return False
        said = ((self.real, mismatch.real), (self.ours, mismatch.ours))
        return all(re.search(pattern, _text(value)) for pattern, value in said if pattern)


def _fits(patterns: str, value: str) -> bool:
    return any(fnmatchcase(value, pattern.replace("[", "[[]")) for pattern in patterns.split("|"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


_OLDER = (  # 1.20 is what differs: the embedded server does as later releases do
    Difference(
        "1.20 decodes with jsoniter, whose errors quote the text",
        real=r"error found in #\d+ byte|json parse error|unexpected EOF|unexpected end of JSON|yaml: line 1",
        ours=r"cannot be handled as a|json parse error|error decoding (patch|YAML)",
    ),
    Difference(
        "values and changes in Go's syntax, sometimes with addresses: later JSON",
        field="*.causes.*",
        real=r"\w+\.\w+\{|map\[string\]interface|&\w+\.",
    ),
    Difference(
        "no dual-stack services, traffic policies, indexed or suspended Jobs, or labels on namespaces",
        real=ABSENT,
        ours=r'^(Cluster|\["IPv4"\]|SingleStack|NonIndexed|false|{"kubernetes.io/metadata.name": .*})$',
    ),
    Difference(
        "and no owners of these",
        field="*/f:internalTrafficPolicy|*/f:completionMode|*/f:suspend|*.labels.kubernetes.io/metadata.name",
        real=ABSENT,
    ),
    Difference("and no name too long for a label", scenario="create-namespaces", step="long", field="*metadata.labels"),
    Difference("the labels of Jobs have a prefix since 1.27", field="*batch.kubernetes.io/*|*.controller-uid"),
    Difference("Jobs have a generation since 1.22", step="plain|*job*", field=".metadata.generation", real=ABSENT),
    Difference(
        "selectors and references are owned whole since 1.21",
        field="*managedFields.*/f:selector*|*managedFields.*/f:involvedObject*|*managedFields.*/f:valueFrom/f:*Ref*",
    ),
    Difference("a writer of status owns no spec since 1.21", field="*managedFields.*/f:nodeName", ours=ABSENT),
    Difference("the singular of built-in kinds is told since 1.27", field=".resources.*.singularName", real="^$"),
    Difference("CronJobs are v1 since 1.21", field=".resources.cronjobs*|.versions[*]", real=r"absent|batch/v1beta1"),
    Difference("evictions are v1 since 1.22", field=".resources.pods/eviction.version"),
    Difference("services can be deleted together since 1.23", field=".resources.services.verbs[*]"),
    Difference("services can be deleted together since 1.23", step="of services", real="^405", ours="^200"),
    Difference("services can be updated without a version since 1.24", step="without version", real="^422.*Service"),
    Difference("restarts are text since 1.22: they tell when", step="* Pod", field="*Definitions[3].type|*.cells[3]"),
    Difference(
        "VolumeAttributesClass has a column since 1.29", scenario="tables", step="*olume*", field=".column*|*.cells[*]"
    ),
    Difference("ReadWriteOncePod is a mode since 1.22", real='"ReadWriteOnce"$', ours='"ReadWriteOncePod"$'),
    Difference("a uid that does not match is told without the store's own words since 1.21", real="StorageError"),
    Difference("a JSON patch of what is not there is refused since 1.22", scenario="json-patches", ours="^422"),
    Difference("a JSON patch can replace the whole document since 1.22", scenario="json-patches", ours="^200"),
    Difference("what those patches did stays", scenario="json-patches", field="*data*zz|*data*g"),
    Difference(
        "list items have their index in paths of custom resources since 1.22",
        field="*.causes.spec.parts[0].id|*.causes.spec.parts.id|*.causes.*containers*image",
    ),
)

_FAULTS = (  # of a real server, also of later ones
    Difference("a client's mistake is not answered with 500", real="^500"),
    Difference("what is wrong twice is told once", field=".message", real='"[^"]*" is invalid: ', ours="<causes>$"),
    Difference("a scaled field of the wrong type is wrong once, not twice", field="*.causes..spec.*", ours=ABSENT),
    Difference("a whole number is an integer, also to be scaled by", step="whole float as size", ours="^201"),
    Difference("an integer is one however large", step="huge", field="*.causes.spec.size[*]"),
    Difference("one complaint is enough", step="own selector", field="*.spec.template.metadata.labels", ours=ABSENT),
    Difference(
        "complaints about a definition name the place where its author wrote it",
        scenario="bad-definitions",
        field="*.causes.spec.v*|*.causes.spec.additionalPrinterColumns*|*.causes.spec.subresources*",
    ),
    Difference("stored versions are the server's to fill in", field="*.causes.status.storedVersions", ours=ABSENT),
    Difference("a dry run allocates nothing, but it checks and shows", field=".spec.clusterIP*", real=ABSENT),
    Difference("a dry run allocates nothing, but it checks and shows", step="address outside", real="^201"),
    Difference(
        "a list that is not there is not made by deleting from it", step="delete from*|null", field="*finalizers*"
    ),
    Difference("an apply that names no object is not taken for that of the address", step="no name", ours="^400"),
    Difference("what is wrong is told before what conflicts", scenario="apply-patches", step="other name", real="^409"),
    Difference("negative grace is refused, or none", step="negative|negative grace", ours="^422 Invalid: Pod|^0$"),
    Difference("a time without a fraction is a time", step="time without fraction", ours="^201"),
    Difference("null is not an object", scenario="create-bodies", step="null"),
    Difference("a typing error", step="negative transitions", real="must to greater"),
)

_OURS = (  # on purpose
    Difference(
        "items of a list say what they are: they are served as they are stored",
        field=".items[*].*",
        real=ABSENT,
        ours="^[A-Za-z0-9./]+$",
    ),
    Difference("Go prints what is empty: times, structures, quantities, tokens", real="^(null|{}|0|)$", ours=ABSENT),
    Difference("Go leaves out lists and maps that are empty", real=ABSENT, ours=r"^(\[\]|{})$"),
    Difference(
        "and nobody owns these",
        scenario="create-good-pods|create-events|field-selectors|read-each-kind|tables|update-identity",
        field="*managedFields.*",
        real=ABSENT,
        ours="^true$",
    ),
    Difference(
        "and nobody owns these", field="*/f:metadata/f:labels|*/f:template/f:metadata|*.Apply by two", real=ABSENT
    ),
    Difference("columns have no description: no client shows it", field="*olumnDefinitions[*].description", ours="^$"),
    Difference(
        "no DefaultTolerationSeconds: the nodes of one machine do not get lost one by one",
        field="*.spec.tolerations*",
        real="node.kubernetes.io/",
        ours=ABSENT,
    ),
    Difference(
        "claims and volumes are not protected while in use: who deletes one here means it",
        field="*.finalizers",
        real=r"kubernetes.io/pvc?-protection",
        ours=ABSENT,
    ),
    Difference("a definition has its finalizer from the beginning", field="*.finalizers", ours="customresourcecleanup"),
    Difference("nobody but the owner may use the cluster: 401, not the rights of system:anonymous", real="^403"),
    Difference("a path that leads nowhere gets a Status, where a real server has only text", real="page not found"),
    Difference("and its type", field="(content type)", real="^text/plain$"),
    Difference(
        "a path outside the API gets only text, not a list of all", field="(*", ours="^text/plain$|page not found"
    ),
    Difference("the HTTP library knows the methods there are", step="own method", ours="^400 Invalid method"),
    Difference("groups are read, not deleted", step="delete a group", ours="^405"),
    Difference("kinds and subresources that are not served", scenario="discovery", ours=ABSENT),
    Difference("the server's address is the one it was reached by", field=".serverAddressByClientCIDRs[*].*"),
    Difference("media types are told by name", real="^(406|415): ", ours="accepted"),
    Difference("media types are told by name", step="patch without its type|as nothing", field=".details"),
    Difference("any kind of application/ is JSON too", step="accept application/*", ours="^200"),
    Difference("YAML looks otherwise", step="accept application/yaml", field="(body)"),
    Difference("words for selectors and tokens", real="is not a known field selector|continue key is not valid"),
    Difference("words for tables and kinds that are none", step="include Odd|unknown kind", field=".message"),
    Difference("words for too much data", step="1.1 MB"),
    Difference("words for a volume without capacity", step="no capacity", field="*.causes.spec.capacity[*]"),
    Difference("words for a patch that leaves no such object", field="*.causes.patch[*]", ours="^FieldValueInvalid"),
    Difference("words for why one may", scenario="reviews", field=".status.reason"),
    Difference("nobody owns a question", scenario="reviews", field=".metadata.managedFields"),
    Difference("words for what has no scale or status", scenario="custom-versions|scales", step="no s*|of nothing"),
    Difference(
        "the last sight of a pod is told in one event, not in two", scenario="watch-pods-and-jobs", step="*pods"
    ),
    Difference("events are accepted loosely, as their writers are", scenario="create-events", ours="^201"),
    Difference("a namespace has Kubernetes' own finalizer only", scenario="create-namespaces", step="*finalizer*"),
    Difference("the server of this test remembers 300 revisions, the real one all", step="too old"),
    Difference("revisions are numbers of the server's own", step="other version", scenario="delete-options"),
    Difference("random", step="bad generated name", real="Gen_", ours="Gen_"),
    Difference("a pod update tells all that is wrong with it", scenario="update-pods", field="*.causes*"),
    Difference("lists in custom resources are owned by item", field="*managedFields.*/f:finalizers*|*/f:parts*"),
)

# Beside the embedded server of this test no controllers run. Those of the real one may not have come to it yet when it
# is asked, and then there is no difference.
CONTROLLERS = (
    Difference("the Deployment's controller", real="Progressing|deployment.kubernetes.io/revision"),
    Difference("the Deployment's controller", field="*.observedGeneration", ours=ABSENT),
    Difference("the namespace's controller", scenario="delete-namespaces", field=".status.conditions"),
    Difference("the namespace's controller", scenario="update-status", step="namespace"),
)

DIFFERENCES: tuple[Difference, ...] = (*_OLDER, *_FAULTS, *_OURS, *CONTROLLERS)

DEFECTS: tuple[Difference, ...] = ()
"""Ours to mend: each says what is wrong. This list shrinks to nothing."""
