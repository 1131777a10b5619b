/**
 * What an error means and what to do about it, in sentences, for the developer of the page. A production build does not have this file. explain.js imports
 * it for development, and the script-tag build loads it when there is something to explain.
 *
 * A test compares the table with the codes of the client, and each link with a heading of the documentation.
 */

/** The address of the documentation, set by the build of a release, else the folder of the checkout. */
// @ts-expect-error: the build defines it
const DOCS = typeof HEADGATE_DOCS === "undefined" ? "docs/" : HEADGATE_DOCS;

const SIGN_IN = "howto/sign-in.md";
const TROUBLE = "troubleshooting.md#a-page-does-not-connect";
const NAMES = "guide.md#subscribe-five-lines";
const PUBLISH = "guide.md#publish-from-the-page";
const REQUESTS = "howto/requests.md";
const OUTBOX = "guide.md#publish-without-a-connection";

/**
 * By code: what happened, if the gateway's message does not say it; the cure; a page with more.
 * @type {Record<string, { what?: (parts: Record<string, any>) => string, cure: string | ((parts: Record<string, any>) => string), more: string }>}
 */
export const EXPLAINED = {
  invalid_topic: { what: ({ topic, reason }) => `"${topic}" is not a topic: ${wordsOfGrammar(reason)}`, cure: "Name it like orders.42.shipped. Wildcards (* and #) are for patterns only.", more: NAMES },
  invalid_pattern: { what: ({ pattern, reason }) => `"${pattern}" is not a pattern: ${wordsOfGrammar(reason)}`, cure: "Name it like orders.*.shipped (* is exactly one word) or orders.# (any number of words).", more: NAMES },
  invalid_event: { cure: "Correct that part of the event.", more: "protocol.md#errors" },
  invalid_request: {
    cure: ({ reason }) =>
      reason === "token: expected text" ? "There is no token to refresh with: give refresh() one, or connect() the option token." : "Correct that part of the request. If the gateway does not know it, compare the versions of the package and the gateway.",
    more: "protocol.md#errors",
  },
  not_serializable: { what: ({ path, reason }) => `The data cannot be published as JSON: ${path} is ${reason}`, cure: ({ reason }) => cureOfValue(reason), more: PUBLISH },
  payload_too_large: { what: ({ size, limit, where }) => `The data has ${size} bytes as JSON, and the limit is ${limit} (${where})`, cure: "Send less, or a reference to it. HEADGATE_MAX_PAYLOAD_BYTES is the gateway's limit.", more: "settings.md" },
  schema_violation: { cure: "Correct the data, or the schema of that pattern.", more: "schemas.md" },
  unauthorized: { what: ({ topic }) => topic && `The outbox of another user than the gate's cannot publish to ${topic}`, cure: ({ reason }) => CURES_OF_TOKENS[reason] ?? "Bring another token.", more: SIGN_IN },
  forbidden: {
    cure: ({ action }) =>
      action === "say what was seen by" ? "Only a user with a token can: give connect() the option token." : "The token's grants (`subscribe`, `publish`) do not cover it: grant it where the token is made, or ask for less.",
    more: SIGN_IN,
  },
  authorize_failed: { cure: "The log of the gateway has the exception. The client asks again by itself.", more: "clients.md#authorize-rights-beyond-the-token" },
  limit_reached: { cure: "Wait until there is room again, or raise the setting of that limit.", more: "settings.md" },
  unknown_host: { cure: "Add the name to HEADGATE_HOSTS, or have the proxy send the Host that the page asked for.", more: TROUBLE },
  origin_not_allowed: { cure: "Add the origin of the page to HEADGATE_ALLOWED_ORIGINS and start the gateway again.", more: TROUBLE },
  unknown_namespace: {
    what: ({ namespace }) => `The gateway does not serve the namespace "${namespace}"`,
    cure: ({ known }) => `${known ? `It serves ${known.join(", ")}.` : "HEADGATE_NAMESPACES lists what it serves; without that setting it is notifications."} Correct the option namespace of connect, or the setting.`,
    more: "settings.md",
  },
  request_timeout: { cure: "The request took too long to arrive: try again.", more: "protocol.md#errors" },
  unknown_request: { cure: "Register a function with @gate.on_request in the application that serves this gateway, and import its module there.", more: REQUESTS },
  timed_out: { cure: "Its function was stopped, and may have had effects. Give it more time (timeoutMs, HEADGATE_REQUEST_TIMEOUT_S), or let it start a task and publish the result.", more: REQUESTS },
  request_failed: { cure: "The log of the gateway has the exception.", more: REQUESTS },
  bus_unavailable: { cure: "The client subscribes again by itself. A publish is yours to repeat, with the same id, or the outbox's. If it lasts, the gateway's log says what is wrong with Redis.", more: TROUBLE },
  bus_refused: { cure: "The gateway's log says what Redis refuses: memory, disk, rights.", more: "operations/redis.md" },
  overloaded: { cure: "The client tries again by itself.", more: "operations/scale.md" },
  paused: { cure: "An operator ends it with `headgate resume`. The client tries again by itself.", more: "operations/upgrade.md#pause" },
  disconnected: {
    what: ({ request }) => (request ? `The connection broke before the gateway had answered "${request}"` : "There is no connection to the gateway now"),
    cure: ({ request }) => (request ? "The request may have arrived: try again after `connection:up`." : "Nothing was sent: wait for `connection:up`, or publish through an outbox."),
    more: OUTBOX,
  },
  timeout: {
    what: ({ where, pattern, timeoutMs, request }) => (where === "fetch" ? `The fetch of load("${pattern}") has not settled in ${timeoutMs} ms` : `The gateway has not answered "${request}" in time`),
    cure: ({ where }) => (where === "fetch" ? "It was aborted by its signal, and is repeated by itself." : "The request may have arrived: try again."),
    more: TROUBLE,
  },
  closed: { what: () => "This gate was closed, and stays so", cure: "Make another with connect().", more: "guide.md" },
  token_unavailable: { what: ({ reason }) => `The token function failed: ${reason}`, cure: "Correct the function or the request that it makes. The client calls it again by itself.", more: SIGN_IN },
  invalid_address: { what: ({ url, reason }) => `connect() was given ${url === undefined ? "no address, and there is no page to take one from" : url === globalThis.location?.href ? `no address, and this page has none to take (${url.slice(0, 80)})` : url === "[object Object]" ? "an object in place of an address: options come second, as in connect(undefined, {…})" : `"${url}": ${reason}`}`, cure: ({ url }) => (url === undefined ? "Where a server renders the page, connect in the browser only. In a program, give an origin such as https://example.com." : "Give an origin such as https://example.com, or nothing for the page's own. The endpoint's path and the namespace are the options path and namespace."), more: TROUBLE },
  unreachable: { what: ({ url, reason }) => `No connection to ${url}: ${reason}`, cure: ({ reason }) => `${CURES_OF_WAYS.find(([why]) => why.test(reason))?.[1]} The client tries again by itself.`, more: TROUBLE },
  expired: { what: ({ id, topic }) => `The publish ${id} to ${topic} waited for longer than maxAgeMs and was never sent`, cure: "Publish it again if it still matters.", more: OUTBOX },
  discarded: { what: ({ id, topic }) => `The publish ${id} to ${topic} was discarded before it was sent`, cure: "The application has called discard().", more: OUTBOX },
  outcome_unknown: {
    what: ({ id, topic, name, reason }) => `The ${topic ? `publish ${id} to ${topic}` : `request ${id}, ${name},`} was sent and its answer is lost (${reason})`,
    cure: ({ topic }) =>
      topic ? "It is in the log once or not at all. Within 4 minutes it can be published again with this id; after that look first." : "Its function ran once or not at all: look before you ask again.",
    more: "protocol.md#errors-that-only-the-javascript-client-makes",
  },
  storage_failed: { what: ({ topic, reason }) => `The outbox could not keep the publish to ${topic}: ${reason}`, cure: "It was not published: try again, or publish without storage.", more: OUTBOX },
  refused: { what: () => "The connection was refused without a code of Headgate", cure: "Something else may have answered in the gateway's place: look at the answer in the browser's network panel.", more: TROUBLE },
};

