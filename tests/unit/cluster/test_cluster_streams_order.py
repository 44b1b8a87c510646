"""In which order the log has what a container writes to its two streams."""

import os
import signal

from trainmaster.cluster.kubelet.logfiles import Selection, read
from trainmaster.cluster.kubelet.spawn_init import _Init
from trainmaster.cluster.kubelet.spawn_log import LogWriter


def test_a_traceback_that_is_being_read_is_not_torn_by_what_is_printed_meanwhile(tmp_path):
    log = LogWriter(str(tmp_path / "0.log"))
    before = signal.set_wakeup_fd(-1)
    init = _Init(log)
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    init._watch({out: b"stdout", err: b"stderr"})

    os.write(err_end, b"Traceback\n")
    init._pump(0)
    os.write(out_end, b"going on\n")
    os.write(err_end, b"Error\n")
    init._pump(0)
    log.close()

    os.close(signal.set_wakeup_fd(before))
    for fd in (out, out_end, err, err_end, init._wakeup):
        os.close(fd)
    assert read(tmp_path / "0.log", Selection()) == b"Traceback\nError\ngoing on\n"
