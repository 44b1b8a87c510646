"""The registry over HTTP, as stock clients expect it: discovery, OpenAPI, tables, watches, rights.

Start reading at `apiserver`.
"""
