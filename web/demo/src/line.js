/**
 * The line: this tab's connection, which the user can cut and restore.
 *
 * In: `cut` and `restore`. Out: a call of `changed`, and a class for the client's option `WebSocket`. `cut` closes the socket
 * under the client and lets no attempt through. The client does not learn the reason, and does the same as without a network: it
 * waits, tries again with back-off, and resumes. HTTP still works, so a burst can be published in the meantime.
 */
export class Line {
  isCut = false;
  changed = () => {};
  /** A tab that begins to share a connection, or ends to, has two for a moment. @type {Set<WebSocket>} */
  #sockets = new Set();

  /** The class whose sockets this line can cut. */
  get WebSocket() {
    const line = this;
    return class extends WebSocket {
      /** @param {string} url */
      constructor(url) {
        super(url);
        line.#sockets.add(this);
        this.addEventListener("close", () => line.#sockets.delete(this));
        if (line.isCut) this.close();
      }
    };
  }

  cut() {
    this.isCut = true;
    for (const socket of this.#sockets) socket.close();
    this.changed();
  }

  /** Let the next attempt through; `gate.open()` makes one at once. */
  restore() {
    this.isCut = false;
    this.changed();
  }
}
