/**
 * Make a DOM element: `element("button", { className: "icon", text: "‹", ariaLabel: "…" }, child, …)`.
 *
 * Text goes in as text. This function sets no markup, style attribute or inline listener; the page's Content-Security-Policy
 * would block them anyway.
 *
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {{ text?: string, data?: Record<string, string>, aria?: Record<string, string>, [property: string]: any }} [properties]
 * @param {...Node} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function element(tag, { text, data = {}, aria = {}, ...properties } = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  Object.assign(made.dataset, data);
  for (const [name, value] of Object.entries(aria)) made.setAttribute(`aria-${name}`, value);
  if (text !== undefined) made.textContent = text;
  made.append(...children);
  return made;
}

/**
 * Return the element with an id. The page and its script belong together, so a missing element is a bug and throws.
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found;
}
