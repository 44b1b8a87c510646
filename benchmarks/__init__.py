"""What is promised about speed, measured: each module is one benchmark, run by `python -m benchmarks [NAME...]`."""
