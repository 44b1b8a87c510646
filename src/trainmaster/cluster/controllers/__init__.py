"""The small controllers of a cluster: garbage, namespaces, endpoints, claims, workloads, nodes.

Start reading at `control`.
"""
