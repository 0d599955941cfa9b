"""How gunicorn serves the site, for `potato serve` and for a service: `--config python:potato_site.gunicorn_conf`."""

from pathlib import Path

wsgi_app = "potato_site.wsgi:application"
bind = "127.0.0.1:8000"
workers = 2
preload_app = True  # the others are copies of the first process: sooner there, and with less memory

# With threads the heart beats in the worker's main loop, and `timeout` speaks of that alone: an upload or a download
# may last for hours. In a `sync` worker it would be killed after `timeout` seconds.
worker_class = "potato_site.patient_worker.PatientWorker"
threads = 4
timeout = 60
# The sign of life is a file's time stamp. On a disk that is busy writing a large upload it could come late.
worker_tmp_dir = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - gunicorn makes a file of its own

# What is going on at a restart has this long. An upload that takes longer is cut, and the agent sends it again.
graceful_timeout = 20

loglevel = "warning"
control_socket_disable = True
