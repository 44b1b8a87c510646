"""Which pod runs where, and why one does not: requests, affinity, gangs, queues. Start reading at `scheduler`."""
