/** The npm package `headgate`: the browser client. LiveModel and LiveCollection are in `headgate/backbone`. */
export { connect } from "./connect.js";
export { Dispatcher } from "./dispatcher.js";
export { HeadgateError } from "./errors.js";
export { Gate } from "./gate.js";
export { checkPayload } from "./payload.js";
export { events } from "./stream.js";
export { checkPattern, checkTopic, matches, userWord } from "./topic.js";
