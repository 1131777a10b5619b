"""The event loop. Only this file imports gevent, except for TLS and the sockets of other servers.

The rest of the gateway gets its greenlets, watchers and timers here, which keeps the list of what we need from gevent short. Only
`sleep`, `Signal.wait` and code in the caller's own greenlet wait here.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from signal import SIGTERM
from time import monotonic, thread_time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import gevent
import gevent.socket
from gevent import monkey
from gevent.lock import BoundedSemaphore
from greenlet import settrace  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from threading import Event  # has the same methods
else:
    from gevent.event import Event

READ, WRITE = 1, 2
# A flag that greenlets wait for. `set` is callable from the hub.
Signal = Event
# The type of a lock, as the type checker sees it.
LockLike = threading.Lock

# A watcher's priority. Among ready watchers, higher priorities run first. Sockets have priority 0.
_BEHIND_SOCKETS = -1


class Watcher(Protocol):
    """An I/O or timer watcher. Its callback runs in the hub and must not switch greenlets. `close` also stops it."""

    def start(self, callback: Callable[..., Any], *args: Any) -> None: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...


class Greenlet(Protocol):
    """A greenlet started by `spawn`."""

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, at most `timeout` seconds."""

    def kill(self, *, block: bool = True) -> None:
        """Stop it where it waits, or before it begins. With `block`, wait until it has ended."""

    def rawlink(self, callback: Callable[[Any], object]) -> None:
        """Call `callback` in the hub when it has ended in any way."""


def Lock() -> LockLike:
    """Return an unlocked lock, which greenlets get in the order of their requests."""
    return BoundedSemaphore(1)  # type: ignore[no-any-return]


def deadline(seconds: float) -> AbstractContextManager[object, None]:
    """Return a context manager. A wait inside it raises TimeoutError once the block has taken `seconds` in all."""
    return gevent.Timeout(seconds, TimeoutError(f"not within {seconds:g} s"))  # type: ignore[no-any-return]


T = TypeVar("T")


