"""Logs, exec, attach and port-forward: WebSocket and SPDY between clients and containers.

Start reading at `streams`.
"""
