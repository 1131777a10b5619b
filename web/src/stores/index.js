/** `headgate/store`: stores over a gate, as any framework can read them. headgate/react, /vue and /svelte are thin over it. */
export { collectionStore } from "./collection-store.js";
export { eventsStore } from "./events-store.js";
export { presenceStore } from "./presence-store.js";
export { statusStore } from "./status-store.js";
