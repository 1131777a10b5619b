/** The worker of test_client_frameworks.py, alone or shared: given an address, it connects there and passes events on. */
import { connect } from "headgate";

/** @param {any} port */
function serve(port) {
  port.onmessage = async ({ data: url }) => {
    const gate = connect(url);
    gate.on("numbers.*", (number) => port.postMessage(number));
    await gate.subscribed("numbers.*");
    port.postMessage(`${typeof window} ${gate.status}`);
  };
}

if ("onconnect" in globalThis) globalThis.onconnect = ({ ports: [port] }) => serve(port);
else serve(globalThis);
