/**
 * Packets: Socket.IO 5 in the text messages of Engine.IO 4, for one namespace. Pure functions, no I/O.
 *
 * A message of Engine.IO is a digit and its content. After the digit 4 comes a packet: another digit, the namespace and a comma (neither for `/`), the
 * number of the acknowledgement, and JSON. Binary packets are errors here, because the gateway sends and accepts only text.
 *
 * @typedef {"open" | "close" | "ping" | "join" | "leave" | "event" | "acknowledge" | "refuse"} Kind
 * @typedef {{ kind?: Kind, data?: any, id?: number }} Packet without a kind: not for this client
 */

/** Kinds by the first digits of a message. @type {Record<string, Kind>} */
const KINDS = { 0: "open", 1: "close", 2: "ping", 40: "join", 41: "leave", 42: "event", 43: "acknowledge", 44: "refuse" };
/** The digits, the namespace with its comma, the number of the acknowledgement. */
const HEAD = /^(4?\d)(\/[^,]*,)?(\d*)/;
export const PING = "2";
export const PONG = "3";

/** @param {string} namespace with its slash */
export function createPackets(namespace) {
  const name = namespace === "/" ? "" : `${namespace},`;

  return {
    /** @param {object} auth */
    connect: (auth) => `40${name}${JSON.stringify(auth)}`,

    disconnect: `41${name}`,

    /** @param {number} id of the acknowledgement @param {string} request @param {object} body */
    request: (id, request, body) => `42${name}${id}${JSON.stringify([request, body])}`,

    /**
     * Read a message. The data of an event are its name and arguments.
     * @param {string} text
     * @returns {Packet}
     * @throws {Error} binary, or not the JSON of a packet
     */
    read(text) {
      const [head, digits, of = "", id] = /** @type {RegExpExecArray} */ (HEAD.exec(text));
      if (/4[56]/.test(digits)) throw SyntaxError();
      const kind = KINDS[digits];
      if (!kind || (digits > "4" && of !== name)) return {};
      const json = text.slice(head.length);
      const data = Object(json && JSON.parse(json));
      if (kind === "event" && !(Array.isArray(data) && typeof data[0] === "string")) throw SyntaxError();
      return { kind, data, id: Number(id) };
    },
  };
}
