"""The shell around the engine: observe -> plan -> apply, and the process that does it.

`observe` is the one reader (from caches only), `apply` the one writer, `reconcile` the few lines between them;
`wiring` puts caches, queues and controllers together from `options` (the flags), `main` runs them as a process.
Nothing here decides what should happen to a job: that is `engine`. Start reading at `reconcile`.
"""
