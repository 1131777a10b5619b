/**
 * The line: this tab's connection, which the user can cut and restore.
 *
 * In: `cut` and `restore`. Out: a call of `changed`, and an `io` for the client's option of that name. `cut` closes the transport
 * under the client and lets no attempt through. The client does not learn the reason, and does the same as without a network: it
 * waits, tries again with back-off, and resumes. HTTP still works, so a burst can be published in the meantime.
 */
import { io } from "socket.io-client";

export class Line {
  isCut = false;
  changed = () => {};
  /** @type {any} */
  #socket;

  /** @param {string} address @param {any} options */
  io = (address, options) => {
    const socket = io(address, options);
    const connect = socket.connect.bind(socket);
    socket.connect = () => {
      if (!this.isCut) return connect();
      const error = new Error("offline on purpose");
      queueMicrotask(() => socket.listeners("connect_error").forEach((/** @type {any} */ listener) => void listener(error)));
      return socket;
    };
    this.#socket = socket;
    return socket;
  };

  cut() {
    this.isCut = true;
    this.#socket?.io.engine?.close();
    this.changed();
  }

  /** Let the next attempt through; `gate.open()` makes one at once. */
  restore() {
    this.isCut = false;
    this.changed();
  }
}
