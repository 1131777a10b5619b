/** The npm package `headgate`: the browser client. LiveModel and LiveCollection are in `headgate/backbone`. */
export { connect } from "./connect.js";
export { Dispatcher } from "./dispatcher.js";
export { HeadgateError } from "./language/errors.js";
export { Gate } from "./gate.js";
export { checkPayload } from "./language/payload.js";
export { events } from "./events.js";
export { load } from "./load.js";
export { checkPattern, checkTopic, matches, userWord } from "./language/topic.js";
