"""The small controllers of a cluster: garbage, namespaces, endpoints, claims, workloads, nodes, lost pods.

Start reading at `control`.
"""
