"""The semantics of the Kubernetes API without HTTP: kinds, admission, validation, patches, deletion, watches.

Start reading at `registry`.
"""
