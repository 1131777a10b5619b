/** `headgate/backbone`: models and collections that follow events. Needs Backbone; `headgate` itself does not. */
export { LiveCollection } from "./live-collection.js";
export { LiveModel } from "./live-model.js";
export { NotificationList } from "./notification-list.js";
