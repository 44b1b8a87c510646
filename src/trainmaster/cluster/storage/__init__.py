"""Where objects and their history are: maps in memory, an append-only log in SQLite. Start reading at `store`."""
