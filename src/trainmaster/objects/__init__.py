"""What a Kubernetes object is. Nothing here has heard of training, HTTP or the clock.

`meta` and `pod` are the slim typed views that caches hold; `resource` says how the API server addresses a kind;
`template` changes pod templates by returning new ones; `quantity`, `names`, `selector` and `timestamp` read and
write the small languages that Kubernetes uses inside its fields. Foreign objects are read-only mappings
(`meta.Json`) with unknown fields kept. Start reading at `meta`.
"""
