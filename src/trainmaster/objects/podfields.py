"""The names of a pod template's fields, to find the misspelt ones.

Kubernetes drops a field that it does not know without a word, and a pod without its command then runs something else.
Names only, of the parts that people write by hand; a test holds them against Kubernetes' own definitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Part:
    """The fields of one part of a template, and which of them are parts or lists of parts again."""

    names: frozenset[str]
    parts: Mapping[str, Part] = field(default_factory=dict)


def _part(names: str, **parts: Part) -> Part:
    return Part(frozenset([*names.split(), *parts]), parts)


CONTAINER = _part(
    "args command image imagePullPolicy lifecycle livenessProbe name readinessProbe resizePolicy restartPolicy "
    "restartPolicyRules securityContext startupProbe stdin stdinOnce terminationMessagePath terminationMessagePolicy "
    "tty volumeDevices workingDir",
    env=_part("name value", valueFrom=_part("configMapKeyRef fieldRef fileKeyRef resourceFieldRef secretKeyRef")),
    envFrom=_part("configMapRef prefix secretRef"),
    ports=_part("containerPort hostIP hostPort name protocol"),
    resources=_part("claims limits requests"),
    volumeMounts=_part("mountPath mountPropagation name readOnly recursiveReadOnly subPath subPathExpr"),
)

VOLUME = _part(
    "awsElasticBlockStore azureDisk azureFile cephfs cinder configMap csi downwardAPI emptyDir ephemeral fc flexVolume "
    "flocker gcePersistentDisk gitRepo glusterfs hostPath image iscsi name nfs persistentVolumeClaim "
    "photonPersistentDisk portworxVolume projected quobyte rbd scaleIO secret storageos vsphereVolume"
)

SPEC = _part(
    "activeDeadlineSeconds affinity automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks "
    "ephemeralContainers hostAliases hostIPC hostNetwork hostPID hostUsers hostname hostnameOverride imagePullSecrets "
    "nodeName nodeSelector os overhead preemptionPolicy priority priorityClassName readinessGates resourceClaims "
    "resources restartPolicy runtimeClassName schedulerName schedulingGates securityContext serviceAccount "
    "serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain terminationGracePeriodSeconds tolerations "
    "topologySpreadConstraints workloadRef",
    containers=CONTAINER,
    initContainers=CONTAINER,
    volumes=VOLUME,
)

TEMPLATE = _part("apiVersion kind metadata", spec=SPEC)


def unknown(value: object, path: str, part: Part = TEMPLATE) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Fields that have no such name: the path of where they stand, their names, and the names there are."""
    if not isinstance(value, dict):
        return
    if not value.keys() <= part.names:
        yield from ((path, str(name), part.names) for name in value if name not in part.names)
    for name, below in part.parts.items():
        if (inner := value.get(name)) is not None:
            yield from _below(inner, f"{path}.{name}", below)


def _below(value: object, path: str, part: Part) -> Iterator[tuple[str, str, frozenset[str]]]:
    if not isinstance(value, list):
        yield from unknown(value, path, part)
        return
    for index, item in enumerate(value):
        yield from unknown(item, f"{path}[{index}]", part)
