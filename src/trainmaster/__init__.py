"""Trainmaster: one operator for every training framework, on Kubernetes and on a laptop.

Rooms, from the bottom: `objects` (what a Kubernetes object is), `api` (our kinds), `engine` (what was observed
-> a plan, pure), `frameworks` (one file each), `kube` (machinery that has never heard of training), `operator`
(observe -> plan -> apply), `cli` (one module per verb). `testing` holds builders and fakes for tests.
"""

__version__ = "0.1.0"
