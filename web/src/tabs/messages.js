/**
 * The types of messages between tabs, and their version. Tabs of another version form another group. No I/O.
 *
 * On the group's channel, to all tabs: `who` (from a tab that knows no leader), `lead` {leader}, `bye` {leader}, `join` {leader, tab, …}. On
 * the channel of one tab and one leader, from the tab: `request` {id, name, body}, `took` {count}, `leave` {full}, `ping`, `probe` {spreadMs}; from the leader: the others.
 * `behind` {full} means that there are no places for the tab's patterns. No message has the token of a CONNECT, but a `refresh` has its own.
 */
export const VERSION = 3;

export const WHO = "who";
export const LEAD = "lead";
export const BYE = "bye";
export const JOIN = "join";

export const REQUEST = "request";
export const TOOK = "took";
export const LEAVE = "leave";
export const PING = "ping";
export const PROBE = "probe";

export const WELCOMED = "welcomed";
export const LANE = "lane";
export const BEHIND = "behind";
export const REPLY = "reply";
export const LOST = "lost";
export const REFUSED = "refused";
export const PONG = "pong";