def call_application(function: Callable[..., T], *args: Any) -> T:
    """Call a function of the application and return its result. Turns other exceptions than Exception into RuntimeError.

    gevent's Timeout, asyncio's CancelledError and SystemExit are not an Exception. They would end the greenlet of a client, or
    the process.
    """
    try:
        return function(*args)
    except (Exception, gevent.GreenletExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise RuntimeError(f"{type(error).__name__}: {error}").with_traceback(error.__traceback__) from error


class Share:
    """A share of the loop for one kind of work, for one greenlet at a time, one slice each, in order of arrival.

    A context manager for work that may be long. The block calls `pause` where other greenlets may run, and waits only in
    `outside`. Any number of greenlets may use it, and all others run after each slice.
    """

    def __init__(self, slice_s: float) -> None:
        self._turn = BoundedSemaphore(1)
        self._slice_s = slice_s
        self._waiting = 0
        self._used_s = self._since_s = self._left_s = 0.0

    def __enter__(self) -> Share:
        if not self._turn.acquire(blocking=False):
            self._wait()
        self._since_s = monotonic()
        if self._since_s - self._left_s > self._slice_s:
            self._used_s = 0.0  # since others had as much time
        if self._used_s >= self._slice_s:
            self.pause()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._left_s = monotonic()
        self._used_s += self._left_s - self._since_s
        self._turn.release()

    def pause(self) -> bool:
        """If the slice is over, let all other greenlets run, then go on after those that wait for this share.

        Return whether they ran.
        """
        is_over = self._used_s + monotonic() - self._since_s >= self._slice_s
        if is_over:
            one_round()  # while holding the turn; otherwise all waiting greenlets would have one in this round
            self._turn.release()
            if self._waiting:
                sleep()  # after releasing the turn; otherwise the others would never get it
            self._wait()
            self._used_s, self._since_s = 0.0, monotonic()
        return is_over

    def _wait(self) -> None:
        self._waiting += 1
        try:
            self._turn.acquire()
        finally:
            self._waiting -= 1

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Leave for the time of a block that waits."""
        self.__exit__(None, None, None)
        try:
            yield
        finally:
            self.__enter__()


def spawn(function: Callable[..., Any], *args: Any) -> Greenlet:
    """Run `function` in its own greenlet, starting in the next turn of the loop. Callable from the hub."""
    return gevent.spawn(function, *args)  # type: ignore[no-any-return]


def current() -> object:
    """Return the running greenlet, or the hub."""
    return gevent.getcurrent()


def in_hub() -> bool:
    """Return whether this is a callback of the loop, which must not wait."""
    return gevent.getcurrent() is gevent.get_hub()


class Idle:
    """Suspends the calling greenlet until `wake` is called. Costs a third of a Signal."""

    __slots__ = ("_callback", "_greenlet", "_hub", "is_woken")

    def __init__(self) -> None:
        self._greenlet, self._hub = gevent.getcurrent(), gevent.get_hub()
        self._callback: Any = None
        self.is_woken = False

    def wait(self) -> None:
        """Wait until `wake` is called or an exception is thrown in. Once, by the greenlet that created it."""
        try:
            self._hub.switch()
        except BaseException:
            if self._callback is not None:
                self._callback.stop()  # otherwise it would resume a later wait of this greenlet
            raise

    def wake(self) -> None:
        """Resume the greenlet in the next turn of the loop. Once. Callable from the hub."""
        self.is_woken = True
        self._callback = self._hub.loop.run_callback(self._greenlet.switch)


class DeferredWrites:
    """Deferred writes, made in the hub one after the other, after the greenlets that are ready now.

    The first write wakes a peer on this machine or a network card, and the others find it awake.
    """

    __slots__ = ("_callbacks", "_failed")

    def __init__(self, failed: Callable[[], object]) -> None:
        """`failed` is called when a callback has raised. The other callbacks still run."""
        self._callbacks: list[Callable[[], object]] = []
        self._failed = failed

    def add(self, callback: Callable[[], object]) -> None:
        """Call `callback` in the hub; it must not switch greenlets. Callable from the hub."""
        if not self._callbacks:
            gevent.get_hub().loop.run_callback(self._call)
        self._callbacks.append(callback)

    def _call(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception:  # noqa: BLE001 - `failed` logs it
                self._failed()


class Arrivals:
    """Waits for bytes on a descriptor, one wait after the other, in a greenlet (`wait`) or for a callback (`begin`).

    Costs a third of gevent's own. The watcher stays active between waits, so a wait takes no system call, and a timer is
    created again only after a change of the time. Bytes that come between waits stop the watcher until the next wait. Close
    it before the descriptor.
    """

    __slots__ = ("_callback", "_is_active", "_is_greenlet", "_loop", "_timer", "_timer_s", "_watcher")

    def __init__(self, descriptor: int) -> None:
        self._loop = gevent.get_hub().loop
        self._watcher = self._loop.io(descriptor, READ)
        self._callback: Callable[[bool], object] | None = None
        self._timer: Any = None
        self._timer_s: float | None = None
        self._is_active = self._is_greenlet = False

    def begin(self, callback: Callable[[bool], object], timeout_s: float | None = None) -> None:
        """Call back in the hub, with True when there may be bytes or the end of the stream, or with False after `timeout_s`."""
        if timeout_s != self._timer_s:
            self._stop_timer()
            self._timer = None if timeout_s is None else self._loop.timer(timeout_s, timeout_s)
            self._timer_s = timeout_s
        self._callback = callback
        if not self._is_active:
            self._watcher.start(self._arrived)
            self._is_active = True
        if self._timer is not None:
            self._timer.again(self._end)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait as `begin`; takes at least a turn of the loop."""
        hub = gevent.get_hub()
        self.begin(gevent.getcurrent().switch, timeout_s)
        self._is_greenlet = True
        try:
            return bool(hub.switch())
        finally:
            self._callback, self._is_greenlet = None, False  # the greenlet may have been killed

    def close(self) -> None:
        """Stop. A waiting greenlet goes on in the next turn of the loop, as after its time. Idempotent."""
        self._watcher.close()
        self._stop_timer()
        self._timer, self._timer_s, self._is_active = None, None, False
        if self._is_greenlet:
            self._loop.run_callback(self._end)
        else:
            self._callback = None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.close()

    def _arrived(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(True)
        else:
            self._watcher.stop()
            self._is_active = False

    def _end(self) -> None:
        callback, self._callback = self._callback, None
        if self._timer is not None:
            self._timer.stop()  # bytes do not stop it, because the next wait usually restarts it before its end
        if callback is not None:
            callback(False)


def wait_until_writable(descriptor: int, timeout_s: float) -> bool:
    """Wait until the kernel accepts bytes for a descriptor; return False after `timeout_s`."""
    try:
        gevent.socket.wait_write(descriptor, timeout_s, TimeoutError())
    except TimeoutError:
        return False
    return True


def unwatch(descriptor: int, within_s: float) -> None:
    """Stop the kernel's watch of a connection for this process, before another process takes it. Switches greenlets.

    The kernel ends a watch when the last process closes the socket. libev removes a socket from its epoll set only at an event
    without a watcher, so this function causes one by watching a writable socket. Otherwise the socket's next byte would wake
    this process for a closed descriptor, and libev would rebuild its set, which costs 4.3 ms of CPU with 2,000 idle clients.

    Call it after all watchers of the descriptor have stopped, and before closing it.
    """
    if wait_until_writable(descriptor, within_s):
        one_round()


def sleep(seconds: float = 0) -> None:
    """Wait while the loop runs. With 0, every other ready greenlet runs, and sockets may not be checked before."""
    gevent.sleep(seconds)


def one_round() -> None:
    """Wait while the loop checks its sockets and timers once, as a turn for all others between two slices of long work.

    `sleep(0)` is not such a turn, because the loop runs ready greenlets as long as there are any, and checks the clock after
    every fifty. Nor is the shortest sleep, because the loop then waits for a tenth of a millisecond, even without work. It does
    not wait for a due timer.
    """
    hub = gevent.get_hub()
    timer = hub.loop.timer(0, priority=_BEHIND_SOCKETS)
    timer.start(gevent.getcurrent().switch)
    try:
        hub.switch()
    finally:
        timer.close()


class Turns:
    """Turns for all others between slices of long work in one greenlet, for at most half of the time.

    The loop checks its sockets after each slice, unless the others took longer last time than the work has taken since. Time is
    CPU time, because no greenlet here has a turn while another program has the processor.
    """

    __slots__ = ("_until_s",)

    def __init__(self) -> None:
        self._until_s = 0.0

    def give(self) -> None:
        """Let all others run if it is their time, otherwise only ready greenlets. Switches greenlets."""
        began_s = thread_time()
        if began_s < self._until_s:
            sleep()
            return
        one_round()
        ended_s = thread_time()
        self._until_s = ended_s + (ended_s - began_s)


# The standard library's threads and sleep from before gevent's patch, which work without a loop.
_start_native_thread: Callable[..., int] = monkey.get_original("_thread", "start_new_thread")
native_ident: Callable[[], int] = monkey.get_original("_thread", "get_ident")
native_sleep: Callable[[float], None] = monkey.get_original("time", "sleep")
# The cooperative close is delayed to the loop's next turn, in case a greenlet waits for the descriptor.
native_close: Callable[[int], None] = monkey.get_original("os", "close")


def in_native_thread(function: Callable[[], Any]) -> None:
    """Run `function` in a thread of the operating system, which ends with the process. It must not touch the loop."""
    _start_native_thread(function, ())


def io_watcher(fd: int, events: int) -> Watcher:
    """Return a stopped watcher on a file descriptor for READ, WRITE or both."""
    return gevent.get_hub().loop.io(fd, events)  # type: ignore[no-any-return]


def in_hub_after(delay_s: float, callback: Callable[[], Any]) -> None:
    """Call `callback` in the hub after `delay_s`; it must not switch greenlets."""
    timer = gevent.get_hub().loop.timer(delay_s)

    def fire() -> None:
        timer.close()
        callback()

    timer.start(fire)


def repeat(interval_s: float, callback: Callable[[], Any]) -> Watcher:
    """Call `callback` in the hub every `interval_s` seconds (monotonic) until the returned watcher is stopped.

    The timer does not keep an otherwise finished process alive.
    """
    timer = gevent.get_hub().loop.timer(interval_s, interval_s, ref=False)
    timer.start(callback)
    return timer  # type: ignore[no-any-return]


def on_signal(number: int, callback: Callable[[], Any]) -> None:
    """Run `callback` in a greenlet on each occurrence of this signal."""
    gevent.signal_handler(number, callback)


# What the parent's greenlets wait for, in a forked child. Kept, because a greenlet that is collected runs its `finally`.
_of_parent: list[object] = []


def _in_child() -> None:
    """Prepare a forked child for its first wait. One that executes a program never waits."""
    gc.freeze()  # from now on `gc.get_objects` returns the child's own
    settrace(_leave_parent)


def _leave_parent(*_: object) -> None:
    """Stop the parent's watchers at the child's first switch, before the hub runs any.

    gevent keeps all greenlets in a child. It would run a copy of the gateway, which reads and writes its parent's sockets.
    """
    settrace(None)
    loop, own = gevent.get_hub().loop, {id(each) for each in gc.get_objects()}
    gc.unfreeze()
    ends = os.pipe()  # libuv watches neither a file nor /dev/null
    examples = loop.run_callback(_leave_parent), loop.timer(0), loop.io(ends[0], READ), loop.signal(SIGTERM)
    kinds = {type(each) for each in examples}
    for each in examples:
        each.close()
    for end in ends:
        native_close(end)
    for each in [each for each in gc.get_objects() if type(each) in kinds and id(each) not in own]:
        _of_parent.append((each, each.callback, each.args))
        each.stop()


os.register_at_fork(after_in_child=_in_child)
