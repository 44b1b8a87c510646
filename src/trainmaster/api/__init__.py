"""Our kinds: what a training job says, what a framework declares, and the rules both must keep.

`framework` is the interface a framework author implements; `job` is a job after reading (typed, defaulted,
frozen); `reading` turns a stored object into a `Job` or a list of problems; `validation` holds the rules,
`schema` derives the CRD from the framework, `status` is the status users see, `settings` what the operator's
flags decide. Nothing here plans, talks to a server or knows the time. Start reading at `framework`.
"""