/** Return in words why a name is invalid, from the grammar that it does not match (topic.js) or another reason. @param {string} reason */
const wordsOfGrammar = (reason) => (reason.startsWith("/") ? "not 1 to 8 words of A-Za-z0-9_- with dots between, 255 bytes at most" : reason);

/** What to do if no connection can be made, by the reason. @type {[why: RegExp, cure: string][]} */
const CURES_OF_WAYS = [
  [/^no token in time/, "The token function has not answered: give its request a time limit."],
  // The second is Firefox's word for a violation of such a policy.
  [/SecurityError|CONTENT_BLOCKED/, "Give a page over https the https:// address of the gateway, or add the gateway to connect-src of the page's Content-Security-Policy."],
  [/origin null/, "The gateway lets in no page without an origin: serve the file over http, or give the frame's sandbox allow-same-origin."],
  [/origin /, "Check that the gateway runs there, copy the HEADGATE_ALLOWED_ORIGINS line from its log, and see whether the browser's console names a Content-Security-Policy."],
  [/HTTP (2|redirect)/, "Another server answers: have the proxy or the development server lead /socket.io/ to the gateway, or the user sign in again."],
  [/^(websocket e|\w+E)rror/, "Check that the gateway runs there, that the proxy leads /socket.io/ to it, and whether the browser's console names a Content-Security-Policy."],
  [/^/, "Check that the gateway runs there and that the proxy leads /socket.io/ to it."],
];

