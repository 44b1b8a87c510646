"""Machinery for anything that lives on a Kubernetes API. It has never heard of training.

Down to the server: `client` (the verbs), `codec` (JSON to values), `transport` (requests to answers), `connections` and
`http1` (bytes), `config` and `credentials` (where, and who we are), `errors` (the tree of refusals). From the server:
`discovery` (what it serves), `watch` (list, then watch, for ever) and `cache` (what it saw, indexed).
On top: `queue` (keys whose turn it is), `controller` (workers that reconcile them), `manager` (what starts and stops
when), `lease` (who leads), `recorder` (Kubernetes events). For people: `logs`, `metrics`, `health`
(with `pages`). For API servers that call us: `https` (with `http1_server`).

Not here: what a job is (`api`), what to do about one (`engine`), and doing it (`operator`). Nothing here decides;
it brings keys to a function and requests to a server.

Import the modules, not names from here: some cost 100 ms to import (`metrics`:
prometheus_client), and a command line that prints help needs none of them.
Start reading at `queue` and `controller`, then `manager`; for the way to the server, at `client`.
"""
