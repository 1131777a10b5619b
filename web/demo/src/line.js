/**
 * The line: this tab's connection, which a person can cut and mend.
 *
 * In: `cut` and `mend`. Out: `changed`, for those who show it, and an `io` for the client's option of that name. Cutting closes the transport under the client and
 * lets no attempt through; the client is not told why, and does what it does when a network goes: it waits, tries again
 * with back-off, and resumes. HTTP is left alone, so a burst can be published meanwhile.
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

  /** The next attempt gets through; whoever wants it now asks the gate to open. */
  mend() {
    this.isCut = false;
    this.changed();
  }
}
