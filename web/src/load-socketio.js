/** Loads socket.io-client when it is needed: a chunk of its own in the page's build. (The script-tag build has another file here.) */
export async function loadSocketIo() {
  const { io } = await import("socket.io-client");
  return io;
}
