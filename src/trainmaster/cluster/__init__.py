"""A whole Kubernetes on one machine, in one process: API server, store, scheduler, process kubelet, garbage collector.

It is a server: the operator, kubectl and SDKs reach it over HTTP like any other, so nothing here knows of training, and
nothing of ours but `objects` is imported. `store` keeps objects and their history, `registry` has the semantics of
the API, `apiserver` speaks HTTP, `scheduler` places pods, `kubelet` runs them as processes in `sandbox`es, `garbage`
collects what lost its owner; `cluster` puts them together. Start reading at `cluster`.
"""
