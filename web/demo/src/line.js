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
  /** @type {WebSocket | undefined} */
  #socket;

  /** The class whose sockets this line can cut. */
  get WebSocket() {
    const line = this;
    return class extends WebSocket {
      /** @param {string} url */
      constructor(url) {
        super(url);
        line.#socket = this;
        if (line.isCut) this.close();
      }
    };
  }

  cut() {
    this.isCut = true;
    this.#socket?.close();
    this.changed();
  }

  /** Let the next attempt through; `gate.open()` makes one at once. */
  restore() {
    this.isCut = false;
    this.changed();
  }
}
