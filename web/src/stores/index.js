/** `headgate/store`: stores over a gate that any framework can read. headgate/react, headgate/vue and headgate/svelte are thin layers over it. */
export { collectionStore } from "./collection-store.js";
export { eventsStore } from "./events-store.js";
export { presenceStore } from "./presence-store.js";
export { statusStore } from "./status-store.js";
