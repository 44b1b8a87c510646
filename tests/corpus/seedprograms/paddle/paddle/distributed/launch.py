"""A small `python -m paddle.distributed.launch`: works out which endpoint is this trainer's, and runs the script."""

import os
import runpy
import sys

env = os.environ
endpoints = env["PADDLE_TRAINER_ENDPOINTS"].split(",")
[own] = [endpoint for endpoint in endpoints if endpoint == f"{env['POD_IP']}:{env['PADDLE_PORT']}"]
env["PADDLE_CURRENT_ENDPOINT"] = own
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
