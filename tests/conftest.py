"""What holds for all tests."""

from hypothesis import HealthCheck, settings

# How long an example takes depends on who else uses the machine: no property of ours is about that.
settings.register_profile("ours", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ours")
