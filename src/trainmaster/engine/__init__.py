"""What was observed -> a plan. Pure: no client, no clock, no memory; time is an argument.

`plan.plan` is the way in and names the order of decisions; every policy has a file of its own (`replicas`,
`services`, `restarts`, `backoff`, `deadline`, `ttl`, `cleanup`, `suspend`, `gang`, `companions`, `status`,
`diagnosis`). `observed` is the input, `actions` the vocabulary of the output. Carrying a plan out is the operator's
work, not ours.
"""
