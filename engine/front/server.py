"""`engine serve`: one model on one loopback port, in the foreground."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType

import uvicorn

from engine.api.app import make_app
from engine.errors import FtError, NotFound, WeightsError, WorkerGone, report
from engine.front.anticipation import Anticipation
from engine.front.console.grants import Grants
from engine.front.context import VERSION, Front
from engine.front.forecast import Forecast
from engine.front.heads import Heads
from engine.front.metrics import Metrics
from engine.front.patience import PatientProtocol, allow_many_connections
from engine.front.recorder import Recorder
from engine.front.records import EventBus, Records
from engine.front.runtime import RuntimeDir, listen
from engine.front.sessions import Sessions
from engine.front.supervision.orphan import process_start
from engine.front.supervision.supervisor import Supervisor
from engine.front.work import Pool
from engine.memory import planner
from engine.memory.plan import Settings as PlanSettings
from engine.memory.running import running
from engine.prompt.language import Language
from engine.settings import Settings
from engine.weights.manifest import load_manifest
from engine.weights.store import PULLABLE

DRAIN_S = 20
# A start that fails for good is answered on /ready for this long before the process ends with the same words.
LAST_WORDS_S = 2.0
_LOG = logging.getLogger("engine.front")


def serve(settings: Settings) -> int:
    """Serve until stopped. Returns 0 after a stop, 5 when the worker cannot start.

    Raises NotFound, WeightsError, DoesNotFit or Conflict before anything listens.
    """
    start_log(settings)
    directory = model_directory(settings)
    manifest = load_manifest(directory)
    beside = running(
        settings.max_running_requests, settings.profiles_dir, manifest.name, manifest.geometry, settings.device
    )
    settings = replace(settings, max_running_requests=beside.requests)  # the worker is told
    asked = PlanSettings(
        kv_tokens=settings.kv,
        kv_dtype=settings.kv_dtype,
        moe_backend=settings.moe_backend,
        moe_slots=settings.moe_slots,
        device=settings.device,
        host_memory=settings.host_memory,
        device_memory=settings.device_memory,
        max_running=beside.requests,
        max_running_from=beside.source,
        chunk_tokens=settings.chunk_tokens,
        preset=settings.preset,
    )
    plan = planner.plan_model(directory, asked).require()
    runtime = RuntimeDir.take(settings.runtime_dir.absolute())
    try:
        with listen(settings.host, settings.port) as sock:
            bus, metrics = EventBus(), Metrics()
            language = _language(directory)
            supervisor = Supervisor(
                arguments=settings.worker_flags(directory),
                socket=runtime.path / "worker.sock",
                log=settings.log,
                bus=bus,
                metrics=metrics,
                stall_s=settings.stall_s,
            )
            front = Front(
                model=manifest.name,
                language=language,
                sampling_defaults=dict(manifest.sampling_defaults),
                planned_window=plan.window_tokens,
                plan=plan,
                supervisor=supervisor,
                sessions=Sessions(secrets.token_urlsafe(32), language.template),
                records=Records(),
                bus=bus,
                metrics=metrics,
                anticipation=Anticipation(settings.anticipate, supervisor, metrics),
                heartbeat_s=settings.heartbeat_s,
                heads=Heads.of_model(settings.hibernate_dir, directory),
                max_requests=settings.max_requests,
                recorder=Recorder(settings.record_dir),
                forecast=Forecast.of_model(settings.profiles_dir, manifest.name, Pool.of(manifest)),
                port=sock.getsockname()[1],
            )
            return run(front, settings, runtime, sock)
    finally:
        runtime.close()


def run(front: Front, settings: Settings, runtime: RuntimeDir, sock: socket.socket) -> int:
    """Announce the front and serve until stopped; the exit code."""
    front.grants = Grants(runtime.path)
    runtime.announce(
        {
            "pid": os.getpid(),
            "start_time": process_start(os.getpid()),
            "host": settings.host,
            "port": front.port,
            "nonce": front.nonce,
            "admin_token": front.sessions.admin_token,
            "model": front.model,
            "version": VERSION,
        }
    )
    allow_many_connections()
    return asyncio.run(_serve(front, sock, runtime.ending))


def model_directory(settings: Settings) -> Path:
    """The folder of the model to serve. Raises NotFound."""
    given = settings.model
    directory = Path(given).expanduser() if "/" in given else settings.models_dir / given
    if not directory.is_dir():
        where = "" if "/" in given else f" in {settings.models_dir}"
        known = f"ft models pull {given}" if given in PULLABLE else "See those there are: ft models ls"
        raise NotFound(f"There is no model {given!r}{where}.", known)
    return directory.absolute()


def _language(directory: Path) -> Language:
    """Raises WeightsError for whatever is wrong with the model's text files: to a person they are part of the model."""
    try:
        return Language.load(directory)
    except FtError as error:
        raise WeightsError(error.message, error.hint) from error


class _Server(uvicorn.Server):
    """uvicorn, with the first signal turned into our own orderly stop and the second into a quick one."""

    def __init__(self, config: uvicorn.Config, front: Front) -> None:
        super().__init__(config)
        self._front = front

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._front.stop_asked.is_set():
            self.force_exit = True
            self._front.supervisor.kill()
        self._front.stop_asked.set()


async def _serve(front: Front, sock: socket.socket, ending: Callable[[], None] = lambda: None) -> int:
    """`ending` is called when it has been told to stop, before the rest of it."""
    config = uvicorn.Config(
        make_app(front),
        loop="asyncio",
        http=PatientProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=120,
        timeout_graceful_shutdown=DRAIN_S,
    )
    server = _Server(config, front)
    _LOG.info("serving %s on port %d", front.model, front.port)
    supervising = asyncio.create_task(front.supervisor.run())
    stopping = asyncio.create_task(_stop_on_request(front, ending, server))
    failing = asyncio.create_task(_stop_on_failed_start(front, supervising))
    try:
        await server.serve(sockets=[sock])
    finally:
        failing.cancel()
        stopping.cancel()
        front.forecast.write()
        await front.close()
        await asyncio.wait({supervising}, timeout=1.0)
    if failing.done() and not failing.cancelled() and failing.result():
        return 5
    return 0


async def _stop_on_request(front: Front, ending: Callable[[], None], server: uvicorn.Server) -> None:
    await front.stop_asked.wait()
    ending()
    front.supervisor.drain()
    front.bus.close()
    server.should_exit = True


async def _stop_on_failed_start(front: Front, supervising: asyncio.Task[None]) -> bool:
    """When the supervisor gave up on a worker that never served, say why and stop. True then."""
    await asyncio.wait({supervising})
    worker = front.supervisor.worker
    if supervising.exception() is not None:
        error = supervising.exception()
        front.supervisor.worker.state = "crashed"
        worker.message = f"The supervisor failed: {error}"
    elif worker.state != "crashed":
        return False
    failure = WorkerGone(worker.message, worker.hint)
    _LOG.error("worker: %s", failure)
    report(worker.code or failure.code, worker.message, worker.hint)
    if worker.was_ready:
        return False
    await asyncio.sleep(LAST_WORDS_S)
    front.stop_asked.set()
    return True


def start_log(settings: Settings) -> None:
    """Our own lines go to the log file, or to standard error without one. Nothing a client sends is logged."""
    if settings.log:
        settings.log.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(settings.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.close(descriptor)
    logging.basicConfig(
        filename=settings.log,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        force=True,
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