/** What to do about a token, by the gateway's reason. @type {Record<string, string>} */
const CURES_OF_TOKENS = {
  no_token: "Give connect() the option token, whose function must return a token; or let everybody in with `headgate serve --dev`. Socket.IO's auth: {token} means nothing here.",
  not_accepted: "The application's authenticator has refused it: see what it expects.",
  bad_signature: "Sign the token with the HEADGATE_TOKEN_SECRET that the gateway has.",
  unknown_key: "Sign the token with a key that the gateway has.",
  algorithm_mismatch: "Sign the token with a key that the gateway has, by the algorithm of that key.",
  malformed: "Have the token function return the token alone, without `Bearer`, quotes or the JSON around it.",
  another_user: "Make a gate for that user with connect(), and close this one.",
  left: "Ask again when the client is connected again.",
  missing_claim: "Add the claim where the token is made.",
  invalid_claim: "Correct the claim where the token is made.",
  invalid_grant: "Correct the patterns in the token's grants.",
  wrong_namespace: "List the namespace in the token's claim namespaces.",
  expired: "Have the token function bring a new token each time. If it is new, set the clocks.",
  not_yet_valid: "Set the clocks of the two machines.",
  revoked: "An operator has revoked the user or the token.",
  no_authenticator: "Set HEADGATE_TOKEN_SECRET or an authenticator. A gateway with --dev lets pages in that bring no token.",
  authenticator_failed: "The gateway's log has the exception of the authenticator.",
};

/** What to do about values that JSON cannot represent, by their description. @type {[what: RegExp, cure: string][]} */
const CURES_OF_VALUES = [
  [/undefined$|^a hole/, "Leave the member out, or write null."],
  [/NaN|Infinity/, "Write null, or a text."],
  [/^-0/, "Write 0."],
  [/bigint/, "Write String(value)."],
  [/ Map$/, "Write Object.fromEntries(map)."],
  [/ Set$/, "Write [...set]."],
  [/Array$|ArrayBuffer|DataView|Buffer$/, "Write Array.from(bytes), or base64 text."],
  [/function|symbol/, "Leave it out."],
  [/surrogate/, "Write text.toWellFormed()."],
  [/date/, "Write a valid date, or null."],
  [/cycle/, "Write the id in place of the object."],
];

/** @param {string} reason */
function cureOfValue(reason) {
  return CURES_OF_VALUES.find(([what]) => what.test(reason))?.[1] ?? "Write a plain object, such as {...value}, or give its class a toJSON method.";
}

/**
 * Return the text of an error, with the cure and a link.
 * @param {string} code @param {Record<string, any>} parts @param {string} [message] the gateway's
 */
export function sentenceOf(code, parts, message) {
  const explained = EXPLAINED[code];
  if (!explained) return message ?? code;
  const { what, cure, more } = explained;
  const text = message ?? what?.(parts) ?? code;
  return `${text.replace(/\.$/, "")}. ${typeof cure === "string" ? cure : cure(parts)} (${code}: ${DOCS}${more})`;
}

/** Our options by the names that other clients give them. @type {Record<string, string>} */
const ELSEWHERE = { timeout: "requestTimeoutMs", reconnectionDelay: "reconnectDelayMinMs", reconnectionDelayMax: "reconnectDelayMaxMs", jwt: "token", accessToken: "token", getToken: "token" };

/**
 * Return a sentence for each option that a call does not know.
 * @param {string} of the call @param {string[]} known @param {Record<string, any>} given
 */
