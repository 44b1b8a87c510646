"""What tests are made with: virtual time and fakes. Nothing else in `trainmaster` imports this room.

`clock` runs a coroutine on an event loop whose seconds cost nothing: `clock.run(main())`. `fakeapi` is an API
server in memory for what speaks to one. `scene` is a job and its objects for what only looks at them. Public, so that
authors of extensions test with the same tools. Start reading at `clock`.
"""
