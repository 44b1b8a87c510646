"""What the programs of a node are told: containerd, the network plugin, kubelet, kube-proxy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tools.kubernetes.node_room import ADDRESS, BRIDGE, CGROUP, HOME

PAUSE = "trainmaster.test/pause:1"
"""Image of the process that holds a pod's namespaces."""

SOCKET = Path("/run/containerd/containerd.sock")
NETWORKS = HOME / "networks"
PODS = "10.88.0.0/16"


def containerd() -> str:
    return f"""\
version = 2
root = "{HOME / "containerd"}"
disabled_plugins = ["io.containerd.internal.v1.opt"]

[grpc]
  address = "{SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
  # Where root may not lower its own score, runc could not either, and would end without a word.
  restrict_oom_score_adj = true
  sandbox_image = "{PAUSE}"

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "{NETWORKS}"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
"""


def network() -> dict[str, Any]:
    """Every pod is plugged into one bridge, and reaches Services through this node."""
    addresses = {"type": "host-local", "ranges": [[{"subnet": PODS}]], "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {"type": "bridge", "bridge": BRIDGE, "isGateway": True, "hairpinMode": True, "ipam": addresses}
    return {"cniVersion": "0.4.0", "name": "trainmaster", "plugins": [bridge]}


def kubelet(authority: Path, resolver: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "x509": {"clientCAFile": str(authority)},
            "webhook": {"enabled": False},
            "anonymous": {"enabled": False},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "readOnlyPort": 0,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{CGROUP}",
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "maxOpenFiles": 20000,
        "clusterDomain": "cluster.local",
        "clusterDNS": [ADDRESS],
        "resolvConf": str(resolver),
        # Images cannot be had again, so none is ever removed; and the disk is the machine's memory.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi"},
        "eventRecordQPS": 50,
    }


def proxy(kubeconfig: Path) -> dict[str, Any]:
    untouched = {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "hostnameOverride": "node",
        "mode": "iptables",
        "clusterCIDR": PODS,
        # Pods on one bridge answer each other directly, where nobody would turn the addresses back.
        "iptables": {"masqueradeAll": True},
        "conntrack": untouched,  # limits of the whole machine
    }
