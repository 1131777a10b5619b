/** `headgate/backbone`: models and collections that follow events. Needs Backbone; `headgate` itself does not. */
export { LiveCollection, LiveModel } from "./live-collection.js";
export { NotificationList } from "./notification-list.js";
