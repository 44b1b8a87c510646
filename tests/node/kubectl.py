"""kubectl, as the tests call it: what it says, or why it failed."""

import json
import subprocess


class Kubectl:
    def __init__(self, command):
        self._command = command

    def __call__(self, *words, given=None):
        done = subprocess.run([*self._command, *words], check=False, capture_output=True, text=True, input=given)
        assert done.returncode == 0, f"kubectl {' '.join(words)} ended with {done.returncode}:\n{done.stderr}"
        return done.stdout

    def apply(self, objects, *flags):
        given = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        return self("apply", "--filename=-", *flags, given=given)

    def get(self, *words):
        return json.loads(self("get", *words, "--output=json"))

    def watch(self, path, *words):
        """What stands at that path, now and whenever the object changes."""
        command = [*self._command, "get", *words, "--watch", f"--output=jsonpath={{{path}}}{{'\\n'}}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
            try:
                assert watching.stdout is not None
                yield from map(str.strip, watching.stdout)
            finally:
                watching.terminate()

    def until(self, condition, *words, seconds=120):
        try:
            return self("wait", f"--for={condition}", f"--timeout={seconds}s", *words)
        except AssertionError as error:
            error.add_note(self("get", "pods", "--all-namespaces", "--output=wide"))
            error.add_note(self("get", "events", "--sort-by=.lastTimestamp"))
            error.add_note(self("logs", "--all-containers", "--prefix", "--tail=20", "--selector=!control-plane"))
            raise

    def until_gone(self, *words, seconds=120):
        try:
            self("wait", "--for=delete", f"--timeout={seconds}s", *words)
        except AssertionError as error:
            if "no matching resources found" not in str(error):  # it says so of what is gone already
                raise
