"""A server of a model within the process of the test."""

import contextlib
import threading
import time

import uvicorn

from tensor_ops_decode.serving.application import ServerLimits, application
from tensor_ops_decode.serving.server import listening

__all__ = ["running_server"]


@contextlib.contextmanager
def running_server(model, name="model", **options):
    """Serve a model in another thread; give the server's address."""
    limits = ServerLimits(**options.pop("limits", {}))
    app = application(model, name, limits=limits, **options)
    with listening("127.0.0.1", 0) as listener:
        config = uvicorn.Config(app, log_config=None, ws="none", lifespan="on")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()
