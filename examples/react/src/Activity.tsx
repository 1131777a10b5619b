import { useEvents } from "./headgate";

/** The latest events. Any number of these share one subscription at the gateway. */
export function Activity({ name, close }: { name: string; close: () => void }) {
  const { events, missed, error } = useEvents("orders.#", { limit: 20 });
  return (
    <section id={name}>
      <h2>
        Activity <button onClick={close}>Close</button>
      </h2>
      {missed > 0 && <p>{missed} events are missing</p>}
      {error && <p>{error.message}</p>}
      <ol>
        {events.map(({ topic, offset, data }) => (
          <li key={offset}>
            {topic} {data.version}
          </li>
        ))}
      </ol>
    </section>
  );
}
