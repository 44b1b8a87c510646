"""Pods as processes: sandboxes, containers, volumes, probes, logs. Start reading at `kubelet`."""
