import type { Inbox } from "headgate/inbox";
import { useInbox } from "headgate/react";
import { useRef } from "react";

export interface Notice {
  title: string;
  detail: string;
}

/** A bell with the unread count, and the list that it opens. The browser's popover closes it at Escape, and gives the focus back. */
export function Bell({ inbox }: { inbox: Inbox<Notice> }) {
  const { items, unread, hasMore, status, error } = useInbox(inbox);
  const heading = useRef<HTMLHeadingElement>(null);
  /** The button that was pressed goes away: the focus stays in the list. */
  const act = (action: (id: string) => Promise<void>, id: string) => {
    heading.current?.focus();
    // A refusal has put the item back, so the list already says so.
    action(id).catch(() => {});
  };

  return (
    <div className="bell">
      <button type="button" popoverTarget="notifications" aria-label={unread ? `Notifications, ${unread} unread` : "Notifications"}>
        <svg viewBox="0 0 24 24" aria-hidden="true">
          <path d="M12 3a6 6 0 0 0-6 6v4l-2 4h16l-2-4V9a6 6 0 0 0-6-6m-2 16a2 2 0 0 0 4 0" />
        </svg>
        {unread > 0 && <span className="count">{unread > 99 ? "99+" : unread}</span>}
      </button>
      <p role="status" className="spoken">
        {unread > 0 && `${unread} unread. ${items[0]?.read === false ? items[0].data.title : ""}`}
      </p>

      <section id="notifications" popover="auto" aria-labelledby="notifications-title">
        <header>
          <h2 id="notifications-title" ref={heading} tabIndex={-1}>
            Notifications
          </h2>
          {unread > 0 && (
            <button type="button" onClick={() => act(inbox.markAllRead, "")}>
              Mark all as read
            </button>
          )}
        </header>
        {status === "failed" && <p role="alert">{error?.message}</p>}
        {status === "behind" && <p>Catching up…</p>}
        {status === "current" && items.length === 0 && <p>Nothing here</p>}
        <ul>
          {items.map(({ id, data, time, read }) => (
            <li key={id} className={read ? "read" : ""}>
              <div>
                <strong>{data.title}</strong>
                <p>{data.detail}</p>
                <time dateTime={new Date(time).toISOString()}>{new Date(time).toLocaleString()}</time>
              </div>
              {!read && (
                <button type="button" aria-label={`Mark as read: ${data.title}`} onClick={() => act(inbox.markRead, id)}>
                  Read
                </button>
              )}
              <button type="button" aria-label={`Archive: ${data.title}`} onClick={() => act(inbox.archive, id)}>
                Archive
              </button>
            </li>
          ))}
        </ul>
        {hasMore && (
          <button type="button" onClick={() => inbox.loadMore().catch(() => {})}>
            Show older ones
          </button>
        )}
      </section>
    </div>
  );
}
