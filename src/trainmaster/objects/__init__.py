"""What a Kubernetes object is. Nothing here has heard of training, HTTP or the clock.

`meta` and `pod` are the slim typed views that caches hold, made known to msgspec by `learning`; `resource` says how the
API server addresses a kind; `template` changes pod templates by returning new ones, of whose fields `podfields` knows
the names; `quantity`, `number`, `names`, `selector` and `timestamp` read and write the small languages that Kubernetes
uses inside its fields. Foreign objects are read-only mappings (`meta.Json`) with unknown fields kept. Start reading at
`meta`.
"""
