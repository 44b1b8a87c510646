"""A real Kubernetes control plane for tests: built once from Debian's source package, started on loopback."""
