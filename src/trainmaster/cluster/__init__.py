"""A whole Kubernetes on one machine, in one process: API server, store, scheduler, process kubelet, garbage collector.

It is a server: the operator, kubectl and SDKs reach it over HTTP like any other, so nothing here knows of training, and
nothing of ours but `objects` is imported. `storage` keeps objects and their history, `registry` has the semantics of
the API, `server` speaks HTTP and `streams` what is not plain HTTP, `scheduling` places pods, `kubelet` runs them as
processes in sandboxes, `controllers` does the chores; `cluster` puts them together. Start reading at `cluster`.
"""
