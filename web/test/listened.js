/** The handlers that a client binds to a socket of socket.io-client's, in the gateways that stand in its place. */
export class Listened {
  _listeners = new Map();
  _any = [];

  on(name, listener) {
    this._listeners.set(name, listener);
  }

  onAny(listener) {
    this._any.push(listener);
  }

  off() {
    this._listeners.clear();
    return this;
  }

  offAny() {
    this._any = [];
  }
}

/** Return a message as it is after its way over the wire. */
export const wired = (message) => JSON.parse(JSON.stringify(message));
