/** The entry point `headgate/tabs`: one connection for all tabs. */
export { connect } from "./connect.js";