export function sentencesOfOptions(of, known, given) {
  const sentences = Object.keys(given).filter((name) => !known.includes(name)).map((name) => {
    const meant = known.includes(ELSEWHERE[name]) ? ELSEWHERE[name] : known.find((each) => isNear(each, name));
    return `headgate: ${of} has no option "${name}": ${meant ? `did you mean ${meant}?` : `it has ${known.filter((each) => each !== "share").join(", ")}`} (${DOCS}guide.md)`;
  });
  // Socket.IO passes a token in this way.
  if (known.includes("token") && given.auth?.token !== undefined && given.token === undefined) sentences.push(`headgate: ${of} takes no token from auth: {token}: did you mean the option token? (${DOCS}${SIGN_IN})`);
  return sentences;
}

/** Return whether two names differ only in case, in an ending, or in one added, missing or changed letter. @param {string} one @param {string} other */
function isNear(one, other) {
  const [a, b] = [one.toLowerCase(), other.toLowerCase()];
  if (Math.min(a.length, b.length) > 3 && (a.startsWith(b) || b.startsWith(a))) return true;
  let nth = 0;
  while (nth < a.length && a[nth] === b[nth]) nth++;
  const rests = [a.slice(nth), b.slice(nth)];
  return rests[0].slice(1) === rests[1].slice(1) || rests[0].slice(1) === rests[1] || rests[0] === rests[1].slice(1);
}

/** Socket.IO's events, and ours. @type {Record<string, string>} */
const EVENTS = { connect: "connection:up", reconnect: "connection:up", reconnect_attempt: "status:change", disconnect: "connection:down", connect_error: "connection:refused", reconnect_error: "connection:refused" };

/** Socket.IO's methods, and ours. @type {Record<string, string>} */
const METHODS = { emit: "publish(topic, data)", send: "publish(topic, data)", connect: "open()", disconnect: "close()" };

/** Lifecycle events. types/index.d.ts has the arguments of each. */
export const LIFECYCLE = [
  ...["connection:up", "connection:down", "connection:refused", "connection:unauthorized", "connection:moving", "delivery:gap", "delivery:backpressure"],
  ...["delivery:resumed", "delivery:error", "status:change", "state:change", "publish:queued", "publish:receipt", "publish:refused"],
];

/** Return a sentence if a topic has the name of another client's event, or a name with a colon is almost that of a lifecycle event. @param {string} name */
export function sentencesOfName(name) {
  if (Object.hasOwn(EVENTS, name)) return [`headgate: "${name}" is a topic here, for events that someone publishes: did you mean "${EVENTS[name]}"? (${DOCS}guide.md#show-the-state)`];
  const near = LIFECYCLE.find((each) => Math.abs(each.length - name.length) < 2 && isNear(each, name));
  return near && !LIFECYCLE.includes(name) ? [`headgate: no event of the gate is called "${name}": did you mean "${near}"? (${DOCS}guide.md#show-the-state)`] : [];
}

/** Make the methods of other clients name ours. @param {object} gate */
export function addHints(gate) {
  for (const [name, ours] of Object.entries(METHODS)) {
    const value = () => {
      throw TypeError(`headgate: a gate has no ${name}(): did you mean ${ours}? (${DOCS}guide.md)`);
    };
    Object.defineProperty(gate, name, { configurable: true, writable: true, value });
  }
}

/** The words for rules that read badly as written. @type {Record<string, string>} */
const WORDS_OF_RULES = {
  texts: "an array of texts",
  objects: "an array of objects",
  position: "a position {epoch, offset}",
  "._checkOptions": "a gate, as connect returns it",
  ".addEventListener": "an AbortSignal",
  ".publish": "an outbox, as createOutbox returns it",
  ".getSnapshot": "a store or an inbox",
  ".subscribe": "an inbox",
  ".on": "an object with on() and off()",
};

/** Return the rule of an option in words. @param {import("./options.js").Rule} rule */
export function wordsOfRule(rule) {
  if (typeof rule === "string") return WORDS_OF_RULES[rule] ?? rule.replaceAll(" ", " or ");
  if (rule instanceof RegExp) return `a text that matches ${rule}`;
  const [least, most, isWhole] = rule;
  return typeof least === "string" ? rule.join(" or ") : `a ${isWhole ? "whole " : ""}number from ${least} to ${most}`;
}
