import type { Inbox } from "headgate/inbox";
import { useInbox } from "headgate/react";
import { useRef } from "react";

export type Notice = { title: string; detail: string };

/** A bell with the unread count, and the list that it opens. The browser's popover closes it at Escape, and gives the focus back. */
export function Bell({ inbox }: { inbox: Inbox<Notice> }) {
  const { items, unread, hasMore, status, error } = useInbox(inbox);
  const heading = useRef<HTMLHeadingElement>(null);
  /** The button that was pressed goes away: the focus stays in the list. A refusal has put the item back. */
  const act = (action: Promise<void>) => {
    heading.current?.focus();
    action.catch(() => {});
  };
  return (
    <>
      <button className="bell" popoverTarget="notifications" aria-label={unread ? `Notifications, ${unread} unread` : "Notifications"}>
        <svg width="24" viewBox="0 0 24 24" fill="none" stroke="currentColor" strokeWidth="2" aria-hidden="true"><path d="M12 3a6 6 0 0 0-6 6v4l-2 4h16l-2-4V9a6 6 0 0 0-6-6m-2 16a2 2 0 0 0 4 0" /></svg>
        <b>{unread || ""}</b>
      </button>
      <p role="status" className="spoken">{unread > 0 && `${unread} unread. ${items[0]?.read === false ? items[0].data.title : ""}`}</p>
      <section id="notifications" popover="auto" aria-labelledby="title">
        <h2 id="title" ref={heading} tabIndex={-1}>Notifications</h2>
        {unread > 0 && <button onClick={() => act(inbox.markAllRead())}>Mark all as read</button>}
        {error ? <p role="alert">{error.message}</p> : status === "current" && !items.length && <p>Nothing here</p>}
        <ul>
          {items.map(({ id, data, time, read }) => (
            <li key={id} className={read ? "read" : ""}>
              <span><strong>{data.title}</strong> {new Date(time).toLocaleTimeString()}<br />{data.detail}</span>
              {!read && <button aria-label={`Mark as read: ${data.title}`} onClick={() => act(inbox.markRead(id))}>Read</button>}
              <button aria-label={`Archive: ${data.title}`} onClick={() => act(inbox.archive(id))}>Archive</button>
            </li>
          ))}
        </ul>
        {hasMore && <button onClick={() => inbox.loadMore().catch(() => {})}>Show older ones</button>}
      </section>
    </>
  );
}
