/**
 * Pending edits of one model: attributes in a save, and the values that the server has sent for them since. No I/O, no Backbone.
 *
 * While a save is under way, its attributes belong to the user. Values of events and answers for them are kept here. The end of the save decides which value
 * holds:
 * - failed: the server's last value, or the one before the edit;
 * - saved: the last event's value if our own change has come back as an event, because that event is later. Otherwise the answer's, or the value that was
 *   sent, because every event that came before is older.
 */

export class PendingEdits {
  #saves = 0;
  /** @type {Map<string, { before: any, sent: any, echoed: boolean, event?: { value: any }, answer?: { value: any } }>} */
  #edits = new Map();

  /**
   * A save begins.
   * @param {Record<string, any>} attributes that it sends
   * @param {Record<string, any>} present attributes before the edit
   * @returns {(ok: boolean) => Record<string, any>} to be called when it ends; returns the attributes to set
   */
  begin(attributes, present) {
    this.#saves++;
    for (const [name, sent] of Object.entries(attributes)) {
      const { before } = this.#edits.get(name) ?? { before: present[name] };
      this.#edits.set(name, { before, sent, echoed: false });
    }
    let ended = false;
    return (ok) => {
      if (ended) return {};
      ended = true;
      return this.#end(ok, attributes);
    };
  }

  /**
   * Return those of `attributes` that may be set now, and keep the rest.
   * @param {Record<string, any>} attributes
   * @param {"event" | "answer"} source
   * @returns {Record<string, any>}
   */
  sift(attributes, source) {
    if (!this.#edits.size) return attributes;
    /** @type {Record<string, any>} */
    const free = {};
    for (const [name, value] of Object.entries(attributes)) {
      const edit = this.#edits.get(name);
      if (edit) {
        edit[source] = { value };
        if (source === "event" && JSON.stringify(value) === JSON.stringify(edit.sent)) edit.echoed = true;
      } else free[name] = value;
    }
    return free;
  }

  /** @param {boolean} ok @param {Record<string, any>} attributes */
  #end(ok, attributes) {
    for (const [name, value] of ok ? Object.entries(attributes) : []) {
      const edit = this.#edits.get(name);
      // Another save under way restores this value if it fails.
      if (edit) edit.before = edit.answer ? edit.answer.value : value;
      if (edit && this.#saves > 1) delete edit.answer;
    }
    if (--this.#saves > 0) return {};
    /** @type {Record<string, any>} */
    const after = {};
    for (const [name, { before, echoed, event, answer, sent }] of this.#edits) {
      if (!ok) after[name] = event ? event.value : before;
      else after[name] = echoed && event ? event.value : answer ? answer.value : sent;
    }
    this.#edits.clear();
    return after;
  }
}
