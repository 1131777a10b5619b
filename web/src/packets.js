/**
 * Packets: Socket.IO 5 in the text messages of Engine.IO 4, for one namespace. Pure functions, no I/O.
 *
 * A message of Engine.IO is a digit and its content; digit 4 carries a packet: another digit, the namespace and a comma (none for
 * `/`), the number of the acknowledgement, JSON. Binary packets are no part of it: the gateway sends and takes text only.
 *
 * @typedef {{ kind: "open" | "join" | "refuse" | "acknowledge", data: any, id: number }} Packet
 */

/** Packets with data, by their two digits. @type {Record<string, Packet["kind"]>} */
const KINDS = { 40: "join", 44: "refuse", 43: "acknowledge" };
export const CLOSE = "1";
export const PING = "2";
export const PONG = "3";

/** @param {string} namespace with its slash */
export function createPackets(namespace) {
  const name = namespace === "/" ? "" : `${namespace},`;
  const event = `42${name}`;
  const shape = /^(\d*)(.*)$/s;

  return {
    /** @param {object} auth */
    connect: (auth) => `40${name}${JSON.stringify(auth)}`,

    disconnect: `41${name}`,

    /** @param {number} id of the acknowledgement @param {string} request @param {object} body */
    request: (id, request, body) => event + id + JSON.stringify([request, body]),

    /**
     * Return the name and the arguments of an event; null: it is another message.
     * @param {string} text
     * @returns {[name: string, ...args: any[]] | null}
     * @throws {Error} not text, or not the JSON of an event
     */
    event(text) {
      if (!text.startsWith(event)) return null;
      // A number of an acknowledgement may precede it; the gateway asks for none.
      const data = JSON.parse(text.slice(text.indexOf("[", event.length)));
      if (typeof data[0] !== "string") throw SyntaxError("not an event");
      return data;
    },

    /**
     * Return any other packet with data; null: it is none for this namespace.
     * @param {string} text
     * @returns {Packet | null}
     * @throws {Error} binary, or not the JSON of a packet
     */
    other(text) {
      if (/^4[56]/.test(text)) throw SyntaxError("binary");
      if (text[0] === "0") return { kind: "open", data: Object(JSON.parse(text.slice(1))), id: 0 };
      const kind = KINDS[text.slice(0, 2)];
      if (!kind || !text.startsWith(name, 2)) return null;
      const [, id, json] = /** @type {RegExpExecArray} */ (shape.exec(text.slice(2 + name.length)));
      return { kind, data: Object(JSON.parse(json)), id: Number(id) };
    },
  };
}
